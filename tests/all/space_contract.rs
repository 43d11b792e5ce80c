//! What every memory space promises, stamped onto every space and wrapper.

use crate::support::fake_device::FakeDevice;
use crate::support::memory::{fill, holds};
use crate::support::numbers::Numbers;
use arenite::{
    AllocErrorKind, Block, Delayed, FailNth, Guarded, HeapSpace, HostRegion, HostSpace, Limited, MemorySpace,
    Pool, Recording, SharedArena, SpaceId,
};
use core::alloc::Layout;
use core::time::Duration;
use std::sync::Arc;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

fn give_back(space: &dyn MemorySpace, block: Block) {
    // SAFETY: every test gives a block back once, to the space it is from.
    unsafe { space.deallocate(block) };
}

fn blocks_are_aligned_and_large_enough(space: &dyn MemorySpace) {
    for align in [1, 8, 64, 4096, 1 << 16, 2 << 20] {
        for size in [1, 7, 64, 5000, 70_000] {
            let block = space.allocate(layout(size, align)).unwrap();
            assert_eq!((block.size_bytes(), block.align()), (size, align));
            assert_eq!(block.address_bits() % align.max(space.base_align()) as u64, 0, "{size} at {align}");
            fill(space, block, 0xa5);
            assert!(holds(space, block, 0xa5));
            give_back(space, block);
        }
    }
}

fn live_blocks_are_disjoint_in_any_order(space: &dyn MemorySpace) {
    let mut numbers = Numbers::new(7);
    let mut live: Vec<(Block, u8)> = Vec::new();
    for step in 0..300 {
        if live.len() > 20 || (step % 3 == 2 && !live.is_empty()) {
            let (block, byte) = live.swap_remove(numbers.below(live.len()));
            assert!(holds(space, block, byte));
            give_back(space, block);
        } else {
            let size = 1 + numbers.below(if step % 10 == 0 { 100_000 } else { 500 });
            let block = space.allocate(layout(size, 1 << numbers.below(8))).unwrap();
            let byte = u8::try_from(step % 251).unwrap();
            fill(space, block, byte);
            let end = block.address_bits() + size as u64;
            for (other, _) in &live {
                let (start, other_end) =
                    (other.address_bits(), other.address_bits() + other.size_bytes() as u64);
                assert!(end <= start || other_end <= block.address_bits(), "{block:?} and {other:?}");
            }
            live.push((block, byte));
        }
    }
    for (block, byte) in live {
        assert!(holds(space, block, byte));
        give_back(space, block);
    }
}

fn blocks_of_no_bytes_are_given_and_taken(space: &dyn MemorySpace) {
    for align in [1, 64, 4096] {
        let block = space.allocate(layout(0, align)).unwrap();
        assert_eq!(block.size_bytes(), 0);
        assert_eq!(block.address_bits() % align as u64, 0);
        give_back(space, block);
    }
}

fn sizes_near_the_largest_are_refused(space: &dyn MemorySpace) {
    for (size, align) in [(isize::MAX as usize, 1), (1 << 62, 4096), (isize::MAX as usize - 4095, 4096)] {
        let error = space.allocate(layout(size, align)).unwrap_err();
        assert_eq!((error.space(), error.asked_bytes(), error.align()), (space.id(), size, align));
    }
}

fn new_memory_reads_as_zero_where_promised(space: &dyn MemorySpace) {
    if !space.gives_zeroed() {
        return;
    }
    for size in [64, 4096, 300_000] {
        for _ in 0..3 {
            let block = space.allocate(layout(size, 64)).unwrap();
            assert!(holds(space, block, 0));
            fill(space, block, 0xff);
            give_back(space, block);
        }
    }
}

fn threads_may_give_back_what_others_took(space: &dyn MemorySpace) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for step in 0..100 {
                    let block = space.allocate(layout(1 + step * 7, 16)).unwrap();
                    fill(space, block, thread);
                    assert!(holds(space, block, thread));
                    std::thread::scope(|inner| {
                        if step % 25 == 0 {
                            inner.spawn(move || give_back(space, block));
                        } else {
                            give_back(space, block);
                        }
                    });
                }
            });
        }
    });
}

