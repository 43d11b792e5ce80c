//! What several threads do at once with arenas and pools, for `AddressSanitizer` and `ThreadSanitizer`.
//!
//! `cargo xtask sanitize` builds and runs it; without a sanitizer it is an ordinary check of the same.
//!
//! Deliberately absent: a test harness and locks of the standard library, which come without instrumentation and
//! are reported where they are right. Threads are joined by hand for the same reason.

#![expect(clippy::print_stdout, reason = "says what it did")]

use arenite::trace::Trace;
use arenite::{Arena, ArenaSet, HeapSpace, HostSpace, Meter, Pool, PoolBlock, Request, SharedArena, SpaceId};
use core::alloc::Layout;
use core::sync::atomic::{AtomicUsize, Ordering};
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;

const THREADS: usize = 4;
const ROUNDS: usize = 300;
const POOL_ROUNDS: usize = 20_000;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 16).expect("a valid layout")
}

/// Runs `work` on some threads at once, each with its number, and waits for all.
fn on_threads(work: impl Fn(usize) + Send + Sync + 'static) {
    let there = AtomicUsize::new(0);
    let work = Arc::new(move |number| {
        there.fetch_add(1, Ordering::Relaxed);
        while there.load(Ordering::Relaxed) < THREADS {
            std::thread::yield_now();
        }
        work(number);
    });
    let threads: Vec<JoinHandle<()>> = (0..THREADS)
        .map(|number| {
            let work = Arc::clone(&work);
            std::thread::spawn(move || work(number))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

/// Views of one range: slices are nobody else's, and there when they are given.
fn views_of_one_range() {
    for space in [HostSpace::new(), HostSpace::new().with_exact_blocks()] {
        let mut shared = Arc::new(SharedArena::new(space, 8 << 20).expect("host memory"));
        for _ in 0..4 {
            let range = Arc::clone(&shared);
            on_threads(move |number| {
                let arena = range.view();
                let words: Vec<&mut [usize]> =
                    (0..ROUNDS).map(|_| arena.alloc_slice_fill(1 + number * 40, number)).collect();
                assert!(words.iter().all(|words| words.iter().all(|&word| word == number)));
            });
            Arc::get_mut(&mut shared).expect("threads are gone").reset();
        }
    }
}

/// Blocks that one thread takes and another gives back, while a third reads the books and trims.
fn blocks_from_hand_to_hand() {
    type Passed = Vec<(PoolBlock<Arc<Pool<HostSpace>>>, u8)>;
    let trace = Trace::new();
    let pool = Arc::new(Pool::new(HostSpace::new()));
    let watched = Arc::new(Pool::new(HostSpace::new()).with_observer(trace.clone()));
    for pool in [pool, watched] {
        let tag = pool.tag("passed").expect("a tag");
        let passed: Arc<Mutex<Passed>> = Arc::default();
        let shared = Arc::clone(&pool);
        on_threads(move |number| {
            for round in 0..POOL_ROUNDS {
                if number == 0 {
                    let stats = shared.stats();
                    assert!(stats.live_bytes <= stats.capacity_bytes);
                    shared.trim_to(round);
                    shared.reset_peak();
                    continue;
                }
                let size = 1 + round % 3 * 64;
                let request = Request::new(layout(size)).tagged(tag);
                let mut block = match round % 3 {
                    0 => shared.acquire_owned(&request).expect("host memory").block,
                    _ => shared.allocate_owned(layout(size)).expect("host memory"),
                };
                let byte = u8::try_from(number).expect("few threads");
                block.bytes_mut().fill(core::mem::MaybeUninit::new(byte));
                // Kept by this thread, with no lock that would order what others do; or passed on.
                if round % 8 != 0 {
                    continue;
                }
                passed.lock().push((block, byte));
                let other = passed.lock().pop();
                if let Some((mut block, byte)) = other {
                    // SAFETY: whoever passed it filled all of it.
                    let bytes = unsafe { block.bytes_mut().assume_init_ref() };
                    assert!(bytes.iter().all(|&held| held == byte), "nobody else wrote there");
                }
            }
        });
        assert_eq!((pool.stats().blocks, pool.stats().live_bytes), (0, 0));
    }
}

/// Arenas on loan from one set with a limit, counted together.
fn arenas_of_one_set() {
    let meter = Meter::default();
    let set = ArenaSet::builder()
        .space(Arc::new(HostSpace::new()))
        .limit(SpaceId::HOST, 1 << 20)
        .meter(meter.clone())
        .build();
    let counted = meter.clone();
    on_threads(move |number| {
        for round in 0..ROUNDS {
            // Where the others have it all, it is refused.
            if let Ok(arena) = set.take(SpaceId::HOST, 1 + round * 1000, "a thread") {
                let block = arena.allocate(layout(1 + round)).expect("what was taken");
                assert!(block.size_bytes() == 1 + round && counted.usage(SpaceId::HOST).current_bytes > 0);
            }
            if number == 0 {
                let _ = (set.report(), counted.reset_peak());
            }
        }
    });
    assert_eq!(meter.usage(SpaceId::HOST).current_bytes, 0);
}

/// Arenas that are made by one thread, used by another and dropped by a third.
fn arenas_sent_on() {
    let sent: Arc<Mutex<Vec<Arena<HeapSpace>>>> = Arc::default();
    on_threads(move |number| {
        for round in 0..ROUNDS {
            let mut arena = sent.lock().pop().unwrap_or_else(|| Arena::new(HeapSpace));
            arena.scoped(|scope| scope.alloc_slice_fill(round * 10, number)[..].iter().sum::<usize>());
            arena.alloc([number; 8]);
            if round % 5 != 0 {
                sent.lock().push(arena);
            }
        }
    });
}

fn main() {
    views_of_one_range();
    blocks_from_hand_to_hand();
    arenas_of_one_set();
    arenas_sent_on();
    println!("{THREADS} threads, in four ways: nothing was seen twice");
}
