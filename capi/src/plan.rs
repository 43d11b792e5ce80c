//! Planning as C calls it: arrays in, offsets out.
//!
//! Deliberately absent: several spaces, pins and aliases; a caller who needs them links the Rust crate.

use crate::status::{CError, Failure, Status, guarded};
use arenite::plan::{
    Budget, BufferSpec, Exact, FirstFit, GreedyBySize, Lifespan, Naive, PlanError, Planner, Problem,
    Status as Proof,
};
use core::ffi::c_int;
use core::time::Duration;

/// A buffer to place; `arenite_buffer` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    size_bytes: u64,
    align_bytes: u64,
    first: u64,
    last: u64,
}

/// How good a plan is; `arenite_plan` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanSummary {
    peak_bytes: u64,
    bound_bytes: u64,
    is_optimal: i32,
    reserved: u32,
}

/// Writes one offset per buffer.
///
/// # Safety
/// `buffers` is valid for reads and `offsets` for writes of `count` items, or `count` is 0; `plan` and `error` are
/// null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_plan_buffers(
    buffers: *const Buffer,
    count: usize,
    strategy: c_int,
    budget_ms: u64,
    offsets: *mut u64,
    plan: *mut PlanSummary,
    error: *mut CError,
) -> Status {
    let work = || {
        if count > 0 && (buffers.is_null() || offsets.is_null()) {
            return Err(Failure::invalid("buffers and offsets must not be NULL where count is not 0"));
        }
        if count > isize::MAX.unsigned_abs() / size_of::<Buffer>() {
            return Err(Failure::invalid(format_args!("count is {count}, more than can be addressed")));
        }
        let buffers = if count == 0 {
            &[]
        } else {
            // SAFETY: not null, and the caller promises so many buffers, whose bytes fit in `isize`.
            unsafe { core::slice::from_raw_parts(buffers, count) }
        };
        let spec = |buffer: &Buffer| {
            let lifespan = Lifespan::new(buffer.first, buffer.last);
            BufferSpec::new(buffer.size_bytes, lifespan).align_bytes(buffer.align_bytes)
        };
        let specs = buffers.iter().map(spec).collect();
        let problem = Problem::new(specs);
        let found = match strategy {
            0 => Naive.plan(&problem),
            1 => FirstFit.plan(&problem),
            2 => GreedyBySize.plan(&problem),
            3 => Exact::new(Budget::default().and_time(Duration::from_millis(budget_ms))).plan(&problem),
            other => {
                return Err(Failure::invalid(format_args!(
                    "strategy is {other}, expected an arenite_strategy"
                )));
            }
        };
        let found = found.map_err(|failure: PlanError| match failure {
            PlanError::Infeasible { .. } => Failure::never_fits(failure),
            other => Failure::invalid(other),
        })?;
        if count > 0 {
            let len = found.offsets.len().min(count);
            // SAFETY: `len` is at most `count`, and the caller promises room for so many offsets, apart from ours.
            unsafe { offsets.copy_from_nonoverlapping(found.offsets.as_ptr(), len) };
        }
        // SAFETY: null or valid for a write by the caller's promise.
        if let (Some(target), Some(report)) = (unsafe { plan.as_mut() }, found.reports.first()) {
            *target = PlanSummary {
                peak_bytes: report.peak_bytes,
                bound_bytes: report.bound_bytes,
                is_optimal: i32::from(report.status == Proof::Optimal),
                reserved: 0,
            };
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guarded(error, work) }
}
