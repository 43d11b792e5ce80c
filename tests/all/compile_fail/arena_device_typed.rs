use arenite::{Arena, MemorySpace};

fn numbers(device: &dyn MemorySpace) {
    let arena = Arena::new(device);
    arena.alloc([0u32; 16]);
}

fn main() {
    let _ = numbers;
}
