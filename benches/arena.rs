//! Arenas beside their peers, the same work for each in one run; answers are checked before timing.
//!
//! `cargo bench --bench arena`

#![allow(missing_docs, reason = "criterion writes the main function")]
#![expect(clippy::cast_possible_truncation, reason = "any small number will do")]

use arenite::{Arena, ArenaSet, HostSpace, SpaceId};
use bumpalo::Bump;
use core::alloc::Layout;
use core::hint::black_box;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const COUNT: usize = 1000;

/// Stamps one group: the same expression over an Arenite arena and over a bump.
macro_rules! group {
    ($criterion:expr, $name:literal, |$arena:ident| $work:expr) => {
        let mut group = $criterion.benchmark_group(concat!("arena/", $name));
        group.throughput(Throughput::Elements(COUNT as u64));
        group.bench_function(BenchmarkId::from_parameter("arenite"), |bencher| {
            let mut owner = Arena::new(HostSpace::new());
            bencher.iter(|| {
                for index in 0..COUNT as u64 {
                    let $arena = &owner;
                    black_box($work(index));
                }
                owner.reset();
            });
        });
        group.bench_function(BenchmarkId::from_parameter("bumpalo"), |bencher| {
            let mut owner = Bump::new();
            bencher.iter(|| {
                for index in 0..COUNT as u64 {
                    let $arena = &owner;
                    black_box($work(index));
                }
                owner.reset();
            });
        });
        group.finish();
    };
}

fn typed(criterion: &mut Criterion) {
    let arena = Arena::new(HostSpace::new());
    assert_eq!((*arena.alloc(7u64), &*arena.alloc_str("abc")), (7, "abc"));
    group!(criterion, "u8", |arena| |index: u64| arena.alloc(index as u8));
    group!(criterion, "u64", |arena| |index: u64| arena.alloc(index));
    group!(criterion, "256_b", |arena| |index: u64| arena.alloc([index; 32]));
    group!(criterion, "slice_17_u32", |arena| |index: u64| arena.alloc_slice_copy(&[index as u32; 17]));
    group!(criterion, "str_16", |arena| |_| arena.alloc_str(black_box("sixteen letters.")));
    group!(criterion, "layout_mixed", |arena| |index: u64| {
        let layout = Layout::from_size_align(1 + (index as usize * 37) % 500, 1 << (index % 6));
        arena.alloc_layout(layout.expect("a power of two"))
    });
}

fn untyped(criterion: &mut Criterion) {
    let mut arena = Arena::new(HostSpace::new());
    let layout = Layout::new::<[u64; 32]>();
    criterion.bench_function("arena/block_256_b_and_reset", |bencher| {
        bencher.iter(|| {
            for _ in 0..COUNT {
                black_box(arena.allocate(layout).expect("host memory").address());
            }
            arena.reset();
        });
    });
    criterion.bench_function("arena/scope_of_one_u64", |bencher| {
        bencher.iter(|| arena.scoped(|scope| *black_box(scope.alloc(black_box(7u64)))));
    });
}

fn sets(criterion: &mut Criterion) {
    let arenas = ArenaSet::host();
    for bytes in [768, 1 << 20] {
        criterion.bench_function(&format!("set/take_{bytes}_b_and_give_back"), |bencher| {
            bencher.iter(|| arenas.take(SpaceId::HOST, bytes, "forward: arena 1").expect("host memory"));
        });
    }
    criterion.bench_function("set/new_take_and_drop", |bencher| {
        bencher.iter(|| {
            let arena = ArenaSet::host().take(SpaceId::HOST, 768, "forward").expect("host memory");
            arena.allocate_zeroed(Layout::new::<[u8; 768]>()).expect("what was taken")
        });
    });
}

criterion_group!(benches, typed, untyped, sets);
criterion_main!(benches);
