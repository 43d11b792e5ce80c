#![forbid(unsafe_code)]
//! Programs exported by ExecuTorch: `.pte` files and their `.ptd` data files, checked at the door.

mod code;
mod method;

pub use code::ErrorCode;
pub use method::{
    CompileSpec, DataRef, DelegateSpec, Instruction, MethodPlan, PlannedBuffer, Storage, TensorSpec,
};
