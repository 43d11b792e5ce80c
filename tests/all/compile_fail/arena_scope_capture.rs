use arenite::{Arena, HostSpace};

fn main() {
    let mut arena = Arena::new(HostSpace::new());
    let mut escaped = None;
    arena.scoped(|scope| escaped = Some(scope.alloc(7u32)));
    println!("{escaped:?}");
}
