//! Collections in an arena: maps of hashbrown, vectors and boxes of `allocator-api2`.
#![cfg(feature = "allocator-api2")]

use crate::support::numbers::Numbers;
use crate::support::touching::Touching;
use allocator_api2::alloc::Allocator;
use allocator_api2::{boxed::Box, vec::Vec};
use arenite::{Arena, HeapSpace, HostAccessible, HostSpace};
use core::alloc::Layout;
use core::ptr::NonNull;
use hashbrown::HashMap;

#[test]
fn a_hash_map_grows_in_an_arena() {
    let arena = Arena::new(HostSpace::new());
    let mut map = HashMap::new_in(&arena);
    for number in 0..5000_u64 {
        map.insert(number, arena.alloc_str(&number.to_string()));
    }
    map.retain(|number, _| number % 3 == 0);
    assert!(map.iter().all(|(number, text)| text.parse() == Ok(*number)));
    assert!(arena.live_bytes() > 5000 * 16);
}

#[test]
fn the_last_block_grows_and_shrinks_in_place_and_comes_back() {
    let mut arena = Arena::new(HostSpace::new());
    arena.alloc(1u8);
    let start = arena.checkpoint();
    let mut numbers = Vec::new_in(&arena);
    numbers.extend(0..4_u32);
    let address = numbers.as_ptr();
    numbers.extend(4..1000_u32);
    assert_eq!(numbers.as_ptr(), address, "it was the last");
    arena.alloc(2u8);
    numbers.extend(1000..2000_u32);
    assert_ne!(numbers.as_ptr(), address, "it was not any more");
    assert!(numbers.iter().copied().eq(0..2000));
    numbers.shrink_to_fit();
    let live_bytes = arena.live_bytes();
    drop(numbers);
    assert_eq!(arena.live_bytes(), live_bytes - 8000);
    assert_eq!(*Box::new_in(7, &arena), 7);
    assert!(arena.rewind(start));
}

#[test]
fn a_scope_gives_collections_that_end_with_it() {
    let mut arena = Arena::new(HostSpace::new());
    let sum: u32 = arena.scoped(|scope| {
        let mut numbers = Vec::new_in(&scope);
        numbers.extend(0..100_u32);
        numbers.iter().sum()
    });
    assert_eq!((sum, arena.live_bytes()), (4950, 0));
}

#[test]
fn a_block_at_the_end_of_an_earlier_chunk_is_not_the_last() {
    // Chunks of exact blocks may happen to follow one another.
    let arena = Arena::with_chunks(HostSpace::new());
    let layout = Layout::new::<[u8; 4096]>();
    let blocks: std::vec::Vec<NonNull<[u8]>> =
        (0..20).map(|_| Allocator::allocate(&&arena, layout).unwrap()).collect();
    let live_bytes = arena.live_bytes();
    for block in &blocks[..19] {
        // SAFETY: allocated above, given back once.
        unsafe { Allocator::deallocate(&&arena, block.cast(), layout) };
    }
    assert!(arena.live_bytes() <= live_bytes);
    let next = arena.alloc([1u8; 4096]);
    assert!(blocks.iter().skip(19).all(|block| block.cast().as_ptr() != next.as_mut_ptr()));
}

#[test]
fn a_refused_request_is_an_error_not_an_abort() {
    let arena = Arena::exact(HostSpace::new(), 100).unwrap();
    let mut numbers = Vec::<u64, _>::new_in(&arena);
    assert!(numbers.try_reserve(8).is_ok());
    assert!(numbers.try_reserve(1000).is_err());
}

/// What should be live: a block, its layout, the byte it was filled with, and whether it is a collection's.
type Live = (NonNull<u8>, Layout, u8, bool);

fn bytes(block: NonNull<u8>, len: usize) -> &'static [u8] {
    // SAFETY: callers pass live blocks that were written, and drop what they get at once.
    unsafe { core::slice::from_raw_parts(block.as_ptr(), len) }
}

fn fill(block: NonNull<u8>, len: usize, byte: u8) {
    // SAFETY: callers pass live blocks of so many bytes.
    unsafe { block.write_bytes(byte, len) };
}

