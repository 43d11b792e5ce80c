use arenite::{Arena, HostSpace};

fn main() {
    let mut arena = Arena::new(HostSpace::new());
    let value = arena.alloc(7u32);
    arena.reset();
    println!("{value}");
}
