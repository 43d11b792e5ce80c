//! Work that ends late: a copy's source may go at once, memory may not be reused before its mark.

use arenite::space::{Delayed, Piece, Queue};
use arenite::{Block, Guarded, HostSpace, Mark, MemorySpace, Pool, Readiness, Request, SpaceId};
use core::alloc::Layout;
use core::ptr::NonNull;
use core::time::Duration;

fn device(delay_ms: u64) -> Delayed<HostSpace> {
    Delayed::new(HostSpace::new(), SpaceId::cuda(0), Duration::from_millis(delay_ms))
}

fn upload(queue: &mut impl Queue, target: Block, bytes: &[u8]) {
    let piece = Piece {
        target: target.address(),
        source: NonNull::from(bytes).cast(),
        size_bytes: bytes.len().min(target.size_bytes()),
    };
    // SAFETY: both are as long; tests keep blocks until the queue is done.
    unsafe { queue.upload(&[piece]) }.unwrap();
}

fn download(queue: &mut impl Queue, source: Block) -> Vec<u8> {
    let mut bytes = vec![0; source.size_bytes()];
    let target = NonNull::new(bytes.as_mut_ptr()).unwrap();
    // SAFETY: as long as the block, and not touched before the queue is waited for.
    unsafe { queue.download(&[Piece { target, source: source.address(), size_bytes: bytes.len() }]) }
        .unwrap();
    queue.synchronize().unwrap();
    bytes
}

/// cudarc #314: the source of a copy goes before the copy ends.
#[test]
fn h10_sources_may_go_at_once_and_the_second_upload_wins() {
    let device = device(5);
    let block = device.allocate(Layout::new::<[u8; 4096]>()).unwrap();
    let mut queue = device.queue();
    for byte in [1, 2] {
        let source = vec![byte; 4096];
        upload(&mut queue, block, &source);
        drop(source);
    }
    assert_eq!(queue.queued() - queue.done(), 2, "both are still to come");
    assert_eq!(download(&mut queue, block), vec![2; 4096]);
    // SAFETY: allocated above; the queue is done.
    unsafe { device.deallocate(block) };
}

#[test]
fn a_pool_hands_memory_to_another_stream_only_behind_its_mark() {
    let device = device(5);
    let pool = Pool::new(&device);
    let (one, two) = (pool.add_stream().unwrap(), pool.add_stream().unwrap());
    let (mut queue_one, mut queue_two) = (device.queue(), device.queue());
    let layout = Layout::from_size_align(60_000, 64).unwrap();
    let first = pool.acquire(&Request::new(layout).on(one)).unwrap();
    upload(&mut queue_one, first.block.block(), &vec![1; 60_000]);
    first.block.release_after(Mark { stream: one, value: queue_one.queued() });

    let second = pool.acquire(&Request::new(layout).on(two).without_growth()).unwrap();
    let Readiness::NeedsWait(mark) = second.readiness else { panic!("{:?}", second.readiness) };
    while queue_one.done() < mark.value {
        std::thread::yield_now();
    }
    upload(&mut queue_two, second.block.block(), &vec![2; 60_000]);
    queue_one.synchronize().unwrap();
    assert_eq!(download(&mut queue_two, second.block.block()), vec![2; 60_000]);
}

#[test]
fn a_device_is_guarded_through_copies() {
    let space = Guarded::new(device(0));
    let block = space.tagged("logits").allocate(Layout::from_size_align(100, 64).unwrap()).unwrap();
    let mut queue = space.inner().queue();
    assert_eq!(download(&mut queue, block), [0xcd; 100]);
    let beyond = Block::new(block.address(), Layout::from_size_align(103, 1).unwrap());
    upload(&mut queue, beyond, &[7; 103]);
    queue.synchronize().unwrap();
    // SAFETY: allocated above; the queue is done.
    unsafe { space.deallocate(block) };
    let faults = space.take_faults();
    assert_eq!(faults.len(), 1);
    assert_eq!((faults[0].offset_bytes, faults[0].tag.as_str()), (100, "logits"));
}
