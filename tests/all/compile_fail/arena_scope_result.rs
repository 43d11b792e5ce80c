use arenite::{Arena, HostSpace};

fn main() {
    let mut arena = Arena::new(HostSpace::new());
    let escaped = arena.scoped(|scope| scope.alloc(7u32));
    println!("{escaped}");
}
