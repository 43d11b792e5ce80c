//! Carving: what it costs to open a program, load its method (kernels found, plan checked, arenas taken, tensors
//! bound) and give everything back.
//!
//! `load/open/NAME` reads and checks the file; `load/method/NAME` loads from an open program, so it is the carving
//! alone; `load/arena/N_buffers` takes an arena for N planned buffers and carves them, with nothing else.

use arenite::exec::{LoadOptions, Loader};
use arenite::program::{Program, ProgramOptions};
use arenite::{ArenaSet, SpaceId};
use core::alloc::Layout;
use core::hint::black_box;
use criterion::{Criterion, criterion_group, criterion_main};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).with_extension("pte")
}

fn programs(c: &mut Criterion) {
    for name in ["seed_net", "mlp", "kv", "chain100"] {
        let path = sample(name);
        let open = || Program::open(&path, &ProgramOptions::default()).expect("a sample opens");
        c.bench_function(&format!("load/open/{name}"), |b| b.iter(|| black_box(open())));
        let loader = Loader::new(Arc::new(open()), LoadOptions::default());
        c.bench_function(&format!("load/method/{name}"), |b| {
            b.iter(|| black_box(loader.load("forward").expect("a sample loads")));
        });
    }
}

fn carving(c: &mut Criterion) {
    let arenas = ArenaSet::host();
    for count in [1_usize, 8, 64] {
        let layout = Layout::from_size_align(4096, 64).expect("64 is a power of two");
        c.bench_function(&format!("load/arena/{count}_buffers"), |b| {
            b.iter(|| {
                let arena =
                    arenas.take(SpaceId::HOST, count * layout.size(), "bench").expect("there is room");
                for _ in 0..count {
                    black_box(arena.allocate(layout).expect("the room was taken"));
                }
            });
        });
    }
}

criterion_group!(benches, programs, carving);
criterion_main!(benches);
