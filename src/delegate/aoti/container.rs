//! A model container: one instance of loaded code, with its constants.
//!
//! ```text
//!   Container::new ─► constants() ─► bind(pairs) ─► run(inputs, outputs)* ─► drop
//! ```
//!
//! Deliberately absent: memory. Handles name memory that the caller keeps.
//!
//! # Source
//! `torch/csrc/inductor/aoti_runtime/interface.h`, PyTorch 2.11 and 2.13.

use super::handle::Handle;
use super::library::Library;
use super::platform::Platform;
use super::run::take_error;
use crate::delegate::DelegateError;
use crate::tensor::DType;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::{NonNull, null, null_mut};

type Raw = *mut c_void;
type Status = i32;
type Create = unsafe extern "C" fn(*mut Raw, usize, *const c_char, *const c_char) -> Status;
type Delete = unsafe extern "C" fn(Raw) -> Status;
type GetSize = unsafe extern "C" fn(Raw, *mut usize) -> Status;
type RunFn = unsafe extern "C" fn(
    Raw,
    *mut *mut Handle,
    usize,
    *mut *mut Handle,
    usize,
    *mut c_void,
    *mut c_void,
) -> Status;
type GetText = unsafe extern "C" fn(Raw, usize, *mut *const c_char) -> Status;
type GetCode = unsafe extern "C" fn(Raw, usize, *mut i32) -> Status;
type GetFlag = unsafe extern "C" fn(Raw, usize, *mut bool) -> Status;
type GetItemSize = unsafe extern "C" fn(Raw, usize, *mut usize) -> Status;
type BindPairs = unsafe extern "C" fn(Raw, *const Pair, usize, bool, bool) -> Status;
type BindBlob = unsafe extern "C" fn(Raw, *const u8) -> Status;
type LastError = unsafe extern "C" fn(*mut *const c_char) -> Status;

/// A constant's internal name and the tensor to bind to it.
#[repr(C)]
struct Pair {
    name: *const c_char,
    handle: *mut Handle,
}

/// The functions of a library's interface.
#[derive(Clone, Copy, Debug)]
struct Functions {
    delete: Delete,
    run: RunFn,
    last_error: Option<LastError>,
    constants: Option<ConstantFunctions>,
}

#[derive(Clone, Copy, Debug)]
struct ConstantFunctions {
    count: GetSize,
    name: GetText,
    full_name: GetText,
    dtype: GetCode,
    kind: Option<GetCode>,
    folded: Option<GetFlag>,
    size: Option<GetItemSize>,
    bind: Option<BindPairs>,
}

/// A constant that the code wants bound.
#[derive(Clone, Debug)]
pub(super) struct WantedConstant {
    /// The name by which it is bound; lives as long as the container.
    name: *const c_char,
    /// The name in the exported model.
    pub(super) full_name: String,
    pub(super) dtype: Option<DType>,
    /// Whether it is a buffer of the model, which the code may write.
    pub(super) is_buffer: bool,
    pub(super) size_bytes: Option<usize>,
}

// SAFETY: the name is read-only text that lives as long as the container, which outlives this.
unsafe impl Send for WantedConstant {}

/// One instance of loaded code.
#[derive(Debug)]
pub(super) struct Container {
    raw: NonNull<c_void>,
    functions: Functions,
    library: &'static Library,
    platform: Platform,
    /// The handles on its constants, ended with it.
    bound: Vec<*mut Handle>,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

// SAFETY: a container may be used from any thread, by one at a time: it is not `Sync`, and every use that
// changes it takes `&mut self`.
unsafe impl Send for Container {}

fn lacks(name: &CStr) -> DelegateError {
    DelegateError::Corrupt { reason: format!("its code lacks the function {}", name.to_string_lossy()) }
}

/// Finds a function by name.
///
/// # Safety
/// * `F` is the type that the interface gives this function.
unsafe fn find<F: Copy>(library: &Library, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>(), "F is a function pointer") };
    let symbol = library.symbol(name)?;
    // SAFETY: a symbol's address of the same size, of the function type that the caller vouches for.
    Some(unsafe { core::mem::transmute_copy::<NonNull<c_void>, F>(&symbol) })
}

/// Finds a function that must be there.
///
/// # Safety
/// As [`find`].
unsafe fn require<F: Copy>(library: &Library, name: &CStr) -> Result<F, DelegateError> {
    // SAFETY: by the caller.
    unsafe { find(library, name) }.ok_or_else(|| lacks(name))
}

impl Functions {
    fn of(library: &Library) -> Result<Self, DelegateError> {
        // SAFETY: the type is the interface's.
        let single = unsafe { find(library, c"AOTInductorModelContainerRunSingleThreaded") };
        let run = match single {
            Some(run) => run,
            // SAFETY: the type is the interface's.
            None => unsafe { require(library, c"AOTInductorModelContainerRun") }?,
        };
        Ok(Self {
            run,
            // SAFETY: the type is the interface's.
            delete: unsafe { require(library, c"AOTInductorModelContainerDelete") }?,
            // SAFETY: the type is the interface's.
            last_error: unsafe { find(library, c"AOTInductorGetLastError") },
            constants: ConstantFunctions::of(library),
        })
    }
}

