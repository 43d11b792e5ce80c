//! Device arenas grow in place, copies arrive, nothing is lost when the driver says no.

use super::stand_in::StandIn;
use arenite::space::cuda::{CudaQueue, CudaSpace, PinnedSpace, absence, is_pinned};
use arenite::space::{Piece, Queue};
use arenite::{AllocErrorKind, Arena, Block, MemorySpace, SpaceId};
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
fn absence_is_a_sentence_that_names_the_device() {
    let stand_in = StandIn::take();
    assert_eq!(absence(1), None);
    assert_eq!(absence(7).unwrap(), "cuda:7 is wanted, 2 devices present");
    stand_in.reset(0, 0);
    assert!(absence(0).unwrap().contains("CUDA_VISIBLE_DEVICES"));
}

#[test]
fn an_arena_grows_in_place_and_gives_all_back() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    {
        let mut arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
        let first = arena.allocate(layout(100)).unwrap();
        let second = arena.allocate(layout(300 << 20)).unwrap();
        assert_eq!(second.address_bits(), first.address_bits() + 256);
        assert_eq!(stand_in.live_bytes(), 302 << 20);
        arena.reset();
        let calls = stand_in.allocations();
        assert_eq!(arena.allocate(layout(200 << 20)).unwrap().address_bits(), first.address_bits());
        assert_eq!(stand_in.allocations(), calls);
        arena.trim();
        assert!(stand_in.live_bytes() < 302 << 20);
        arena.allocate(layout(90 << 20)).unwrap();
    }
    assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0));
}

#[test]
fn a_full_device_says_what_is_free() {
    let stand_in = StandIn::take();
    stand_in.reset(1, 10 << 20);
    let arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
    arena.allocate(layout(5 << 20)).unwrap();
    let error = arena.allocate(layout(6 << 20)).unwrap_err();
    assert_eq!((error.space(), error.kind()), (SpaceId::cuda(0), AllocErrorKind::NotNow));
    assert_eq!(error.largest_free_bytes(), Some(4 << 20));
    arena.allocate(layout(4 << 20)).unwrap();
}

#[test]
fn pinned_blocks_are_exact_and_known() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    let space = PinnedSpace::new().unwrap();
    let held = space.live_bytes();
    let block = space.allocate(layout(300)).unwrap();
    assert!(is_pinned(block.address(), 300) && !is_pinned(block.address(), 301));
    assert_eq!((space.live_bytes(), stand_in.live()), (held + 300, before + 1));
    // SAFETY: it came from this space, just so.
    unsafe { space.deallocate(block) };
    assert!(!is_pinned(block.address(), 1));
    assert_eq!((space.live_bytes(), stand_in.live()), (held, before));
}

#[test]
fn pinned_blocks_are_aligned_though_the_drivers_are_not() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    let space = PinnedSpace::new().unwrap();
    let held = space.live_bytes();
    for (size_bytes, align, asked_bytes) in [(300, 256, 300), (300, 4096, 4396), (1 << 20, 4096, 1 << 20)] {
        let block = space.allocate(Layout::from_size_align(size_bytes, align).unwrap()).unwrap();
        assert_eq!(block.address().addr().get() % align, 0);
        assert!(is_pinned(block.address(), size_bytes) && !is_pinned(block.address(), size_bytes + 1));
        assert_eq!((space.live_bytes(), stand_in.live()), (held + asked_bytes, before + 1));
        // SAFETY: it came from this space, just so.
        unsafe { space.deallocate(block) };
        assert_eq!((space.live_bytes(), stand_in.live()), (held, before));
    }
    // Arenas of small blocks, one after the other and at once.
    let arenas: Vec<_> = (0..3)
        .map(|_| {
            let arena = Arena::with_chunks(PinnedSpace::new().unwrap());
            arena.allocate(Layout::from_size_align(768, 256).unwrap()).unwrap();
            arena
        })
        .collect();
    assert!(arenas.iter().all(|arena| arena.capacity_bytes() >= 768));
}

