//! Real programs run on host arenas and give what eager PyTorch gave.

use super::support::kernel::Data;
use super::support::npz;
use arenite::exec::{Input, LoadOptions, Loader, Method, Output, TensorInput};
use arenite::program::{Program, ProgramOptions};
use arenite::tensor::DType;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn load(path: &Path, method: &str) -> Method {
    let program = Program::open(path, &ProgramOptions::default()).unwrap();
    Loader::new(Arc::new(program), LoadOptions::default()).load(method).unwrap()
}

/// Runs a method on owned tensors and gives owned outputs.
fn run(method: &mut Method, inputs: &[&Data]) -> Vec<Data> {
    let strides: Vec<Vec<isize>> = inputs
        .iter()
        .map(|input| {
            let mut step = input.dtype.size_bytes().cast_signed();
            let mut out = vec![0; input.sizes.len()];
            for (slot, &size) in out.iter_mut().zip(&input.sizes).rev() {
                *slot = step;
                step *= size.max(1).cast_signed();
            }
            out
        })
        .collect();
    let inputs: Vec<Input<'_>> = inputs
        .iter()
        .zip(&strides)
        .map(|(input, strides)| {
            // SAFETY: the strides are those of the row-major bytes, which are borrowed.
            Input::Tensor(unsafe {
                TensorInput::new(input.bytes.as_ptr(), input.dtype, &input.sizes, strides, input.space)
            })
        })
        .collect();
    let mut outputs = method.execute(&inputs).unwrap();
    (0..outputs.len())
        .map(|index| {
            let Output::Tensor(tensor) = outputs.get(index) else { panic!("output {index} is no tensor") };
            let (dtype, sizes, len) = (tensor.dtype(), tensor.sizes().to_vec(), tensor.size_bytes());
            let mut bytes = vec![0; len];
            outputs.copy_to(index, &mut bytes).unwrap();
            Data::of_bytes(dtype, &sizes, &bytes)
        })
        .collect()
}

fn worst_error(got: &Data, want: &Data) -> f32 {
    assert_eq!((got.dtype, &got.sizes), (want.dtype, &want.sizes));
    if got.dtype != DType::Float32 {
        assert_eq!(got.bytes, want.bytes);
        return 0.0;
    }
    let pairs = got.get::<f32>().into_iter().zip(want.get::<f32>());
    pairs.map(|(got, want)| (got - want).abs()).fold(0.0, f32::max)
}

/// Runs `forward` twice on the stored inputs and compares with the stored outputs.
fn matches_eager(program: &Path, tolerance: f32) {
    let arrays = npz::read(program.with_extension("npz"));
    let named = |kind: &str| -> Vec<&Data> {
        (0..).map_while(|index| arrays.get(&format!("forward.{kind}{index}"))).collect()
    };
    let (inputs, wanted) = (named("in"), named("out"));
    let mut method = load(program, "forward");
    for _ in 0..2 {
        let got = run(&mut method, &inputs);
        assert_eq!(got.len(), wanted.len());
        for (got, want) in got.iter().zip(&wanted) {
            let error = worst_error(got, want);
            assert!(error <= tolerance, "{}: error {error}", program.display());
        }
        method.reset_state().unwrap();
    }
}

#[test]
fn small_programs_match_eager_pytorch() {
    for name in ["seed_net", "seed_net_dyn", "mlp", "kv", "chain100"] {
        matches_eager(&data(name).with_extension("pte"), 1e-6);
    }
}

#[test]
fn larger_programs_match_eager_pytorch_where_they_are_at_hand() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/programs/host");
    for name in ["lm", "resnet_small", "mv2_small"] {
        let path = programs.join(name).with_extension("pte");
        if path.exists() {
            matches_eager(&path, 1e-5);
        }
    }
}
