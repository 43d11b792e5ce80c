//! Memory spaces: the places that blocks come from.

mod id;
mod queue;

pub use id::{NAME_LEN_MAX, ParseSpaceIdError, SpaceId};
pub use queue::{GraphId, Piece, Queue, QueueError};
