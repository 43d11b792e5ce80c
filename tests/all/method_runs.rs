//! Real programs run on host arenas and give what eager PyTorch gave.

use super::support::kernel::Data;
use super::support::method::{loader, run};
use super::support::npz;
use super::support::program::sample;
use arenite::tensor::DType;
use std::path::Path;

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
    let mut method = loader(program).load("forward").unwrap();
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
        matches_eager(&sample(name).with_extension("pte"), 1e-6);
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
