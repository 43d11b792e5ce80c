//! One loaded delegate with compiled code: its container, constants, state and scratch.
//!
//! ```text
//!   execute:  reset scratch ► handles on inputs ► run ► outputs in place, or copied ► handles ended
//! ```
//!
//! **Outputs in place.** Compiled code allocates its outputs itself. The first run notes which allocation
//! became which output; later runs with arguments of the same sizes serve that allocation from the output's
//! memory, so nothing is copied. Where it turns out otherwise, or that memory overlaps another argument's, the
//! output is copied as in the first run.
//!
//! Deliberately absent: waiting. Work is queued; the caller waits for the queue.
//!
//! # Invariants
//! * **L1** `slots` hold no handles between runs but those that they keep counted.
//! * **L2** Scratch is reset only while no storage of an earlier run is alive (`scope` is ours alone).

use super::container::Container;
use super::handle::{Handle, Origin, dense_strides, is_dense};
use super::platform::Platform;
use super::run::{Backend, Placement, Run, during};
use super::weights::{Weights, fill};
use super::working::Working;
use crate::arena::PooledArena;
use crate::delegate::{DelegateCall, DelegateError, DelegateMemory, LoadedDelegate, StateSpec};
use crate::space::{Piece, Queue, SpaceId};
use crate::tensor::{Dims, Tensor};
use core::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// A loaded delegate.
pub(super) struct Loaded {
    // Before the weights: its end may still look at constants.
    container: Container,
    platform: Platform,
    space: SpaceId,
    weights: Vec<Arc<Weights>>,
    state: Vec<StateSpec>,
    places: Vec<Place>,
    scratch: PooledArena,
    scope: Arc<()>,
    slots: Slots,
    learned: Learned,
}

/// Where a state is and what it was at load.
pub(super) struct Place {
    pub(super) address: NonNull<u8>,
    pub(super) size_bytes: usize,
    /// `None` where all bytes were zero.
    pub(super) initial: Option<Box<[u8]>>,
}

// SAFETY: an address and bytes; reaching what is there takes `unsafe`, which argues for itself.
unsafe impl Send for Place {}

/// The lists that a run passes, kept for their memory.
struct Slots {
    inputs: Vec<*mut Handle>,
    /// The handles of the last run's inputs: most runs come with the same.
    kept: Vec<Kept>,
    outputs: Vec<*mut Handle>,
    copies: Vec<Piece>,
    placements: Vec<Placement>,
}

// SAFETY: no handle is in it between runs but those that are ours (L1); addresses are only that.
unsafe impl Send for Slots {}

/// A handle on an input, counted once for its keeper; null where there is none yet.
struct Kept(*mut Handle);

impl Kept {
    /// Whether the handle is on this tensor.
    fn is_on(&self, tensor: &Tensor, address: NonNull<u8>) -> bool {
        // SAFETY: null, or a handle that is counted for `self`.
        let Ok(handle) = (unsafe { Handle::get(self.0) }) else { return false };
        let sizes = || handle.sizes.iter().zip(tensor.sizes());
        handle.storage.address == address
            && handle.dtype == tensor.dtype()
            && handle.sizes.len() == tensor.rank()
            && sizes().all(|(&kept, &size)| kept == size as i64)
            && tensor.is_row_major()
            && is_dense(&handle.sizes, &handle.strides)
    }

    /// The handle, counted once more.
    fn give(&self) -> *mut Handle {
        // SAFETY: as above.
        if let Ok(handle) = unsafe { Handle::get(self.0) } {
            handle.count_again();
        }
        self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: null, or a handle that is counted for `self`, which goes.
        drop(unsafe { Handle::end(self.0) });
    }
}

/// What an earlier run taught.
#[derive(Default)]
struct Learned {
    /// The sizes of each argument then.
    sizes: Vec<Dims>,
    placed: Vec<Placed>,
}

/// An allocation that became an output.
#[derive(Clone, Copy)]
struct Placed {
    /// Which allocation of the run.
    call: u32,
    /// Which argument.
    index: usize,
    size_bytes: usize,
}

