//! Loads and runs methods over owned tensors.

use super::kernel::Data;
use arenite::exec::{ExecError, Input, LoadError, LoadOptions, Loader, Method, Output, TensorInput};
use arenite::program::{Program, ProgramOptions};
use std::path::Path;
use std::sync::Arc;

/// A loader of the program in a file, with built-in kernels and host memory.
pub fn loader(path: &Path) -> Loader {
    let program = Program::open(path, &ProgramOptions::default()).unwrap();
    Loader::new(Arc::new(program), LoadOptions::default())
}

/// A loader of a program of these bytes.
pub fn loader_of(bytes: &[u8], options: LoadOptions) -> Loader {
    Loader::new(Arc::new(Program::from_bytes(bytes, &ProgramOptions::default()).unwrap()), options)
}

/// Loads `forward` of a program of these bytes.
pub fn load(bytes: &[u8]) -> Result<Method, LoadError> {
    loader_of(bytes, LoadOptions::default()).load("forward")
}

/// Runs a method on owned tensors and gives owned outputs; those that are no tensors are left out.
pub fn try_run(method: &mut Method, inputs: &[&Data]) -> Result<Vec<Data>, ExecError> {
    let strides: Vec<Vec<isize>> = inputs.iter().map(|input| row_major_strides(input)).collect();
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
    let mut outputs = method.execute(&inputs)?;
    let mut owned = Vec::new();
    for index in 0..outputs.len() {
        let Output::Tensor(tensor) = outputs.get(index) else { continue };
        let (dtype, sizes, len) = (tensor.dtype(), tensor.sizes().to_vec(), tensor.size_bytes());
        let mut bytes = vec![0; len];
        outputs.copy_to(index, &mut bytes)?;
        owned.push(Data::of_bytes(dtype, &sizes, &bytes));
    }
    Ok(owned)
}

/// As [`try_run`], for a run that must succeed.
pub fn run(method: &mut Method, inputs: &[&Data]) -> Vec<Data> {
    try_run(method, inputs).unwrap()
}

fn row_major_strides(data: &Data) -> Vec<isize> {
    let mut step = data.dtype.size_bytes().cast_signed();
    let mut strides = vec![0; data.sizes.len()];
    for (slot, &size) in strides.iter_mut().zip(&data.sizes).rev() {
        *slot = step;
        step *= size.max(1).cast_signed();
    }
    strides
}

/// Inputs of zeros, as the plan of a method declares them.
pub fn zeros(method: &Method) -> Vec<Data> {
    let plan = method.plan();
    let tensors = plan.inputs.iter().filter_map(|&id| plan.tensor(id));
    tensors.map(|spec| Data::of_bytes(spec.dtype, plan.sizes(spec), &vec![0; spec.size_bytes])).collect()
}
