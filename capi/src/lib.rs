//! Arenite's arenas and pools for C: `include/arenite.h` is the documentation.
//!
//! Each function is a few lines around the Rust call of the same name. Deliberately absent: what C cannot hold,
//! that is typed allocation and scopes; checkpoints stand in for those.
#![allow(clippy::missing_safety_doc, reason = "the header says what a caller owes")]

mod error;
mod own;

use arenite::{Arena, Checkpoint, HostSpace, Limited, MemorySpace, Pool, PoolKey, Tag};
use core::alloc::Layout;
use core::ffi::{CStr, c_char, c_int, c_void};
use error::{failed, invalid};
use std::sync::Arc;

pub use error::{Status, arenite_last_error};
pub use own::SpaceCalls;

type Shared = Arc<dyn MemorySpace>;

/// `arenite_space`.
#[derive(Debug)]
pub struct Space(Shared);

/// `arenite_arena`.
#[derive(Debug)]
pub struct CArena(Arena<Shared>);

/// `arenite_pool`.
#[derive(Debug)]
pub struct CPool(Pool<Shared>);

/// `arenite_key`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Key {
    parts: [u32; 3],
}

/// `arenite_block`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Block {
    address: *mut c_void,
    size_bytes: usize,
    key: Key,
}

/// `arenite_checkpoint`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CCheckpoint {
    parts: [usize; 2],
}

/// `arenite_pool_stats`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stats {
    live_bytes: usize,
    peak_bytes: usize,
    capacity_bytes: usize,
    padding_bytes: usize,
    blocks: usize,
    extents: usize,
}

fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// What a handle stands for.
///
/// # Safety
/// * `handle` is null, or from the `_new` function of its type and not deleted.
unsafe fn at<'a, T>(handle: *const T) -> Option<&'a T> {
    // SAFETY: null, or a live handle, says the caller.
    unsafe { handle.as_ref() }
}

/// The same, to change it.
///
/// # Safety
/// * As for [`at`]; no other thread uses it meanwhile.
unsafe fn at_mut<'a, T>(handle: *mut T) -> Option<&'a mut T> {
    // SAFETY: null, or a live handle that only this thread uses, says the caller.
    unsafe { handle.as_mut() }
}

/// Drops what a handle stands for.
///
/// # Safety
/// * As for [`at`]; it is not used afterwards.
unsafe fn delete<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: from `Box::into_raw` by `give`, once, says the caller.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// The name, or none.
///
/// # Safety
/// * `text` is null or ends with a zero.
unsafe fn name(text: *const c_char) -> Tag {
    if text.is_null() {
        return Tag::NONE;
    }
    // SAFETY: it ends with a zero, says the caller.
    let text = unsafe { CStr::from_ptr(text) };
    Tag::new(&text.to_string_lossy())
}

