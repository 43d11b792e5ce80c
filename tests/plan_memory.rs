//! Planning in the fast mode takes at most 200 bytes a buffer, the plan included.
//!
//! Its own process, since it counts every byte.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "all/plan_data.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the other tests")]
mod plan_data;

use arenite::plan::{GreedyBySize, Planner, Portfolio, Problem};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn took(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes to the system allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes held at once while a problem is planned, over those held before, a buffer.
fn bytes_a_buffer(planner: &dyn Planner, problem: &Problem) -> usize {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    drop(planner.plan(problem).unwrap());
    (MOST.load(Ordering::Relaxed) - before) / problem.buffers.len()
}

/// One test: two at once would count each other's bytes.
#[test]
fn the_fast_mode_takes_few_bytes_a_buffer() {
    for (count, seed) in [(10_000, 3), (100_000, 1)] {
        let problem = plan_data::sparse(count, seed);
        for planner in [&Portfolio as &dyn Planner, &GreedyBySize] {
            let bytes = bytes_a_buffer(planner, &problem);
            assert!(bytes <= 200, "{bytes} bytes a buffer for {count} buffers");
        }
    }
    let crowded = plan_data::crowded(20_000, 2_000, 4, false, false);
    let bytes = bytes_a_buffer(&GreedyBySize, &crowded);
    assert!(bytes <= 200, "{bytes} bytes a buffer in a crowd");
}
