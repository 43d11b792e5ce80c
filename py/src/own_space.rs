//! Memory that a Python object hands out: `alloc(bytes, align)` gives an address, `free(address, bytes)` takes it back.
//!
//! Such an object stands for the host's memory, or, as `Cuda(0, pool=…)`, for that of a device; copies and work on it
//! are then queued as always. Arenas ask for whole chunks: as a rule once per method and space, when it is loaded.
//!
//! Deliberately absent: trust in addresses. What `alloc` gives is used as it is: an object that lies about its memory
//! breaks the process, as it would with `ctypes`.

use arenite::space::{Queue, QueueError};
use arenite::{AllocError, AllocErrorKind, Block, MemorySpace, SpaceId};
use core::alloc::Layout;
use core::cell::Cell;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;

/// A memory space behind a Python object.
#[derive(Debug)]
pub(crate) struct OwnSpace {
    id: SpaceId,
    provider: Py<PyAny>,
    /// What queues work on the memory, where it is a device's.
    device: Option<Arc<dyn MemorySpace>>,
}

impl OwnSpace {
    /// The space `id` with memory from `provider`; `device` queues its work where the CPU does not reach it.
    ///
    /// # Errors
    /// `TypeError` where the provider has no `alloc` and `free` to call.
    pub(crate) fn new(
        id: SpaceId,
        provider: &Bound<'_, PyAny>,
        device: Option<Arc<dyn MemorySpace>>,
    ) -> PyResult<Self> {
        if !is_provider(provider) {
            let got = crate::input::type_name(provider);
            let text = "alloc(bytes, align) -> address and free(address, bytes)";
            return Err(PyTypeError::new_err(format!(
                "memory of {id} comes from an object with {text}, got {got}"
            )));
        }
        Ok(Self { id, provider: provider.clone().unbind(), device })
    }

    fn refused(&self, layout: Layout, reason: &'static str) -> AllocError {
        AllocError::new(self.id, layout, AllocErrorKind::Refused { reason })
    }

    fn call(&self, layout: Layout) -> Result<usize, AllocError> {
        let called = Python::try_attach(|py| {
            let address = self.provider.call_method1(py, "alloc", (layout.size(), layout.align()));
            let address = address.and_then(|address| address.extract::<usize>(py));
            let (address, error) =
                address.map_or_else(|error| (None, Some(error)), |address| (Some(address), None));
            RAISED.set(error);
            address.ok_or_else(|| self.refused(layout, "its alloc(bytes, align) raised, or gave no address"))
        });
        called.ok_or_else(|| self.refused(layout, "the interpreter is gone"))?
    }

    fn free(&self, address: usize, size_bytes: usize) {
        // Without an interpreter the process is about to end, and the memory with it.
        let _ = Python::try_attach(|py| {
            if let Err(error) = self.provider.call_method1(py, "free", (address, size_bytes)) {
                error.write_unraisable(py, Some(self.provider.bind(py)));
            }
        });
    }
}

thread_local! {
    /// What the last `alloc` on this thread raised: errors of spaces carry no text of their own.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Makes what `alloc` raised on this thread the cause of the error that came of it.
pub(crate) fn explain(py: Python<'_>, error: PyErr) -> PyErr {
    if let Some(raised) = RAISED.take() {
        error.set_cause(py, Some(raised));
    }
    error
}

/// Whether an object hands out memory.
pub(crate) fn is_provider(object: &Bound<'_, PyAny>) -> bool {
    let callable = |name: &str| {
        object.getattr_opt(name).is_ok_and(|found| found.is_some_and(|found| found.is_callable()))
    };
    callable("alloc") && callable("free")
}

// SAFETY: each block is what the provider gave for it, aligned as asked, which is looked at, and as large and valid
// as the provider promises by its protocol (the module's head says who vouches); `id`, `host_accessible` and the rest
// never change.
unsafe impl MemorySpace for OwnSpace {
    fn id(&self) -> SpaceId {
        self.id
    }

    fn host_accessible(&self) -> bool {
        self.device.is_none()
    }

    fn open_queue(&self) -> Result<Option<Box<dyn Queue>>, QueueError> {
        self.device.as_deref().map_or(Ok(None), MemorySpace::open_queue)
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        if layout.size() == 0 {
            return Ok(Block::empty(layout));
        }
        let address = self.call(layout)?;
        let Some(found) = NonZeroUsize::new(address).filter(|_| address.is_multiple_of(layout.align()))
        else {
            if address != 0 {
                self.free(address, layout.size());
            }
            return Err(
                self.refused(layout, "its alloc(bytes, align) gave an address that is 0 or not aligned")
            );
        };
        if self.device.is_some() {
            return Block::device(address as u64, layout).ok_or_else(|| {
                self.refused(layout, "its alloc(bytes, align) gave an address that is no address")
            });
        }
        Ok(Block::new(NonNull::with_exposed_provenance(found), layout))
    }

    unsafe fn deallocate(&self, block: Block) {
        if block.size_bytes() > 0 {
            self.free(block.address().addr().get(), block.size_bytes());
        }
    }
}