impl Learned {
    fn is_for(&self, call: &DelegateCall<'_>) -> bool {
        let same = |(index, sizes): (usize, &Dims)| {
            call.tensor(index).is_ok_and(|tensor| tensor.sizes() == &**sizes)
        };
        self.sizes.len() == call.len() && self.sizes.iter().enumerate().all(same)
    }

    /// Fills `placements` with the outputs' memory, where no other argument has a part of it.
    fn place(&self, call: &DelegateCall<'_>, placements: &mut Vec<Placement>) {
        placements.clear();
        let range = |index: usize| {
            let tensor = call.tensor(index).ok()?;
            Some((tensor.address()?, tensor.size_bytes()))
        };
        for &Placed { call: allocation, index, size_bytes } in &self.placed {
            let Some(mine) = range(index).filter(|mine| mine.1 == size_bytes) else { continue };
            let others = (0..call.len()).filter(|&other| other != index);
            if others.filter_map(range).all(|other| !overlap(mine, other)) {
                placements.push(Placement { call: allocation, address: mine.0, size_bytes });
            }
        }
    }
}

/// What a delegate is made of.
pub(super) struct Parts {
    pub(super) container: Container,
    pub(super) platform: Platform,
    pub(super) space: SpaceId,
    pub(super) weights: Vec<Arc<Weights>>,
    pub(super) state: Vec<StateSpec>,
    pub(super) places: Vec<Place>,
    pub(super) scratch: PooledArena,
}

