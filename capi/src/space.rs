//! Spaces as C holds them: counted references, and spaces made of the caller's functions.
//!
//! Deliberately absent: reserving of addresses by a caller's functions; arenas over such spaces take exact blocks.

use crate::status::{CError, Failure, Status, guarded};
use arenite::space::cuda;
use arenite::{AllocError, AllocErrorKind, Block, HostSpace, Limited, MemorySpace, SpaceId};
use core::alloc::Layout;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::NonNull;
use std::sync::Arc;

/// A counted reference to a space; `arenite_space` of the header.
#[derive(Debug)]
pub struct Space(pub(crate) Arc<dyn MemorySpace>);

impl Space {
    pub(crate) fn boxed(space: Arc<dyn MemorySpace>) -> *mut Self {
        Box::into_raw(Box::new(Self(space)))
    }
}

/// Functions of the caller that hand out memory; `arenite_space_calls` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SpaceCalls {
    context: *mut c_void,
    host_accessible: c_int,
    allocate: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    deallocate: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize)>,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
}

type Allocate = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
type Deallocate = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize);

/// A space behind the caller's functions.
#[derive(Debug)]
struct OwnSpace {
    id: SpaceId,
    context: *mut c_void,
    host_accessible: bool,
    allocate: Allocate,
    deallocate: Deallocate,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY: the header asks for functions that may be called from any thread, and the context is theirs.
unsafe impl Send for OwnSpace {}
// SAFETY: as above.
unsafe impl Sync for OwnSpace {}

// SAFETY: the header asks `allocate` for exclusive memory of the size and alignment that stays until `deallocate`;
// the alignment is looked at. The rest never changes.
unsafe impl MemorySpace for OwnSpace {
    fn id(&self) -> SpaceId {
        self.id
    }

    fn host_accessible(&self) -> bool {
        self.host_accessible
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        let refused = |reason| AllocError::new(self.id, layout, AllocErrorKind::Refused { reason });
        if layout.size() == 0 {
            return Ok(Block::empty(layout));
        }
        // SAFETY: the caller gave the function and the context for just this call.
        let address = unsafe { (self.allocate)(self.context, layout.size(), layout.align()) };
        let address =
            NonNull::new(address.cast::<u8>()).ok_or_else(|| refused("the caller's allocate gave NULL"))?;
        if !address.addr().get().is_multiple_of(layout.align()) {
            // SAFETY: it came from `allocate` just now, with these numbers.
            unsafe {
                (self.deallocate)(self.context, address.as_ptr().cast(), layout.size(), layout.align());
            }
            return Err(refused("the caller's allocate gave an address that is not aligned as asked"));
        }
        Ok(Block::new(address, layout))
    }

    unsafe fn deallocate(&self, block: Block) {
        if block.size_bytes() > 0 {
            // SAFETY: the block came from `allocate` with these numbers and is given back once (terms of the trait).
            unsafe {
                (self.deallocate)(
                    self.context,
                    block.address().as_ptr().cast(),
                    block.size_bytes(),
                    block.align(),
                );
            };
        }
    }
}

impl Drop for OwnSpace {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller gave the function for this call, which happens once.
            unsafe { release(self.context) };
        }
    }
}

/// Writes a new space to where the caller wants it.
///
/// # Safety
/// `target` is null or valid for a write; `error` likewise.
unsafe fn give(
    target: *mut *mut Space,
    error: *mut CError,
    make: impl FnOnce() -> Result<Arc<dyn MemorySpace>, Failure>,
) -> Status {
    let work = || {
        if target.is_null() {
            return Err(Failure::invalid("space: the place for the new space is NULL"));
        }
        let space = Space::boxed(make()?);
        // SAFETY: not null, and valid for a write by the caller's promise.
        unsafe { target.write(space) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guarded(error, work) }
}

/// Ordinary memory of the host.
#[unsafe(no_mangle)]
pub extern "C" fn arenite_space_host() -> *mut Space {
    Space::boxed(Arc::new(HostSpace::new()))
}

/// Memory of a CUDA device.
///
/// # Safety
/// `space` and `error` are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_space_cuda(
    device: u16,
    space: *mut *mut Space,
    error: *mut CError,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { give(space, error, || cuda::open(SpaceId::cuda(device)).map_err(Failure::refused)) }
}

/// Page-locked host memory.
///
/// # Safety
/// `space` and `error` are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_space_pinned(space: *mut *mut Space, error: *mut CError) -> Status {
    // SAFETY: the caller's promise.
    unsafe { give(space, error, || cuda::open(SpaceId::PINNED).map_err(Failure::refused)) }
}

/// Memory of the caller's own.
///
/// # Safety
/// * `name` is null or ends in NUL; `calls` is null or valid for a read; `space` and `error` are null or valid for
///   a write.
/// * The functions behave as the header says, for as long as anything uses the space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_space_own(
    name: *const c_char,
    index: u16,
    calls: *const SpaceCalls,
    space: *mut *mut Space,
    error: *mut CError,
) -> Status {
    let make = || {
        if name.is_null() {
            return Err(Failure::invalid("name is NULL"));
        }
        // SAFETY: not null, and NUL-ended by the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(Failure::invalid)?;
        let id = SpaceId::new(name, index).map_err(Failure::invalid)?;
        // SAFETY: null or valid for a read by the caller's promise.
        let calls = unsafe { calls.as_ref() }.ok_or_else(|| Failure::invalid("calls is NULL"))?;
        let (Some(allocate), Some(deallocate)) = (calls.allocate, calls.deallocate) else {
            return Err(Failure::invalid("calls: allocate and deallocate are needed"));
        };
        let SpaceCalls { context, host_accessible, release, .. } = *calls;
        let host_accessible = host_accessible != 0;
        Ok(Arc::new(OwnSpace { id, context, host_accessible, allocate, deallocate, release }) as _)
    };
    // SAFETY: the caller's promise.
    unsafe { give(space, error, make) }
}

/// The same memory with a limit.
///
/// # Safety
/// `inner` is null or a space of this library; `space` and `error` are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_space_limited(
    inner: *const Space,
    limit_bytes: usize,
    space: *mut *mut Space,
    error: *mut CError,
) -> Status {
    let make = || {
        // SAFETY: null or a space (C1).
        let inner = unsafe { inner.as_ref() }.ok_or_else(|| Failure::invalid("inner is NULL"))?;
        Ok(Arc::new(Limited::new(Arc::clone(&inner.0), limit_bytes)) as _)
    };
    // SAFETY: the caller's promise.
    unsafe { give(space, error, make) }
}

/// One more reference.
///
/// # Safety
/// `space` is null or a space of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_space_retain(space: *const Space) -> *mut Space {
    // SAFETY: null or a space (C1).
    match unsafe { space.as_ref() } {
        Some(space) => Space::boxed(Arc::clone(&space.0)),
        None => core::ptr::null_mut(),
    }
}

/// One reference fewer.
///
/// # Safety
/// `space` is null or a space of this library, and is not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_space_release(space: *mut Space) {
    if !space.is_null() {
        // SAFETY: it came from `Box::into_raw` and goes back once (C1).
        drop(unsafe { Box::from_raw(space) });
    }
}

/// Whether the CPU reads and writes the memory; 0 for NULL.
///
/// # Safety
/// `space` is null or a space of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_space_host_accessible(space: *const Space) -> c_int {
    // SAFETY: null or a space (C1).
    unsafe { space.as_ref() }.map_or(0, |space| c_int::from(space.0.host_accessible()))
}
