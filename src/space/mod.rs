//! Memory spaces: the places that blocks come from.

mod id;

pub use id::{NAME_LEN_MAX, ParseSpaceIdError, SpaceId};