/// Takes, grows, shrinks and gives back at random, in any order; every live byte stays as written.
fn trade<S: HostAccessible>(
    arena: &Arena<S>,
    numbers: &mut Numbers,
    live: &mut std::vec::Vec<Live>,
    peak: &mut usize,
) {
    let layout = |numbers: &mut Numbers, least: usize| {
        let size = [0, 1, 3, 16, 17, 40, 63, 64, 65, 300, 1000, 1023, 4095, 4096][numbers.below(14)];
        Layout::from_size_align(size.max(least), 1 << numbers.below(7)).unwrap()
    };
    for step in 0..60_u8 {
        // Only what a collection took may be given back alone.
        let lent: std::vec::Vec<usize> = (0..live.len()).filter(|&index| live[index].3).collect();
        let which = lent.get(numbers.below(lent.len().max(1))).copied();
        match numbers.below(8) {
            0..=2 => {
                let layout = layout(numbers, 0);
                let is_lent = numbers.below(3) > 0;
                let block = if !is_lent {
                    let block = arena.allocate_zeroed(layout).unwrap().address();
                    assert!(bytes(block, layout.size()).iter().all(|&byte| byte == 0), "zeroed");
                    block
                } else {
                    Allocator::allocate(&arena, layout).unwrap().cast()
                };
                fill(block, layout.size(), step);
                live.push((block, layout, step, is_lent));
            }
            3 | 4 => {
                let Some(which) = which else { continue };
                let (block, old, byte, _) = live[which];
                let new = layout(numbers, old.size());
                // SAFETY: live, of this layout, and the new one is no smaller.
                let grown = unsafe { Allocator::grow(&arena, block, old, new) }.unwrap().cast();
                assert!(bytes(grown, old.size()).iter().all(|&b| b == byte), "what was there moved along");
                fill(grown, new.size(), step);
                live[which] = (grown, new, step, true);
            }
            5 => {
                let Some(which) = which else { continue };
                let (block, old, byte, _) = live[which];
                let new = layout(numbers, 0);
                let new = Layout::from_size_align(new.size().min(old.size()), new.align()).unwrap();
                // SAFETY: live, of this layout, and the new one is no larger.
                let less = unsafe { Allocator::shrink(&arena, block, old, new) }.unwrap().cast();
                live[which] = (less, new, byte, true);
            }
            _ => {
                // Mostly the last, which is the one that comes back.
                let which = if numbers.below(3) == 0 { which } else { lent.last().copied() };
                let Some(which) = which else { continue };
                let (block, layout, ..) = live.remove(which);
                // SAFETY: live, of this layout, and forgotten just now.
                unsafe { Allocator::deallocate(&arena, block, layout) };
            }
        }
        for &(block, layout, byte, _) in &*live {
            assert_eq!(block.addr().get() % layout.align(), 0);
            assert!(bytes(block, layout.size()).iter().all(|&b| b == byte), "live bytes stay as written");
        }
        let stats = arena.stats();
        *peak = stats.live_bytes.max(*peak);
        assert_eq!(stats.peak_bytes, *peak);
        assert!(stats.live_bytes <= stats.capacity_bytes);
        assert!(stats.live_bytes >= live.iter().map(|(_, layout, ..)| layout.size()).sum());
    }
}

fn trade_in_scopes<S: HostAccessible>(mut arena: Arena<S>, seed: u64) {
    let (mut numbers, mut peak) = (Numbers::new(seed), 0);
    for _ in 0..4 {
        let mut live = std::vec::Vec::new();
        trade(&arena, &mut numbers, &mut live, &mut peak);
        let kept = arena.live_bytes();
        arena.scoped(|mut scope| trade(scope.arena(), &mut numbers, &mut std::vec::Vec::new(), &mut peak));
        assert!(arena.live_bytes() <= kept);
        assert!(
            live.iter()
                .all(|&(block, layout, byte, _)| bytes(block, layout.size()).iter().all(|&b| b == byte))
        );
        match numbers.below(3) {
            0 => arena.trim(),
            1 => arena.make_room(5000).unwrap(),
            _ => {}
        }
        arena.reset();
    }
}

#[test]
fn random_calls_of_collections_keep_every_byte_in_every_kind_of_chunk() {
    for seed in 0..60 {
        trade_in_scopes(Arena::new(HostSpace::new()), seed);
        trade_in_scopes(Arena::with_chunks(HostSpace::new()), seed);
        trade_in_scopes(Arena::new(HeapSpace), seed);
        trade_in_scopes(Arena::new(Touching::new(seed % 2 == 0)), seed);
        trade_in_scopes(Arena::with_chunks(Touching::new(seed % 2 == 0)), seed);
    }
}

