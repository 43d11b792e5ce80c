//! Tensors: what the bytes of a buffer mean.
//!
//! Deliberately absent: arithmetic and ownership.

mod dtype;
mod element;
mod error;
pub mod shape;
mod view;

pub use dtype::{Category, DType};
pub use element::{Bool, Element};
pub use error::TensorError;
pub use shape::{DimOrder, Dims, RANK_MAX};
pub use view::{ReadCell, Tensor, copy_cells};
