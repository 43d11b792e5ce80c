//! Arena sets: resolving, limits, taking and giving back in any order.

use crate::support::fake_device::FakeDevice;
use crate::support::numbers::Numbers;
use arenite::{AllocErrorKind, ArenaSet, HostSpace, LimitSource, MemorySpace, Meter, SpaceId, Usage};
use core::alloc::Layout;
use std::sync::Arc;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

fn device_set(device: &Arc<FakeDevice>, limit_bytes: usize) -> ArenaSet {
    ArenaSet::builder().space(Arc::clone(device) as _).limit(SpaceId::cuda(0), limit_bytes).build()
}

#[test]
fn a_missing_space_says_what_is_there_and_why() {
    let arenas = ArenaSet::host();
    let missing = arenas.resolve(SpaceId::cuda(0)).unwrap_err();
    assert_eq!(missing.to_string(), "this arena set has host");
    let arenas = ArenaSet::builder()
        .space(Arc::new(HostSpace::new()))
        .space(Arc::new(FakeDevice::new(1)))
        .absent(SpaceId::PINNED, "libcuda.so.1 not found")
        .build();
    let missing = arenas.resolve(SpaceId::PINNED).unwrap_err();
    assert_eq!(missing.to_string(), "this arena set has host, cuda:0 (pinned: libcuda.so.1 not found)");
    assert_eq!(
        ArenaSet::builder().build().resolve(SpaceId::HOST).unwrap_err().to_string(),
        "this arena set has no space"
    );
    assert!(arenas.take(SpaceId::PINNED, 10, "x").is_err());
}

#[test]
fn a_remapped_space_is_served_by_another() {
    let arenas =
        ArenaSet::builder().space(Arc::new(HostSpace::new())).remap(SpaceId::cuda(0), SpaceId::HOST).build();
    assert_eq!(arenas.resolve(SpaceId::cuda(0)), Ok(SpaceId::HOST));
    assert_eq!(arenas.resolve(SpaceId::HOST), Ok(SpaceId::HOST));
}

#[test]
fn a_limit_is_checked_before_anything_is_allocated() {
    let device = Arc::new(FakeDevice::new(1 << 20));
    let arenas = device_set(&device, 1000);
    let first = arenas.take(SpaceId::cuda(0), 600, "forward: arena 1").unwrap();
    let calls = device.calls();
    let error = arenas.take(SpaceId::cuda(0), 401, "forward: arena 2").unwrap_err();
    assert_eq!(device.calls(), calls);
    let kind = AllocErrorKind::OverLimit { limit_bytes: 1000, source: LimitSource::ArenaSet };
    assert_eq!((error.kind(), error.live_bytes(), error.largest_free_bytes()), (kind, 600, Some(400)));
    let second = arenas.take(SpaceId::cuda(0), 400, "forward: arena 2").unwrap();
    drop(first);
    drop(second);
    assert_eq!(arenas.report().spaces[0].current_bytes, 0);
    assert_eq!(arenas.report().spaces[0].peak_bytes, 1000);
    arenas.reset_peak();
    assert_eq!(arenas.report().spaces[0].peak_bytes, 0);
}

#[test]
fn what_was_taken_can_surely_be_allocated() {
    for space in [
        Arc::new(HostSpace::new()) as Arc<dyn MemorySpace>,
        Arc::new(HostSpace::new().with_exact_blocks()),
        Arc::new(FakeDevice::new(1 << 30)),
        Arc::new(FakeDevice::new(1 << 30).reserving()),
    ] {
        let id = space.id();
        let align = space.base_align();
        let arenas = ArenaSet::builder().space(space).limit(id, 1 << 28).build();
        for bytes in [0, 1, 768, 5000, 1 << 20, 100 << 20, 768, 2 << 20] {
            let arena = arenas.take(id, bytes, "it").unwrap();
            let capacity = arena.stats().capacity_bytes;
            let block = arena.allocate(layout(bytes, align)).unwrap();
            assert_eq!(block.size_bytes(), bytes);
            assert_eq!(arena.claimed_bytes(), bytes);
            assert_eq!(arena.stats().capacity_bytes, capacity);
            assert!(capacity <= bytes + bytes / 4 + (64 << 10) + align, "{capacity} for {bytes}");
        }
    }
}