fn reserved_ranges_are_committed_in_parts(space: &dyn MemorySpace) {
    let Some(reserve) = space.as_reserve() else { return };
    let unit = reserve.granularity_bytes();
    let region = reserve.reserve(10 * unit).unwrap();
    assert!(region.size_bytes() >= 10 * unit);
    assert_eq!(region.address_bits() % unit as u64, 0);
    for round in 0..2 {
        // SAFETY: nothing of the region is committed yet, or no more.
        unsafe { reserve.commit(region, 0..2 * unit) }.unwrap();
        // SAFETY: as above.
        unsafe { reserve.commit(region, 2 * unit..4 * unit) }.unwrap();
        let whole = region.part(0..4 * unit).unwrap();
        assert!(!space.gives_zeroed() || holds(space, whole, 0), "round {round}");
        fill(space, whole, 0x5a);
        // SAFETY: committed above, no longer used.
        unsafe { reserve.decommit(region, unit..4 * unit) };
        assert!(holds(space, region.part(0..unit).unwrap(), 0x5a));
        if round == 0 {
            // SAFETY: committed above, no longer used.
            unsafe { reserve.decommit(region, 0..unit) };
        }
    }
    // SAFETY: reserved above, the first unit committed, no longer used.
    unsafe { reserve.release(region, unit) };
}

macro_rules! contract {
    ($($name:ident: $space:expr;)*) => {$(
        mod $name {
            use super::*;
            #[test]
            fn blocks_are_aligned_and_large_enough() { super::blocks_are_aligned_and_large_enough(&$space); }
            #[test]
            fn live_blocks_are_disjoint_in_any_order() { super::live_blocks_are_disjoint_in_any_order(&$space); }
            #[test]
            fn blocks_of_no_bytes_are_given_and_taken() { super::blocks_of_no_bytes_are_given_and_taken(&$space); }
            #[test]
            fn sizes_near_the_largest_are_refused() { super::sizes_near_the_largest_are_refused(&$space); }
            #[test]
            fn new_memory_reads_as_zero_where_promised() { super::new_memory_reads_as_zero_where_promised(&$space); }
            #[test]
            fn threads_may_give_back_what_others_took() { super::threads_may_give_back_what_others_took(&$space); }
            #[test]
            fn reserved_ranges_are_committed_in_parts() { super::reserved_ranges_are_committed_in_parts(&$space); }
        }
    )*};
}

contract! {
    host: HostSpace::new();
    host_huge: HostSpace::new().with_huge_pages();
    host_prefault: HostSpace::new().with_prefault();
    host_huge_prefault: HostSpace::new().with_huge_pages().with_prefault();
    host_exact: HostSpace::new().with_exact_blocks();
    heap: HeapSpace;
    fake: FakeDevice::new(1 << 30);
    fake_reserving: FakeDevice::new(1 << 30).reserving();
    limited: Limited::new(HostSpace::new(), 1 << 30);
    limited_fake: Limited::new(FakeDevice::new(1 << 30).reserving(), 1 << 29);
    recording: Recording::new(HostSpace::new());
    recording_fake: Recording::new(FakeDevice::new(1 << 30).reserving());
    fail_nth: FailNth::new(HostSpace::new(), 0);
    nested: Limited::new(Recording::new(FailNth::new(HostSpace::new(), 0)), 1 << 30);
    counted: Arc::new(HostSpace::new());
    boxed: Box::new(HostSpace::new()) as Box<dyn MemorySpace>;
    guarded: Guarded::new(HostSpace::new()).with_delayed_reuse(1 << 16);
    guarded_fake: Guarded::new(FakeDevice::new(1 << 30));
    delayed: Delayed::new(HostSpace::new(), SpaceId::cuda(0), Duration::ZERO);
    region: HostRegion::from_box(SpaceId::HOST, Box::new_uninit_slice(64 << 20));
    shared: SharedArena::new(HostSpace::new(), 1 << 30).unwrap();
    shared_fake: SharedArena::new(FakeDevice::new(1 << 30), 1 << 28).unwrap();
    shared_fake_reserving: SharedArena::new(FakeDevice::new(1 << 30).reserving(), 1 << 28).unwrap();
    pool: Pool::new(HostSpace::new());
    pool_fake: Pool::new(FakeDevice::new(1 << 30));
}

