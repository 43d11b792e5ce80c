//! A space made of two C functions.

use arenite::{AllocError, AllocErrorKind, Block, MemorySpace, SpaceId};
use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;

type Allocate = unsafe extern "C" fn(context: *mut c_void, size_bytes: usize, align: usize) -> *mut c_void;
type Deallocate =
    unsafe extern "C" fn(context: *mut c_void, address: *mut c_void, size_bytes: usize, align: usize);

/// `arenite_space_calls`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SpaceCalls {
    allocate: Option<Allocate>,
    deallocate: Option<Deallocate>,
}

/// A space of the C program's.
#[derive(Debug)]
pub(crate) struct Own {
    id: SpaceId,
    allocate: Allocate,
    deallocate: Deallocate,
    context: *mut c_void,
    host_accessible: bool,
    base_align: usize,
}

// SAFETY: the header says that both functions are called from any thread, with this context.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

impl Own {
    pub(crate) fn new(
        name: &str,
        index: u16,
        calls: SpaceCalls,
        context: *mut c_void,
        host_accessible: bool,
        base_align: usize,
    ) -> Option<Self> {
        let id = SpaceId::new(name, index).ok()?;
        let (allocate, deallocate) = (calls.allocate?, calls.deallocate?);
        base_align.is_power_of_two().then_some(Self {
            id,
            allocate,
            deallocate,
            context,
            host_accessible,
            base_align,
        })
    }
}

// SAFETY: the header asks the C functions for what a space promises.
unsafe impl MemorySpace for Own {
    fn id(&self) -> SpaceId {
        self.id
    }

    fn host_accessible(&self) -> bool {
        self.host_accessible
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        let refused = |reason| AllocError::new(self.id, layout, AllocErrorKind::Refused { reason });
        let wide = layout.align_to(self.base_align).map_err(|_| refused("no such alignment"))?;
        // A block of no bytes is one of the alignment: C's allocators do not agree on none.
        let size_bytes = wide.size().max(wide.align());
        // SAFETY: the header's terms.
        let address = unsafe { (self.allocate)(self.context, size_bytes, wide.align()) };
        let address = NonNull::new(address).ok_or(refused("the C function gave NULL"))?;
        Ok(Block::new(address.cast(), layout))
    }

    unsafe fn deallocate(&self, block: Block) {
        let align = block.align().max(self.base_align);
        let size_bytes = block.size_bytes().max(align);
        // SAFETY: what `allocate` gave, with the same numbers, once, says the caller.
        unsafe { (self.deallocate)(self.context, block.address().as_ptr().cast(), size_bytes, align) };
    }

    fn base_align(&self) -> usize {
        self.base_align
    }
}
