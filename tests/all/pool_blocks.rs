//! Blocks of a pool: any order, any thread, counted, and given back once.

use crate::support::fake_device::FakeDevice;
use arenite::{
    AllocErrorKind, Arena, HostSpace, LimitSource, MemorySpace, Owner, Pool, PoolKey, PoolKeyError,
    Recording, Request, Tag,
};
use core::alloc::Layout;
use std::sync::Arc;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn blocks_are_given_back_in_any_order_and_used_again() {
    let space = Recording::new(FakeDevice::new(1 << 30));
    let pool = Pool::new(&space);
    let mut blocks: Vec<_> = (1..40).map(|index| pool.allocate(layout(index * 100, 256)).unwrap()).collect();
    let asks = space.counts().asks;
    for round in 0..5 {
        // Every second one, from either end.
        let gone: Vec<_> =
            (0..blocks.len() / 2).map(|at| blocks.swap_remove((at * 7 + round) % 19)).collect();
        let sizes: Vec<usize> = gone.iter().map(|block| block.block().size_bytes()).collect();
        drop(gone);
        blocks.extend(sizes.iter().map(|&size| pool.allocate(layout(size, 256)).unwrap()));
    }
    assert_eq!(space.counts().asks, asks, "what was given back serves again");
    drop(blocks);
    assert_eq!((pool.stats().live_bytes, pool.stats().blocks), (0, 0));
    assert_eq!(pool.trim(), space.counts().peak_bytes);
    assert_eq!(space.counts().live_bytes, 0);
}

#[test]
fn neighbours_given_back_make_one_range_again() {
    let space = Recording::new(HostSpace::new());
    let pool = Pool::new(&space).with_step(1 << 20);
    let blocks: Vec<_> = (0..16).map(|_| pool.allocate(layout(64 << 10, 64)).unwrap()).collect();
    let asks = space.counts().asks;
    drop(blocks);
    assert!(pool.allocate(layout(1 << 20, 64)).is_ok());
    assert_eq!(space.counts().asks, asks);
}

#[test]
fn host_blocks_are_bytes_to_write() {
    let pool = Pool::new(HostSpace::new());
    let mut block = pool.allocate(layout(100, 32)).unwrap();
    for byte in block.bytes_mut() {
        byte.write(7);
    }
    assert_eq!(block.bytes_mut().len(), 100);
    assert_eq!(pool.allocate(layout(0, 64)).unwrap().bytes_mut().len(), 0);
}

#[test]
fn a_key_is_good_once_and_in_its_own_pool() {
    let pool = Pool::new(HostSpace::new());
    let other = Pool::new(HostSpace::new());
    let key = pool.allocate(layout(100, 8)).unwrap().into_key();
    let key = PoolKey::from_parts(key.to_parts());
    assert_eq!(other.free(key), Err(PoolKeyError::Foreign));
    assert_eq!((pool.stats().blocks, other.stats().blocks), (1, 0));
    assert_eq!(pool.free(key), Ok(()));
    assert_eq!(pool.free(key), Err(PoolKeyError::Stale));
    let again = pool.allocate(layout(100, 8)).unwrap();
    assert_eq!(pool.free(key), Err(PoolKeyError::Stale), "the node serves another block now");
    let [number, node, _] = key.to_parts();
    assert_eq!(pool.free(PoolKey::from_parts([number, node + 1000, 0])), Err(PoolKeyError::Stale));
    assert_eq!(pool.stats().blocks, 1);
    drop(again);
    let empty = pool.allocate(layout(0, 8)).unwrap().into_key();
    assert_eq!(pool.free(empty), Ok(()));
}

#[test]
fn alignments_over_the_spaces_are_kept() {
    let space = FakeDevice::new(1 << 30);
    let pool = Pool::new(&space);
    let mut live = Vec::new();
    for align_log2 in 0..22 {
        let align = 1 << align_log2;
        let block = pool.allocate(layout(1000, align)).unwrap();
        assert_eq!(block.block().address_bits() % align as u64, 0, "{align}");
        live.push(block);
    }
}

#[test]
fn limits_of_the_pool_and_of_tags_say_who_set_them() {
    let pool = Pool::new(HostSpace::new()).with_name("kv").with_limit(128 << 10);
    let weights = pool.tag_with_limit("weights", 32 << 10).unwrap();
    let first = pool.acquire(&Request::new(layout(30 << 10, 64)).tagged(weights)).unwrap();
    let error = pool.acquire(&Request::new(layout(4000, 64)).tagged(weights)).unwrap_err();
    let kind = AllocErrorKind::OverLimit { limit_bytes: 32 << 10, source: LimitSource::Tag };
    assert_eq!((error.kind(), error.arena(), error.tag()), (kind, Tag::new("kv"), Tag::new("weights")));
    let second = pool.allocate(layout(40 << 10, 64)).unwrap();
    let error = pool.allocate(layout(50_000, 64)).unwrap_err();
    let kind = AllocErrorKind::OverLimit { limit_bytes: 128 << 10, source: LimitSource::Pool };
    assert_eq!((error.kind(), error.asked_bytes(), error.aligned_bytes()), (kind, 50_000, 50_048));
    assert_eq!(
        error.owners().collect::<Vec<_>>(),
        [
            Owner { tag: Tag::new("no tag"), bytes: 40 << 10 },
            Owner { tag: Tag::new("weights"), bytes: 30 << 10 }
        ]
    );
    assert_eq!(
        error.to_string(),
        "host: 50000 bytes at alignment 64 for kv refused: over the limit of 131072 bytes set by the pool; \
         71680 live, 34816 free, 15184 short; most held by no tag (40960), weights (30720); \
         retried after drain 0, merge 0, trim 0, callback 0"
    );
    drop((first, second));
    assert!(pool.allocate(layout(50_000, 64)).is_ok());
}

