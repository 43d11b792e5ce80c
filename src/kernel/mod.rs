//! Kernels: what an operator name runs.
//!
//! A kernel is a name, the kinds of its arguments, and a function. The kinds are checked once, when a
//! program is loaded; the function checks what only a run can know (sizes, element kinds, orders).
//!
//! ```text
//! "aten::add.out"  [Tensor, Tensor, Scalar, Out]  fn(&mut KernelCall) -> Result<(), KernelError>
//! ```
//!
//! Families, one file each, list their kernels in a static table; [`KernelRegistry`] joins the tables and
//! takes more from its user. Deliberately absent: memory. Kernels get tensors that are already placed.

mod call;
mod cells;
mod conv;
mod elementwise;
mod error;
mod indexing;
mod matmul;
mod norm;
mod number;
mod numeric;
mod pad;
mod pool;
mod prim;
mod rearrange;
mod reduce;
mod resample;
mod schema;
mod scratch;
mod softmax;
mod view;
mod walk;

pub use call::{INT_LIST_MAX, IntItems, KernelCall, Scalar};
pub use error::KernelError;
pub(crate) use error::fail;
pub(crate) use matmul::warm_up;
pub use schema::Arg;
pub use scratch::{Scratch, ScratchSource};

use std::collections::HashMap;
use std::sync::LazyLock;

/// What a kernel runs.
pub type KernelFn = fn(&mut KernelCall<'_>) -> Result<(), KernelError>;

/// One operator: its name, the kinds of its arguments, and what it runs.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The full name, for example `aten::add.out`.
    pub name: &'static str,
    /// The arguments in file order, without the return slots that the exporter repeats after them.
    pub args: &'static [Arg],
    /// The function.
    pub run: KernelFn,
}

impl Kernel {
    /// Whether a call in a file may have this many arguments: those of [`Kernel::args`] and, unless the kernel
    /// writes a plain value, one return slot that repeats its outputs.
    pub fn accepts_count(&self, count: usize) -> bool {
        let bare = count == self.args.len();
        if self.args.contains(&Arg::Result) {
            return bare;
        }
        // Some primitive operators come without the slot.
        count == self.args.len() + 1 || bare && self.name.starts_with("executorch_prim::")
    }
}

/// The tables of the families.
#[rustfmt::skip]
const FAMILIES: &[&[Kernel]] = &[
    conv::KERNELS,
    elementwise::ACTIVATION,
    elementwise::BINARY,
    elementwise::BITWISE,
    elementwise::CAST,
    elementwise::COMPARE,
    elementwise::CREATE,
    elementwise::RANDOM,
    elementwise::SELECT,
    elementwise::UNARY,
    indexing::KERNELS,
    matmul::KERNELS,
    norm::KERNELS,
    pad::KERNELS,
    pool::KERNELS,
    prim::KERNELS,
    rearrange::KERNELS,
    reduce::KERNELS,
    resample::KERNELS,
    softmax::KERNELS,
    view::KERNELS,
];

static BUILT_IN: LazyLock<HashMap<&'static str, &'static Kernel>> = LazyLock::new(|| {
    FAMILIES.iter().flat_map(|family| family.iter()).map(|kernel| (kernel.name, kernel)).collect()
});

/// Kernels by operator name: the built-in ones, and those a user added, which win.
///
/// # Examples
/// ```
/// use arenite::kernel::{Arg, Kernel, KernelRegistry};
/// let mut registry = KernelRegistry::new();
/// registry.add(Kernel { name: "my::nothing", args: &[Arg::Tensor, Arg::Out], run: |_| Ok(()) });
/// assert!(registry.get("my::nothing").is_some());
/// ```
#[derive(Clone, Debug, Default)]
pub struct KernelRegistry {
    added: HashMap<&'static str, Kernel>,
}

impl KernelRegistry {
    /// The built-in kernels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kernel, in the place of one of the same name.
    pub fn add(&mut self, kernel: Kernel) {
        self.added.insert(kernel.name, kernel);
    }

    /// The kernel of this name.
    pub fn get(&self, name: &str) -> Option<Kernel> {
        if let Some(kernel) = self.added.get(name) {
            return Some(*kernel);
        }
        BUILT_IN.get(name).map(|kernel| **kernel)
    }

    /// Every name, in alphabetical order.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = BUILT_IN.keys().chain(self.added.keys()).copied().collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