#[test]
fn an_arena_given_back_serves_the_next_without_a_call() {
    for device in [FakeDevice::new(1 << 30), FakeDevice::new(1 << 30).reserving()] {
        let device = Arc::new(device);
        let arenas = device_set(&device, 1 << 30);
        drop(arenas.take(SpaceId::cuda(0), 768, "a").unwrap());
        let calls = device.calls();
        for _ in 0..10 {
            let arena = arenas.take(SpaceId::cuda(0), 768, "b").unwrap();
            arena.allocate(layout(768, 256)).unwrap();
        }
        assert_eq!(device.calls(), calls);
        assert!(arenas.trim() >= 768);
        assert_eq!((device.live_bytes(), device.live_blocks()), (0, 0));
    }
}

#[test]
fn growth_counts_against_the_limit() {
    let device = Arc::new(FakeDevice::new(1 << 30));
    let arenas = device_set(&device, 2000);
    let arena = arenas.take(SpaceId::cuda(0), 1000, "grows").unwrap();
    arena.allocate(layout(1000, 256)).unwrap();
    arena.allocate(layout(500, 1)).unwrap();
    assert_eq!((arena.claimed_bytes(), arenas.report().spaces[0].current_bytes), (1500, 1500));
    let error = arena.allocate(layout(501, 1)).unwrap_err();
    assert_eq!(error.limit_bytes(), Some(2000));
    assert_eq!((arena.claimed_bytes(), arenas.report().spaces[0].current_bytes), (1500, 1500));
    drop(arena);
    assert_eq!(arenas.report().spaces[0].current_bytes, 0);
}

#[test]
fn idle_memory_never_stands_in_the_way_of_a_limit() {
    let device = Arc::new(FakeDevice::new(1 << 30));
    let arenas = device_set(&device, 1 << 30);
    drop(arenas.take(SpaceId::cuda(0), 512 << 20, "first").unwrap());
    let second = arenas.take(SpaceId::cuda(0), 768 << 20, "second").unwrap();
    assert_eq!(device.live_bytes(), 768 << 20);
    drop(second);
}

#[test]
fn idle_memory_is_given_up_where_the_device_is_full() {
    let device = Arc::new(FakeDevice::new(100 << 20));
    let arenas = ArenaSet::builder().space(Arc::clone(&device) as _).build();
    let taken: Vec<_> =
        [10, 20, 40].iter().map(|mib| arenas.take(SpaceId::cuda(0), mib << 20, "x").unwrap()).collect();
    drop(taken);
    let large = arenas.take(SpaceId::cuda(0), 90 << 20, "large").unwrap();
    drop(large);
    let error = arenas.take(SpaceId::cuda(0), 101 << 20, "too large").unwrap_err();
    assert_eq!(error.limit_bytes(), Some(100 << 20));
}

#[test]
fn the_ledger_is_the_sum_of_its_owners_in_any_order_from_any_thread() {
    let arenas = ArenaSet::builder()
        .space(Arc::new(HostSpace::new()))
        .space(Arc::new(FakeDevice::new(1 << 30)))
        .build();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let arenas = arenas.clone();
            scope.spawn(move || {
                let mut numbers = Numbers::new(seed);
                let mut taken = Vec::new();
                for _ in 0..300 {
                    if taken.len() > 5 || (numbers.below(2) == 0 && !taken.is_empty()) {
                        drop(taken.swap_remove(numbers.below(taken.len())));
                    } else {
                        let id = if numbers.below(2) == 0 { SpaceId::HOST } else { SpaceId::cuda(0) };
                        let arena = arenas.take(id, numbers.below(200_000), "thread").unwrap();
                        arena.allocate(layout(numbers.below(100_000), 64)).unwrap();
                        taken.push(arena);
                    }
                    for space in arenas.report().spaces {
                        let sum: usize = space.owners.iter().map(|owner| owner.bytes).sum();
                        assert_eq!((sum, space.owners.len()), (space.current_bytes, space.live_arenas));
                    }
                }
            });
        }
    });
    for space in arenas.report().spaces {
        assert_eq!((space.current_bytes, space.live_arenas), (0, 0));
    }
}

