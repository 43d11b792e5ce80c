//! Arenas and pools beside their peers: the same work for each, in turn, in one process.
//!
//! `cargo xtask peers alloc` prints the tables of `benches/README.md`: the least time of many short rounds, in
//! nanoseconds an operation, and our ratio to the best peer. Answers are checked before anything is timed.
//!
//! A word after `--` measures only the rows that have it in their name: `cargo bench --bench peers -- W5`.
//!
//! Deliberately absent: a verdict by the clock. `benches/counts.rs` has counts that do not depend on the machine.

#![allow(missing_docs, reason = "a program that measures")]
#![allow(clippy::print_stdout, clippy::cast_possible_truncation, reason = "a program that measures")]

#[cfg(feature = "allocator-api2")]
mod allocators;
mod work;

use arenite::{DeviceRegion, HostSpace, MemorySpace, Pool, SpaceId};
use core::alloc::Layout;
use core::hint::black_box;
use std::time::Instant;

/// Rounds, and how long one is about, in nanoseconds.
const ROUNDS: usize = 200;
const ROUND_NS: f64 = 150_000.0;
/// Rounds before those that count.
const WARM: usize = 4;

/// One side of a row: does the work once and says how many operations that was.
type Side<'a> = Box<dyn FnMut() -> usize + 'a>;

