//! After a method is loaded, running it allocates nothing on the heap.
//!
//! Its own process, since it counts every allocation.

#![cfg(feature = "exec")]
#![allow(clippy::unwrap_used, reason = "tests")]

use arenite::exec::{Input, LoadOptions, Loader, Output, TensorInput};
use arenite::program::{Program, ProgramOptions};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::Arc;

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `forward` on zeros, copies each output into a place that is there already, and counts.
fn allocations_of_a_run(path: &Path) -> usize {
    let program = Arc::new(Program::open(path, &ProgramOptions::default()).unwrap());
    let mut method = Loader::new(program, LoadOptions::default()).load("forward").unwrap();
    let plan = method.plan();
    let tensors: Vec<_> = plan.inputs.iter().filter_map(|&id| plan.tensor(id)).collect();
    let sizes: Vec<Vec<usize>> = tensors.iter().map(|spec| plan.sizes(spec).to_vec()).collect();
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|spec| vec![0; spec.size_bytes]).collect();
    let kinds: Vec<_> = tensors.iter().map(|spec| spec.dtype).collect();
    let strides: Vec<Vec<isize>> = sizes
        .iter()
        .zip(&kinds)
        .map(|(sizes, kind)| {
            let step = |dim: usize| sizes[dim + 1..].iter().map(|&size| size.max(1)).product::<usize>();
            (0..sizes.len()).map(|dim| (step(dim) * kind.size_bytes()).cast_signed()).collect()
        })
        .collect();
    let inputs: Vec<Input<'_>> = (0..bytes.len())
        .map(|index| {
            let (sizes, strides) = (&sizes[index], &strides[index]);
            // SAFETY: the strides are those of the row-major bytes, which are borrowed.
            let tensor = unsafe {
                TensorInput::new(bytes[index].as_ptr(), kinds[index], sizes, strides, arenite::SpaceId::HOST)
            };
            Input::Tensor(tensor)
        })
        .collect();
    let mut place = vec![0_u8; 1 << 20];
    let before = CALLS.load(Ordering::Relaxed);
    for _ in 0..3 {
        let mut outputs = method.execute(&inputs).unwrap();
        for index in 0..outputs.len() {
            if let Output::Tensor(tensor) = outputs.get(index) {
                let len = tensor.size_bytes();
                outputs.copy_to(index, &mut place[..len]).unwrap();
            }
        }
    }
    CALLS.load(Ordering::Relaxed) - before
}

#[test]
fn a_run_allocates_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> =
        ["seed_net", "seed_net_dyn", "mlp", "kv", "chain100", "cases/h11_cond_and_map"]
            .iter()
            .map(|name| root.join("tests/data").join(name).with_extension("pte"))
            .collect();
    // Larger programs, where they are at hand.
    paths.extend(
        ["lm", "mv2_small", "resnet_small"]
            .iter()
            .map(|name| root.join("../shared/programs/host").join(name).with_extension("pte"))
            .filter(|path| path.exists()),
    );
    for path in paths {
        assert_eq!(allocations_of_a_run(&path), 0, "{}", path.display());
    }
}
