//! Arenite for C; `include/arenite.h` is what callers read.
//!
//! ```text
//!   arenite.h  ──►  status + error     every call: arguments checked, work done, failure told in numbers and words
//! ```
//!
//! Each function here stands in the header under the same name, with the same types; `tests/c.rs` compiles a C
//! program against it and compares sizes. Deliberately absent: types of its own. It translates, and nothing more.
//!
//! # Invariants
//! * **C1** Handles that C holds come from `Box::into_raw` here, and go back once.
//! * **C2** No panic leaves: what could panic is caught and becomes [`Status::Invalid`].

mod arena;
mod plan;
mod pool;
mod space;
mod status;

pub use arena::{
    ArenaStats, Checkpoint, OutBlock, arenite_arena_allocate, arenite_arena_allocate_zeroed,
    arenite_arena_checkpoint, arenite_arena_free, arenite_arena_new, arenite_arena_reset,
    arenite_arena_rewind, arenite_arena_stats_of, arenite_arena_trim,
};
pub use plan::{Buffer, PlanSummary, arenite_plan_buffers};
pub use pool::{
    Key, PoolStats, arenite_pool_free, arenite_pool_give_back, arenite_pool_new, arenite_pool_stats_of,
    arenite_pool_take, arenite_pool_trim,
};
pub use space::{
    SpaceCalls, arenite_space_cuda, arenite_space_host, arenite_space_host_accessible, arenite_space_limited,
    arenite_space_own, arenite_space_pinned, arenite_space_release, arenite_space_retain,
};
pub use status::{CError, Status};
