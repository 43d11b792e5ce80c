//! Delegates: back ends that run the parts of a program that were lowered to them at export.
//!
//! ```text
//!   Delegate::load(DelegateLoad)  ──►  LoadedDelegate ── execute(DelegateCall) ── once per DelegateCall instruction
//!     id, payload, named data            constants, state, scratch
//! ```
//!
//! A delegate may hold native code. It runs only when a method is loaded, never while a program is inspected,
//! and [`NativeCode`] says what may run. Deliberately absent: planned memory. The executor binds it and says,
//! per call, which tensors are the inputs and outputs.

#[cfg(target_os = "linux")]
mod aoti;
mod call;
mod error;
mod registry;

#[cfg(target_os = "linux")]
pub use aoti::AotiCpuBackend;
#[cfg(all(target_os = "linux", feature = "cuda"))]
pub use aoti::CudaBackend;
pub use call::DelegateCall;
pub use error::DelegateError;
pub use registry::{DelegateRegistry, NativeCode};

use crate::arena::ArenaSet;
use crate::space::{Queue, SpaceId};
use crate::tensor::DType;
use core::any::Any;
use std::thread::ScopedJoinHandle;

/// What a delegate made of a payload ahead of its load, for itself.
pub type Prepared = Box<dyn Any + Send>;

/// Work on a payload that [`Delegate::prepare`] wants done ahead.
pub type Preparation<'a> = Box<dyn FnOnce() -> Prepared + Send + 'a>;

/// A back end, under the name that programs call it by.
///
/// # Examples
/// ```
/// use arenite::delegate::{Delegate, DelegateCall, DelegateError, DelegateLoad, DelegateRegistry, LoadedDelegate};
///
/// struct Nothing;
/// struct LoadedNothing;
/// impl Delegate for Nothing {
///     fn id(&self) -> &'static str {
///         "Nothing"
///     }
///     fn load(&self, _: &mut DelegateLoad<'_>) -> Result<Box<dyn LoadedDelegate>, DelegateError> {
///         Ok(Box::new(LoadedNothing))
///     }
/// }
/// impl LoadedDelegate for LoadedNothing {
///     fn execute(&mut self, _: &mut DelegateCall<'_>) -> Result<(), DelegateError> {
///         Ok(())
///     }
/// }
/// let mut registry = DelegateRegistry::new();
/// registry.add(Nothing);
/// assert!(registry.get("Nothing").is_some());
/// ```
pub trait Delegate: Send + Sync {
    /// The name in program files, for example `CudaBackend`.
    fn id(&self) -> &'static str;

    /// Why this machine cannot run it, as a sentence; `None` where it can. Cheap, and runs nothing of a program.
    fn absence(&self) -> Option<String> {
        None
    }

    /// What can be done with a payload before there is memory for its method: it is done on a thread of its own while
    /// the method's plan is checked, and [`DelegateLoad::prepared`] waits for it. `None` where that gains nothing.
    /// It runs nothing of a program.
    fn prepare<'a>(&self, payload: &DelegatePayload<'a>) -> Option<Preparation<'a>> {
        let _ = payload;
        None
    }

    /// Makes one delegate of one method ready to run.
    ///
    /// # Errors
    /// [`DelegateError`]. Nothing is held then.
    fn load(&self, load: &mut DelegateLoad<'_>) -> Result<Box<dyn LoadedDelegate>, DelegateError>;
}

