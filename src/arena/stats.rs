#![forbid(unsafe_code)]
//! What an arena holds and has given out.

/// What an [`Arena`](super::Arena) holds and has given out, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaStats {
    /// Given out now, padding included.
    pub live_bytes: usize,
    /// The most ever given out at a time.
    pub peak_bytes: usize,
    /// Memory held: live, and free for the next blocks.
    pub capacity_bytes: usize,
    /// Addresses held: memory, and room to grow in place.
    pub reserved_bytes: usize,
    /// Lost to alignment by [`allocate`](super::Arena::allocate) since the last reset.
    pub padding_bytes: usize,
    /// How many blocks [`allocate`](super::Arena::allocate) gave since the last reset. The typed calls
    /// (`alloc` and its kin) are not counted, so that they cost nothing more.
    pub blocks: u64,
    /// How many pieces the memory is in: one where address space was reserved.
    pub chunks: usize,
}
