//! What a run costs beyond its arithmetic: small programs whose kernels take almost no time.
//!
//! `execute/NAME` runs `forward` on zeros, inputs copied in, outputs left in place. That the answers are right is
//! tested in `tests/all/method_runs.rs`; Python beside ExecuTorch is `cargo xtask peers python`.

use arenite::SpaceId;
use arenite::exec::{Input, LoadOptions, Loader, TensorInput};
use arenite::program::{Program, ProgramOptions};
use core::hint::black_box;
use criterion::{Criterion, criterion_group, criterion_main};
use std::path::Path;
use std::sync::Arc;

fn runs(c: &mut Criterion) {
    for name in ["seed_net", "mlp", "kv", "chain100"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name).with_extension("pte");
        let program = Arc::new(Program::open(path, &ProgramOptions::default()).expect("a sample opens"));
        let loader = Loader::new(Arc::clone(&program), LoadOptions::default());
        let mut method = loader.load("forward").expect("a sample loads");
        let plan = program.method("forward").expect("samples have `forward`");
        let specs: Vec<_> = plan.inputs.iter().filter_map(|&id| plan.tensor(id)).collect();
        let bytes: Vec<Vec<u8>> = specs.iter().map(|spec| vec![0; spec.size_bytes]).collect();
        let strides: Vec<Vec<isize>> = specs
            .iter()
            .map(|spec| {
                let sizes = plan.sizes(spec);
                let step = |dim: usize| sizes[dim + 1..].iter().product::<usize>() * spec.dtype.size_bytes();
                (0..sizes.len()).map(|dim| step(dim).cast_signed()).collect()
            })
            .collect();
        let inputs: Vec<Input<'_>> = (0..specs.len())
            .map(|index| {
                let (spec, bytes) = (specs[index], &bytes[index]);
                let (sizes, strides) = (plan.sizes(spec), &strides[index]);
                // SAFETY: the strides are those of the row-major bytes, which are borrowed.
                Input::Tensor(unsafe {
                    TensorInput::new(bytes.as_ptr(), spec.dtype, sizes, strides, SpaceId::HOST)
                })
            })
            .collect();
        c.bench_function(&format!("execute/{name}"), |b| {
            b.iter(|| black_box(method.execute(&inputs).expect("a sample runs").len()));
        });
    }
}

criterion_group!(benches, runs);
criterion_main!(benches);
