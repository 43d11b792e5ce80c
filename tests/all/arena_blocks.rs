//! Arenas over any space: blocks, resets, trimming, figures.

use crate::support::fake_device::FakeDevice;
use crate::support::memory::{fill, holds};
use crate::support::numbers::Numbers;
use arenite::{Arena, Checkpoint, HostSpace, Limited, MemorySpace, Recording};
use core::alloc::Layout;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn a_new_arena_holds_nothing() {
    let space = Recording::new(HostSpace::new());
    let arena = Arena::new(&space);
    assert_eq!(arena.stats().capacity_bytes, 0);
    arena.allocate(layout(0, 4096)).unwrap();
    assert_eq!(space.counts().asks, 0);
}

#[test]
fn a_reserving_arena_is_one_range_that_grows_in_place() {
    for space in [FakeDevice::new(1 << 30), FakeDevice::new(1 << 30).reserving()] {
        let arena = Arena::new(&space);
        let mut last_end = 0;
        for size in [1, 100, 70_000, 3 << 20, 5, 20 << 20] {
            let block = arena.allocate(layout(size, 256)).unwrap();
            assert_eq!(block.address_bits() % 256, 0);
            assert!(block.address_bits() >= last_end);
            last_end = block.address_bits() + size as u64;
        }
        let stats = arena.stats();
        assert_eq!(stats.chunks == 1, space.as_reserve().is_some());
        assert_eq!(stats.blocks, 6);
        assert_eq!(stats.capacity_bytes, space.live_bytes());
        drop(arena);
        assert_eq!((space.live_bytes(), space.live_blocks()), (0, 0));
    }
}

#[test]
fn reset_keeps_the_memory_and_makes_no_call() {
    for space in [FakeDevice::new(1 << 30), FakeDevice::new(1 << 30).reserving()] {
        let mut arena = Arena::new(&space);
        for round in 0..4 {
            for size in [10, 5000, 90_000, 200_000] {
                arena.allocate(layout(size, 64)).unwrap();
            }
            let calls = space.calls();
            let live = arena.stats().live_bytes;
            arena.reset();
            assert_eq!(space.calls(), calls, "round {round}");
            assert_eq!((arena.stats().live_bytes, arena.stats().peak_bytes), (0, live));
            if round > 0 {
                let blocks: u64 = arena.stats().blocks;
                assert_eq!(blocks, 0);
            }
        }
        let calls = space.calls();
        for size in [10, 5000, 90_000, 200_000] {
            arena.allocate(layout(size, 64)).unwrap();
        }
        assert_eq!(space.calls(), calls);
    }
}

#[test]
fn trim_gives_back_what_is_not_in_use() {
    for space in [FakeDevice::new(1 << 30), FakeDevice::new(1 << 30).reserving()] {
        let mut arena = Arena::new(&space);
        arena.allocate(layout(1000, 64)).unwrap();
        let mark = arena.checkpoint();
        arena.allocate(layout(10 << 20, 64)).unwrap();
        arena.trim();
        assert!(space.live_bytes() >= 10 << 20);
        assert!(arena.rewind(mark));
        arena.trim_to(5 << 20);
        if arena.stats().chunks == 1 && space.as_reserve().is_some() {
            assert!((5 << 20..6 << 20).contains(&space.live_bytes()), "{}", space.live_bytes());
        }
        arena.trim();
        assert!(space.live_bytes() <= 64 << 10);
        assert_eq!(arena.stats().capacity_bytes, space.live_bytes());
        arena.reset();
        arena.trim();
        assert_eq!((space.live_bytes(), space.live_blocks()), (0, 0));
        arena.allocate(layout(1000, 64)).unwrap();
    }
}

#[test]
fn an_exact_arena_holds_what_was_asked_and_never_grows() {
    let space = FakeDevice::new(1 << 30);
    let mut arena = Arena::exact(&space, 1000).unwrap();
    assert_eq!(space.live_bytes(), 1000);
    arena.allocate(layout(600, 8)).unwrap();
    let error = arena.allocate(layout(401, 1)).unwrap_err();
    assert_eq!(error.kind(), arenite::AllocErrorKind::NotNow);
    assert_eq!(error.live_bytes(), 600);
    let error = arena.allocate(layout(1001, 1)).unwrap_err();
    assert_eq!(error.kind(), arenite::AllocErrorKind::NeverFits);
    arena.allocate(layout(400, 8)).unwrap();
    arena.reset();
    arena.allocate(layout(1000, 256)).unwrap();
    assert_eq!(space.live_bytes(), 1000);
}

