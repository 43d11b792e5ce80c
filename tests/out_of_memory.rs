//! What a refusal costs: no heap, one word, and a place among those that are set aside.
//!
//! Its own process, since it counts every allocation, and holds every place.

#![allow(clippy::unwrap_used, unused_crate_dependencies, reason = "tests")]

use arenite::space::{Limited, Retries};
use arenite::{AllocError, AllocErrorKind, Arena, ArenaSet, HostSpace, Pool, Request, SpaceId, Tag};
use core::cell::Cell;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::{Arc, Mutex};

struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Places are the whole process's: tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn error(asked_bytes: usize) -> AllocError {
    let layout = Layout::from_size_align(asked_bytes, 1).unwrap();
    AllocError::new(SpaceId::cuda(3), layout, AllocErrorKind::NotNow)
}

#[test]
fn a_refusal_allocates_nothing() {
    let _turn = TURN.lock();
    let layout = Layout::from_size_align(1 << 20, 64).unwrap();
    let mut arena = Arena::new(Limited::new(HostSpace::new(), 1 << 16)).with_name("forward");
    let pool = Pool::new(HostSpace::new()).with_limit(1 << 16).with_name("kv");
    let tag = pool.tag("cache").unwrap();
    drop(pool.allocate(Layout::new::<u64>()).unwrap());
    let set = ArenaSet::builder().space(Arc::new(HostSpace::new())).limit(SpaceId::HOST, 1 << 16).build();
    drop(set.take(SpaceId::HOST, 64, "first").unwrap());
    arena.scoped_as("softmax", |scope| {
        let before = CALLS.get();
        let errors = [
            scope.try_alloc_slice_with(1 << 20, |_| 0_u8).unwrap_err(),
            scope.allocate(layout).unwrap_err(),
            pool.allocate(layout).unwrap_err(),
            pool.acquire(&Request::new(layout).tagged(tag)).unwrap_err(),
        ];
        let refused = set.take(SpaceId::HOST, 1 << 20, "second").unwrap_err();
        assert_eq!(CALLS.get(), before);
        for error in errors.iter().chain([&refused]) {
            assert_eq!((error.asked_bytes(), error.limit_bytes()), (1 << 20, Some(1 << 16)), "{error}");
        }
    });
}

#[test]
fn an_error_is_one_word_and_a_call_that_may_fail_answers_in_registers() {
    assert_eq!(size_of::<AllocError>(), size_of::<usize>());
    assert_eq!(size_of::<Result<&u64, AllocError>>(), 2 * size_of::<usize>());
}

#[test]
fn as_many_errors_as_there_are_places_keep_their_facts_and_more_say_that_they_do_not() {
    let _turn = TURN.lock();
    let mut held: Vec<_> = (0..1024).map(error).collect();
    let lost = error(7).with_live(9).with_retries(Retries::default()).with_space(SpaceId::HOST);
    for (asked_bytes, error) in held.iter().enumerate() {
        assert_eq!((error.asked_bytes(), error.space()), (asked_bytes, SpaceId::cuda(3)));
    }
    assert_eq!((lost.asked_bytes(), lost.live_bytes(), lost.retries()), (0, 0, None));
    assert!(matches!(lost.kind(), AllocErrorKind::Refused { .. }));
    assert!(lost.to_string().contains("1024 other errors are held"), "{lost}");
    assert_eq!(held[5].clone(), lost, "a copy needs a place as well");
    drop(held.swap_remove(5));
    let copy = held[6].clone().with_live(1);
    assert_eq!((copy.asked_bytes(), copy.live_bytes(), held[6].live_bytes()), (6, 1, 0));
    drop(held);
    assert_eq!(lost.with_live(9).live_bytes(), 0, "lost for good");
    assert_eq!(error(7).with_live(9).live_bytes(), 9);
}

#[test]
fn no_two_threads_have_an_error_in_one_place() {
    let _turn = TURN.lock();
    std::thread::scope(|threads| {
        for thread in 0..4_usize {
            threads.spawn(move || {
                let mut held = std::collections::VecDeque::new();
                for round in 0..2000 {
                    let asked_bytes = thread << 20 | round;
                    held.push_back((asked_bytes, error(asked_bytes).with_place(Tag::new("a"), Tag::NONE)));
                    if held.len() > 60 {
                        let (asked_bytes, error) = held.pop_front().unwrap();
                        assert_eq!(error.asked_bytes(), asked_bytes);
                    }
                }
            });
        }
    });
}
