//! Collections in an arena: maps of hashbrown, vectors and boxes of `allocator-api2`.
#![cfg(feature = "allocator-api2")]

use allocator_api2::alloc::Allocator;
use allocator_api2::{boxed::Box, vec::Vec};
use arenite::{Arena, HostSpace};
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
