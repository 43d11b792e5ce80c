//! Reuse in the order of streams: at once in one's own, behind a mark from others.

use crate::support::fake_device::FakeDevice;
use arenite::{AllocErrorKind, Mark, Pool, Readiness, Request};
use core::alloc::Layout;

const BYTES: usize = 60 << 10;

fn layout() -> Layout {
    Layout::from_size_align(BYTES, 256).unwrap()
}

#[test]
fn a_stream_has_its_own_memory_again_without_waiting() {
    let pool = Pool::new(FakeDevice::new(1 << 30));
    let stream = pool.add_stream().unwrap();
    let request = Request::new(layout()).on(stream);
    let first = pool.acquire(&request).unwrap();
    assert_eq!(first.readiness, Readiness::Fresh);
    let address = first.block.block().address_bits();
    first.block.release_after(Mark { stream, value: 1 });
    let second = pool.acquire(&request).unwrap();
    assert_eq!((second.readiness, second.block.block().address_bits()), (Readiness::Ready, address));
}

#[test]
fn others_wait_for_the_mark_or_until_it_is_reached() {
    let pool = Pool::new(FakeDevice::new(1 << 30));
    let (one, two) = (pool.add_stream().unwrap(), pool.add_stream().unwrap());
    let mark = Mark { stream: one, value: 5 };
    pool.acquire(&Request::new(layout()).on(one)).unwrap().block.release_after(mark);
    let request = Request::new(layout()).on(two).without_growth();
    let waiting = pool.acquire(&request).unwrap();
    assert_eq!(waiting.readiness, Readiness::NeedsWait(mark));
    waiting.block.release_after(mark);
    pool.advance(Mark { stream: one, value: 4 });
    assert_eq!(pool.acquire(&request).unwrap().readiness, Readiness::NeedsWait(mark));
    // That one was dropped: nothing uses it any more, says its owner.
    assert_eq!(pool.acquire(&request).unwrap().readiness, Readiness::Ready);
}

#[test]
fn memory_whose_mark_was_reached_serves_those_without_a_stream() {
    let device = FakeDevice::new(1 << 30);
    let pool = Pool::new(&device);
    let stream = pool.add_stream().unwrap();
    let mark = Mark { stream, value: 9 };
    pool.acquire(&Request::new(layout()).on(stream)).unwrap().block.release_after(mark);
    let request = Request::new(layout()).without_growth();
    assert_eq!(pool.acquire(&request).unwrap_err().kind(), AllocErrorKind::NotNow, "still in use");
    assert_eq!(pool.trim(), 0, "what is in use is not given back");
    pool.advance(mark);
    let calls = device.calls();
    assert_eq!(pool.acquire(&request).unwrap().readiness, Readiness::Ready);
    assert_eq!(device.calls(), calls);
    assert!(pool.trim() > 0);
}

#[test]
fn growing_comes_before_waiting_and_waiting_before_failing() {
    let device = FakeDevice::new(128 << 10);
    let pool = Pool::new(&device);
    let (one, two) = (pool.add_stream().unwrap(), pool.add_stream().unwrap());
    let mark = |value| Mark { stream: one, value };
    pool.acquire(&Request::new(layout()).on(one)).unwrap().block.release_after(mark(1));
    let on_two = Request::new(layout()).on(two);
    let grown = pool.acquire(&on_two).unwrap();
    assert_eq!(grown.readiness, Readiness::Fresh);
    let waiting = pool.acquire(&on_two).unwrap();
    assert_eq!(waiting.readiness, Readiness::NeedsWait(mark(1)));
    let error = pool.acquire(&on_two).unwrap_err();
    assert_eq!((error.kind(), error.retries().unwrap().trimmed_bytes), (AllocErrorKind::NotNow, 0));
}

#[test]
fn neighbours_of_different_streams_merge_once_their_marks_are_reached() {
    let device = FakeDevice::new(256 << 10);
    let pool = Pool::new(&device).with_step(256 << 10);
    let streams = [pool.add_stream().unwrap(), pool.add_stream().unwrap()];
    let blocks: Vec<_> = (0..4)
        .map(|index| pool.acquire(&Request::new(layout()).on(streams[index % 2])).unwrap().block)
        .collect();
    for (index, block) in blocks.into_iter().enumerate() {
        block.release_after(Mark { stream: streams[index % 2], value: index as u64 });
    }
    let whole = Layout::from_size_align(240 << 10, 256).unwrap();
    let error = pool.allocate(whole).unwrap_err();
    // A fresh stream's mark starts at 0, and the first was released after 0.
    assert_eq!(error.retries().unwrap().drained_bytes, BYTES);
    for (index, stream) in streams.into_iter().enumerate() {
        pool.advance(Mark { stream, value: 2 + index as u64 });
    }
    assert!(pool.allocate(whole).is_ok());
}
