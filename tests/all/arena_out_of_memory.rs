//! Every call for memory fails once, in turn, until the whole flow goes through: nothing leaks, nothing
//! that was given is lost, and the same request succeeds when it is made again.

use crate::support::fake_device::FakeDevice;
use arenite::{AllocError, Arena, ArenaSet, FailNth, HostSpace, MemorySpace, Recording};
use core::alloc::Layout;
use std::sync::Arc;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// Runs `flow` with the n-th call failing, for every n; says how many calls there were.
fn sweep(make: impl Fn() -> Arc<dyn MemorySpace>, flow: impl Fn(&Arc<dyn MemorySpace>)) -> u64 {
    for nth in 1.. {
        let space = Arc::new(FailNth::new(Recording::new(make()), nth));
        flow(&(Arc::clone(&space) as Arc<dyn MemorySpace>));
        let counts = space.inner().counts();
        assert_eq!((counts.live_bytes, counts.reserved_bytes, counts.live_blocks), (0, 0, 0), "call {nth}");
        if space.asks() < nth {
            return nth;
        }
    }
    unreachable!()
}

fn spaces() -> [fn() -> Arc<dyn MemorySpace>; 4] {
    [
        || Arc::new(HostSpace::new()),
        || Arc::new(HostSpace::new().with_exact_blocks()),
        || Arc::new(FakeDevice::new(1 << 34)),
        || Arc::new(FakeDevice::new(1 << 34).reserving()),
    ]
}

/// Asks, and asks again after a failure, which must have changed nothing and not come twice.
fn insist<T>(ask: impl Fn() -> Result<T, AllocError>, state: impl Fn() -> usize) -> T {
    let before = state();
    ask().unwrap_or_else(|_| {
        assert_eq!(state(), before, "a failed call changes nothing");
        ask().expect("only one call fails")
    })
}

#[test]
fn an_arena_survives_each_failing_call() {
    for make in spaces() {
        let calls = sweep(make, |space| {
            let mut arena = Arena::new(space);
            for round in 0..3 {
                for size in [100, 70_000, 1 << 20, 5, 3 << 20] {
                    let block = insist(|| arena.allocate(layout(size, 64)), || arena.live_bytes());
                    assert_eq!(block.size_bytes(), size);
                }
                arena.reset();
                if round == 1 {
                    arena.trim();
                }
            }
        });
        assert!(calls > 3, "{calls} calls");
    }
}

#[test]
fn an_arena_set_survives_each_failing_call() {
    for make in spaces() {
        let calls = sweep(make, |space| {
            let id = space.id();
            let arenas = ArenaSet::builder().space(Arc::clone(space)).limit(id, 1 << 30).build();
            let current = || arenas.report().spaces[0].current_bytes;
            let first = insist(|| arenas.take(id, 1 << 20, "first"), current);
            let second = insist(|| arenas.take(id, 768, "second"), current);
            insist(|| first.allocate(layout(1 << 20, 64)), || first.claimed_bytes());
            insist(|| second.allocate(layout(2 << 20, 64)), || second.claimed_bytes());
            assert_eq!(current(), first.claimed_bytes() + second.claimed_bytes());
            drop(first);
            drop(insist(|| arenas.take(id, 100 << 20, "third"), current));
            drop(second);
            assert_eq!(current(), 0);
            arenas.trim();
        });
        assert!(calls > 2, "{calls} calls");
    }
}

#[test]
fn an_exact_arena_survives_each_failing_call() {
    for make in spaces() {
        sweep(make, |space| {
            let arena = Arena::exact(space, 1000).or_else(|_| Arena::exact(space, 1000)).unwrap();
            arena.allocate(layout(1000, 1)).unwrap();
        });
    }
}