/// One delegate of one loaded method.
pub trait LoadedDelegate: Send {
    /// Runs it once: reads the inputs, resizes and writes the outputs. Work on a device is queued on the
    /// call's queue, not waited for.
    ///
    /// # Errors
    /// [`DelegateError`]. It can be called again.
    fn execute(&mut self, call: &mut DelegateCall<'_>) -> Result<(), DelegateError>;

    /// The memory it holds, for reports.
    fn memory(&self) -> DelegateMemory {
        DelegateMemory::default()
    }

    /// The named buffers that keep their contents from run to run.
    fn state(&self) -> &[StateSpec] {
        &[]
    }

    /// Copies the contents of state `index` row-major into `target`, which has exactly its size.
    ///
    /// # Errors
    /// [`DelegateError`].
    fn read_state(
        &mut self,
        index: usize,
        target: &mut [u8],
        queue: Option<&mut (dyn Queue + '_)>,
    ) -> Result<(), DelegateError> {
        let _ = (index, target, queue);
        Err(DelegateError::Failed { reason: "it has no state".into() })
    }

    /// Sets the contents of state `index` from `source`, row-major and exactly of its size.
    ///
    /// # Errors
    /// [`DelegateError`].
    fn write_state(
        &mut self,
        index: usize,
        source: &[u8],
        queue: Option<&mut (dyn Queue + '_)>,
    ) -> Result<(), DelegateError> {
        let _ = (index, source, queue);
        Err(DelegateError::Failed { reason: "it has no state".into() })
    }

    /// Sets all state to what it was right after loading.
    ///
    /// # Errors
    /// [`DelegateError`].
    fn reset_state(&mut self, queue: Option<&mut (dyn Queue + '_)>) -> Result<(), DelegateError> {
        let _ = queue;
        Ok(())
    }

    /// Why a run cannot be captured as a graph, or `None` where it can: where every run with the same sizes gives the
    /// call's queue the same work, and gives the device none past the queue.
    fn refuses_capture(&self) -> Option<String> {
        Some("the delegate does not support graphs".into())
    }
}

/// What a program holds for a delegate.
#[derive(Clone, Copy)]
pub struct DelegatePayload<'a> {
    /// The method, for messages.
    pub method: &'a str,
    /// Which of the method's delegates, for messages.
    pub index: usize,
    /// The payload that the exporter's back end wrote.
    pub processed: &'a [u8],
    /// The exporter's options for it, in file order.
    pub compile_specs: &'a [(&'a str, &'a [u8])],
    /// The named data of the program and its data files.
    pub named: &'a dyn NamedData,
    /// How many arguments its calls have, inputs and outputs together.
    pub args_len: usize,
    /// Where the planned buffers of its arguments are, after any remapping.
    pub space: SpaceId,
}

/// What a delegate gets at load. It copies what it keeps.
pub struct DelegateLoad<'a> {
    /// What the program holds for it.
    pub payload: DelegatePayload<'a>,
    /// What [`Delegate::prepare`] wanted done, going on or done; `None` where it wanted nothing.
    pub prepared: Option<ScopedJoinHandle<'a, Prepared>>,
    /// Where its memory comes from: weights, state and scratch, in `space` and on the host.
    pub arenas: &'a ArenaSet,
    /// The method's queue of `space`, to bring weights there; `None` on the host. Wait for it before the
    /// source of a copy goes.
    pub queue: Option<&'a mut (dyn Queue + 'static)>,
    /// Methods with the same number here share named state and weights with each other; 0 shares with none.
    pub sharing: usize,
    /// Which native code may run.
    pub native_code: &'a NativeCode,
}

impl core::fmt::Debug for DelegatePayload<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DelegatePayload")
            .field("method", &self.method)
            .field("index", &self.index)
            .field("processed_len", &self.processed.len())
            .field("space", &self.space)
            .finish_non_exhaustive()
    }
}

impl core::fmt::Debug for DelegateLoad<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DelegateLoad").field("payload", &self.payload).finish_non_exhaustive()
    }
}

/// Bytes by name: what a program and its data files hold for delegates.
pub trait NamedData {
    /// The bytes of this name. Data files are asked before the program.
    fn get(&self, key: &str) -> Option<&[u8]>;

    /// The files that were searched, for messages: `m.pte, w.ptd`.
    fn sources(&self) -> String;
}

/// The memory that one loaded delegate holds, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelegateMemory {
    /// Weights and state, per space.
    pub constants: Vec<(SpaceId, usize)>,
    /// Intermediates, per space.
    pub scratch: Vec<(SpaceId, usize)>,
}

/// A named buffer that keeps its contents from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSpec {
    /// The name in the exported model.
    pub name: Box<str>,
    /// The element kind.
    pub dtype: DType,
    /// The sizes.
    pub sizes: Box<[usize]>,
    /// Where it is.
    pub space: SpaceId,
}

impl StateSpec {
    /// The bytes of all elements.
    pub fn size_bytes(&self) -> usize {
        self.sizes.iter().product::<usize>() * self.dtype.size_bytes()
    }
}
