#![forbid(unsafe_code)]
//! An instruction, ready to run: the kernel's function instead of its name.

use crate::kernel::KernelFn;
use crate::value::{Span, ValueId};

/// An instruction, ready to run. Argument spans lie in the method's lists.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Calls a kernel.
    Kernel { run: KernelFn, args: Span },
    /// Copies a tensor from the host to a device.
    Upload { args: Span },
    /// Copies a tensor from a device to the host.
    Download { args: Span },
    /// Runs a delegate.
    Delegate { delegate: u32, args: Span },
    /// Makes `to` what `from` is.
    Move { from: ValueId, to: ValueId },
    /// Goes on at `target`, counted over all chains, where `condition` is false.
    JumpFalse { condition: ValueId, target: u32 },
    /// Ends the use of a tensor's memory.
    Free { value: ValueId },
}