#[test]
fn a_limit_refuses_what_exceeds_it_and_nothing_else() {
    let space = Limited::new(HostSpace::new(), 1000);
    let first = space.allocate(layout(600, 8)).unwrap();
    let error = space.allocate(layout(401, 8)).unwrap_err();
    assert_eq!((error.limit_bytes(), error.live_bytes()), (Some(1000), 600));
    assert_eq!(error.largest_free_bytes(), Some(400));
    assert_eq!(
        error.to_string(),
        "host: 401 bytes at alignment 8 refused: over the limit of 1000 bytes set by `Limited`; 600 live, 400 free, \
         1 short"
    );
    let second = space.allocate(layout(400, 8)).unwrap();
    give_back(&space, first);
    give_back(&space, second);
    assert_eq!(space.live_bytes(), 0);
}

#[test]
fn a_failure_behind_a_limit_gives_the_claim_back() {
    let space = Limited::new(FailNth::new(HostSpace::new(), 1), 1000);
    assert!(space.allocate(layout(600, 8)).is_err());
    assert_eq!(space.live_bytes(), 0);
}

#[test]
fn a_recording_ends_at_zero_and_knows_its_peak() {
    let space = Recording::new(FailNth::new(HostSpace::new(), 3));
    let a = space.allocate(layout(100, 8)).unwrap();
    let b = space.allocate(layout(50, 8)).unwrap();
    let error = space.allocate(layout(1, 1)).unwrap_err();
    assert_eq!(error.kind(), AllocErrorKind::Refused { reason: "made to fail" });
    give_back(&space, a);
    give_back(&space, b);
    let counts = space.counts();
    assert_eq!((counts.live_bytes, counts.peak_bytes, counts.live_blocks), (0, 150, 0));
    assert_eq!((counts.asks, counts.failures), (3, 1));
}

#[test]
fn host_statistics_say_what_is_held_and_whether_addresses_are_reserved() {
    let space = HostSpace::new().with_exact_blocks();
    let block = space.allocate(layout(100, 8)).unwrap();
    assert_eq!((space.stats().reserves, space.stats().exact_bytes), (false, 100));
    give_back(&space, block);
    assert_eq!(space.stats().exact_bytes, 0);
    assert!(space.as_reserve().is_none());
}

/// How many of the pages of a block are there.
#[cfg(target_os = "linux")]
fn pages_there(block: arenite::Block) -> usize {
    let mut pages = vec![0_u8; block.size_bytes() / 4096];
    // SAFETY: the block is mapped, starts at a page, and there is a byte for each of its pages.
    let status =
        unsafe { libc::mincore(block.address().as_ptr().cast(), block.size_bytes(), pages.as_mut_ptr()) };
    assert_eq!(status, 0);
    pages.iter().filter(|&&page| page & 1 == 1).count()
}

#[test]
#[cfg(target_os = "linux")]
fn large_memory_is_there_when_it_is_taken_where_that_is_asked_for() {
    // Three parts of unequal size, by several threads where there are any.
    let layout = Layout::from_size_align((26 << 20) + 4096, 2 << 20).unwrap();
    for (space, is_there) in [
        (HostSpace::new(), false),
        (HostSpace::new().with_prefault(), true),
        (HostSpace::new().with_prefault().with_huge_pages(), true),
    ] {
        let block = space.allocate(layout).unwrap();
        assert_eq!(pages_there(block), if is_there { layout.size() / 4096 } else { 0 });
        assert!(holds(&space, block, 0));
        // SAFETY: allocated above, not used any more.
        unsafe { space.deallocate(block) };
    }
}
