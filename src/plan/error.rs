#![forbid(unsafe_code)]
//! Why a problem cannot be planned, and what is wrong with a plan.
//!
//! Buffers are named by their index in the problem; `ids` of [`super::csv::Table`] has their names.

use core::ops::Range;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A lifespan ends before it begins.
    #[error("buffer {buffer} has the reversed lifespan [{first}, {last}): give first <= last")]
    ReversedLifespan {
        /// The buffer.
        buffer: usize,
        /// Its first step.
        first: u64,
        /// The end of its lifespan.
        last: u64,
    },
    /// An alignment that is zero or no power of two.
    #[error("buffer {buffer} has alignment {align_bytes}: it must be a power of two of at most 2^31")]
    BufferAlign {
        /// The buffer.
        buffer: usize,
        /// The alignment given.
        align_bytes: u64,
    },
    /// A space's alignment that is zero or no power of two.
    #[error("space {space} has alignment {align_bytes}: it must be a power of two of at most 2^31")]
    SpaceAlign {
        /// The space.
        space: usize,
        /// The alignment given.
        align_bytes: u64,
    },
    /// A space that is not in the list.
    #[error("buffer {buffer} names space {space}, but there are {spaces} spaces")]
    UnknownSpace {
        /// The buffer.
        buffer: usize,
        /// The space it names.
        space: u32,
        /// How many there are.
        spaces: usize,
    },
    /// More buffers than a plan can number.
    #[error("{buffers} buffers are more than the {limit} that a plan can number")]
    TooManyBuffers {
        /// The buffers given.
        buffers: usize,
        /// The most allowed.
        limit: usize,
    },
    /// An end that does not fit in 64 bits.
    #[error("buffer {buffer} of {size_bytes} bytes would end beyond 2^64 - 1")]
    Overflow {
        /// The buffer.
        buffer: usize,
        /// Its size.
        size_bytes: u64,
    },
    /// A pin that is no multiple of the buffer's alignment.
    #[error("buffer {buffer} is pinned at {offset_bytes}, not a multiple of its alignment {align_bytes}")]
    MisalignedPin {
        /// The buffer.
        buffer: usize,
        /// Where it is pinned.
        offset_bytes: u64,
        /// The alignment it needs.
        align_bytes: u64,
    },
    /// Two pinned buffers that are alive together share bytes.
    #[error(
        "buffers {a} and {b} are pinned on the same bytes {}..{} and alive together from step {step}",
        bytes.start, bytes.end
    )]
    PinConflict {
        /// One buffer.
        a: usize,
        /// The other.
        b: usize,
        /// The shared bytes.
        bytes: Range<u64>,
        /// The first step at which both live.
        step: u64,
    },
    /// An alias that cannot hold.
    #[error("buffer {buffer} cannot share the storage of buffer {of}: {reason}")]
    Alias {
        /// The buffer with the alias.
        buffer: usize,
        /// The buffer it names.
        of: usize,
        /// What is wrong.
        reason: AliasFault,
    },
    /// An idle gap outside the lifespan, out of order, or with bytes outside the buffer.
    #[error(
        "idle gap [{}, {}) of buffer {buffer} must be non-empty, in order, within its lifespan and its size",
        span.start, span.end
    )]
    Gap {
        /// The buffer.
        buffer: usize,
        /// The gap's steps.
        span: Range<u64>,
    },
    /// No plan fits: proven.
    #[error(
        "space {space} of {capacity_bytes} bytes is too small: any plan needs at least {bound_bytes} \
         (the most bytes are alive at step {step}, in buffers {culprits:?})"
    )]
    Infeasible {
        /// The space.
        space: usize,
        /// What it holds.
        capacity_bytes: u64,
        /// The least that any plan needs.
        bound_bytes: u64,
        /// The step with the most live bytes.
        step: u64,
        /// The buffers alive there, largest first (at most [`CULPRITS_MAX`]).
        culprits: Vec<usize>,
    },
    /// No plan was found that fits; there may be one.
    #[error(
        "space {space} of {capacity_bytes} bytes: the best plan found needs {peak_bytes}, none can need less \
         than {bound_bytes} (the most bytes are alive at step {step}, in buffers {culprits:?}); \
         allow a longer search"
    )]
    DoesNotFit {
        /// The space.
        space: usize,
        /// What it holds.
        capacity_bytes: u64,
        /// The smallest peak found.
        peak_bytes: u64,
        /// The least that any plan needs, as far as is known.
        bound_bytes: u64,
        /// The step with the most live bytes.
        step: u64,
        /// The buffers alive there, largest first (at most [`CULPRITS_MAX`]).
        culprits: Vec<usize>,
    },
    /// A plan that was made or given does not hold.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// The most buffers that an error names.
