//! Arenas as C holds them.
//!
//! Deliberately absent: typed allocation. C has casts.

use crate::space::Space;
use crate::status::{CError, Failure, Status, guarded};
use arenite::{AllocError, Arena, Block, MemorySpace};
use core::alloc::Layout;
use core::ffi::c_void;
use std::sync::Arc;

/// An arena; `arenite_arena` of the header.
#[derive(Debug)]
pub struct CArena(AnyArena);

type AnyArena = Arena<Arc<dyn MemorySpace>>;

/// A block; `arenite_block` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OutBlock {
    address: *mut c_void,
    size_bytes: usize,
}

impl OutBlock {
    pub(crate) fn of(block: Block) -> Self {
        Self { address: block.address().as_ptr().cast(), size_bytes: block.size_bytes() }
    }
}

/// A point to go back to; `arenite_checkpoint` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    parts: [usize; 2],
}

/// Figures; `arenite_arena_stats` of the header.
#[repr(C)]
#[expect(clippy::struct_field_names, reason = "sizes end in their unit")]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaStats {
    live_bytes: u64,
    peak_bytes: u64,
    capacity_bytes: u64,
}

/// An empty arena over a space.
///
/// # Safety
/// `space` is null or a space of this library; `arena` and `error` are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_arena_new(
    space: *const Space,
    arena: *mut *mut CArena,
    error: *mut CError,
) -> Status {
    let work = || {
        if arena.is_null() {
            return Err(Failure::invalid("arena: the place for the new arena is NULL"));
        }
        // SAFETY: null or a space (C1).
        let space = unsafe { space.as_ref() }.ok_or_else(|| Failure::invalid("space is NULL"))?;
        let made = Box::into_raw(Box::new(CArena(Arena::new(Arc::clone(&space.0)))));
        // SAFETY: not null, and valid for a write by the caller's promise.
        unsafe { arena.write(made) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guarded(error, work) }
}

/// Gives all memory back.
///
/// # Safety
/// `arena` is null or an arena of this library, and neither it nor its blocks are used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_arena_free(arena: *mut CArena) {
    if !arena.is_null() {
        // SAFETY: it came from `Box::into_raw` and goes back once (C1).
        drop(unsafe { Box::from_raw(arena) });
    }
}

/// Allocates with `how`, and writes the block.
///
/// # Safety
/// As for [`arenite_arena_allocate`].
unsafe fn allocate(
    arena: *mut CArena,
    (size, align): (usize, usize),
    block: *mut OutBlock,
    error: *mut CError,
    how: fn(&AnyArena, Layout) -> Result<Block, AllocError>,
) -> Status {
    let work = || {
        // SAFETY: null or an arena (C1) that no other thread uses meanwhile.
        let arena = unsafe { arena.as_ref() }.ok_or_else(|| Failure::invalid("arena is NULL"))?;
        if block.is_null() {
            return Err(Failure::invalid("block: the place for the block is NULL"));
        }
        if !align.is_power_of_two() {
            return Err(Failure::invalid(format_args!("align is {align}, expected a power of two")));
        }
        let layout = Layout::from_size_align(size, align)
            .map_err(|_| AllocError::too_large(arena.0.space().id(), size, align))?;
        let given = how(&arena.0, layout)?;
        let out = OutBlock::of(given);
        // SAFETY: not null, and valid for a write by the caller's promise.
        unsafe { block.write(out) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guarded(error, work) }
}

/// A block of `size` bytes at `align`.
///
/// # Safety
/// `arena` is null or an arena of this library that no other thread uses meanwhile; `block` and `error` are null or
/// valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_arena_allocate(
    arena: *mut CArena,
    size: usize,
    align: usize,
    block: *mut OutBlock,
    error: *mut CError,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(arena, (size, align), block, error, Arena::allocate) }
}

/// The same, reading as zero.
///
/// # Safety
/// As for [`arenite_arena_allocate`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_arena_allocate_zeroed(
    arena: *mut CArena,
    size: usize,
    align: usize,
    block: *mut OutBlock,
    error: *mut CError,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { allocate(arena, (size, align), block, error, Arena::allocate_zeroed) }
}

/// The point where the arena stands.
///
/// # Safety
/// `arena` is null or an arena of this library that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_arena_checkpoint(arena: *const CArena) -> Checkpoint {
    // SAFETY: null or an arena (C1).
    let arena = unsafe { arena.as_ref() };
    Checkpoint { parts: arena.map_or([usize::MAX; 2], |arena| arena.0.checkpoint().to_parts()) }
}

/// Takes back what was given out since a point.
///
/// # Safety
/// `arena` is null or an arena of this library that no other thread uses meanwhile; blocks given out since are not
/// used after this; `error` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_arena_rewind(
    arena: *mut CArena,
    checkpoint: Checkpoint,
    error: *mut CError,
) -> Status {
    let work = || {
        // SAFETY: null or an arena (C1), used by this thread alone.
        let arena = unsafe { arena.as_mut() }.ok_or_else(|| Failure::invalid("arena is NULL"))?;
        if arena.0.rewind(arenite::Checkpoint::from_parts(checkpoint.parts)) {
            return Ok(());
        }
        Err(Failure::invalid("checkpoint: this arena never stood there, or was taken back further since"))
    };
    // SAFETY: the caller's promise.
    unsafe { guarded(error, work) }
}

/// Takes everything back and keeps the memory.
///
/// # Safety
/// As for [`arenite_arena_rewind`], for all blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_arena_reset(arena: *mut CArena) {
    // SAFETY: null or an arena (C1), used by this thread alone.
    if let Some(arena) = unsafe { arena.as_mut() } {
        arena.0.reset();
    }
}

/// Gives memory beyond `keep_bytes` back.
///
/// # Safety
/// `arena` is null or an arena of this library that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_arena_trim(arena: *mut CArena, keep_bytes: usize) {
    // SAFETY: null or an arena (C1), used by this thread alone.
    if let Some(arena) = unsafe { arena.as_mut() } {
        arena.0.trim_to(keep_bytes);
    }
}

/// What is held and given out; zeros for NULL.
///
/// # Safety
/// `arena` is null or an arena of this library that no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_arena_stats_of(arena: *const CArena) -> ArenaStats {
    // SAFETY: null or an arena (C1).
    let Some(arena) = (unsafe { arena.as_ref() }) else { return ArenaStats::default() };
    let stats = arena.0.stats();
    ArenaStats {
        live_bytes: stats.live_bytes as u64,
        peak_bytes: stats.peak_bytes as u64,
        capacity_bytes: stats.capacity_bytes as u64,
    }
}
