//! `Pool`: blocks that come and go one by one, as other libraries' allocators want them.
//!
//! ```text
//!   Heap ─┬─ stream 0      pool ─► blocks        a block goes back to the stream that it was taken for, and is
//!         └─ stream 7      pool ─► blocks        used again in the order of that stream
//! ```
//!
//! Deliberately absent: passing memory from one stream to another. That takes events, and whoever frees here has
//! recorded none.

use crate::arenas::space_of;
use crate::error::{self, Class, Facts};
use crate::spaces;
use arenite::pool::{Pool, PoolBlock};
use arenite::{AllocError, HostSpace, MemorySpace, SpaceId};
use core::alloc::Layout;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::HashMap;
use std::sync::Arc;

type AnyPool = Pool<Arc<dyn MemorySpace>>;

/// One pool a stream over a space, and the blocks that are out, by address.
#[derive(Debug)]
pub(crate) struct Heap {
    space: Arc<dyn MemorySpace>,
    limit_bytes: Option<usize>,
    pools: Mutex<HashMap<usize, Arc<AnyPool>>>,
    live: Mutex<HashMap<usize, PoolBlock<Arc<AnyPool>>>>,
}

impl Heap {
    pub(crate) fn new(space: Arc<dyn MemorySpace>, limit_bytes: Option<usize>) -> Self {
        Self { space, limit_bytes, pools: Mutex::default(), live: Mutex::default() }
    }

    /// The address of a block for work on a stream.
    pub(crate) fn take(&self, layout: Layout, stream: usize) -> Result<usize, AllocError> {
        // An address stands for one block, so that one of no bytes has a byte of its own.
        let layout = Layout::from_size_align(layout.size().max(1), layout.align()).unwrap_or(layout);
        let pool = {
            let mut pools = self.pools.lock();
            Arc::clone(pools.entry(stream).or_insert_with(|| Arc::new(self.pool())))
        };
        let block = pool.allocate_owned(layout)?;
        let address = block.block().address().addr().get();
        self.live.lock().insert(address, block);
        Ok(address)
    }

    fn pool(&self) -> AnyPool {
        let pool = Pool::new(Arc::clone(&self.space));
        match self.limit_bytes {
            Some(limit_bytes) => pool.with_limit(limit_bytes),
            None => pool,
        }
    }

    /// Takes a block back; false where none is out at this address.
    pub(crate) fn give_back(&self, address: usize) -> bool {
        let block = self.live.lock().remove(&address);
        block.is_some()
    }

    /// The bytes of the block at an address.
    pub(crate) fn size_bytes(&self, address: usize) -> Option<usize> {
        self.live.lock().get(&address).map(|block| block.block().size_bytes())
    }

    /// Whether the CPU reaches the blocks.
    pub(crate) fn is_host(&self) -> bool {
        self.space.host_accessible()
    }

    /// Bytes of blocks that are out.
    pub(crate) fn live_bytes(&self) -> usize {
        self.pools().iter().map(|pool| pool.stats().live_bytes).sum()
    }

    fn pools(&self) -> Vec<Arc<AnyPool>> {
        self.pools.lock().values().cloned().collect()
    }
}

/// Blocks of a space, taken and given back one by one, from any thread: memory for NumPy, CuPy, or code of your own.
///
/// Args:
///     space: "host", Host(), Pinned(), Cuda(0), or a name.
///     limit: the most bytes to take for one stream; that of the space unless given.
#[pyclass(frozen, weakref, name = "Pool", module = "arenite")]
pub(crate) struct PyPool {
    pub(crate) heap: Arc<Heap>,
}

#[pymethods]
impl PyPool {
    #[new]
    #[pyo3(signature = (space=None, *, limit=None))]
    fn new(
        py: Python<'_>,
        space: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = crate::arenas::limit)] limit: Option<usize>,
    ) -> PyResult<Self> {
        let (id, known) = space.map_or(Ok((SpaceId::HOST, None)), space_of)?;
        let absent = |reason: &str| crate::arenas::missing(py, id, reason);
        if let Some(reason) = spaces::absence(id) {
            return Err(absent(&reason));
        }
        let space: Arc<dyn MemorySpace> = if id == SpaceId::HOST {
            Arc::new(HostSpace::new())
        } else {
            arenite::space::cuda::open(id).map_err(|reason| absent(&reason))?
        };
        Ok(Self { heap: Arc::new(Heap::new(space, limit.or(known))) })
    }

    /// The address of `bytes` bytes at `align`, for work on a stream of the device (0, the default one, unless given).
    ///
    /// Raises:
    ///     ArenaMemoryError: where the space or the limit is in the way.
    #[pyo3(signature = (bytes, align=256, stream=0))]
    fn alloc(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = crate::arenas::size)] bytes: usize,
        #[pyo3(from_py_with = crate::arenas::size)] align: usize,
        stream: usize,
    ) -> PyResult<usize> {
        let layout = Layout::from_size_align(bytes, align).map_err(|_| {
            PyValueError::new_err(format!(
                "align is a power of two and bytes fit in memory, got {align}, {bytes}"
            ))
        })?;
        py.detach(|| self.heap.take(layout, stream)).map_err(|failure| {
            let details = vec![("space", failure.space().to_string()), ("needed_bytes", bytes.to_string())];
            let facts = Facts { code: crate::arenas::MEMORY_ALLOCATION_FAILED, method: None, details };
            error::new(py, Class::ArenaMemoryError, &failure.to_string(), facts)
        })
    }

    /// Takes back what `alloc` gave. `bytes` is for the sake of callers that pass it.
    ///
    /// Raises:
    ///     ValueError: where nothing is out at this address, so also the second time.
    #[pyo3(signature = (address, bytes=None))]
    fn free(&self, address: usize, bytes: Option<usize>) -> PyResult<()> {
        let _ = bytes;
        if self.heap.give_back(address) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "no block of this pool is out at {address:#x}; it is given back once"
        )))
    }

    /// Gives unused memory back to the space; says how many bytes.
    fn trim(&self, py: Python<'_>) -> usize {
        py.detach(|| self.heap.pools().iter().map(|pool| pool.trim()).sum())
    }

    /// What is out and held: {"live_bytes", "peak_bytes", "capacity_bytes", "blocks"}; the peaks of streams are added.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats: Vec<_> = self.heap.pools().iter().map(|pool| pool.stats()).collect();
        let dict = PyDict::new(py);
        dict.set_item("live_bytes", stats.iter().map(|stats| stats.live_bytes).sum::<usize>())?;
        dict.set_item("peak_bytes", stats.iter().map(|stats| stats.peak_bytes).sum::<usize>())?;
        dict.set_item("capacity_bytes", stats.iter().map(|stats| stats.capacity_bytes).sum::<usize>())?;
        dict.set_item("blocks", stats.iter().map(|stats| stats.blocks).sum::<usize>())?;
        Ok(dict)
    }

    /// The space, as plans spell it.
    #[getter]
    fn space(&self) -> String {
        self.heap.space.id().to_string()
    }

    fn __repr__(&self) -> String {
        format!("Pool({})", self.space())
    }
}
