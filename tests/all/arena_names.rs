//! Names and paths of scopes: whose bytes they are, in reports and in errors; typed device ranges.

use crate::support::fake_device::FakeDevice;
use arenite::{AllocErrorKind, Arena, HostSpace, MemorySpace, Owner, Recording, Tag};
use core::alloc::Layout;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn sum<S: MemorySpace>(arena: &Arena<S>) -> usize {
    arena.tags().iter().map(|owner| owner.bytes).sum()
}

#[test]
fn bytes_count_for_the_scope_that_is_open_and_sum_to_the_arenas() {
    let space = Recording::new(HostSpace::new());
    let mut arena = Arena::new(&space).with_name("forward");
    arena.alloc([0u8; 10]);
    arena.scoped_as("top", |mut scope| {
        scope.alloc([0u8; 5]);
        scope.scoped_as("inner", |mut inner| {
            inner.alloc([0u8; 7]);
            assert_eq!(inner.arena().tags().iter().map(|owner| owner.bytes).collect::<Vec<_>>(), [10, 5, 7]);
            assert_eq!(sum(inner.arena()), inner.arena().live_bytes());
        });
        // A scope without a name counts for the one around it.
        scope.scoped(|mut inner| {
            inner.alloc([0u8; 70_000]);
            assert_eq!(inner.arena().tags().last().unwrap().bytes, 70_005);
            assert_eq!(sum(inner.arena()), inner.arena().live_bytes());
        });
        assert_eq!(sum(scope.arena()), 15);
    });
    assert_eq!(arena.tags(), [Owner { tag: Tag::new("forward"), bytes: 10 }]);
    assert!(space.counts().live_bytes >= arena.live_bytes());
}

#[test]
fn an_error_names_the_arena_the_path_and_the_largest_owners() {
    let mut arena = Arena::exact(FakeDevice::new(1 << 20), 4096).unwrap().with_name("scratch");
    let block = |size| Layout::from_size_align(size, 256).unwrap();
    arena.allocate(block(1024)).unwrap();
    let error = arena.scoped_as("forward", |mut scope| {
        scope.allocate(block(512)).unwrap();
        scope.scoped_as("softmax", |inner| {
            inner.allocate(block(2048)).unwrap();
            inner.allocate(block(768)).unwrap_err()
        })
    });
    assert_eq!((error.arena(), error.tag()), (Tag::new("scratch"), Tag::new("forward/softmax")));
    assert_eq!(error.kind(), AllocErrorKind::NotNow);
    let names: Vec<_> = error.owners().map(|owner| (owner.tag.to_string(), owner.bytes)).collect();
    assert_eq!(names, [("softmax".into(), 2048), ("scratch".into(), 1024), ("forward".into(), 512)]);
    assert_eq!(
        error.to_string(),
        "cuda:0: 768 bytes at alignment 256 for scratch: forward/softmax refused: no room now; 3584 live; \
         most held by softmax (2048), scratch (1024), forward (512)"
    );
}

#[test]
fn a_named_scope_that_panics_is_closed() {
    let mut arena = Arena::new(HostSpace::new());
    let result = catch_unwind(AssertUnwindSafe(|| {
        arena.scoped_as("doomed", |scope| {
            scope.alloc(1u8);
            panic!("on purpose");
        })
    }));
    assert!(result.is_err());
    assert_eq!((arena.tags().len(), arena.live_bytes()), (1, 0));
}

#[test]
fn a_path_that_is_too_long_keeps_its_end() {
    let path = ["encoder", "layer 11", "attention", "softmax"]
        .iter()
        .fold(Tag::default(), |path, name| path.join(Tag::new(name)));
    assert_eq!(path.as_str(), "oder/layer 11/attention/softmax");
    assert_eq!(Tag::new("ääääääääääääääääääää").as_str(), "äääääääääääääää");
}

#[test]
fn device_ranges_are_typed_aligned_and_cut_in_elements() {
    let mut arena = Arena::new(FakeDevice::new(1 << 30));
    arena.allocate(Layout::new::<u8>()).unwrap();
    let range = arena.alloc_device::<f64>(10).unwrap();
    assert_eq!((range.address() % 8, range.len(), range.size_bytes()), (0, 10, 80));
    let part = range.part(3..5).unwrap();
    assert_eq!((part.address(), part.len()), (range.address() + 24, 2));
    assert!(range.part(8..11).is_none() && range.part(2..2).unwrap().is_empty());
    let error = arena.alloc_device::<f64>(usize::MAX / 4).unwrap_err();
    assert_eq!(error.kind(), AllocErrorKind::NeverFits);
    arena.scoped(|scope| assert_eq!(scope.alloc_device::<u8>(0).unwrap().size_bytes(), 0));
}
