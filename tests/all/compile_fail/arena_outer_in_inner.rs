use arenite::{Arena, HostSpace};

fn main() {
    let mut arena = Arena::new(HostSpace::new());
    arena.scoped(|mut outer| {
        let mut kept = outer.alloc(1u32);
        outer.scoped(|inner| kept = inner.alloc(2u32));
        println!("{kept}");
    });
}