impl Loaded {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { container, platform, space, weights, state, places, scratch } = parts;
        let slots = Slots {
            inputs: vec![null_mut(); container.inputs],
            kept: (0..container.inputs).map(|_| Kept(null_mut())).collect(),
            outputs: vec![null_mut(); container.outputs],
            copies: Vec::with_capacity(container.outputs),
            placements: Vec::with_capacity(container.outputs),
        };
        let (scope, learned) = (Arc::new(()), Learned::default());
        Self { container, platform, space, weights, state, places, scratch, scope, slots, learned }
    }

    fn check_arguments(&self, call: &DelegateCall<'_>) -> Result<(), DelegateError> {
        let (inputs, outputs) = (self.container.inputs, self.container.outputs);
        if call.len() != inputs + outputs {
            return Err(DelegateError::ArgumentCount { inputs, outputs, got: call.len() });
        }
        for index in 0..call.len() {
            let tensor = call.tensor(index)?;
            let problem = if tensor.numel() == 0 {
                None
            } else if tensor.address().is_none() {
                Some("no memory was given to it".into())
            } else if tensor.space() != self.space && !(tensor.space().is_host() && self.space.is_host()) {
                Some(format!("its memory is in {}, expected {}", tensor.space(), self.space))
            } else if tensor.size_bytes() > tensor.capacity_bytes() {
                Some(format!("it needs {} bytes and has {}", tensor.size_bytes(), tensor.capacity_bytes()))
            } else if index >= inputs && !tensor.is_writable() {
                Some("it is an output and its memory is read-only".into())
            } else {
                None
            };
            if let Some(reason) = problem {
                return Err(DelegateError::Tensor { index, reason });
            }
        }
        Ok(())
    }

    /// Makes a handle for each input.
    fn wrap_inputs(&mut self, call: &DelegateCall<'_>) -> Result<(), DelegateError> {
        let device = self.platform.device();
        for index in 0..self.container.inputs {
            let tensor = call.tensor(index)?;
            let address = tensor.address().unwrap_or(NonNull::<u128>::dangling().cast());
            let kept = &mut self.slots.kept[index];
            if !kept.is_on(tensor, address) {
                let sizes = as_i64(tensor.sizes());
                let strides =
                    if tensor.is_row_major() { dense_strides(&sizes) } else { as_i64(&tensor.strides()) };
                let range = (address, tensor.size_bytes());
                *kept = Kept(Handle::borrow(range, device, &sizes, &strides, 0, tensor.dtype()));
            }
            self.slots.inputs[index] = kept.give();
        }
        Ok(())
    }

    /// Copies each output to its planned memory unless it is there, and notes what could be in place.
    fn place_outputs(&mut self, call: &mut DelegateCall<'_>, learn: bool) -> Result<(), DelegateError> {
        self.slots.copies.clear();
        for output in 0..self.container.outputs {
            let index = self.container.inputs + output;
            let handle = self.slots.outputs[output];
            // SAFETY: the run left null or a handle that is ours until `end_outputs`.
            let made = unsafe { Handle::get(handle) }
                .map_err(|_| DelegateError::Tensor { index, reason: "the code did not produce it".into() })?;
            let target = call.tensor_mut(index)?;
            let size_bytes =
                fit_output(target, made).map_err(|reason| DelegateError::Tensor { index, reason })?;
            let Some(address) = target.address().filter(|_| size_bytes > 0) else { continue };
            if made.address() == address {
                continue;
            }
            if !is_laid_out(target, made) {
                Self::copy_strided(target, made).map_err(|reason| DelegateError::Tensor { index, reason })?;
                continue;
            }
            self.slots.copies.push(Piece { target: address, source: made.address(), size_bytes });
            if learn
                && let Origin::Scratch { call, .. } = made.storage.origin
                && made.offset == 0
                && made.storage.size_bytes == size_bytes
                && self.learned.placed.iter().all(|placed| placed.call != call)
            {
                self.learned.placed.push(Placed { call, index, size_bytes });
            }
        }
        self.do_copies(call)
    }

    /// Rearranges an output on the host; on a device there is nothing to do it with.
    fn copy_strided(target: &Tensor, made: &Handle) -> Result<(), String> {
        let cells = target.write_bytes().map_err(|_| {
            format!("the code produced strides {:?}, planned are {:?}", &*made.strides, &*target.strides())
        })?;
        let width = target.dtype().size_bytes();
        let (from, to) = (&made.strides, as_i64(&target.strides()));
        let mut index = Dims::filled(0_i64, made.sizes.len()).unwrap_or_else(Dims::empty);
        for _ in 0..made.numel() {
            let at = |strides: &[i64]| {
                let elements: i64 = index.iter().zip(strides).map(|(&index, &stride)| index * stride).sum();
                usize::try_from(elements).unwrap_or(0) * width
            };
            let source = made.address().as_ptr().wrapping_add(at(from));
            for (byte, cell) in cells.iter().skip(at(&to)).take(width).enumerate() {
                let byte = source.wrapping_add(byte);
                // SAFETY: each index is below its size, so the element lies in the tensor's span, which
                // `view` and `new_owning` proved to lie in its storage.
                cell.set(unsafe { byte.read() });
            }
            for (slot, &size) in index.as_mut_slice().iter_mut().zip(made.sizes.iter()).rev() {
                *slot += 1;
                if *slot < size {
                    break;
                }
                *slot = 0;
            }
        }
        Ok(())
    }

    /// Does the copies; where one would overwrite what another still reads, through scratch.
    fn do_copies(&mut self, call: &mut DelegateCall<'_>) -> Result<(), DelegateError> {
        let copies = &mut self.slots.copies;
        let mut working =
            Working { device: self.platform.device(), scratch: &self.scratch, queue: call.queue() };
        let failed = |reason| DelegateError::Failed { reason };
        if copies.len() > 1 {
            for reader in 0..copies.len() {
                let source = copies[reader].source;
                let size_bytes = copies[reader].size_bytes;
                let overwritten = copies.iter().enumerate().any(|(writer, piece)| {
                    writer != reader && overlap((source, size_bytes), (piece.target, piece.size_bytes))
                });
                if overwritten {
                    let aside = working.allocate(size_bytes).map_err(failed)?;
                    // SAFETY: both ranges are this large, and stay until the work is done: scratch is reset
                    // in queue order.
                    unsafe { working.copy(aside, source, size_bytes) }.map_err(failed)?;
                    copies[reader].source = aside;
                }
            }
        }
        for piece in copies.drain(..) {
            // SAFETY: the target is the output's planned memory, as large as its elements (`fit_output`); the
            // source is the code's tensor of as many bytes, alive until its handle is ended, and its memory
            // until scratch is reset in queue order.
            unsafe { working.copy(piece.target, piece.source, piece.size_bytes) }.map_err(failed)?;
        }
        Ok(())
    }

    /// Notes the sizes of this call.
    fn finish_learning(&mut self, call: &DelegateCall<'_>) -> Result<(), DelegateError> {
        self.learned.sizes.clear();
        for index in 0..call.len() {
            let sizes = Dims::new(call.tensor(index)?.sizes()).unwrap_or_else(Dims::empty);
            self.learned.sizes.push(sizes);
        }
        Ok(())
    }

    /// Ends what the run left in the output slots; two slots may hold one handle.
    fn end_outputs(&mut self) {
        for output in 0..self.slots.outputs.len() {
            let handle = core::mem::replace(&mut self.slots.outputs[output], null_mut());
            if handle.is_null() {
                continue;
            }
            for later in &mut self.slots.outputs[output + 1..] {
                if *later == handle {
                    *later = null_mut();
                }
            }
            // SAFETY: it is ours (see `Container::run`), and every other slot with it was just cleared.
            drop(unsafe { Handle::end(handle) });
        }
    }

    fn run(&mut self, call: &mut DelegateCall<'_>) -> Result<(), DelegateError> {
        let known = self.learned.is_for(call);
        if !known {
            self.learned = Learned::default();
        }
        self.learned.place(call, &mut self.slots.placements);
        self.wrap_inputs(call)?;
        let device = self.platform.device();
        let mut working = Working { device, scratch: &self.scratch, queue: call.queue() };
        let stream = working.stream();
        let Slots { inputs, outputs, placements, .. } = &mut self.slots;
        let run = Run::new(&mut working, placements, Arc::clone(&self.scope));
        // SAFETY: the handles were just made over memory that `check_arguments` found in place and large
        // enough; the lists have the container's lengths; the stream is of the queue's device.
        during(run, || unsafe { self.container.run(inputs, outputs, stream) })?;
        self.place_outputs(call, !known)?;
        if known { Ok(()) } else { self.finish_learning(call) }
    }

    fn place(&self, index: usize) -> Result<&Place, DelegateError> {
        self.places
            .get(index)
            .ok_or_else(|| DelegateError::Failed { reason: format!("it has {} states", self.places.len()) })
    }
}

