//! The trial cases that concern pools, and every failing call of the space.

use crate::support::fake_device::FakeDevice;
use arenite::{
    AllocErrorKind, FailNth, HostSpace, LimitSource, Limited, MemorySpace, Pool, Recording, SpaceId,
};
use core::alloc::Layout;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: usize = 1 << 20;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// RMM #496: growth overshoots the device and fails.
#[test]
fn h3_growth_steps_down_to_the_need() {
    let device = FakeDevice::new(32_510 * MIB);
    let pool = Pool::new(&device).with_step(16_384 * MIB);
    let blocks = [(); 3].map(|()| pool.allocate(layout(8192 * MIB, 256)).unwrap());
    assert_eq!(pool.stats().live_bytes, 3 * 8192 * MIB);
    drop(blocks);
}

/// `CuPy` #7678: the limit is reached by cached memory.
#[test]
fn h4_a_cached_block_is_given_up_for_a_larger_one() {
    for own_limit in [true, false] {
        let device = Limited::new(FakeDevice::new(1 << 40), 1024 * MIB);
        let pool = Pool::new(&device).with_limit(if own_limit { 1024 * MIB } else { usize::MAX });
        drop(pool.allocate(layout(512 * MIB, 256)).unwrap());
        let block = pool.allocate(layout(768 * MIB, 256)).unwrap();
        assert_eq!((device.live_bytes(), pool.stats().rescued), (768 * MIB, 1));
        drop(block);
    }
}

/// Umpire #906: a pool takes its block from the space anew in every round.
#[test]
fn h5_from_the_second_round_on_the_space_is_not_called() {
    let device = FakeDevice::new(1 << 30).with_align(16);
    let pool = Pool::new(&device).with_step(16);
    let calls: Vec<u64> = (0..5)
        .map(|_| {
            drop([(); 2].map(|()| pool.allocate(layout(1032, 16)).unwrap()));
            device.calls()
        })
        .collect();
    assert!(calls.iter().all(|&count| count == calls[0]), "{calls:?}");
}

/// RMM #2002: an alignment under the space's wraps a size.
#[test]
fn h6_small_and_huge_requests_give_the_right_block_or_none() {
    let pool = Pool::new(FakeDevice::new(1 << 30));
    for (size, align) in [(32, 32), (0, 32), (1, 1)] {
        let block = pool.allocate(layout(size, align)).unwrap();
        assert_eq!((block.block().size_bytes(), block.block().address_bits() % align as u64), (size, 0));
    }
    for below in [0, 1, 255, 256, 257, 4095] {
        let error = pool.allocate(layout(isize::MAX as usize - 255 - below, 256)).unwrap_err();
        assert!(
            matches!(error.kind(), AllocErrorKind::NeverFits | AllocErrorKind::OverLimit { .. }),
            "{error}"
        );
    }
    let error = pool.allocate(layout(1 << 20, 1 << 62)).unwrap_err();
    assert_ne!(error.kind(), AllocErrorKind::NotNow);
    assert_eq!(pool.stats().live_bytes, 0);
}

/// RMM #2312: requests of no bytes collide in the books.
#[test]
fn h7_empty_requests_from_many_threads_leave_the_ledger_at_zero() {
    let pool = Pool::new(HostSpace::new());
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for round in 0..10_000 {
                    drop(pool.allocate(layout(if round % 3 == 0 { 64 } else { 0 }, 8)).unwrap());
                }
            });
        }
    });
    assert_eq!((pool.stats().live_bytes, pool.stats().blocks), (0, 0));
    assert!(pool.tags().iter().all(|tag| tag.live_bytes == 0));
}

/// cubecl #1438, #1474: "full now" is taken for "never fits".
#[test]
fn h9_full_now_is_told_from_never_fits() {
    let device = FakeDevice::new(100 * MIB);
    let pool = Pool::new(&device);
    let taken: Vec<_> =
        [1, 4, 16, 1, 4, 16, 32, 16].map(|mib| pool.allocate(layout(mib * MIB, 256)).unwrap()).into();
    assert_eq!(pool.allocate(layout(90 * MIB, 256)).unwrap_err().kind(), AllocErrorKind::NotNow);
    drop(taken);
    drop(pool.allocate(layout(90 * MIB, 256)).unwrap());
    let never = AllocErrorKind::OverLimit { limit_bytes: 100 * MIB, source: LimitSource::Space };
    let error = pool.allocate(layout(101 * MIB, 256)).unwrap_err();
    assert_eq!((error.kind(), error.device(), error.space()), (never, Some(0), SpaceId::cuda(0)));
}

#[test]
fn a_pool_survives_each_failing_call() {
    let makes: [fn() -> Arc<dyn MemorySpace>; 2] =
        [|| Arc::new(HostSpace::new()), || Arc::new(FakeDevice::new(1 << 34))];
    for make in makes {
        for nth in 1.. {
            let space = FailNth::new(Recording::new(make()), nth);
            {
                let pool = Pool::new(&space);
                let mut live = Vec::new();
                for (index, size) in [100, 70_000, MIB, 5, 3 * MIB, 64].into_iter().enumerate() {
                    let before = (pool.stats().live_bytes, pool.stats().blocks);
                    // A failing step is tried once more, with no more than what is needed.
                    let block = pool.allocate(layout(size, 64)).unwrap_or_else(|_| {
                        assert_eq!((pool.stats().live_bytes, pool.stats().blocks), before);
                        pool.allocate(layout(size, 64)).expect("only one call fails")
                    });
                    if index % 2 == 0 {
                        live.push(block);
                    }
                }
            }
            let counts = space.inner().counts();
            assert_eq!((counts.live_bytes, counts.live_blocks), (0, 0), "call {nth}");
            if space.asks() < nth {
                assert!(nth > 3);
                break;
            }
        }
    }
}

#[test]
fn the_ladder_ends_with_the_callback_and_reports_its_steps() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let pool = Pool::new(FakeDevice::new(MIB)).with_rescue(move |error| {
        assert_eq!(error.kind(), AllocErrorKind::NotNow);
        assert!(error.retries().is_some());
        counter.fetch_add(1, Ordering::Relaxed);
        0
    });
    let first = pool.allocate(layout(MIB / 2, 256)).unwrap();
    drop(pool.allocate(layout(MIB / 4, 256)).unwrap());
    let error = pool.allocate(layout(MIB * 3 / 4, 256)).unwrap_err();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let retries = error.retries().unwrap();
    assert_eq!((retries.trimmed_bytes, retries.callback_bytes), (MIB / 4, 0));
    drop(first);
}
