//! Device and pinned memory on a real driver.

use arenite::space::cuda::{CudaQueue, CudaSpace, Device, PinnedSpace, device_count};
use arenite::space::{Piece, Queue};
use arenite::{Arena, Block, MemorySpace};
use core::alloc::Layout;
use core::ptr::NonNull;

fn layout(size_bytes: usize) -> Layout {
    Layout::from_size_align(size_bytes, 256).unwrap()
}

fn piece(target: NonNull<u8>, source: NonNull<u8>, size_bytes: usize) -> Piece {
    Piece { target, source, size_bytes }
}

fn of(bytes: &mut [u8]) -> NonNull<u8> {
    NonNull::from(bytes).cast()
}

#[test]
#[ignore = "needs a GPU"]
fn there_is_a_device() {
    println!("{} devices", device_count().unwrap());
    let device = Device::open(0).unwrap();
    println!("{} {:?} {} bytes", device.name(), device.capability(), device.total_bytes());
}

#[test]
#[ignore = "needs a GPU"]
fn an_arena_grows_in_place_and_gives_all_back() {
    let device = Device::open(0).unwrap();
    let before = device.free_bytes().unwrap();
    {
        let mut arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 8 << 30);
        let first = arena.allocate(layout(100)).unwrap();
        let second = arena.allocate(layout(1 << 30)).unwrap();
        assert_eq!(second.address_bits(), first.address_bits() + 256);
        arena.reset();
        assert_eq!(arena.allocate(layout(1 << 29)).unwrap().address_bits(), first.address_bits());
        arena.trim();
        arena.allocate(layout(1 << 30)).unwrap();
    }
    let after = device.free_bytes().unwrap();
    assert!(before.saturating_sub(after) < 4 << 20, "{before} free before, {after} after");
}

#[test]
#[ignore = "needs a GPU"]
fn bytes_arrive_whatever_the_size_and_order() {
    let arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
    for size_bytes in [1, 256, 4096, 100_000, 300 << 10, 5 << 20, 80 << 20] {
        let mut queue = CudaQueue::new(0).unwrap();
        let take = || arena.allocate(layout(size_bytes)).map(|block: Block| block.address()).unwrap();
        let (first, second, third) = (take(), take(), take());
        let mut x: Vec<u8> = (0..size_bytes).map(|index| (index % 251) as u8).collect();
        let mut y: Vec<u8> = x.iter().map(|byte| byte ^ 0xff).collect();
        let (mut back_y, mut back_x) = (vec![0; size_bytes], vec![0; size_bytes]);
        // SAFETY: device ranges of the arena, which outlives the queue's work; the host's are waited for.
        unsafe {
            queue
                .upload(&[piece(second, of(&mut y), size_bytes), piece(first, of(&mut x), size_bytes)])
                .unwrap();
            x.fill(0);
            y.fill(0);
            queue.copy(piece(third, first, size_bytes)).unwrap();
            queue.fill(first, size_bytes, 7).unwrap();
            queue
                .download(&[
                    piece(of(&mut back_x), third, size_bytes),
                    piece(of(&mut back_y), second, size_bytes),
                ])
                .unwrap();
        }
        queue.synchronize().unwrap();
        assert!(back_x.iter().enumerate().all(|(index, byte)| *byte == (index % 251) as u8), "{size_bytes}");
        assert!(back_x.iter().zip(&back_y).all(|(x, y)| x ^ y == 0xff), "{size_bytes}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn pinned_memory_is_copied_directly() {
    let space = PinnedSpace::new().unwrap();
    let arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
    let size_bytes = 64 << 20;
    let (host, device) =
        (space.allocate(layout(size_bytes)).unwrap(), arena.allocate(layout(size_bytes)).unwrap());
    let mut queue = CudaQueue::new(0).unwrap();
    let mut back = vec![0_u8; size_bytes];
    // SAFETY: a pinned block, a device block and a vector of this size; waited for below.
    unsafe {
        host.address().write_bytes(3, size_bytes);
        queue.upload(&[piece(device.address(), host.address(), size_bytes)]).unwrap();
        queue.download(&[piece(of(&mut back), device.address(), size_bytes)]).unwrap();
    }
    queue.synchronize().unwrap();
    assert!(back.iter().all(|byte| *byte == 3));
    // SAFETY: it came from this space, just so, and the queue was waited for.
    unsafe { space.deallocate(host) };
}

#[test]
#[ignore = "needs a GPU"]
fn two_devices_exchange_bytes_behind_an_event() {
    if device_count().unwrap() < 2 {
        println!("one device only: not tested");
        return;
    }
    let arenas = [0, 1].map(|index| Arena::with_reserve(CudaSpace::new(index).unwrap(), 1 << 30));
    let [there, here] = [0, 1].map(|index: usize| arenas[index].allocate(layout(1 << 20)).unwrap().address());
    let (mut first, mut second) = (CudaQueue::new(0).unwrap(), CudaQueue::new(1).unwrap());
    let mut back = vec![0_u8; 1 << 20];
    // SAFETY: ranges of the two arenas; the event orders the copy behind the fill.
    unsafe {
        first.fill(there, 1 << 20, 9).unwrap();
        let done = first.record().unwrap();
        second.wait(&done).unwrap();
        second.copy_from_peer(piece(here, there, 1 << 20), first.device()).unwrap();
        second.download(&[piece(of(&mut back), here, 1 << 20)]).unwrap();
    }
    second.synchronize().unwrap();
    assert!(back.iter().all(|byte| *byte == 9));
}
