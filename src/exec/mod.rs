//! The executor: loads methods of a program into arenas and runs them.
//!
//! ```text
//!   Program ──Loader──► Method { load │ planned │ temp } ──execute(inputs)──► Outputs
//! ```
//!
//! Deliberately absent: file formats ([`crate::program`]), arithmetic ([`crate::kernel`]) and back ends
//! ([`crate::delegate`]). This decides where bytes live, and when.

mod check;
mod copies;
mod delegates;
mod device;
mod error;
mod flow;
mod graph;
mod holdings;
mod input;
mod lifetimes;
mod load;
mod mapped;
mod memory;
mod method;
mod outputs;
mod picture;
mod placement;
mod planned;
mod report;
mod resident;
mod shared;
mod state;
mod step;
mod transfer;
mod wants;

pub use error::{ErrorKind, ExecError, InputProblem, LoadError};
pub use input::{Input, Output, TensorInput};
pub use lifetimes::{BufferRole, LiveBuffer};
pub use load::{CAPTURE_AFTER, LoadOptions, Loader, MAX_MAPPED_BYTES, MAX_PLANNED_BYTES, Share};
pub use method::{INSTRUCTIONS_MAX, Method};
pub use outputs::Outputs;
pub use picture::PlanPicture;
pub use placement::Replan;
pub use report::{ArenaRow, MemoryReport, SpaceRow};
pub use resident::DeviceTensor;
pub use shared::SharedScratch;
pub use wants::{Need, Stage};