impl ConstantFunctions {
    fn of(library: &Library) -> Option<Self> {
        Some(Self {
            // SAFETY: the type is the interface's.
            count: unsafe { find(library, c"AOTInductorModelContainerGetNumConstants") }?,
            // SAFETY: the type is the interface's.
            name: unsafe { find(library, c"AOTInductorModelContainerGetConstantName") }?,
            // SAFETY: the type is the interface's.
            full_name: unsafe { find(library, c"AOTInductorModelContainerGetConstantOriginalFQN") }?,
            // SAFETY: the type is the interface's.
            dtype: unsafe { find(library, c"AOTInductorModelContainerGetConstantDtype") }?,
            // SAFETY: the type is the interface's.
            kind: unsafe { find(library, c"AOTInductorModelContainerGetConstantType") },
            // SAFETY: the type is the interface's.
            folded: unsafe { find(library, c"AOTInductorModelContainerGetConstantFromFolded") },
            // SAFETY: the type is the interface's.
            size: unsafe { find(library, c"AOTInductorModelContainerGetConstantDataSize") },
            // SAFETY: the type is the interface's.
            bind: unsafe { find(library, c"AOTInductorModelContainerUpdateUserManagedConstantBufferPairs") },
        })
    }
}

impl Container {
    /// A new instance. The platform must be current.
    pub(super) fn new(library: &'static Library, platform: Platform) -> Result<Self, DelegateError> {
        let functions = Functions::of(library)?;
        // SAFETY: the type is the interface's.
        let create: Create = unsafe { require(library, c"AOTInductorModelContainerCreateWithDevice") }?;
        let (mut raw, device) = (null_mut(), platform.name());
        take_error();
        // SAFETY: `raw` takes the instance; the device is a text; no folder for kernels is needed.
        let status = unsafe { create(&raw mut raw, 1, device.as_ptr(), null()) };
        let raw = NonNull::new(raw).filter(|_| status == 0);
        let raw = raw.ok_or_else(|| failure(&functions, "creating an instance of its code failed"))?;
        let mut container =
            Self { raw, functions, library, platform, bound: Vec::new(), inputs: 0, outputs: 0 };
        container.inputs = container.size(c"AOTInductorModelContainerGetNumInputs")?;
        container.outputs = container.size(c"AOTInductorModelContainerGetNumOutputs")?;
        Ok(container)
    }

    fn size(&self, name: &CStr) -> Result<usize, DelegateError> {
        // SAFETY: the type is the interface's.
        let get: GetSize = unsafe { require(self.library, name) }?;
        let mut size = 0;
        // SAFETY: a live container and a place for the result.
        match unsafe { get(self.raw.as_ptr(), &raw mut size) } {
            0 => Ok(size),
            _ => Err(self.failed(&format!("{} failed", name.to_string_lossy()))),
        }
    }

    /// The constants that must be bound, those that the code computes itself left out.
    pub(super) fn constants(&self) -> Result<Vec<WantedConstant>, DelegateError> {
        let Some(functions) = self.functions.constants else { return Ok(Vec::new()) };
        let raw = self.raw.as_ptr();
        let mut count = 0;
        // SAFETY: a live container and a place for the result.
        self.check(unsafe { (functions.count)(raw, &raw mut count) }, "counting its constants")?;
        let mut constants = Vec::new();
        for index in 0..count {
            let (mut name, mut full_name, mut code, mut kind) = (null(), null(), -1, 0);
            let (mut folded, mut size) = (false, 0);
            // SAFETY: a live container, an index below the count, and a place for the result.
            self.check(unsafe { (functions.name)(raw, index, &raw mut name) }, "naming a constant")?;
            // SAFETY: as above.
            let status = unsafe { (functions.full_name)(raw, index, &raw mut full_name) };
            self.check(status, "naming a constant")?;
            // SAFETY: as above.
            self.check(unsafe { (functions.dtype)(raw, index, &raw mut code) }, "the kind of a constant")?;
            if let Some(get) = functions.folded {
                // SAFETY: as above.
                self.check(unsafe { get(raw, index, &raw mut folded) }, "the origin of a constant")?;
            }
            if let Some(get) = functions.kind {
                // SAFETY: as above.
                self.check(unsafe { get(raw, index, &raw mut kind) }, "the type of a constant")?;
            }
            if let Some(get) = functions.size {
                // SAFETY: as above.
                self.check(unsafe { get(raw, index, &raw mut size) }, "the size of a constant")?;
            }
            if folded || name.is_null() || full_name.is_null() {
                continue;
            }
            // SAFETY: not null, so a text that ends in NUL and lives as long as the container.
            let full_name = unsafe { CStr::from_ptr(full_name) }.to_string_lossy().into_owned();
            constants.push(WantedConstant {
                name,
                full_name,
                dtype: DType::from_code(code.into()),
                is_buffer: kind == 2,
                size_bytes: functions.size.map(|_| size),
            });
        }
        Ok(constants)
    }