#[test]
fn a_block_does_not_grow_into_a_chunk_that_touches_its_own() {
    let mut arena = Arena::with_chunks(Touching::new(true));
    let byte = Layout::new::<u8>();
    // The chunk is full to one byte, and the next one, of which nothing is given out, starts right behind it.
    let full = Layout::from_size_align(4096, 1).unwrap();
    let block: NonNull<u8> = Allocator::allocate(&&arena, full).unwrap().cast();
    arena.make_room(4096).unwrap();
    let mark = arena.checkpoint();
    let larger = Layout::from_size_align(5000, 1).unwrap();
    fill(block, 4096, 7);
    // SAFETY: allocated above, grown once.
    let grown: NonNull<u8> = unsafe { Allocator::grow(&&arena, block, full, larger) }.unwrap().cast();
    assert_ne!(grown, block);
    assert!(bytes(grown, 4096).iter().all(|&byte| byte == 7));
    assert!(arena.rewind(mark));
    // SAFETY: allocated above; the arena went on to the next chunk, so that its place does not come back.
    unsafe { Allocator::deallocate(&&arena, block, full) };
    let next = Allocator::allocate(&&arena, byte).unwrap().cast::<u8>();
    assert_eq!(next.addr().get(), block.addr().get() + 4097, "the start of the next chunk");
}

#[test]
fn blocks_never_end_where_the_next_chunk_may_start() {
    let arena = Arena::with_chunks(Touching::new(true));
    let sized = |size| Layout::from_size_align(size, 1).unwrap();
    let take = |size| Allocator::allocate(&&arena, sized(size)).unwrap().cast::<u8>();
    let give = |block, size| {
        // SAFETY: allocated here with this layout, given back once.
        unsafe { Allocator::deallocate(&&arena, block, sized(size)) };
    };
    // All but the last byte, which counts where it may have been given.
    let most = take(4095);
    give(most, 4095);
    assert_eq!((arena.live_bytes(), arena.stats().peak_bytes), (0, 4096));
    // Two blocks, the second of which would end at the very end.
    let (first, second) = (take(4000), take(96));
    assert_eq!((second.addr().get(), arena.stats().chunks), (first.addr().get() + 4096, 2));
    give(first, 4000);
    assert_eq!(arena.live_bytes(), 4096);
    assert!(take(1) > second);
    // SAFETY: allocated above, shrunk once.
    let less = unsafe { Allocator::shrink(&&arena, second, sized(96), sized(9)) }.unwrap();
    assert_eq!(less.cast(), second);
    assert!(take(80) > second);
    // A block that is never freed alone may have the last byte.
    let arena = Arena::with_chunks(Touching::new(true));
    arena.allocate(sized(4096)).unwrap();
    assert_eq!((arena.live_bytes(), arena.stats().chunks, arena.capacity_bytes()), (4096, 1, 4096));
    let last = Allocator::allocate(&&arena, sized(1)).unwrap().cast::<u8>();
    // SAFETY: allocated above with this layout, given back once.
    unsafe { Allocator::deallocate(&&arena, last, sized(1)) };
    assert_eq!(arena.live_bytes(), 4096);
}

#[test]
fn what_was_live_at_most_is_exact_whoever_took_it() {
    let mut arena = Arena::new(HostSpace::new());
    let peak = |arena: &Arena<HostSpace>| (arena.live_bytes(), arena.stats().peak_bytes);
    drop(Vec::<u8, _>::with_capacity_in(1000, &arena));
    assert_eq!(peak(&arena), (0, 1000));
    arena.scoped(|scope| {
        scope.alloc([0_u8; 500]);
        drop(Vec::<u8, _>::with_capacity_in(700, &scope));
        drop(Vec::<u8, _>::with_capacity_in(600, &scope));
    });
    assert_eq!(peak(&arena), (0, 1200));
    arena.scoped(|mut scope| {
        scope.alloc([0_u8; 900]);
        scope.scoped(|inner| inner.alloc([0_u8; 400]).len());
        assert_eq!(scope.arena().live_bytes(), 900);
        scope.alloc([0_u8; 300]);
    });
    assert_eq!(peak(&arena), (0, 1300));
    // Nothing of it reads as zero without being written.
    let zeroed = arena.try_alloc_slice_zeroed::<u8>(4000).unwrap();
    assert!(zeroed.iter().all(|&byte| byte == 0));
    assert_eq!(peak(&arena), (4000, 4000));
}