/// The least time an operation of each side, in nanoseconds; sides take turns.
fn measure(sides: &mut [Option<Side<'_>>]) -> Vec<Option<f64>> {
    let mut repeats = vec![1_usize; sides.len()];
    let mut least: Vec<Option<f64>> = vec![None; sides.len()];
    for round in 0..ROUNDS + WARM {
        for (index, side) in sides.iter_mut().enumerate() {
            let Some(side) = side else { continue };
            let start = Instant::now();
            let mut operations = 0;
            for _ in 0..repeats[index] {
                operations += side();
            }
            let ns = start.elapsed().as_nanos() as f64;
            if round < WARM {
                // The last of these says how often a round repeats.
                repeats[index] = ((ROUND_NS / ns.max(1.0)) as usize).clamp(1, 10_000);
                continue;
            }
            let one = ns / operations as f64;
            least[index] = Some(least[index].map_or(one, |known| known.min(one)));
        }
    }
    least
}

fn show(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".into(), |ns| if ns < 100.0 { format!("{ns:.2}") } else { format!("{ns:.0}") })
}

/// One row of the first table.
fn row(name: &str, mut sides: [Option<Side<'_>>; 4]) {
    if !is_wanted(name) {
        return;
    }
    let least = measure(&mut sides);
    let best = least[1..].iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let ratio =
        least[0].filter(|_| best.is_finite()).map_or_else(String::new, |ours| format!("{:.2}", ours / best));
    let cells: Vec<String> = least.into_iter().map(show).collect();
    println!("| {name} | {} | {ratio} |", cells.join(" | "));
}

/// One row of the second table.
fn own(name: &str, published: &str, side: Side<'_>) {
    if !is_wanted(name) {
        return;
    }
    let least = measure(&mut [Some(side)]);
    println!("| {name} | {} | {published} |", show(least[0]));
}

/// Whether a row is asked for.
fn is_wanted(name: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--")).peekable();
    words.peek().is_none() || words.any(|word| name.contains(&word))
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}

/// Numbers that look random and are the same in every run.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

fn imaginary() -> DeviceRegion {
    DeviceRegion::imaginary(SpaceId::cuda(0), 64 << 30)
}

/// W9: pairs and bursts of an arena over memory that is not there.
fn any_space() {
    for align in [1, 256, 4096, 2 << 20] {
        let space = imaginary();
        let mut arena = arenite::Arena::with_chunks(&space);
        arena.make_room(8 << 20).expect("imaginary memory");
        let published = "12.7 (IREE scratch arena, 1 to 4,096)";
        own(
            &format!("W9 arena pair, 64 B at {align}"),
            published,
            Box::new(move || {
                for _ in 0..100 {
                    let start = arena.checkpoint();
                    black_box(
                        arena
                            .allocate(black_box(layout(64, align)))
                            .expect("imaginary memory")
                            .address_bits(),
                    );
                    arena.rewind(start);
                }
                100
            }),
        );
    }
    let space = imaginary();
    let mut arena = arenite::Arena::with_chunks(&space);
    own(
        "W9 arena burst of 512, a block",
        "3.1 (IREE scratch arena)",
        Box::new(move || {
            for _ in 0..512 {
                black_box(
                    arena.allocate(black_box(layout(64, 16))).expect("imaginary memory").address_bits(),
                );
            }
            arena.reset();
            512
        }),
    );
}

/// W9 to W12: pools over memory that is not there.
fn pools() {
    for size in [64, 4096, 65_536] {
        let pool = Pool::new(imaginary());
        own(
            &format!("W9 pool pair, {size} B"),
            "19.9 (IREE TLSF)",
            Box::new(move || {
                for _ in 0..100 {
                    drop(black_box(pool.allocate(black_box(layout(size, 256))).expect("imaginary memory")));
                }
                100
            }),
        );
    }
    let pool = Pool::new(imaginary());
    own(
        "W9 pool, batch of 1,000 sizes freed out of order, an operation",
        "13.3 (IREE TLSF)",
        Box::new(move || {
            let mut next = numbers(1);
            let mut blocks: Vec<_> = (0..1000)
                .map(|_| Some(pool.allocate(layout(64 + next(4096), 16)).expect("imaginary memory")))
                .collect();
            for _ in 0..1000 {
                blocks[next(1000)] = None;
            }
            drop(blocks);
            2000
        }),
    );
    orders();
    for count in [8_usize, 256, 4000] {
        let pool = Pool::new(imaginary());
        let published =
            ["50 (cubecl 0.10)", "160", "3,645"][usize::from(count > 8) + usize::from(count > 256)];
        own(
            &format!("W11 pool, 1 MiB with {count} live"),
            published,
            Box::new(move || {
                let mut live: Vec<_> = (0..count)
                    .map(|_| pool.allocate(layout(1 << 20, 256)).expect("imaginary memory"))
                    .collect();
                let start = Instant::now();
                let mut done = 0;
                // Building up is not what is timed: many more operations than live blocks.
                while done < 40 * count || start.elapsed().as_millis() < 2 {
                    for place in &mut live {
                        *place = pool.allocate(black_box(layout(1 << 20, 256))).expect("imaginary memory");
                    }
                    done += count;
                }
                done
            }),
        );
    }
    let pool = Pool::new(imaginary());
    own(
        "W12 pool, random sizes to 4 MiB, 256 live, a pair",
        "1,218 (cubecl 0.10, 1 KiB to 4 MiB)",
        Box::new(move || {
            let mut next = numbers(7);
            let mut take =
                || pool.allocate(layout(1024 + next((4 << 20) - 1024), 256)).expect("imaginary memory");
            let mut live: Vec<_> = (0..256).map(|_| take()).collect();
            for index in 0..2560 {
                live[index * 97 % 256] = take();
            }
            2816
        }),
    );
}

/// W10: 10,000 blocks of 64 B, given back in three orders.
fn orders() {
    for (order, published) in
        [("same", "123 + 91 (Umpire QuickPool, accounting on)"), ("reverse", ""), ("shuffled", "123 + 241")]
    {
        let pool = Pool::new(imaginary());
        own(
            &format!("W10 pool, 10,000 of 64 B, given back in {order} order, a pair"),
            published,
            Box::new(move || {
                let mut blocks: Vec<_> =
                    (0..10_000).map(|_| pool.allocate(layout(64, 16)).expect("imaginary memory")).collect();
                match order {
                    "reverse" => blocks.reverse(),
                    "shuffled" => {
                        let mut next = numbers(3);
                        for index in (1..blocks.len()).rev() {
                            blocks.swap(index, next(index + 1));
                        }
                    }
                    _ => {}
                }
                drop(blocks);
                10_000
            }),
        );
    }
}

/// W13: the first touch of 64 MiB.
fn first_touch() {
    if !is_wanted("W13") {
        return;
    }
    println!("\n| W13 first write of 4 KiB pages of fresh 64 MiB | ns a page |\n|---|---:|");
    for (name, space) in [
        ("plain pages", HostSpace::new()),
        ("huge pages asked for", HostSpace::new().with_huge_pages()),
        ("faulted in when taken, taking included", HostSpace::new().with_prefault()),
        (
            "huge pages, faulted in when taken, taking included",
            HostSpace::new().with_huge_pages().with_prefault(),
        ),
    ] {
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            let block = space.allocate(layout(64 << 20, 2 << 20)).expect("host memory");
            for page in 0..(64 << 20) / 4096 {
                // SAFETY: within the block, which is ours.
                let place = unsafe { block.address().add(page * 4096) };
                // SAFETY: as above.
                unsafe { place.write_volatile(1) };
            }
            best = best.min(start.elapsed().as_nanos() as f64 / 16_384.0);
            // SAFETY: allocated above, not used any more.
            unsafe { space.deallocate(block) };
        }
        println!("| {name} | {best:.0} |");
    }
}

fn main() {
    println!(
        "| ns an operation | arenite | bumpalo 3.20 | bump-scope 2.4 | blink-alloc 0.4 | ratio to the best peer |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    work::all();
    #[cfg(feature = "allocator-api2")]
    allocators::all();
    println!("\n| any space | arenite, ns | published peer, another machine |\n|---|---:|---|");
    any_space();
    pools();
    first_touch();
}
