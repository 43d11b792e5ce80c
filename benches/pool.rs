//! Pools: a pair, bursts, orders of giving back, and how many live blocks cost.
//!
//! `cargo bench --bench pool`

#![allow(missing_docs, reason = "criterion writes the main function")]

use arenite::{HostSpace, Pool};
use core::alloc::Layout;
use core::hint::black_box;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 64).expect("a valid layout")
}

fn pairs(criterion: &mut Criterion) {
    for size in [64, 4096, 65_536] {
        let pool = Pool::new(HostSpace::new()).with_step(1 << 20);
        criterion.bench_with_input(BenchmarkId::new("pool/pair", size), &size, |bencher, &size| {
            bencher.iter(|| drop(black_box(pool.allocate(black_box(layout(size))).expect("host memory"))));
        });
        // Another size in between: the range that was freed last is merged and cut again.
        criterion.bench_with_input(BenchmarkId::new("pool/two_sizes", size), &size, |bencher, &size| {
            bencher.iter(|| {
                drop(black_box(pool.allocate(black_box(layout(size))).expect("host memory")));
                drop(black_box(pool.allocate(black_box(layout(size + 64))).expect("host memory")));
            });
        });
    }
}

fn live(criterion: &mut Criterion) {
    for count in [8_usize, 256, 4000] {
        let pool = Pool::new(HostSpace::new());
        let mut blocks: Vec<_> =
            (0..count).map(|_| pool.allocate(layout(1 << 10)).expect("host memory")).collect();
        let mut at = 0;
        criterion.bench_with_input(BenchmarkId::new("pool/window", count), &count, |bencher, &count| {
            bencher.iter(|| {
                at = (at + 1) % count;
                blocks[at] = pool.allocate(black_box(layout(1 << 10))).expect("host memory");
            });
        });
    }
}

criterion_group!(benches, pairs, live);
criterion_main!(benches);
