//! Arenite.

pub mod plan;
pub mod space;

#[cfg(feature = "exec")]
pub mod kernel;
#[cfg(feature = "exec")]
pub mod tensor;
#[cfg(feature = "exec")]
pub mod value;

pub use space::{ParseSpaceIdError, SpaceId};
