#![expect(clippy::print_stdout, reason = "an example shows what it does")]
//! Runs a program that ExecuTorch exported, and says where its bytes are.
//!
//! `cargo run --example 05_run_program` takes `tests/data/seed_net.pte`; a path as argument takes another
//! program, whose inputs are then ones.

use arenite::exec::{Input, LoadOptions, Loader, Output, TensorInput};
use arenite::program::{Program, ProgramOptions, ValueMeta};
use arenite::tensor::DType;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/seed_net.pte");
    let path = std::env::args().nth(1).unwrap_or_else(|| sample.to_owned());

    // A program is opened and checked once. Large files are mapped; constants are used in place.
    let program = Program::open(&path, &ProgramOptions::default())?;

    // A loader says where memory comes from: here from the host, without a limit. Loading a method takes all
    // the memory that its plan asks for; a run then allocates nothing.
    let loader = Loader::new(program.into(), LoadOptions::default());
    let mut method = loader.load("forward")?;

    // Inputs are borrowed, whatever their strides; their kinds and shapes are checked before anything is
    // touched.
    let mut shapes = Vec::new();
    for input in method.plan().describe_inputs() {
        match input {
            ValueMeta::Tensor(meta) if meta.dtype == DType::Float32 => shapes.push(meta.sizes.to_vec()),
            other => return Err(format!("this example passes float32 tensors, not {other:?}").into()),
        }
    }
    let values: Vec<Vec<f32>> = shapes.iter().map(|shape| vec![1.0; shape.iter().product()]).collect();
    let mut strides: Vec<Vec<isize>> = shapes.iter().map(|shape| vec![0; shape.len()]).collect();
    let tensors = values.iter().zip(&shapes).zip(&mut strides).filter_map(|((values, shape), strides)| {
        Some(Input::Tensor(TensorInput::row_major(values, shape, strides)?))
    });
    let inputs: Vec<Input<'_>> = tensors.collect();

    // Outputs are borrowed from the method until the next run.
    let outputs = method.execute(&inputs)?;
    for index in 0..outputs.len() {
        if let Output::Tensor(tensor) = outputs.get(index) {
            println!(
                "output {index}: {} of shape {:?} in {}",
                tensor.dtype(),
                tensor.sizes(),
                tensor.space()
            );
            if tensor.dtype() == DType::Float32 {
                let head: Vec<f32> =
                    tensor.read::<f32>()?.iter().take(4).map(arenite::tensor::ReadCell::get).collect();
                println!("  it begins with {head:?}");
            }
        }
    }
    Ok(())
}
