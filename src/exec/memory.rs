//! The three memories of a method, by lifetime.
//!
//! ```text
//!   load     one bump on the host: the tables of values, tensors and steps; sealed once loaded
//!   planned  one arena per space: a block per memory id, and staging for what the plan leaves out
//!   temp     one arena on the host: a kernel's scratch, taken back after each instruction
//! ```
//!
//! A method owns all three, so that dropping it gives everything back; state that methods share is owned by
//! [`SharedState`], which each of them keeps alive.
//!
//! # Invariants
//! * **M1** `values`, `tensors` and `steps` point into `bump`, which outlives them and is never reset.
//! * **M2** Each table is reached through a borrow of the whole, shared or exclusive as that borrow is.
//! * **M3** The blocks that tensors are bound to come from `planned`, `shared` or the program, all owned here
//!   beside the tensors; or from a caller, and then they are unbound before the caller's borrow ends.

use super::step::Step;
use crate::arena::{ArenaSet, PooledArena};
use crate::kernel::{KernelError, ScratchSource};
use crate::space::{AllocError, SpaceId};
use crate::tensor::Tensor;
use crate::value::Value;
use bumpalo::Bump;
use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::NonNull;

/// The tables of a method, in one bump.
#[derive(Debug)]
pub(super) struct Tables {
    values: NonNull<[Value]>,
    tensors: NonNull<[Tensor]>,
    steps: NonNull<[Step]>,
    /// Last, since the others point into it.
    bump: Bump,
}

// SAFETY: the pointers are to data that `bump` owns (M1), reached as `self` is borrowed (M2); `Value` and `Step`
// are plain data, and a `Tensor`'s bytes are owned beside it (M3) and touched by whoever holds the method.
unsafe impl Send for Tables {}

impl Tables {
    /// Copies the values, makes the tensors and steps, and seals them.
    ///
    /// # Errors
    /// The first error of `make_tensor` or `make_step`.
    pub(super) fn new<E>(
        values: &[Value],
        tensor_count: usize,
        mut make_tensor: impl FnMut(usize) -> Result<Tensor, E>,
        step_count: usize,
        mut make_step: impl FnMut(usize) -> Result<Step, E>,
    ) -> Result<Self, E> {
        let bytes = size_of_val(values) + tensor_count * size_of::<Tensor>() + step_count * size_of::<Step>();
        let bump = Bump::with_capacity(bytes + 64);
        let values = NonNull::from(bump.alloc_slice_copy(values));
        let tensors = NonNull::from(bump.alloc_slice_try_fill_with(tensor_count, &mut make_tensor)?);
        let steps = NonNull::from(bump.alloc_slice_try_fill_with(step_count, &mut make_step)?);
        Ok(Self { values, tensors, steps, bump })
    }

    /// The tables: values and tensors to change, steps to read.
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut [Value], &mut [Tensor], &[Step]) {
        // SAFETY: M1 keeps the slice alive and initialised; M2: `self` is borrowed exclusively.
        let values = unsafe { self.values.as_mut() };
        // SAFETY: as above; the tables are disjoint.
        let tensors = unsafe { self.tensors.as_mut() };
        // SAFETY: as above.
        let steps = unsafe { self.steps.as_ref() };
        (values, tensors, steps)
    }

    /// The values.
    #[inline]
    pub(super) fn values(&self) -> &[Value] {
        // SAFETY: M1, M2.
        unsafe { self.values.as_ref() }
    }

    /// The tensors.
    #[inline]
    pub(super) fn tensors(&self) -> &[Tensor] {
        // SAFETY: M1, M2.
        unsafe { self.tensors.as_ref() }
    }

    /// Host bytes that the tables take.
    pub(super) fn size_bytes(&self) -> usize {
        self.bump.allocated_bytes()
    }
}

/// A kernel's scratch: an arena that is rewound after each instruction. Where methods lend each other scratch it is
/// with the method that runs.
#[derive(Debug, Default)]
pub(super) struct Temp {
    arena: Option<PooledArena>,
    used: Cell<bool>,
    peak_bytes: usize,
}

impl Temp {
    /// An arena of the host that takes no memory yet.
    pub(super) fn take(arenas: &ArenaSet, owner: &str) -> Result<Self, AllocError> {
        let arena = arenas.take(SpaceId::HOST, 0, owner)?;
        Ok(Self { arena: Some(arena), ..Self::default() })
    }

    /// Whether there is an arena: not so while it is with another method.
    pub(super) fn is_there(&self) -> bool {
        self.arena.is_some()
    }

    /// Takes back what the last instruction took.
    #[inline]
    pub(super) fn reset(&mut self) {
        if self.used.replace(false)
            && let Some(arena) = &mut self.arena
        {
            // The arena had other owners, whose peak is not this one's.
            self.peak_bytes = self.peak_bytes.max(arena.stats().live_bytes);
            arena.reset();
        }
    }

    /// The most bytes an instruction ever took.
    pub(super) fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }
}

// SAFETY: an arena gives blocks as large and aligned as asked, of host memory since the executor takes it from
// the host space; it hands no byte out twice until `reset`, which takes `&mut self`, and never moves a block.
unsafe impl ScratchSource for Temp {
    fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, KernelError> {
        self.used.set(true);
        let refused = |reason: String| KernelError::Scratch { asked_bytes: layout.size(), reason };
        let arena = self.arena.as_ref().ok_or_else(|| refused("it is with another method".into()))?;
        arena.allocate(layout).map(|block| block.address()).map_err(|error| refused(error.to_string()))
    }
}