    /// Binds constants to tensors, and takes their handles over.
    ///
    /// # Safety
    /// * The constants are of this container; the handles are live and nobody else's, and their memory stays
    ///   valid and where it is until the container is dropped.
    pub(super) unsafe fn bind(
        &mut self,
        pairs: &[(&WantedConstant, *mut Handle)],
    ) -> Result<(), DelegateError> {
        self.bound.extend(pairs.iter().map(|(_, handle)| *handle));
        let Some(bind) = self.functions.constants.and_then(|functions| functions.bind) else {
            return Err(lacks(c"AOTInductorModelContainerUpdateUserManagedConstantBufferPairs"));
        };
        let pairs: Vec<Pair> =
            pairs.iter().map(|(constant, handle)| Pair { name: constant.name, handle: *handle }).collect();
        // SAFETY: a live container and live pairs, by the caller; no run is going on: `&mut self`.
        let status = unsafe { bind(self.raw.as_ptr(), pairs.as_ptr(), pairs.len(), false, true) };
        self.check(status, "binding its constants")
    }

    /// Lets the code copy its constants out of one blob. At most once per container.
    ///
    /// # Safety
    /// * The blob is as long as the code reads.
    pub(super) unsafe fn bind_blob(&mut self, blob: &[u8]) -> Result<(), DelegateError> {
        let name = c"AOTInductorModelUpdateConstantsFromBlob";
        // SAFETY: the type is the interface's.
        let bind: BindBlob = unsafe { require(self.library, name) }?;
        // SAFETY: a live container; the blob is long enough, by the caller.
        let status = unsafe { bind(self.raw.as_ptr(), blob.as_ptr()) };
        self.check(status, "reading its constants")
    }

    /// Why runs cannot be captured as a graph, or `None` where they can.
    pub(super) fn refuses_capture(&self) -> Option<String> {
        self.library.refuses_capture()
    }

    /// Runs the code. Inputs are taken: a slot that is null afterwards was, the rest is ended here. Outputs
    /// belong to the caller, also after a failure.
    ///
    /// # Safety
    /// * Handles are live, and their memory is valid for what the code reads.
    /// * Both lists are as long as [`Container::inputs`] and [`Container::outputs`] say.
    /// * `stream` is null or a stream of the container's device.
    pub(super) unsafe fn run(
        &mut self,
        inputs: &mut [*mut Handle],
        outputs: &mut [*mut Handle],
        stream: *mut c_void,
    ) -> Result<(), DelegateError> {
        debug_assert!(inputs.len() == self.inputs && outputs.len() == self.outputs);
        // SAFETY: a live container, used by this thread alone (`&mut self`); lists of the right length, live
        // handles and a fitting stream, by the caller; custom operators are not provided.
        let status = unsafe {
            (self.functions.run)(
                self.raw.as_ptr(),
                inputs.as_mut_ptr(),
                inputs.len(),
                outputs.as_mut_ptr(),
                outputs.len(),
                stream,
                null_mut(),
            )
        };
        for slot in inputs {
            let left = core::mem::replace(slot, null_mut());
            // SAFETY: what the code has not taken is still live and ours.
            drop(unsafe { Handle::end(left) });
        }
        if status == 0 { Ok(()) } else { Err(self.failed("its code failed; it says more on standard error")) }
    }

    fn check(&self, status: Status, what: &str) -> Result<(), DelegateError> {
        if status == 0 { Ok(()) } else { Err(self.failed(&format!("{what} failed"))) }
    }

    fn failed(&self, otherwise: &str) -> DelegateError {
        failure(&self.functions, otherwise)
    }
}

/// Why a call failed: what a shim said, else what the library says, else what was tried.
fn failure(functions: &Functions, otherwise: &str) -> DelegateError {
    if let Some(reason) = take_error() {
        return DelegateError::Failed { reason };
    }
    let mut text = null();
    if let Some(last_error) = functions.last_error {
        // SAFETY: a place for the result.
        unsafe { last_error(&raw mut text) };
    }
    if text.is_null() {
        return DelegateError::Failed { reason: otherwise.into() };
    }
    // SAFETY: not null, so this thread's text, which ends in NUL.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let reason = if text.is_empty() { otherwise.into() } else { format!("{otherwise}: {text}") };
    DelegateError::Failed { reason }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _entered = self.platform.enter();
        // SAFETY: a live container, deleted once; no run is going on. What is left to do for it is nothing:
        // a failure here has nobody to tell.
        unsafe { (self.functions.delete)(self.raw.as_ptr()) };
        for handle in self.bound.drain(..) {
            // SAFETY: ours since `bind`. The code counts each once more than it ends it; with the container
            // gone, nothing knows them any more.
            unsafe { Handle::end_all(handle) };
        }
    }
}
