//! One range for several threads: slices are disjoint, refused when it is full, and taken back together.

use crate::support::fake_device::FakeDevice;
use arenite::{AllocErrorKind, Arena, FailNth, HostSpace, MemorySpace, Recording, SharedArena};
use core::alloc::Layout;
use std::collections::BTreeMap;

#[test]
fn views_of_several_threads_never_share_a_byte() {
    for space in [HostSpace::new(), HostSpace::new().with_exact_blocks()] {
        let mut shared = SharedArena::new(space, 16 << 20).unwrap();
        for round in 0..3_u64 {
            let kept: Vec<(u64, usize, usize)> = std::thread::scope(|threads| {
                let work = |thread: u64| {
                    let shared = &shared;
                    threads.spawn(move || {
                        let arena = shared.view();
                        let mut kept = Vec::new();
                        let slices: Vec<&mut [u64]> = (0..300)
                            .map(|index| arena.alloc_slice_fill(1 + index % 40, thread * 1000 + round))
                            .collect();
                        for slice in slices {
                            assert!(slice.iter().all(|&held| held == thread * 1000 + round));
                            kept.push((thread, slice.as_ptr() as usize, size_of_val(slice)));
                        }
                        kept
                    })
                };
                [0, 1, 2, 3].map(work).into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            let ranges: BTreeMap<usize, usize> =
                kept.iter().map(|&(_, start, size)| (start, start + size)).collect();
            assert_eq!(ranges.len(), kept.len());
            assert!(ranges.values().zip(ranges.keys().skip(1)).all(|(end, next)| end <= next));
            assert!(shared.used_bytes() <= shared.size_bytes());
            shared.reset();
            assert_eq!(shared.used_bytes(), 0);
        }
    }
}

#[test]
fn a_full_range_is_full_now_and_a_larger_request_never_fits() {
    let shared = SharedArena::new(FakeDevice::new(1 << 30), 64 << 10).unwrap();
    let view = shared.view();
    let block = |size| Layout::from_size_align(size, 256).unwrap();
    view.allocate(block(40 << 10)).unwrap();
    let error = shared.view().allocate(block(40 << 10)).unwrap_err();
    assert_eq!((error.kind(), error.largest_free_bytes()), (AllocErrorKind::NotNow, Some(24 << 10)));
    assert_eq!(shared.view().allocate(block(65 << 10)).unwrap_err().kind(), AllocErrorKind::NeverFits);
    assert!(shared.view().allocate(block(24 << 10)).is_ok());
}

#[test]
fn memory_is_put_behind_reserved_addresses_as_it_is_used_and_given_back() {
    let space = Recording::new(FakeDevice::new(1 << 30).reserving());
    {
        let shared = SharedArena::new(&space, 1 << 30).unwrap();
        assert_eq!(space.counts().live_bytes, 0);
        shared.view().allocate(Layout::from_size_align(100, 256).unwrap()).unwrap();
        assert!((1..=1 << 20).contains(&space.counts().live_bytes));
    }
    assert_eq!((space.counts().live_bytes, space.counts().reserved_bytes), (0, 0));
}

#[test]
fn a_refused_step_is_an_error_and_changes_nothing() {
    for nth in 1..6 {
        let space = FailNth::new(Recording::new(FakeDevice::new(1 << 34).reserving()), nth);
        if let Ok(shared) = SharedArena::new(&space, 8 << 20).or_else(|_| SharedArena::new(&space, 8 << 20)) {
            let view = Arena::with_chunks(&shared as &dyn MemorySpace);
            for _ in 0..4 {
                let layout = Layout::from_size_align(1 << 20, 256).unwrap();
                view.allocate(layout).or_else(|_| view.allocate(layout)).unwrap();
            }
        }
        assert_eq!(space.inner().counts().live_bytes, 0, "call {nth}");
    }
}
