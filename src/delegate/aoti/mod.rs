//! Delegates whose payload is code compiled by PyTorch's AOTInductor: a shared object inside the program.
//!
//! ```text
//!   payload ──► named data ──► Object (checked private copy, edited) ──► Library (loaded once per process)
//!                              shims bound in                             └► Container (one per delegate)
//!   execute:  handles on planned buffers ──► Container::run ──► shims ──► Backend: scratch, copies, stream
//! ```

mod container;
mod elf;
mod fatbin;
mod handle;
mod library;
mod payload;
mod run;
mod shims;
