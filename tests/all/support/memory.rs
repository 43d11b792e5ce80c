//! Reading and writing blocks in tests.

use arenite::{Block, MemorySpace};

/// Writes `byte` over a block, where the CPU reaches it.
pub fn fill(space: &dyn MemorySpace, block: Block, byte: u8) {
    if space.host_accessible() {
        // SAFETY: tests pass live blocks of that space.
        unsafe { block.address().write_bytes(byte, block.size_bytes()) };
    }
}

/// Whether every byte of a block is `byte`; true where the CPU does not reach it.
pub fn holds(space: &dyn MemorySpace, block: Block, byte: u8) -> bool {
    if !space.host_accessible() {
        return true;
    }
    // SAFETY: tests pass live blocks of that space that were zeroed or filled, and write nothing meanwhile.
    let bytes = unsafe { core::slice::from_raw_parts(block.address().as_ptr(), block.size_bytes()) };
    bytes.iter().all(|&held| held == byte)
}
