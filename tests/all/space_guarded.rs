//! The guard finds what was done wrong, and who did it.

use arenite::space::FaultKind;
use arenite::{Arena, Block, Guarded, HostSpace, MemorySpace, Recording};
use core::alloc::Layout;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

fn give_back(space: &dyn MemorySpace, block: Block) {
    // SAFETY: a block of that space; where it is given back twice, the guard is what is tested.
    unsafe { space.deallocate(block) };
}

fn write(block: Block, offset: isize) {
    // SAFETY: within the guard's own memory around or behind the block, which is what is tested.
    let place = unsafe { block.address().offset(offset) };
    // SAFETY: as above.
    unsafe { place.write(1) };
}

#[test]
fn writes_outside_a_block_are_found_at_either_end_and_every_alignment() {
    for align in [1, 16, 64, 4096] {
        for (offset, kind) in
            [(-1, FaultKind::WrittenBefore), (-64, FaultKind::WrittenBefore), (33, FaultKind::WrittenAfter)]
        {
            let space = Guarded::new(HostSpace::new());
            let block = space.allocate(layout(33, align)).unwrap();
            assert_eq!(block.address_bits() % align as u64, 0);
            write(block, 0);
            write(block, 32);
            assert_eq!(space.take_faults(), []);
            write(block, offset);
            give_back(&space, block);
            let faults = space.take_faults();
            assert_eq!((faults.len(), faults[0].kind, faults[0].offset_bytes), (1, kind, offset));
        }
    }
}

#[test]
fn writes_after_giving_back_are_found_while_the_block_is_kept_and_when_it_goes() {
    let space = Guarded::new(HostSpace::new()).with_delayed_reuse(1000);
    let first = space.tagged("kv").allocate(layout(100, 8)).unwrap();
    give_back(&space, first);
    write(first, 50);
    let fault = space.take_faults()[0];
    assert_eq!((fault.kind, fault.offset_bytes), (FaultKind::WrittenWhenGone, 50));
    assert!(
        fault.to_string().ends_with("of kv was written after it was given back, at its byte 50"),
        "{fault}"
    );
    // Ten more push it out.
    for _ in 0..10 {
        let block = space.allocate(layout(100, 8)).unwrap();
        assert_ne!(block.address(), first.address(), "it is not used again while it is kept");
        give_back(&space, block);
    }
    assert!(space.take_faults().iter().all(|fault| fault.kind == FaultKind::WrittenWhenGone));
}

#[test]
fn giving_back_twice_or_elsewhere_is_a_fault_and_harmless() {
    let counts = Recording::new(HostSpace::new());
    {
        let space = Guarded::new(&counts);
        let other = Guarded::new(HostSpace::new());
        let block = space.allocate(layout(64, 8)).unwrap();
        give_back(&other, block);
        give_back(&space, block);
        give_back(&space, block);
        for space in [other.take_faults(), space.take_faults()] {
            assert_eq!((space.len(), space[0].kind, space[0].size_bytes), (1, FaultKind::NotLive, 64));
        }
    }
    assert_eq!((counts.counts().live_bytes, counts.counts().live_blocks), (0, 0));
}

#[test]
fn leaks_are_listed_by_tag() {
    let space = Guarded::new(HostSpace::new());
    let blocks: Vec<Block> = [("a", 10), ("b", 300), ("a", 20)]
        .map(|(tag, size)| space.tagged(tag).allocate(layout(size, 8)).unwrap())
        .into();
    let leaks: Vec<_> =
        space.leaks().iter().map(|leak| (leak.tag.to_string(), leak.blocks, leak.bytes)).collect();
    assert_eq!(leaks, [("b".into(), 1, 300), ("a".into(), 2, 30)]);
    blocks.into_iter().for_each(|block| give_back(&space, block));
    assert!(space.leaks().is_empty() && space.take_faults().is_empty());
}

/// Reads a byte that was taken back.
fn peek(block: Block) -> u8 {
    // SAFETY: the arena still holds the memory; that it is no longer the block's is what is tested.
    unsafe { block.address().read() }
}

#[test]
fn what_an_arena_takes_back_is_spoiled() {
    let mut arena = Arena::new(Guarded::new(HostSpace::new()));
    let fill = |block: Block| {
        // SAFETY: a live block of an arena in host memory.
        unsafe { block.address().write_bytes(7, block.size_bytes()) };
        block
    };
    let kept = fill(arena.allocate(layout(10, 1)).unwrap());
    let start = arena.checkpoint();
    let gone = fill(arena.allocate(layout(100, 1)).unwrap());
    assert!(arena.rewind(start));
    assert_eq!((peek(kept), peek(gone)), (7, 0xdd));
    // Over several chunks, and through a scope.
    let blocks = arena
        .scoped(|scope| [100, 70_000, 200_000].map(|size| fill(scope.allocate(layout(size, 8)).unwrap())));
    assert!(blocks.iter().all(|&block| peek(block) == 0xdd) && peek(kept) == 7);
    arena.reset();
    assert_eq!(peek(kept), 0xdd);
    assert!(arena.space().take_faults().is_empty());
}