#[test]
fn tags_of_the_same_name_are_one_and_of_another_pool_are_refused() {
    let pool = Pool::new(HostSpace::new());
    let other = Pool::new(HostSpace::new());
    assert_eq!(pool.tag("a").unwrap(), pool.tag("a").unwrap());
    let foreign = Request::new(layout(8, 8)).tagged(other.tag("a").unwrap());
    assert!(matches!(pool.acquire(&foreign).unwrap_err().kind(), AllocErrorKind::Refused { .. }));
    let foreign = Request::new(layout(8, 8)).on(other.add_stream().unwrap());
    assert!(matches!(pool.acquire(&foreign).unwrap_err().kind(), AllocErrorKind::Refused { .. }));
    assert_eq!(pool.stats().blocks, 0);
}

#[test]
fn a_request_that_may_not_grow_is_exhausted_and_asks_nobody() {
    let space = FakeDevice::new(1 << 30);
    let pool = Pool::new(&space);
    let request = Request::new(layout(1000, 256)).without_growth();
    assert_eq!(pool.acquire(&request).unwrap_err().kind(), AllocErrorKind::NotNow);
    assert_eq!(space.calls(), 0);
    drop(pool.allocate(layout(1000, 256)).unwrap());
    assert!(pool.acquire(&request).is_ok());
}

#[test]
fn many_threads_share_a_pool_and_free_what_others_took() {
    let space = Recording::new(HostSpace::new());
    let pool = Arc::new(Pool::new(&space));
    std::thread::scope(|threads| {
        let (sender, receiver) = std::sync::mpsc::channel();
        for thread in 0..3_u8 {
            let (pool, sender) = (Arc::clone(&pool), sender.clone());
            threads.spawn(move || {
                for step in 0..500 {
                    let size = 1 + (step * 37 + usize::from(thread)) % 5000;
                    let mut block = pool.allocate_owned(layout(size, 16)).unwrap();
                    block.bytes_mut().fill(core::mem::MaybeUninit::new(thread));
                    if step % 2 == 0 {
                        sender.send(block).unwrap();
                    }
                }
            });
        }
        drop(sender);
        threads.spawn(move || receiver.into_iter().for_each(drop));
    });
    assert_eq!((pool.stats().live_bytes, pool.stats().blocks), (0, 0));
    drop(pool);
    assert_eq!(space.counts().live_bytes, 0);
}

#[test]
fn an_arena_stands_on_a_pool() {
    let pool = Pool::new(HostSpace::new());
    {
        let arena = Arena::new(&pool);
        assert_eq!(arena.alloc_str("in a pool"), "in a pool");
        assert!(pool.stats().live_bytes > 0 && pool.space().stats().exact_bytes > 0);
    }
    assert_eq!(pool.stats().live_bytes, 0);
}

#[test]
fn what_is_held_stays_near_what_is_asked() {
    for sizes in [vec![10, 1 << 20, 8 << 10], vec![300; 2000], (1..300).map(|n| n * 64).collect::<Vec<_>>()] {
        let space = Recording::new(HostSpace::new());
        let pool = Pool::new(&space);
        let blocks: Vec<_> = sizes.iter().map(|&size| pool.allocate(layout(size, 8)).unwrap()).collect();
        let asked_bytes: usize = blocks.iter().map(|block| block.block().size_bytes().max(64)).sum();
        let held_bytes = space.counts().live_bytes;
        assert!(held_bytes <= asked_bytes + asked_bytes / 4 + (64 << 10), "{held_bytes} for {asked_bytes}");
    }
}

#[test]
fn a_pool_that_is_dropped_gives_everything_back() {
    let device = Arc::new(FakeDevice::new(1 << 30));
    let pool = Arc::new(Pool::new(Arc::clone(&device)));
    let block = pool.allocate_owned(layout(1 << 20, 256)).unwrap();
    drop(pool);
    assert!(device.live_bytes() > 0, "the block keeps the pool");
    drop(block);
    assert_eq!((device.live_bytes(), device.live_blocks()), (0, 0));
    assert_eq!(device.id().to_string(), "cuda:0");
}

#[test]
fn what_one_thread_gave_back_serves_another() {
    let pool = Pool::new(HostSpace::new()).with_limit(64 << 10);
    for _ in 0..3 {
        drop(pool.allocate(layout(60 << 10, 64)).unwrap());
        std::thread::scope(|threads| {
            threads.spawn(|| drop(pool.allocate(layout(50 << 10, 64)).unwrap()));
        });
    }
    assert_eq!((pool.stats().live_bytes, pool.stats().rescued), (0, 0));
}

#[test]
fn a_key_for_a_block_that_has_an_owner_is_refused() {
    let pool = Pool::new(HostSpace::new());
    let key = pool.allocate(layout(100, 8)).unwrap().into_key();
    let [number, node, generation] = key.to_parts();
    pool.free(key).unwrap();
    let owned = pool.allocate(layout(100, 8)).unwrap();
    let forged = PoolKey::from_parts([number, node, generation.wrapping_add(1)]);
    assert_eq!(pool.free(forged), Err(PoolKeyError::Stale));
    drop(owned);
    assert_eq!(pool.free(forged), Err(PoolKeyError::Stale), "nor for one that is kept");
}
