//! Arenas that a method took, one per space, and the queues that order work on them.
//!
//! Deliberately absent: what blocks are for; see [`super::planned`] and [`super::shared`].

use crate::arena::{ArenaSet, PooledArena};
use crate::space::{AllocError, GraphId, Mark, Piece, Queue, QueueError, SpaceId};
use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

/// The alignment of a planned buffer on the host, in bytes: a cache line.
const HOST_ALIGN: usize = 64;
/// The alignment of a planned buffer on a device, in bytes: what CUDA's own allocator gives.
const DEVICE_ALIGN: usize = 256;

/// Bytes wanted in one space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) space: SpaceId,
    pub(super) size_bytes: usize,
}

/// Memory that was refused: the space, the bytes asked for, and what the space said.
pub(super) type Refusal = (SpaceId, usize, String);

/// A block that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carved {
    pub(super) address: NonNull<u8>,
    pub(super) size_bytes: usize,
    pub(super) space: SpaceId,
}

// SAFETY: an address, a size and a space; reaching the bytes takes `unsafe`, which argues for itself.
unsafe impl Send for Carved {}
// SAFETY: as above; a shared block cannot be changed.
unsafe impl Sync for Carved {}

const TOO_MANY: &str = "more than can be addressed";

/// The alignment of a block in a space, in bytes.
pub(super) fn block_align(space: SpaceId) -> usize {
    if space.is_host() { HOST_ALIGN } else { DEVICE_ALIGN }
}

/// The bytes of blocks of these sizes, one after the other in a space.
pub(super) fn total_bytes(space: SpaceId, mut sizes: impl Iterator<Item = usize>) -> Result<usize, Refusal> {
    let align = block_align(space);
    sizes
        .try_fold(0_usize, |sum, size_bytes| sum.checked_add(size_bytes)?.checked_next_multiple_of(align))
        .ok_or((space, usize::MAX, TOO_MANY.into()))
}

/// Arenas, and the device queues that order work on them.
#[derive(Default)]
pub(super) struct Holdings {
    /// Before the arenas: a queue waits for its work when dropped, and then memory may go.
    pub(super) queues: Vec<Box<dyn Queue>>,
    /// Whether runs leave work to the device where they can, and the mark behind what the last one left.
    pub(super) leaves: bool,
    pub(super) mark: Option<Arc<dyn Mark>>,
    /// The stream on which the last run ended that was left.
    pub(super) left_on: usize,
    arenas: Vec<(SpaceId, PooledArena)>,
}

impl core::fmt::Debug for Holdings {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Holdings").field("arenas", &self.arenas).finish_non_exhaustive()
    }
}

impl Holdings {
    /// Takes one arena per space, large enough for all wants there, and carves a block for each.
    pub(super) fn take(
        arenas: &ArenaSet,
        wants: &[Want],
        owner: &str,
    ) -> Result<(Self, Vec<Option<Carved>>), Refusal> {
        let mut holdings = Self::default();
        let mut blocks = vec![None; wants.len()];
        for (first, want) in wants.iter().enumerate() {
            let space = want.space;
            if want.size_bytes == 0 || holdings.arenas.iter().any(|(known, _)| *known == space) {
                continue;
            }
            let align = block_align(space);
            let mine = || {
                wants
                    .iter()
                    .enumerate()
                    .skip(first)
                    .filter(|(_, want)| want.space == space && want.size_bytes > 0)
            };
            let total = total_bytes(space, mine().map(|(_, want)| want.size_bytes))?;
            let refused = |error: AllocError| (space, total, error.to_string());
            let arena = arenas.take(space, total, owner).map_err(refused)?;
            for (index, want) in mine() {
                let layout = Layout::from_size_align(want.size_bytes, align)
                    .map_err(|_| (space, want.size_bytes, TOO_MANY.to_string()))?;
                // Host blocks are zero from the start; a queue zeroes the others.
                let block =
                    if space.is_host() { arena.allocate_zeroed(layout) } else { arena.allocate(layout) };
                let block = block.map_err(refused)?;
                blocks[index] = Some(Carved { address: block.address(), size_bytes: want.size_bytes, space });
            }
            holdings.arenas.push((space, arena));
            holdings.open_queue(arenas, space)?;
        }
        Ok((holdings, blocks))
    }

    /// Opens a queue to a space that has queues, unless there is one.
    pub(super) fn open_queue(&mut self, arenas: &ArenaSet, space: SpaceId) -> Result<(), Refusal> {
        if self.queue(space).is_some() {
            return Ok(());
        }
        let queue = arenas.space(space).map_or(Ok(None), |space| space.open_queue());
        self.queues.extend(queue.map_err(|error| (space, 0, error.to_string()))?);
        Ok(())
    }

    /// The queue of a device space.
    pub(super) fn queue(&mut self, space: SpaceId) -> Option<&mut (dyn Queue + 'static)> {
        self.queues.iter_mut().find(|queue| queue.space() == space).map(AsMut::as_mut)
    }

    /// Does recorded work again on the pieces. After an error nothing was launched.
    pub(super) fn replay(
        &mut self,
        space: SpaceId,
        graph: GraphId,
        uploads: &[Piece],
        downloads: &[Piece],
    ) -> Result<(), QueueError> {
        let Some(queue) = self.queue(space) else { return Ok(()) };
        // SAFETY: the pieces are bound memory of this method (T1), as long as they say; the graph uses arenas
        // held here and by the delegates, which neither move nor shrink; whoever calls ends the run next,
        // which waits where pieces of the host take part.
        unsafe { queue.replay(graph, uploads, downloads) }
    }

    /// Ends a run: waits for the devices, or leaves the work to them where that is wanted and the host takes no part.
    pub(super) fn finish(&mut self) -> Result<(), QueueError> {
        self.mark = None;
        for queue in &mut self.queues {
            if self.leaves && !queue.crosses_host() {
                self.left_on = queue.raw_stream();
                self.mark = Some(queue.leave()?);
            } else {
                queue.synchronize()?;
            }
        }
        Ok(())
    }

    /// Waits until every queue has done its work.
    pub(super) fn synchronize(&mut self) -> Result<(), QueueError> {
        self.queues.iter_mut().try_for_each(|queue| queue.synchronize())
    }

    /// Makes a block all zero.
    pub(super) fn zero(&mut self, block: Carved) -> Result<(), QueueError> {
        if let Some(queue) = self.queue(block.space) {
            // SAFETY: the block came from the arena of this space, held here, and nothing uses it now.
            return unsafe { queue.fill(block.address, block.size_bytes, 0) };
        }
        // SAFETY: an arena's block in a space without a queue is host memory, and writable; nothing uses it now.
        unsafe { block.address.write_bytes(0, block.size_bytes) };
        Ok(())
    }

    /// Makes the bytes at `target` what `source` holds.
    pub(super) fn fill(
        &mut self,
        target: NonNull<u8>,
        space: SpaceId,
        source: &[u8],
    ) -> Result<(), QueueError> {
        if let Some(queue) = self.queue(space) {
            let piece = Piece { target, source: NonNull::from(source).cast(), size_bytes: source.len() };
            // SAFETY: the target is inside a block held here; the source is borrowed until the queue has done
            // its work, which the next line waits for.
            unsafe { queue.upload(&[piece]) }?;
            return queue.synchronize();
        }
        // SAFETY: the target is inside a host block held here, at least as long as the source (the reader checked
        // initial values against their tensors); it overlaps no file.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(source).cast(), source.len()) };
        Ok(())
    }
}
