//! Marks in the work of a stream: [`CudaEvent`].
//!
//! Deliberately absent: timing.

use super::context::{Device, note_free};
use super::driver::{Failure, done};
use crate::space::{Mark, QueueError};
use cudarc::driver::sys;

/// A mark in a queue's work: done once everything queued before it is.
#[derive(Debug)]
pub struct CudaEvent {
    device: &'static Device,
    event: sys::CUevent,
}

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for CudaEvent {}
// SAFETY: as above; waiting and asking change nothing here.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    pub(super) fn record(device: &'static Device, stream: sys::CUstream) -> Result<Self, QueueError> {
        let made = Self::new(device)?;
        made.record_again(stream)?;
        Ok(made)
    }

    /// A mark before all work.
    pub(super) fn new(device: &'static Device) -> Result<Self, QueueError> {
        let error = |failure: Failure| recording(device, failure);
        let _entered = device.enter().map_err(error)?;
        let mut event = core::ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: a place for the result; the context is current.
        done(unsafe { (device.driver.event_create)(&raw mut event, flags) }).map_err(error)?;
        Ok(Self { device, event })
    }

    /// Moves the mark behind what the stream was given so far. Whoever waits for it already is not affected.
    pub(super) fn record_again(&self, stream: sys::CUstream) -> Result<(), QueueError> {
        let error = |failure: Failure| recording(self.device, failure);
        let _entered = self.device.enter().map_err(error)?;
        // SAFETY: a live event and a live stream of the same device, by the callers.
        done(unsafe { (self.device.driver.event_record)(self.event, stream) }).map_err(error)
    }

    pub(super) fn raw(&self) -> sys::CUevent {
        self.event
    }

    /// Whether the work before the mark is done.
    ///
    /// # Errors
    /// [`QueueError`]: what failed of that work.
    pub fn is_done(&self) -> Result<bool, QueueError> {
        // SAFETY: a live event.
        match done(unsafe { (self.device.driver.event_query)(self.event) }) {
            Ok(()) => Ok(true),
            Err(Failure::NOT_READY) => Ok(false),
            Err(failure) => Err(self.error(failure)),
        }
    }

    /// Waits until the work before the mark is done.
    ///
    /// # Errors
    /// [`QueueError`]: what failed of that work.
    pub fn synchronize(&self) -> Result<(), QueueError> {
        // SAFETY: a live event.
        done(unsafe { (self.device.driver.event_synchronize)(self.event) })
            .map_err(|failure| self.error(failure))
    }

    fn error(&self, failure: Failure) -> QueueError {
        QueueError {
            space: self.device.space_id(),
            call: "waiting for an event",
            reason: failure.to_string(),
        }
    }
}

/// All work that a default stream was given: a mark that is made when somebody asks, since that stream never goes
/// away.
#[derive(Debug)]
pub(super) struct DefaultStream {
    pub(super) device: &'static Device,
    /// The handle: 0, 1 or 2.
    pub(super) stream: usize,
}

impl DefaultStream {
    /// Whether a handle is that of a default stream.
    pub(super) fn is(stream: usize) -> bool {
        stream <= 2
    }

    pub(super) fn mark(&self) -> Result<CudaEvent, QueueError> {
        CudaEvent::record(self.device, core::ptr::with_exposed_provenance_mut(self.stream))
    }
}

impl Mark for DefaultStream {
    fn is_done(&self) -> Result<bool, QueueError> {
        self.mark()?.is_done()
    }

    fn synchronize(&self) -> Result<(), QueueError> {
        self.mark()?.synchronize()
    }

    fn synchronize_device(&self) -> Result<(), QueueError> {
        self.mark()?.synchronize_device()
    }

    unsafe fn order(&self, stream: usize) -> Result<(), QueueError> {
        if stream == self.stream {
            return Ok(());
        }
        // SAFETY: by the caller.
        unsafe { self.mark()?.order(stream) }
    }
}

fn recording(device: &Device, failure: Failure) -> QueueError {
    QueueError { space: device.space_id(), call: "recording an event", reason: failure.to_string() }
}

impl Mark for CudaEvent {
    fn is_done(&self) -> Result<bool, QueueError> {
        self.is_done()
    }

    fn synchronize(&self) -> Result<(), QueueError> {
        self.synchronize()
    }

    fn synchronize_device(&self) -> Result<(), QueueError> {
        let _entered = self.device.enter().map_err(|failure| self.error(failure))?;
        // SAFETY: the device's context is current.
        done(unsafe { (self.device.driver.synchronize)() }).map_err(|failure| self.error(failure))
    }

    unsafe fn order(&self, stream: usize) -> Result<(), QueueError> {
        let _entered = self.device.enter().map_err(|failure| self.error(failure))?;
        let stream = core::ptr::with_exposed_provenance_mut(stream);
        // SAFETY: a live stream, by the caller, and a live event; the flags must be 0.
        done(unsafe { (self.device.driver.stream_wait)(stream, self.event, 0) })
            .map_err(|failure| self.error(failure))
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if !self.device.is_usable() {
            return;
        }
        let freed = self.device.enter().and_then(|_entered| {
            // SAFETY: a live event, destroyed once.
            done(unsafe { (self.device.driver.event_destroy)(self.event) })
        });
        note_free(freed);
    }
}
