//! Finding misuse: a guarded space says which block was written outside its bounds, and what was never freed.
#![expect(clippy::print_stdout, reason = "an example prints")]

use arenite::{Guarded, HostSpace, MemorySpace};
use core::alloc::Layout;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let space = Guarded::new(HostSpace::new());
    let logits = space.tagged("logits").allocate(Layout::from_size_align(100, 64)?)?;
    let _lost = space.tagged("scratch").allocate(Layout::from_size_align(5000, 64)?)?;

    // An off-by-one of a kernel, say. The guard keeps 64 bytes on either side for this.
    let end = logits.address().as_ptr().wrapping_add(logits.size_bytes());
    // SAFETY: the guard's own memory after the block.
    unsafe { end.write(0) };
    // SAFETY: allocated above, not used any more.
    unsafe { space.deallocate(logits) };

    for fault in space.take_faults() {
        println!("{fault}");
    }
    for leak in space.leaks() {
        println!("never given back: {} of {} in {} block", leak.bytes, leak.tag, leak.blocks);
    }
    Ok(())
}
