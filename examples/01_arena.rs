//! An arena gives blocks out in order and takes them back together.
#![expect(clippy::print_stdout, reason = "an example prints")]

use arenite::{Arena, HostSpace};
use core::alloc::Layout;

fn main() -> Result<(), arenite::AllocError> {
    // An arena takes memory from a space when it first needs some. Host memory is a space.
    let mut arena = Arena::new(HostSpace::new());

    // Typed allocation moves a value in and lends it for as long as the arena is borrowed.
    let weights = arena.alloc_slice_with(1024, |index| index as f32 * 0.5);
    let name = arena.alloc_str("conv1.weight");
    weights[0] = 1.0;
    println!("{name}: {} values, the last {}", weights.len(), weights[1023]);

    // Untyped allocation gives a block: an address, a size, an alignment. It works in any space, also in
    // those whose memory the CPU cannot read.
    let block = arena.allocate(Layout::from_size_align(768, 256).expect("256 is a power of two"))?;
    println!("a block of {} bytes, aligned to {}", block.size_bytes(), block.align());

    // The figures are exact, and in bytes.
    let stats = arena.stats();
    println!("live {} B of {} B held, in {} piece", stats.live_bytes, stats.capacity_bytes, stats.chunks);

    // A reset takes everything back in one step and keeps the memory for the next round. The borrow
    // checker has seen to it that `weights` and `name` are no longer used.
    arena.reset();
    assert_eq!(arena.stats().live_bytes, 0);
    assert_eq!(arena.stats().capacity_bytes, stats.capacity_bytes);

    // Trimming gives the memory back to the system.
    arena.trim();
    assert_eq!(arena.stats().capacity_bytes, 0);
    Ok(())
}
