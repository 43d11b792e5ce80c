#![cfg_attr(feature = "exec", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "exec"),
    doc = "Arena memory for ML runtimes: memory spaces, arenas and a planner."
)]
//!
//! # Where to begin
//!
//! | you want | read |
//! |---|---|
//! | memory for a runtime of your own | the next section; then [`arena`], [`pool`], [`space`] |
//! | offsets for buffers with lifespans | [`plan`] |
#![cfg_attr(feature = "exec", doc = "| to load and run a program | [`program`], then [`exec`] |")]
#![cfg_attr(feature = "exec", doc = "| an operator or back end of your own | [`kernel`], [`delegate`] |")]
//! | to know how it is built | `design.md`, at the top of the repository |
#![doc = include_str!("allocator.md")]

pub mod align;
pub mod arena;
pub mod plan;
pub mod pool;
pub mod space;
mod tlsf;
pub mod trace;

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

#[cfg(doc)]
pub mod design {
    #![doc = include_str!("../design.md")]
}

pub use arena::{
    Arena, ArenaSet, ArenaSetBuilder, ArenaSetReport, ArenaStats, Checkpoint, DevicePtr, Meter, MissingSpace,
    OpenSpace, OwnerReport, PooledArena, Scope, ScopeGuard, SharedArena, SpaceReport, Usage,
};
pub use pool::{Acquired, Mark, Pool, PoolBlock, PoolKey, PoolKeyError, PoolStats, Readiness, Request};
pub use space::{
    AllocError, AllocErrorKind, Block, Delayed, DeviceRegion, FailNth, Guarded, HeapSpace, HostAccessible,
    HostRegion, HostSpace, HostStats, LimitSource, Limited, MemorySpace, Owner, ParseSpaceIdError, Recording,
    Reserve, Retries, SpaceCounts, SpaceId, Tag,
};