/// Uploads in any order, moves on the device, downloads in another order, and compares.
fn round_trip(size_bytes: usize) -> Result<(), String> {
    let text = |error: &dyn core::fmt::Display| error.to_string();
    let space = CudaSpace::new(0)?;
    // The queue is dropped first: it waits for its work, and then memory may go.
    let arena = Arena::with_reserve(space, 1 << 30);
    let mut queue = CudaQueue::new(0).map_err(|error| text(&error))?;
    let take = || arena.allocate(layout(size_bytes)).map(|block: Block| block.address());
    let (first, second, third) = (
        take().map_err(|error| text(&error))?,
        take().map_err(|error| text(&error))?,
        take().map_err(|error| text(&error))?,
    );
    let mut x: Vec<u8> = (0..size_bytes).map(|index| (index % 251) as u8).collect();
    let mut y: Vec<u8> = x.iter().map(|byte| byte ^ 0xff).collect();
    let (mut back_y, mut back_x, mut filled) =
        (vec![0; size_bytes], vec![0; size_bytes], vec![0; size_bytes]);
    // SAFETY: device ranges of the arena, which outlives the queue's work; the host's are waited for below.
    unsafe {
        queue
            .upload(&[piece(second, of(&mut y), size_bytes), piece(first, of(&mut x), size_bytes)])
            .map_err(|error| text(&error))?;
        // Sources were taken: the next copy must not see this.
        x.fill(0);
        y.fill(0);
        queue.copy(piece(third, first, size_bytes)).map_err(|error| text(&error))?;
        queue.fill(first, size_bytes, 7).map_err(|error| text(&error))?;
        queue
            .download(&[
                piece(of(&mut back_x), third, size_bytes),
                piece(of(&mut filled), first, size_bytes),
                piece(of(&mut back_y), second, size_bytes),
            ])
            .map_err(|error| text(&error))?;
    }
    queue.synchronize().map_err(|error| text(&error))?;
    assert!(back_x.iter().enumerate().all(|(index, byte)| *byte == (index % 251) as u8));
    assert!(back_x.iter().zip(&back_y).all(|(x, y)| x ^ y == 0xff));
    assert!(filled.iter().all(|byte| *byte == 7));
    Ok(())
}

#[test]
fn bytes_arrive_whatever_the_size_and_order() {
    let _stand_in = StandIn::take();
    for size_bytes in [1, 256, 4096, 100_000, 300 << 10, 5 << 20] {
        round_trip(size_bytes).unwrap();
    }
}

#[test]
fn no_failing_call_leaks_or_gives_wrong_bytes() {
    let stand_in = StandIn::take();
    round_trip(4096).unwrap();
    let before = stand_in.live();
    for call in 1.. {
        stand_in.fail_after(call);
        let outcome = round_trip(4096);
        let failed = stand_in.has_failed();
        stand_in.fail_after(0);
        assert_eq!((stand_in.live(), stand_in.live_bytes()), (before, 0), "call {call}");
        // Where there is another way, as from reserved addresses to plain blocks, the flow goes on.
        assert!(outcome.is_ok() || failed, "call {call}: {outcome:?}");
        if !failed {
            assert!(call > 8, "the flow makes more calls than {call}");
            break;
        }
    }
}

#[test]
fn a_graph_copies_held_memory_in_place_and_other_memory_through_its_own() {
    let stand_in = StandIn::take();
    let pinned = PinnedSpace::new().unwrap();
    let sizes = [16, 1000, 65_537, 3 << 20];
    for size_bytes in sizes {
        let arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
        let there = arena.allocate(layout(size_bytes)).unwrap().address();
        let blocks: Vec<Block> = (0..4).map(|_| pinned.allocate(layout(size_bytes)).unwrap()).collect();
        let [sent, fetched, other_sent, other_fetched] = [0, 1, 2, 3].map(|index| blocks[index].address());
        let mut queue = CudaQueue::new(0).unwrap();
        let copies = stand_in.copies();
        queue.begin_capture(&[NonNull::slice_from_raw_parts(sent, size_bytes)]).unwrap();
        // SAFETY: ranges of blocks that are there until the end.
        unsafe {
            queue.upload(&[piece(there, sent, size_bytes)]).unwrap();
            queue.download(&[piece(fetched, there, size_bytes)]).unwrap();
        }
        // What a graph cannot hold is refused, and the capture goes on.
        assert!(queue.synchronize().unwrap_err().reason.contains("being captured"));
        assert!(queue.leave().is_err());
        let graph = queue.end_capture().unwrap();
        assert_eq!(stand_in.copies(), copies, "nothing was done yet");
        for (value, target) in [(1_u8, fetched), (2, other_fetched)] {
            // SAFETY: pinned blocks of this size; waited for before they are read.
            unsafe {
                sent.write_bytes(value, size_bytes);
                target.write_bytes(0, size_bytes);
                let (uploads, downloads) =
                    ([piece(there, sent, size_bytes)], [piece(target, there, size_bytes)]);
                queue.replay(graph, &uploads, &downloads).unwrap();
            }
            queue.synchronize().unwrap();
            // SAFETY: as above.
            let bytes = unsafe { core::slice::from_raw_parts(target.as_ptr(), size_bytes) };
            assert!(bytes.iter().all(|byte| *byte == value), "{size_bytes} bytes of {value}");
        }
        let elsewhere = [piece(there, other_sent, size_bytes)];
        // SAFETY: as above.
        let refused = unsafe { queue.replay(graph, &elsewhere, &[piece(fetched, there, size_bytes)]) };
        assert!(refused.unwrap_err().reason.contains("another place"));
        drop(queue);
        // SAFETY: blocks of this space, which nothing uses any more.
        blocks.into_iter().for_each(|block| unsafe { pinned.deallocate(block) });
    }
}