fn as_i64(items: &[usize]) -> Dims<i64> {
    let mut out = Dims::filled(0, items.len()).unwrap_or_else(Dims::empty);
    for (slot, &item) in out.as_mut_slice().iter_mut().zip(items) {
        *slot = item as i64;
    }
    out
}

fn overlap(a: (NonNull<u8>, usize), b: (NonNull<u8>, usize)) -> bool {
    let (a_start, b_start) = (a.0.addr().get(), b.0.addr().get());
    a_start < b_start.saturating_add(b.1) && b_start < a_start.saturating_add(a.1)
}

/// Resizes an output to what the code produced; gives its bytes.
fn fit_output(target: &mut Tensor, made: &Handle) -> Result<usize, String> {
    if target.dtype() != made.dtype {
        return Err(format!("the code produced {}, planned is {}", made.dtype, target.dtype()));
    }
    let mut sizes = Dims::<usize>::empty();
    for &size in made.sizes.iter() {
        let fits = usize::try_from(size).ok().and_then(|size| sizes.push(size));
        fits.ok_or_else(|| format!("the code produced sizes {:?}", &*made.sizes))?;
    }
    target.resize(&sizes).map_err(|error| error.to_string())?;
    let size_bytes = target.size_bytes();
    if size_bytes > target.capacity_bytes() {
        return Err(format!("it needs {size_bytes} bytes and has {}", target.capacity_bytes()));
    }
    Ok(size_bytes)
}

