//! The tests of Arenite, one module per behaviour, through the public API.

mod arena_blocks;
mod arena_set;
mod space_contract;
mod support;
