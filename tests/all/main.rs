//! The tests of Arenite, one module per behaviour, through the public API.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::pedantic, reason = "tests")]
#![allow(clippy::cast_possible_truncation, reason = "tests compute with small numbers")]

mod arena_blocks;
mod arena_cases;
mod arena_collections;
mod arena_compile_fail;
mod arena_model;
mod arena_names;
mod arena_out_of_memory;
mod arena_properties;
mod arena_set;
mod arena_shared;
mod plan_data;
mod plan_features;
mod plan_golden;
mod plan_properties;
mod plan_rejects;
mod pool_blocks;
mod pool_cases;
mod pool_properties;
mod pool_streams;
mod space_contract;
mod space_delayed;
mod space_guarded;
mod space_hostile;
mod support;
mod trace_replay;

#[cfg(feature = "exec")]
mod delegate_aoti;
#[cfg(feature = "exec")]
mod golden;
#[cfg(feature = "exec")]
mod kernel_conv;
#[cfg(feature = "exec")]
mod kernel_elementwise;
#[cfg(feature = "exec")]
mod kernel_indexing;
#[cfg(feature = "exec")]
mod kernel_matmul;
#[cfg(feature = "exec")]
mod kernel_norm;
#[cfg(feature = "exec")]
mod kernel_pad;
#[cfg(feature = "exec")]
mod kernel_pool;
#[cfg(feature = "exec")]
mod kernel_prim;
#[cfg(feature = "exec")]
mod kernel_rearrange;
#[cfg(feature = "exec")]
mod kernel_reduce;
#[cfg(feature = "exec")]
mod kernel_softmax;
#[cfg(feature = "exec")]
mod kernel_view;
#[cfg(feature = "exec")]
mod method_hostile;
#[cfg(feature = "exec")]
mod method_needs;
#[cfg(feature = "exec")]
mod method_plans;
#[cfg(feature = "exec")]
mod method_replan;
#[cfg(feature = "exec")]
mod method_runs;
#[cfg(feature = "exec")]
mod method_scratch;
#[cfg(feature = "exec")]
mod program_broken;
#[cfg(feature = "exec")]
mod program_data_files;
#[cfg(feature = "exec")]
mod program_reads;
#[cfg(feature = "exec")]
mod program_rejects;