/// Whether the code's elements lie, without gaps, as the planned tensor's do.
fn is_laid_out(target: &Tensor, made: &Handle) -> bool {
    if target.is_row_major() && is_dense(&made.sizes, &made.strides) {
        return true;
    }
    let planned = as_i64(&target.strides());
    let same = made.sizes.iter().zip(made.strides.iter().zip(planned.iter()));
    let mut same = same.filter(|(size, _)| **size != 1);
    same.all(|(_, (made, planned))| made == planned)
}

impl LoadedDelegate for Loaded {
    fn execute(&mut self, call: &mut DelegateCall<'_>) -> Result<(), DelegateError> {
        self.check_arguments(call)?;
        if !self.space.is_host() && call.queue().is_none() {
            let reason = format!("no queue of {} was passed", self.space);
            return Err(DelegateError::Failed { reason });
        }
        let _entered = self.platform.enter()?;
        if Arc::strong_count(&self.scope) == 1 {
            // L2; what the device still does with it was queued before what comes next.
            self.scratch.reset();
        }
        let done = self.run(call);
        self.end_outputs();
        if done.is_err() {
            self.learned = Learned::default();
        }
        done
    }

    fn memory(&self) -> DelegateMemory {
        let constants = self.weights.iter().map(|weights| (weights.space(), weights.bytes()));
        DelegateMemory {
            constants: constants.filter(|(_, bytes)| *bytes > 0).collect(),
            scratch: vec![(self.space, self.scratch.stats().peak_bytes)],
        }
    }

    fn state(&self) -> &[StateSpec] {
        &self.state
    }

    fn read_state(
        &mut self,
        index: usize,
        target: &mut [u8],
        queue: Option<&mut (dyn Queue + '_)>,
    ) -> Result<(), DelegateError> {
        let place = self.place(index)?;
        check_size(place, target.len())?;
        let (device, scratch) = (self.platform.device(), &self.scratch);
        let mut working = Working { device, scratch, queue };
        // SAFETY: a state has just the size that was compared, and lives as long as the weights.
        unsafe { working.read(target, place.address) }.map_err(|reason| DelegateError::Failed { reason })
    }

    fn write_state(
        &mut self,
        index: usize,
        source: &[u8],
        mut queue: Option<&mut (dyn Queue + '_)>,
    ) -> Result<(), DelegateError> {
        let place = self.place(index)?;
        check_size(place, source.len())?;
        fill(place.address, source, queue.as_deref_mut())?;
        // The source may be read until then.
        queue.map_or(Ok(()), Queue::synchronize).map_err(DelegateError::from)
    }

    fn reset_state(&mut self, mut queue: Option<&mut (dyn Queue + '_)>) -> Result<(), DelegateError> {
        for place in &self.places {
            match (&place.initial, &mut queue) {
                (Some(bytes), queue) => fill(place.address, bytes, queue.as_deref_mut())?,
                // SAFETY: a state of this size, alive as long as the weights are.
                (None, Some(queue)) => unsafe { queue.fill(place.address, place.size_bytes, 0) }?,
                // SAFETY: as above; without a queue it is on the host.
                (None, None) => unsafe { place.address.write_bytes(0, place.size_bytes) },
            }
        }
        queue.map_or(Ok(()), Queue::synchronize).map_err(DelegateError::from)
    }

    fn refuses_capture(&self) -> Option<String> {
        if self.space.is_host() {
            return Some("it runs on the host".into());
        }
        if self.learned.sizes.is_empty() {
            return Some("it has not run yet; run the method first".into());
        }
        self.container.refuses_capture()
    }
}

fn check_size(place: &Place, got: usize) -> Result<(), DelegateError> {
    if place.size_bytes == got {
        Ok(())
    } else {
        let reason = format!("the state has {} bytes, {got} were passed", place.size_bytes);
        Err(DelegateError::Failed { reason })
    }
}
