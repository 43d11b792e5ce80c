//! Arenite.

pub mod align;
pub mod arena;
pub mod plan;
pub mod space;

#[cfg(feature = "exec")]
pub mod delegate;
#[cfg(feature = "exec")]
pub mod exec;
#[cfg(feature = "exec")]
pub mod kernel;
#[cfg(feature = "exec")]
pub mod program;
#[cfg(feature = "exec")]
pub mod tensor;
#[cfg(feature = "exec")]
pub mod value;

pub use arena::{
    Arena, ArenaSet, ArenaSetBuilder, ArenaSetReport, ArenaStats, Checkpoint, MissingSpace, OpenSpace,
    OwnerReport, PooledArena, Scope, ScopeGuard, SpaceReport,
};
pub use space::{
    AllocError, AllocErrorKind, Block, FailNth, HostAccessible, HostSpace, HostStats, LimitSource, Limited,
    MemorySpace, ParseSpaceIdError, Recording, Reserve, SpaceCounts, SpaceId,
};
