//! Copies across the bus, for a queue.
//!
//! ```text
//!   upload:    caller's bytes ─memcpy─► pinned staging ─one copy per run of neighbours─► device
//!   download:  device ─copy─► pinned staging ─memcpy at synchronize─► caller's bytes
//! ```
//!
//! Where the device's side of a piece lies in pinned memory, which devices reach over the bus, nothing is copied there
//! at all: the bytes are put in place, or taken from there. Pinned ranges are copied directly. So are large pageable
//! ones: the driver's own staging overlaps with its copies and beats copying twice. Deliberately absent: knowing when
//! copies are done; the queue waits.

use super::graph::Slot;
use super::pinned::is_pinned;
use super::queue::{Arrival, CudaQueue, bits};
use crate::space::{Piece, Queue as _, QueueError};
use core::ptr::NonNull;

/// Above this, pageable bytes are left to the driver, in bytes. Measured on an H200: 64 KiB travel as fast
/// either way, 1 MiB is faster by the driver.
const STAGED_BYTES_MAX: usize = 256 << 10;

impl CudaQueue {
    /// As [`crate::space::Queue::upload`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn upload_pieces(&mut self, pieces: &[Piece]) -> Result<(), QueueError> {
        let _entered = self.enter("a copy to the device")?;
        self.note_host(true);
        if let Some(recording) = &mut self.recording {
            recording.crossings.uploads.extend(core::iter::repeat_n(Slot::BLANK, pieces.len()));
            // Slots of this call are the last ones; runs index them from the front.
            recording.crossings.uploads.rotate_right(pieces.len());
        }
        let order = self.sort(pieces, |piece| piece.target);
        let mut placed = Ok(());
        if order.len() < pieces.len() {
            let mapped = |piece: &Piece| piece.size_bytes > 0 && is_pinned(piece.target, piece.size_bytes);
            placed = (0..pieces.len())
                .filter(|&index| mapped(&pieces[index]))
                .try_for_each(|index| self.place(index, pieces[index]));
        }
        let copied = for_each_run(
            pieces,
            &order,
            |piece| piece.target,
            |run, size| self.upload_run(pieces, run, size),
        );
        self.order = order;
        if let Some(recording) = &mut self.recording {
            recording.crossings.uploads.rotate_left(pieces.len());
        }
        placed.and(copied)
    }

    /// As [`crate::space::Queue::download`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn download_pieces(&mut self, pieces: &[Piece]) -> Result<(), QueueError> {
        let _entered = self.enter("a copy to the host")?;
        self.note_host(true);
        if let Some(recording) = &mut self.recording {
            recording.crossings.downloads.extend(core::iter::repeat_n(Slot::BLANK, pieces.len()));
            recording.crossings.downloads.rotate_right(pieces.len());
        }
        let order = self.sort(pieces, |piece| piece.source);
        if order.len() < pieces.len() {
            let mapped = |piece: &Piece| piece.size_bytes > 0 && is_pinned(piece.source, piece.size_bytes);
            (0..pieces.len())
                .filter(|&index| mapped(&pieces[index]))
                .for_each(|index| self.fetch(index, pieces[index]));
        }
        let copied = for_each_run(
            pieces,
            &order,
            |piece| piece.source,
            |run, size| self.download_run(pieces, run, size),
        );
        self.order = order;
        if let Some(recording) = &mut self.recording {
            recording.crossings.downloads.rotate_left(pieces.len());
        }
        copied
    }

    /// Fills `order` with the pieces sorted by their device side, without empty ones and those whose device
    /// side is pinned memory.
    fn sort(&mut self, pieces: &[Piece], key: impl Fn(&Piece) -> NonNull<u8>) -> Vec<usize> {
        let mut order = core::mem::take(&mut self.order);
        order.clear();
        let copied = |piece: &Piece| piece.size_bytes > 0 && !is_pinned(key(piece), piece.size_bytes);
        order.extend((0..pieces.len()).filter(|&index| copied(&pieces[index])));
        order.sort_unstable_by_key(|&index| key(&pieces[index]).addr());
        order
    }

    fn send(&mut self, piece: Piece) -> Result<(), QueueError> {
        let Piece { target, source, size_bytes } = piece;
        self.work(
            "a copy to the device",
            // SAFETY: a device range and a host range, valid until the copy is done: staging by Q1, the caller's by
            // the contract of `upload`.
            |driver, stream| unsafe {
                (driver.upload_async)(bits(target), source.as_ptr().cast(), size_bytes, stream)
            },
            |nodes| nodes.add_copy(piece),
        )
    }

    fn bring(&mut self, piece: Piece) -> Result<(), QueueError> {
        let Piece { target, source, size_bytes } = piece;
        self.work(
            "a copy to the host",
            // SAFETY: as in `send`, by the contract of `download`.
            |driver, stream| unsafe {
                (driver.download_async)(target.as_ptr().cast(), bits(source), size_bytes, stream)
            },
            |nodes| nodes.add_copy(piece),
        )
    }

    /// Whether a run of pieces, given by their host ends, needs no staging.
    fn goes_straight<'a>(
        &self,
        size_bytes: usize,
        mut ends: impl Iterator<Item = (NonNull<u8>, &'a Piece)>,
    ) -> bool {
        match &self.recording {
            Some(recording) => ends.all(|(host, piece)| recording.holds(host, piece.size_bytes)),
            None => {
                size_bytes > STAGED_BYTES_MAX || ends.all(|(host, piece)| is_pinned(host, piece.size_bytes))
            }
        }
    }

    /// Uploads pieces whose targets follow each other without a gap.
    fn upload_run(&mut self, pieces: &[Piece], run: &[usize], size_bytes: usize) -> Result<(), QueueError> {
        if self.goes_straight(size_bytes, run.iter().map(|&index| (pieces[index].source, &pieces[index]))) {
            return run.iter().try_for_each(|&index| {
                let Piece { target, source, size_bytes } = pieces[index];
                if let Some(recording) = &mut self.recording {
                    recording.crossings.uploads[index] =
                        Slot { host: source, device: target, size_bytes, held: true };
                }
                self.send(pieces[index])
            });
        }
        let staged = self.stage(size_bytes)?;
        let mut at = staged;
        for &index in run {
            let piece = pieces[index];
            // SAFETY: the source is readable, by the contract of `upload`; the staging is as long as the run's
            // pieces together and used by nobody else (Q1, Q2).
            unsafe { at.copy_from_nonoverlapping(piece.source, piece.size_bytes) };
            if let Some(recording) = &mut self.recording {
                recording.crossings.uploads[index] =
                    Slot { host: at, device: piece.target, size_bytes: piece.size_bytes, held: false };
            }
            // SAFETY: still inside the staging, or at its end.
            at = unsafe { at.add(piece.size_bytes) };
        }
        self.send(Piece { target: pieces[run[0]].target, source: staged, size_bytes })
    }

    /// Downloads pieces whose sources follow each other without a gap.
    fn download_run(&mut self, pieces: &[Piece], run: &[usize], size_bytes: usize) -> Result<(), QueueError> {
        if self.goes_straight(size_bytes, run.iter().map(|&index| (pieces[index].target, &pieces[index]))) {
            return run.iter().try_for_each(|&index| {
                let Piece { target, source, size_bytes } = pieces[index];
                if let Some(recording) = &mut self.recording {
                    recording.crossings.downloads[index] =
                        Slot { host: target, device: source, size_bytes, held: true };
                }
                self.bring(pieces[index])
            });
        }
        let staged = self.stage(size_bytes)?;
        let mut at = staged;
        for &index in run {
            let Piece { target, source, size_bytes } = pieces[index];
            match &mut self.recording {
                Some(recording) => {
                    recording.crossings.downloads[index] =
                        Slot { host: at, device: source, size_bytes, held: false }
                }
                None => self.arrivals.push(Arrival { staged: at, target, size_bytes }),
            }
            // SAFETY: inside the staging, which is as long as the run's pieces together, or at its end.
            at = unsafe { at.add(size_bytes) };
        }
        self.bring(Piece { target: staged, source: pieces[run[0]].source, size_bytes })
    }

    /// Puts bytes where the device reads them in pinned memory.
    fn place(&mut self, index: usize, piece: Piece) -> Result<(), QueueError> {
        let Piece { target, source, size_bytes } = piece;
        if let Some(recording) = &mut self.recording {
            recording.crossings.uploads[index] =
                Slot { host: target, device: target, size_bytes, held: false };
            return Ok(());
        }
        if target == source {
            return Ok(());
        }
        if !self.busy.get() {
            // SAFETY: both are host ranges of this size, by the contract of `upload`; no work is going on that
            // could read the target; they may be one.
            unsafe { target.copy_from(source, size_bytes) };
            return Ok(());
        }
        let staged = self.stage(size_bytes)?;
        // SAFETY: the source is readable, by the contract of `upload`; the staging is as long and ours (Q1).
        unsafe { staged.copy_from_nonoverlapping(source, size_bytes) };
        // SAFETY: both ranges are reached by the device and valid until the copy is done (Q1).
        unsafe { self.copy(Piece { target, source: staged, size_bytes }) }
    }

    /// Notes bytes that the device will have written to pinned memory.
    fn fetch(&mut self, index: usize, piece: Piece) {
        let Piece { target, source, size_bytes } = piece;
        match &mut self.recording {
            Some(recording) => {
                recording.crossings.downloads[index] =
                    Slot { host: source, device: source, size_bytes, held: false };
            }
            None => self.arrivals.push(Arrival { staged: source, target, size_bytes }),
        }
    }
}

/// Calls `each` with runs of `order` in which every piece follows the one before, and the run's size.
fn for_each_run(
    pieces: &[Piece],
    order: &[usize],
    key: impl Fn(&Piece) -> NonNull<u8>,
    mut each: impl FnMut(&[usize], usize) -> Result<(), QueueError>,
) -> Result<(), QueueError> {
    let mut start = 0;
    while start < order.len() {
        let first = &pieces[order[start]];
        let mut size_bytes = first.size_bytes;
        let mut end = start + 1;
        while end < order.len()
            && size_bytes < STAGED_BYTES_MAX
            && key(&pieces[order[end]]).addr().get() == key(first).addr().get() + size_bytes
        {
            size_bytes += pieces[order[end]].size_bytes;
            end += 1;
        }
        each(&order[start..end], size_bytes)?;
        start = end;
    }
    Ok(())
}