pub const CULPRITS_MAX: usize = 16;

/// Why two buffers cannot share storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AliasFault {
    /// The other buffer does not exist.
    #[error("there is no such buffer")]
    Unknown,
    /// The chain of views leads back to itself.
    #[error("the aliases form a circle")]
    Circle,
    /// The two are in different spaces.
    #[error("they are in different spaces")]
    Space,
    /// A view reaches beyond the storage it is in, or beyond 64 bits.
    #[error("the view reaches beyond the storage")]
    Bounds,
    /// A view's place is no multiple of its alignment.
    #[error("the view's inner offset is not a multiple of its alignment")]
    Align,
    /// Two pins of one storage disagree.
    #[error("their pins disagree")]
    Pin,
    /// A reused buffer is still alive after the step that writes the other.
    #[error("it is alive after the step that first writes the other")]
    Alive,
    /// A buffer with idle gaps cannot share storage.
    #[error("a buffer with idle gaps cannot share storage")]
    Gaps,
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The plan is for another number of buffers.
    #[error("the plan has {got} offsets for {expected} buffers")]
    Count {
        /// Buffers in the problem.
        expected: usize,
        /// Offsets in the plan.
        got: usize,
    },
    /// Two buffers of one space share bytes while both live.
    #[error(
        "buffers {a} and {b} of space {space} share bytes {}..{} while both are alive in steps {}..{}",
        bytes.start, bytes.end, steps.start, steps.end
    )]
    Conflict {
        /// One buffer.
        a: usize,
        /// The other.
        b: usize,
        /// Their space.
        space: u32,
        /// The bytes both cover.
        bytes: Range<u64>,
        /// The steps at which both live.
        steps: Range<u64>,
    },
    /// An offset that is no multiple of the alignment.
    #[error("buffer {buffer} lies at {offset_bytes}, not a multiple of {align_bytes}")]
    Misaligned {
        /// The buffer.
        buffer: usize,
        /// Its offset.
        offset_bytes: u64,
        /// The alignment it needs.
        align_bytes: u64,
    },
    /// A pinned buffer lies elsewhere.
    #[error("buffer {buffer} lies at {offset_bytes} but is pinned at {pinned_bytes}")]
    PinMoved {
        /// The buffer.
        buffer: usize,
        /// Its offset.
        offset_bytes: u64,
        /// Where it must lie.
        pinned_bytes: u64,
    },
    /// A buffer ends above the capacity of its space, or beyond 64 bits.
    #[error("buffer {buffer} ends at {end_bytes}, beyond the {capacity_bytes} bytes of space {space}")]
    OverCapacity {
        /// The buffer.
        buffer: usize,
        /// Its space.
        space: u32,
        /// Where it ends (2^64 - 1 if beyond).
        end_bytes: u64,
        /// What the space holds.
        capacity_bytes: u64,
    },
    /// A buffer was put in a space that it does not allow.
    #[error("buffer {buffer} was put in space {space}, which it does not allow")]
    WrongSpace {
        /// The buffer.
        buffer: usize,
        /// The space in the plan.
        space: u32,
    },
    /// A view does not lie where its storage says.
    #[error("buffer {buffer} is a view of buffer {of} at {inner_offset_bytes} but lies at {offset_bytes}")]
    ViewMoved {
        /// The view.
        buffer: usize,
        /// Its storage.
        of: usize,
        /// Where in it the view begins.
        inner_offset_bytes: u64,
        /// The view's offset in the plan.
        offset_bytes: u64,
    },
    /// The plan shares the storage of two buffers that did not allow it.
    #[error("the plan lets buffer {buffer} reuse buffer {of}, which the problem does not allow")]
    SharingNotAllowed {
        /// The buffer.
        buffer: usize,
        /// The buffer it is said to reuse.
        of: usize,
    },
}