/// Writes a block where the caller wants it.
///
/// # Safety
/// * `target` is null or writable.
unsafe fn put(target: *mut Block, block: arenite::Block, key: Key) {
    let block = Block { address: block.address().as_ptr().cast(), size_bytes: block.size_bytes(), key };
    if !target.is_null() {
        // SAFETY: writable, says the caller.
        unsafe { target.write(block) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn arenite_space_host() -> *mut Space {
    give(Space(Arc::new(HostSpace::new())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_space_new(
    id: *const c_char,
    index: u16,
    calls: SpaceCalls,
    context: *mut c_void,
    host_accessible: c_int,
    base_align: usize,
) -> *mut Space {
    // SAFETY: the header asks for a text that ends with a zero, or null.
    let id = unsafe { name(id) };
    match own::Own::new(id.as_str(), index, calls, context, host_accessible != 0, base_align) {
        Some(space) => give(Space(Arc::new(space))),
        None => core::ptr::null_mut(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_space_limited(space: *const Space, limit_bytes: usize) -> *mut Space {
    // SAFETY: a live handle or null, as the header asks.
    let Some(space) = (unsafe { at(space) }) else { return core::ptr::null_mut() };
    give(Space(Arc::new(Limited::new(Arc::clone(&space.0), limit_bytes))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_space_delete(space: *mut Space) {
    // SAFETY: a handle or null, not used afterwards, as the header asks.
    unsafe { delete(space) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_arena_new(space: *const Space, text: *const c_char) -> *mut CArena {
    // SAFETY: a live handle or null, as the header asks.
    let Some(space) = (unsafe { at(space) }) else { return core::ptr::null_mut() };
    // SAFETY: null or a text that ends with a zero, as the header asks.
    let name = unsafe { name(text) };
    give(CArena(Arena::new(Arc::clone(&space.0)).with_name(name)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_arena_alloc(
    arena: *mut CArena,
    size_bytes: usize,
    align: usize,
    block: *mut Block,
) -> Status {
    // SAFETY: a live handle or null, of this thread alone, as the header asks.
    let (Some(arena), Ok(layout)) = (unsafe { at_mut(arena) }, Layout::from_size_align(size_bytes, align))
    else {
        return invalid();
    };
    match arena.0.allocate(layout) {
        Ok(given) => {
            // SAFETY: writable or null, as the header asks.
            unsafe { put(block, given, Key::default()) };
            Status::Ok
        }
        Err(error) => failed(&error),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_arena_checkpoint(arena: *const CArena) -> CCheckpoint {
    // SAFETY: a live handle or null, as the header asks.
    let point = unsafe { at(arena) }.map(|arena| arena.0.checkpoint().to_parts());
    CCheckpoint { parts: point.unwrap_or_default() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_arena_rewind(arena: *mut CArena, point: CCheckpoint) -> Status {
    // SAFETY: a live handle or null, of this thread alone, as the header asks.
    let Some(arena) = (unsafe { at_mut(arena) }) else { return invalid() };
    if arena.0.rewind(Checkpoint::from_parts(point.parts)) { Status::Ok } else { Status::Stale }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_arena_reset(arena: *mut CArena) {
    // SAFETY: a live handle or null, of this thread alone, as the header asks.
    if let Some(arena) = unsafe { at_mut(arena) } {
        arena.0.reset();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_arena_live_bytes(arena: *const CArena) -> usize {
    // SAFETY: a live handle or null, as the header asks.
    unsafe { at(arena) }.map_or(0, |arena| arena.0.live_bytes())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_arena_delete(arena: *mut CArena) {
    // SAFETY: a handle or null, not used afterwards, as the header asks.
    unsafe { delete(arena) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_pool_new(
    space: *const Space,
    text: *const c_char,
    limit_bytes: usize,
) -> *mut CPool {
    // SAFETY: a live handle or null, as the header asks.
    let Some(space) = (unsafe { at(space) }) else { return core::ptr::null_mut() };
    // SAFETY: null or a text that ends with a zero, as the header asks.
    let name = unsafe { name(text) };
    give(CPool(Pool::new(Arc::clone(&space.0)).with_name(name).with_limit(limit_bytes)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_pool_alloc(
    pool: *mut CPool,
    size_bytes: usize,
    align: usize,
    block: *mut Block,
) -> Status {
    // SAFETY: a live handle or null, as the header asks.
    let (Some(pool), Ok(layout)) = (unsafe { at(pool) }, Layout::from_size_align(size_bytes, align)) else {
        return invalid();
    };
    match pool.0.allocate(layout) {
        Ok(given) => {
            let place = given.block();
            // SAFETY: writable or null, as the header asks.
            unsafe { put(block, place, Key { parts: given.into_key().to_parts() }) };
            Status::Ok
        }
        Err(error) => failed(&error),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_pool_free(pool: *mut CPool, key: Key) -> Status {
    // SAFETY: a live handle or null, as the header asks.
    let Some(pool) = (unsafe { at(pool) }) else { return invalid() };
    pool.0.free(PoolKey::from_parts(key.parts)).map_or(Status::Stale, |()| Status::Ok)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_pool_trim(pool: *mut CPool) -> usize {
    // SAFETY: a live handle or null, as the header asks.
    unsafe { at(pool) }.map_or(0, |pool| pool.0.trim())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_pool_get_stats(pool: *const CPool) -> Stats {
    // SAFETY: a live handle or null, as the header asks.
    let Some(pool) = (unsafe { at(pool) }) else { return Stats::default() };
    let stats = pool.0.stats();
    Stats {
        live_bytes: stats.live_bytes,
        peak_bytes: stats.peak_bytes,
        capacity_bytes: stats.capacity_bytes,
        padding_bytes: stats.padding_bytes,
        blocks: stats.blocks,
        extents: stats.extents,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn arenite_pool_delete(pool: *mut CPool) {
    // SAFETY: a handle or null, not used afterwards, as the header asks.
    unsafe { delete(pool) };
}