#[test]
fn captured_work_is_done_again_on_new_bytes() {
    let stand_in = StandIn::take();
    let before = stand_in.live();
    {
        let arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
        let (first, second) =
            (arena.allocate(layout(256)).unwrap().address(), arena.allocate(layout(256)).unwrap().address());
        let mut queue = CudaQueue::new(0).unwrap();
        let (mut source, mut target) = (vec![0_u8; 256], vec![0_u8; 256]);
        let graph = {
            queue.begin_capture(&[]).unwrap();
            // SAFETY: device ranges of the arena; the host's are staged.
            unsafe {
                queue.upload(&[piece(first, of(&mut source), 256)]).unwrap();
                queue.copy(piece(second, first, 256)).unwrap();
                queue.download(&[piece(of(&mut target), second, 256)]).unwrap();
            }
            queue.end_capture().unwrap()
        };
        for value in 1..4 {
            source.fill(value);
            let uploads = [piece(first, of(&mut source), 256)];
            let downloads = [piece(of(&mut target), second, 256)];
            // SAFETY: as above; waited for on the next line.
            unsafe { queue.replay(graph, &uploads, &downloads) }.unwrap();
            queue.synchronize().unwrap();
            assert!(target.iter().all(|byte| *byte == value));
        }
        let other = [piece(second, of(&mut source), 256)];
        // SAFETY: refused before anything is touched.
        let refused = unsafe { queue.replay(graph, &other, &[]) }.unwrap_err();
        assert!(refused.reason.contains("captured with"), "{refused}");
        queue.discard(graph);
        // SAFETY: as above.
        assert!(unsafe { queue.replay(graph, &[], &[]) }.is_err());
    }
    assert_eq!(stand_in.live(), before);
}

#[test]
fn two_devices_exchange_bytes_behind_an_event() {
    let stand_in = StandIn::take();
    let arenas = [0, 1].map(|index| Arena::with_reserve(CudaSpace::new(index).unwrap(), 1 << 30));
    let [there, here] = [0, 1].map(|index: usize| arenas[index].allocate(layout(512)).unwrap().address());
    let (mut first, mut second) = (CudaQueue::new(0).unwrap(), CudaQueue::new(1).unwrap());
    let mut back = vec![0_u8; 512];
    // SAFETY: ranges of the two arenas; the event orders the copy behind the fill.
    unsafe {
        first.fill(there, 512, 9).unwrap();
        let done = first.record().unwrap();
        second.wait(&done).unwrap();
        second.copy_from_peer(piece(here, there, 512), first.device()).unwrap();
        second.download(&[piece(of(&mut back), here, 512)]).unwrap();
    }
    second.synchronize().unwrap();
    assert!(back.iter().all(|byte| *byte == 9));
    // The second device reaches what the first one has mapped, and what it maps later; nobody else was let.
    let later = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
    let later = later.allocate(layout(512)).unwrap().address();
    assert!([there, later].iter().all(|mapping| stand_in.lets(*mapping, 1)));
    assert!(!stand_in.lets(here, 0));
}
