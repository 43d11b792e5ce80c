//! Marks in the work of a stream: [`CudaEvent`].
//!
//! Deliberately absent: timing.

use super::context::{Device, note_free};
use super::driver::{Failure, done};
use crate::space::QueueError;
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
        let error = |failure: Failure| QueueError {
            space: device.space_id(),
            call: "recording an event",
            reason: failure.to_string(),
        };
        let _entered = device.enter().map_err(error)?;
        let mut event = core::ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: a place for the result; the context is current.
        done(unsafe { (device.driver.event_create)(&raw mut event, flags) }).map_err(error)?;
        let made = Self { device, event };
        // SAFETY: a live event and a live stream of the same device, by the callers.
        done(unsafe { (device.driver.event_record)(event, stream) }).map_err(error)?;
        Ok(made)
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
