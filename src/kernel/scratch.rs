//! Scratch: host memory for one instruction, given back when it ends.
//!
//! Deliberately absent: freeing one block. The executor resets the whole after each instruction.

use super::KernelError;
use crate::tensor::Element;
use core::alloc::Layout;
use core::ptr::NonNull;

/// Where a kernel's temporary bytes come from. The executor backs it with an arena of the host space.
///
/// # Safety
/// [`ScratchSource::allocate`] gives blocks that are valid for reads and writes, as large and aligned as
/// asked, not handed out twice, and not freed or moved until the source is reset or dropped.
pub unsafe trait ScratchSource {
    /// A block for `layout`, uninitialised.
    ///
    /// # Errors
    /// [`KernelError::Scratch`] where the source is exhausted.
    fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, KernelError>;
}

/// A borrowed [`ScratchSource`] with typed slices.
#[derive(Clone, Copy)]
pub struct Scratch<'a>(&'a dyn ScratchSource);

impl core::fmt::Debug for Scratch<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Scratch")
    }
}

impl<'a> Scratch<'a> {
    /// Scratch from this source.
    pub fn new(source: &'a dyn ScratchSource) -> Self {
        Self(source)
    }

    /// `count` zeroed elements, aligned to 64 bytes, until the instruction ends.
    ///
    /// # Errors
    /// [`KernelError::Scratch`] where the arena cannot give them.
    #[allow(clippy::mut_from_ref, reason = "each call gives a block that was never given before")]
    pub fn zeroed<T: Element>(&self, count: usize) -> Result<&'a mut [T], KernelError> {
        if count == 0 {
            return Ok(&mut []);
        }
        let asked_bytes = count.saturating_mul(size_of::<T>());
        let too_large = |_| KernelError::Scratch { asked_bytes, reason: "more than can be addressed".into() };
        let layout = Layout::array::<T>(count).and_then(|layout| layout.align_to(64)).map_err(too_large)?;
        let block = self.0.allocate(layout)?;
        // SAFETY: the source promises `layout.size()` bytes valid for writes.
        unsafe { block.write_bytes(0, layout.size()) };
        // SAFETY:
        // * the block is `count` elements long, aligned for `T`, and just zeroed; `T: Pod` makes zero valid;
        // * the source hands no byte out twice while `'a` lasts, so the slice is unique.
        Ok(unsafe { core::slice::from_raw_parts_mut(block.cast::<T>().as_ptr(), count) })
    }
}
