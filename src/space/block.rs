//! One allocation: where it is, how large, how aligned.
//!
//! Deliberately absent: ownership. A block is a value that its space gave and that only its space, or the
//! arena that carved it, takes back.

use crate::align::checked_range;
use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ops::Range;
use core::ptr::NonNull;

/// One allocation from a space, or a part of one: address, size, alignment.
///
/// In a host-accessible space the address is an ordinary pointer with the provenance of the block. In a
/// device space it carries none, so that reading it by mistake is caught by Miri and faults on a CPU.
#[doc(alias = "allocation")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is an address and a size. Reaching the bytes takes `unsafe`, which argues for itself.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block cannot be changed.
unsafe impl Sync for Block {}

impl Block {
    /// A block at this pointer.
    #[inline]
    pub const fn new(address: NonNull<u8>, layout: Layout) -> Self {
        Self { address, layout }
    }

    /// A block at an address that the CPU cannot reach; `None` for address 0 or one over `usize::MAX`.
    ///
    /// # Examples
    /// ```
    /// use arenite::Block;
    /// use core::alloc::Layout;
    /// let block = Block::device(0x7f00_0000_0000, Layout::from_size_align(768, 256)?).unwrap();
    /// assert_eq!(block.address_bits(), 0x7f00_0000_0000);
    /// assert_eq!((block.size_bytes(), block.align()), (768, 256));
    /// # Ok::<(), core::alloc::LayoutError>(())
    /// ```
    pub fn device(address: u64, layout: Layout) -> Option<Self> {
        let address = NonZeroUsize::new(usize::try_from(address).ok()?)?;
        Some(Self { address: NonNull::without_provenance(address), layout })
    }

    /// A block of no bytes for `layout`: an aligned address that is never read. What a space gives for size 0.
    #[inline]
    pub fn empty(layout: Layout) -> Self {
        Self { address: dangling(layout.align()), layout }
    }

    /// Where it starts. A pointer to read and write through only in a host-accessible space.
    #[inline]
    pub const fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Where it starts, as a number: what a device driver takes.
    #[inline]
    pub fn address_bits(&self) -> u64 {
        self.address.addr().get() as u64
    }

    /// Its size in bytes.
    #[inline]
    pub const fn size_bytes(&self) -> usize {
        self.layout.size()
    }

    /// The alignment it was asked with, in bytes.
    #[inline]
    pub const fn align(&self) -> usize {
        self.layout.align()
    }

    /// Size and alignment.
    #[inline]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// The bytes from `range.start` to `range.end` of it, at alignment 1; `None` where they do not lie within it.
    pub fn part(&self, range: Range<usize>) -> Option<Self> {
        let range = checked_range(range.start, range.end.checked_sub(range.start)?, self.size_bytes())?;
        let address = NonNull::new(self.address.as_ptr().wrapping_add(range.start))?;
        Some(Self { address, layout: Layout::from_size_align(range.len(), 1).ok()? })
    }
}

impl core::fmt::Debug for Block {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Block({:#x}, {} bytes at {})", self.address_bits(), self.size_bytes(), self.align())
    }
}

/// An address for a block of no bytes: not null, aligned, never read.
pub(crate) fn dangling(align: usize) -> NonNull<u8> {
    NonNull::without_provenance(NonZeroUsize::new(align).unwrap_or(NonZeroUsize::MIN))
}
