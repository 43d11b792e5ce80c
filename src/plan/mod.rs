#![forbid(unsafe_code)]
//! Memory planning: one arena for many buffers, each alive for some steps only.
//!
//! ```text
//! bytes ^
//!       |  +---------+      +-----+
//!       |  |    b    |      |  d  |        peak: the highest end
//!       |  +-+-------+--+---+-----+        bound: the most bytes alive at one step
//!       |    |    c     |   e   |          optimal: peak equals bound
//!       +----+----------+-------+---> steps
//! ```
//!
//! A [`Problem`] holds [`BufferSpec`]s (size, alignment, [`Lifespan`], space, pin, alias, idle gaps) and the
//! [`SpaceSpec`]s with their capacities. A [`Planner`] gives a [`Plan`], verified by [`verify`], or says why
//! there is none:
//!
//! | strategy | what it does |
//! |---|---|
//! | [`Naive`] | shares nothing |
//! | [`FirstFit`], [`BestFit`] | in order of start, as a dynamic allocator |
//! | [`Tiered`] | in order of start, around what is large or alive at the peaks: for very long programs |
//! | [`GreedyBySize`] | the largest first, into the lowest gap |
//! | [`Portfolio`] | fills valley by valley, and tries several orders: the fast mode |
//! | [`Exact`] | searches within a [`Budget`], proves optimality or says how far it is |
//!
//! [`replan`] mends a plan after a change, a [`Replanner`] after many; [`csv`] reads and writes problems and plans; [`svg`] draws them;
//! [`culprits`] says which buffers make the peak.
//!
//! The same input gives the same plan on any machine (a budget in time aside). Deliberately absent:
//! pointers and programs; who derives lifespans, and who carves memory by a plan, are other layers.

mod between;
mod bound;
mod budget;
pub mod csv;
mod error;
mod exact;
mod fit;
mod instance;
mod neighbours;
mod portfolio;
mod profile;
mod reduce;
mod replan;
mod replanner;
mod result;
mod skyline;
mod solve;
mod spec;
mod spill;
mod strategies;
mod stream;
pub mod svg;
mod tiers;
mod verify;
mod verify_few;
mod verify_near;

pub use bound::{Culprits, culprits};
pub use budget::{Budget, Cancel};
pub use error::{AliasFault, CULPRITS_MAX, PlanError, Violation};
pub use replan::{Replanned, replan};
pub use replanner::Replanner;
pub use result::{Plan, SpaceReport, Status};
pub use solve::lower_bounds;
pub use spec::{Alias, BufferSpec, IdleGap, Lifespan, Problem, SpaceSpec};
pub use strategies::{BestFit, Exact, FirstFit, GreedyBySize, Naive, OnImproved, Planner, Portfolio, Tiered};
pub use verify::verify;