#[test]
fn a_closed_set_refuses_and_takes_back() {
    let device = Arc::new(FakeDevice::new(1 << 30));
    let arenas = device_set(&device, 1 << 30);
    let out = arenas.take(SpaceId::cuda(0), 1000, "out").unwrap();
    drop(arenas.take(SpaceId::cuda(0), 2000, "idle").unwrap());
    arenas.close();
    assert_eq!(device.live_bytes(), 1000);
    let error = arenas.take(SpaceId::cuda(0), 1, "late").unwrap_err();
    assert_eq!(error.kind(), AllocErrorKind::Refused { reason: "the arena set is closed" });
    out.allocate(layout(1000, 1)).unwrap();
    drop(out);
    assert_eq!((device.live_bytes(), device.live_blocks()), (0, 0));
}

#[test]
fn the_report_prints_a_table_with_owners_and_reasons() {
    let arenas = ArenaSet::builder()
        .space(Arc::new(HostSpace::new()))
        .limit(SpaceId::HOST, 5000)
        .absent(SpaceId::cuda(0), "no driver")
        .build();
    let _arena = arenas.take(SpaceId::HOST, 512, "forward: arena 1 with a name that goes on").unwrap();
    let text = arenas.report().to_string();
    assert!(text.contains("forward: arena 1 with a name th"), "{text}");
    assert!(text.contains("cuda:0        absent: no driver"), "{text}");
    assert!(text.contains("5000"), "{text}");
}

#[test]
fn a_meter_counts_sets_together_and_outlives_them() {
    let meter = Meter::default();
    let set = || ArenaSet::builder().space(Arc::new(HostSpace::new())).meter(meter.clone()).build();
    let (a, b) = (set(), set());
    let of_a = a.take(SpaceId::HOST, 100, "a").unwrap();
    let of_b = b.take(SpaceId::HOST, 50, "b").unwrap();
    assert_eq!(meter.usage(SpaceId::HOST), usage(150, 150));
    drop((of_a, a));
    assert_eq!(meter.usage(SpaceId::HOST), usage(50, 150), "the peak stays when a set goes");
    let more = b.take(SpaceId::HOST, 60, "b").unwrap();
    assert_eq!(meter.usage(SpaceId::HOST), usage(110, 150), "peaks at different times are not added");
    meter.reset_peak();
    drop((of_b, more));
    assert_eq!(meter.usage(SpaceId::HOST), usage(0, 110));
    assert_eq!(meter.spaces(), [SpaceId::HOST]);
}

fn usage(current_bytes: usize, peak_bytes: usize) -> Usage {
    Usage { current_bytes, peak_bytes }
}

#[test]
fn what_is_refused_is_in_no_peak() {
    let meter = Meter::default();
    let device = Arc::new(FakeDevice::new(1000));
    let arenas = ArenaSet::builder().space(Arc::clone(&device) as _).meter(meter.clone()).build();
    let arena = arenas.take(SpaceId::cuda(0), 600, "a").unwrap();
    assert!(arenas.take(SpaceId::cuda(0), 5000, "b").is_err());
    assert!(arena.allocate(layout(5000, 1)).is_err());
    assert_eq!(arenas.report().spaces[0].peak_bytes, 600);
    assert_eq!(meter.usage(SpaceId::cuda(0)), usage(600, 600));
}

#[test]
fn arenas_of_a_closed_set_go_on() {
    let arenas = ArenaSet::host();
    let arena = arenas.take(SpaceId::HOST, 0, "a").unwrap();
    arenas.close();
    assert!(arenas.take(SpaceId::HOST, 1, "b").unwrap_err().to_string().contains("closed"));
    assert!(arena.allocate(layout(5000, 1)).is_ok());
}
