#![forbid(unsafe_code)]
//! The exact search: decides whether a part fits under a height, and how low it can go.

mod drive;
mod net;
mod rank;
mod search;
mod turns;

pub(crate) use drive::{Best, improve};
pub(crate) use net::Units;

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There is a plan: see `Search::offsets`.
    Solved,
    /// There is no plan of this height.
    Exhausted,
    /// The nodes granted are used up.
    Paused,
}
