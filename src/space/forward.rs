//! References, boxes and counted references to a space are that space.

use super::{AllocError, Block, HostAccessible, MemorySpace, Poison, Queue, QueueError, Reserve, SpaceId};
use core::alloc::Layout;
use std::sync::Arc;

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        // SAFETY: every call goes to the space pointed to, which keeps the terms.
        unsafe impl<S: MemorySpace + ?Sized> MemorySpace for $pointer {
            fn id(&self) -> SpaceId {
                (**self).id()
            }
            fn host_accessible(&self) -> bool {
                (**self).host_accessible()
            }
            fn open_queue(&self) -> Result<Option<Box<dyn Queue>>, QueueError> {
                (**self).open_queue()
            }
            fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
                (**self).allocate(layout)
            }
            unsafe fn deallocate(&self, block: Block) {
                // SAFETY: the caller keeps the terms of this very call.
                unsafe { (**self).deallocate(block) }
            }
            fn base_align(&self) -> usize {
                (**self).base_align()
            }
            fn gives_zeroed(&self) -> bool {
                (**self).gives_zeroed()
            }
            fn as_reserve(&self) -> Option<&dyn Reserve> {
                (**self).as_reserve()
            }
            #[inline(always)]
            fn as_poison(&self) -> Option<&dyn Poison> {
                (**self).as_poison()
            }
        }

        // SAFETY: the space pointed to is host-accessible.
        unsafe impl<S: HostAccessible + ?Sized> HostAccessible for $pointer {}
    )*};
}

forward!(&S, Box<S>, Arc<S>);
