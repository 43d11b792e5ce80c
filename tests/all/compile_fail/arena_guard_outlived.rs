use arenite::{Arena, HostSpace};

fn main() {
    let mut arena = Arena::new(HostSpace::new());
    let mut guard = arena.scope_guard();
    let value = guard.scope().alloc(7u32);
    drop(guard);
    println!("{value}");
}
