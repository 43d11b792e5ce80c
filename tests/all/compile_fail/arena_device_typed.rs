use arenite::{Arena, MemorySpace};

fn numbers<S: MemorySpace>(arena: &Arena<S>) {
    arena.alloc([0u32; 16]);
}

fn main() {
    let _ = numbers::<arenite::HostSpace>;
}
