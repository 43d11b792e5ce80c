//! Constants of compiled code: in one arena per program and space, shared by its methods.
//!
//! Deliberately absent: which constants there are. The payload says so.

use crate::arena::{ArenaSet, PooledArena};
use crate::delegate::DelegateError;
use crate::space::{Piece, Queue, SpaceId};
use core::alloc::Layout;
use core::ptr::NonNull;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The alignment of a constant, in bytes: what compiled code assumes of memory it did not allocate itself.
const ALIGN_BYTES: usize = 256;

/// Weights that live, by the number and the space that they are shared under.
type Shared = HashMap<(usize, SpaceId), Weak<Weights>>;

static SHARED: Mutex<Option<Shared>> = Mutex::new(None);

/// The constants of one program in one space.
#[derive(Debug)]
pub(super) struct Weights {
    space: SpaceId,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    arena: PooledArena,
    /// By where the bytes are in the program: one address is one constant as long as the program is there,
    /// and it is as long as a method of it is.
    constants: HashMap<(usize, usize), Address>,
    bytes: usize,
}

/// Where a constant is.
#[derive(Clone, Copy, Debug)]
struct Address(NonNull<u8>);

// SAFETY: an address; reaching the bytes takes `unsafe`, which argues for itself.
unsafe impl Send for Address {}

impl Weights {
    /// The weights that methods with this number share; 0 shares with none.
    pub(super) fn shared(
        arenas: &ArenaSet,
        space: SpaceId,
        sharing: usize,
    ) -> Result<Arc<Self>, DelegateError> {
        if sharing == 0 {
            return Self::new(arenas, space).map(Arc::new);
        }
        let mut shared = SHARED.lock();
        let shared = shared.get_or_insert_default();
        if let Some(found) = shared.get(&(sharing, space)).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let made = Arc::new(Self::new(arenas, space)?);
        shared.retain(|_, weights| weights.strong_count() > 0);
        shared.insert((sharing, space), Arc::downgrade(&made));
        Ok(made)
    }

    fn new(arenas: &ArenaSet, space: SpaceId) -> Result<Self, DelegateError> {
        let arena = take(arenas, space, "constants")?;
        let held = Mutex::new(Held { arena, constants: HashMap::new(), bytes: 0 });
        Ok(Self { space, held })
    }

    /// The constant with these bytes, brought here unless it is already. The queue must be waited for before
    /// `bytes` go.
    pub(super) fn bring(
        &self,
        bytes: &[u8],
        queue: Option<&mut (dyn Queue + 'static)>,
    ) -> Result<NonNull<u8>, DelegateError> {
        let key = (bytes.as_ptr().addr(), bytes.len());
        let mut held = self.held.lock();
        if let Some(address) = held.constants.get(&key) {
            return Ok(address.0);
        }
        let refused = |reason| DelegateError::Memory {
            space: self.space,
            what: "a constant",
            asked_bytes: bytes.len(),
            reason,
        };
        let layout = Layout::from_size_align(bytes.len().max(1), ALIGN_BYTES)
            .map_err(|_| refused("more than can be addressed".into()))?;
        let target = held.arena.allocate(layout).map_err(|error| refused(error.to_string()))?.address();
        fill(target, bytes, queue)?;
        held.constants.insert(key, Address(target));
        held.bytes += bytes.len();
        Ok(target)
    }

    /// The bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.held.lock().bytes
    }

    /// Where they are.
    pub(super) fn space(&self) -> SpaceId {
        self.space
    }
}

/// An arena of a space, empty.
pub(super) fn take(
    arenas: &ArenaSet,
    space: SpaceId,
    owner: &'static str,
) -> Result<PooledArena, DelegateError> {
    arenas.take(space, 0, owner).map_err(|error| DelegateError::Memory {
        space,
        what: owner,
        asked_bytes: 0,
        reason: error.to_string(),
    })
}

/// Copies bytes of the host to `target`, by the queue where there is one.
pub(super) fn fill(
    target: NonNull<u8>,
    bytes: &[u8],
    queue: Option<&mut (dyn Queue + '_)>,
) -> Result<(), DelegateError> {
    let source = NonNull::from(bytes).cast::<u8>();
    match queue {
        Some(queue) => {
            let piece = Piece { target, source, size_bytes: bytes.len() };
            // SAFETY: the target is an arena's block of at least this size in the queue's space; the source
            // is borrowed, and whoever calls waits for the queue before it goes.
            unsafe { queue.upload(&[piece]) }?;
        }
        None => {
            // SAFETY: the target is an arena's block of at least this size on the host, newly allocated or
            // owned by the caller; it cannot overlap a borrowed slice.
            unsafe { target.copy_from_nonoverlapping(source, bytes.len()) };
        }
    }
    Ok(())
}
