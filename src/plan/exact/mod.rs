#![forbid(unsafe_code)]
//! The exact search: decides whether a part fits under a height, and how low it can go.

mod drive;
mod net;
mod search;
mod turns;

pub(crate) use drive::{Best, dive, improve};