#[test]
fn a_failed_allocation_changes_nothing() {
    let space = Limited::new(HostSpace::new(), 200_000);
    let arena = Arena::new(&space);
    arena.allocate(layout(1000, 8)).unwrap();
    let before = (arena.stats(), space.live_bytes());
    let error = arena.allocate(layout(300_000, 8)).unwrap_err();
    assert_eq!((error.live_bytes(), error.limit_bytes()), (1000, Some(200_000)));
    assert_eq!((arena.stats(), space.live_bytes()), before);
    for size in [isize::MAX as usize, 1 << 62] {
        arena.allocate(layout(size, 1)).unwrap_err();
        assert_eq!((arena.stats(), space.live_bytes()), before);
    }
    arena.allocate(layout(150_000, 8)).unwrap();
}

#[test]
fn zeroed_blocks_are_zero_however_often_memory_is_reused() {
    for space in [HostSpace::new(), HostSpace::new().with_exact_blocks()] {
        let mut arena = Arena::new(&space);
        let mut numbers = Numbers::new(3);
        for round in 0..200 {
            let size = 1 + numbers.below(if round % 9 == 0 { 300_000 } else { 3000 });
            if numbers.below(2) == 0 {
                let block = arena.allocate_zeroed(layout(size, 1 << numbers.below(8))).unwrap();
                assert!(holds(&space, block, 0), "round {round}");
                fill(&space, block, 0xff);
            } else {
                fill(&space, arena.allocate(layout(size, 8)).unwrap(), 0xff);
            }
            match numbers.below(12) {
                0 => arena.reset(),
                1 => arena.trim(),
                2 => {
                    let mark = arena.checkpoint();
                    fill(&space, arena.allocate(layout(size, 8)).unwrap(), 0xff);
                    assert!(arena.rewind(mark));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn fresh_memory_is_known_to_be_zero() {
    let space = HostSpace::new();
    let mut arena = Arena::new(&space);
    let (block, stale_bytes) = arena.allocate_stale(layout(4096, 64)).unwrap();
    assert_eq!(stale_bytes, 0);
    assert!(holds(&space, block, 0));
    arena.reset();
    let (_, stale_bytes) = arena.allocate_stale(layout(8192, 64)).unwrap();
    assert_eq!(stale_bytes, 4096);
    let device = FakeDevice::new(1 << 20);
    let arena = Arena::new(&device);
    assert_eq!(arena.allocate_stale(layout(100, 8)).unwrap().1, 100);
    assert!(arena.allocate_zeroed(layout(100, 8)).is_err());
}

#[test]
fn a_checkpoint_of_the_past_is_refused() {
    for space in [HostSpace::new(), HostSpace::new().with_exact_blocks()] {
        let mut arena = Arena::new(&space);
        let start = arena.checkpoint();
        for size in [10, 9000, 80_000] {
            arena.allocate(layout(size, 1)).unwrap();
        }
        let live = arena.live_bytes();
        let full = arena.checkpoint();
        arena.allocate(layout(400_000, 1)).unwrap();
        assert!(arena.rewind(full));
        assert_eq!(arena.live_bytes(), live);
        assert!(arena.rewind(start));
        assert_eq!(arena.live_bytes(), 0);
        assert!(!arena.rewind(full));
        let mut other = Arena::new(HostSpace::new());
        other.alloc(1u8);
        assert!(!other.rewind(full));
    }
}

#[test]
fn a_checkpoint_that_was_made_up_is_refused() {
    let mut arena = Arena::new(HostSpace::new());
    arena.alloc([0u8; 100]);
    let [cursor, base] = arena.checkpoint().to_parts();
    for parts in
        [[base - 1, base], [1, base], [0, base], [cursor + 1, base], [cursor, base + 64], [cursor, 0]]
    {
        assert!(!arena.rewind(Checkpoint::from_parts(parts)), "{parts:?}");
    }
    assert!(arena.rewind(Checkpoint::from_parts([cursor - 50, base])), "a point within is a point");
    assert_eq!(arena.live_bytes(), 50);
}
