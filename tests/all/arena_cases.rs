//! Cases that other allocators got wrong, shrunk to run on any machine.

use crate::support::fake_device::FakeDevice;
use arenite::{
    AllocErrorKind, Arena, ArenaSet, HeapSpace, HostSpace, LimitSource, Limited, MemorySpace, Recording,
    SpaceId,
};
use core::alloc::Layout;
use std::sync::Arc;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

const MIB: usize = 1 << 20;

/// bumpalo #314: failing initialisers inflate the arena.
#[test]
fn h1_failing_initialisers_leave_used_and_held_bytes_as_they_were() {
    let mut arena = Arena::new(HostSpace::new());
    for _ in 0..3 {
        arena.allocate(layout(139_040, 128)).unwrap();
    }
    let before = arena.stats();
    for _ in 0..36 {
        let mark = arena.checkpoint();
        let result: Result<(), ()> = arena.root_scope().scoped(|scope| {
            scope.alloc_slice_fill(128, 0u8);
            Err(())
        });
        assert_eq!((result, arena.checkpoint()), (Err(()), mark));
    }
    let after = arena.stats();
    assert_eq!((before.live_bytes, before.capacity_bytes), (after.live_bytes, after.capacity_bytes));
}

/// bumpalo #152: one big block doubles the next.
#[test]
fn h2_a_big_block_does_not_double_the_next() {
    let asked_bytes = 10 + MIB + (8 << 10);
    let spaces: [Box<dyn MemorySpace>; 3] =
        [Box::new(HostSpace::new()), Box::new(HostSpace::new().with_exact_blocks()), Box::new(HeapSpace)];
    for space in spaces {
        let space = Recording::new(space);
        let arena = Arena::new(&space);
        for size in [10, MIB, 8 << 10] {
            arena.allocate(layout(size, 8)).unwrap();
        }
        assert!(space.counts().live_bytes <= asked_bytes + asked_bytes / 4 + (64 << 10));
    }
}

/// RMM #496: growth overshoots the device and fails.
#[test]
fn h3_growth_steps_down_to_the_need() {
    for device in [FakeDevice::new(32_510 * MIB), FakeDevice::new(32_510 * MIB).reserving()] {
        let arena = Arena::new(&device);
        for _ in 0..3 {
            arena.allocate(layout(8192 * MIB, 256)).unwrap();
        }
        arena.allocate(layout(device.live_bytes().abs_diff(32_510 * MIB) / 2, 256)).unwrap();
    }
}

/// `CuPy` #7678: the limit is reached by memory that nobody uses.
#[test]
fn h4_a_limit_is_not_reached_by_idle_memory() {
    let device = Arc::new(FakeDevice::new(1 << 40));
    let id = SpaceId::cuda(0);
    let arenas = ArenaSet::builder().space(Arc::clone(&device) as _).limit(id, 1024 * MIB).build();
    drop(arenas.take(id, 512 * MIB, "first").unwrap());
    let second = arenas.take(id, 768 * MIB, "second").unwrap();
    assert_eq!((device.live_bytes(), second.claimed_bytes()), (768 * MIB, 768 * MIB));
}

/// Umpire #906: a pool takes its block from the space anew in every round.
#[test]
fn h5_from_the_second_round_on_the_space_is_not_called() {
    for device in [FakeDevice::new(1 << 30).with_align(16), FakeDevice::new(1 << 30).reserving()] {
        let device = Arc::new(device);
        let arenas = ArenaSet::builder().space(Arc::clone(&device) as _).build();
        let mut calls = Vec::new();
        for _ in 0..5 {
            let pair = [(); 2].map(|()| arenas.take(SpaceId::cuda(0), 1032, "round").unwrap());
            for arena in &pair {
                arena.allocate(layout(1032, 16)).unwrap();
            }
            drop(pair);
            calls.push(device.calls());
        }
        assert!(calls.iter().all(|&count| count == calls[0]), "{calls:?}");
    }
}

/// RMM #2002: an alignment under the space's wraps a size.
#[test]
fn h6_small_and_huge_requests_give_the_right_block_or_none() {
    for device in [FakeDevice::new(1 << 30), FakeDevice::new(1 << 30).reserving()] {
        let arena = Arena::new(&device);
        for (size, align) in [(32, 32), (0, 32), (1, 1)] {
            let block = arena.allocate(layout(size, align)).unwrap();
            assert_eq!((block.size_bytes(), block.address_bits() % align as u64), (size, 0));
        }
        for below in [0, 1, 255, 256, 257, 4095] {
            let size = isize::MAX as usize - 255 - below;
            let error = arena.allocate(layout(size, 256)).unwrap_err();
            assert!(error.asked_bytes() >= size.min(1 << 62), "{error}");
        }
        assert!(arena.live_bytes() < 1024);
    }
}

/// RMM #2312: requests of no bytes collide in the books.
#[test]
fn h7_empty_requests_from_many_threads_leave_the_ledger_at_zero() {
    let space = Arc::new(Recording::new(HostSpace::new()));
    let arenas = ArenaSet::builder().space(Arc::clone(&space) as _).build();
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for round in 0..2000 {
                    let arena = arenas.take(SpaceId::HOST, if round % 3 == 0 { 64 } else { 0 }, "t").unwrap();
                    arena.allocate(layout(0, 1)).unwrap();
                }
            });
        }
    });
    let report = &arenas.report().spaces[0];
    assert_eq!((report.current_bytes, report.live_arenas), (0, 0));
    arenas.close();
    assert_eq!((space.counts().live_bytes, space.counts().live_blocks), (0, 0));
}

/// cubecl #1438, #1474: "full now" is taken for "never fits".
#[test]
fn h9_full_now_is_told_from_never_fits() {
    let device = Arc::new(FakeDevice::new(100 * MIB));
    let id = SpaceId::cuda(0);
    let arenas = ArenaSet::builder().space(Arc::clone(&device) as _).build();
    let taken: Vec<_> =
        [1, 4, 16, 1, 4, 16, 32, 16].iter().map(|mib| arenas.take(id, mib * MIB, "class").unwrap()).collect();
    let error = arenas.take(id, 90 * MIB, "large").unwrap_err();
    assert_eq!(error.kind(), AllocErrorKind::NotNow);
    drop(taken);
    drop(arenas.take(id, 90 * MIB, "large").unwrap());
    let never = AllocErrorKind::OverLimit { limit_bytes: 100 * MIB, source: LimitSource::Space };
    assert_eq!(arenas.take(id, 101 * MIB, "larger").unwrap_err().kind(), never);
}

/// A limit that wraps a space holds for arenas and sets over it alike.
#[test]
fn a_wrapped_limit_shows_through_an_arena_set() {
    let space = Arc::new(Limited::new(HostSpace::new(), 1 << 20));
    let arenas = ArenaSet::builder().space(space).build();
    let error = arenas.take(SpaceId::HOST, 2 << 20, "large").unwrap_err();
    assert_eq!(error.limit_bytes(), Some(1 << 20));
}

/// The end of a space is used up in few chunks, not block by block.
#[test]
fn a_bounded_space_is_used_to_its_end_in_few_chunks() {
    let memory = vec![core::mem::MaybeUninit::uninit(); 1 << 20].into_boxed_slice();
    let space = arenite::HostRegion::from_box(arenite::SpaceId::HOST, memory);
    let arena = Arena::new(&space);
    let given = core::iter::from_fn(|| arena.try_alloc(7_u64).ok()).count();
    assert!(given * 8 >= (1 << 20) / 100 * 99, "{given}");
    assert!(arena.stats().chunks <= 40, "{}", arena.stats().chunks);
}
