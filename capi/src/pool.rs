//! Pools as C holds them.
//!
//! Deliberately absent: streams; a caller who orders reuse by them links the Rust crate.

use crate::arena::OutBlock;
use crate::space::Space;
use crate::status::{CError, Failure, Status, guarded};
use arenite::pool::{Pool, PoolKey};
use arenite::{AllocError, MemorySpace};
use core::alloc::Layout;
use std::sync::Arc;

/// A pool; `arenite_pool` of the header.
#[derive(Debug)]
pub struct CPool(Pool<Arc<dyn MemorySpace>>);

/// What stands for a block; `arenite_key` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Key {
    parts: [u32; 3],
}

/// Figures; `arenite_pool_stats` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolStats {
    live_bytes: u64,
    peak_bytes: u64,
    capacity_bytes: u64,
    blocks: u64,
}

/// An empty pool over a space; `limit_bytes` of 0 is no limit.
///
/// # Safety
/// `space` is null or a space of this library; `pool` and `error` are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pool_new(
    space: *const Space,
    limit_bytes: usize,
    pool: *mut *mut CPool,
    error: *mut CError,
) -> Status {
    let work = || {
        if pool.is_null() {
            return Err(Failure::invalid("pool: the place for the new pool is NULL"));
        }
        // SAFETY: null or a space (C1).
        let space = unsafe { space.as_ref() }.ok_or_else(|| Failure::invalid("space is NULL"))?;
        let made = Pool::new(Arc::clone(&space.0));
        let made = if limit_bytes == 0 { made } else { made.with_limit(limit_bytes) };
        let made = Box::into_raw(Box::new(CPool(made)));
        // SAFETY: not null, and valid for a write by the caller's promise.
        unsafe { pool.write(made) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guarded(error, work) }
}

/// Gives all memory back, live blocks too.
///
/// # Safety
/// `pool` is null or a pool of this library, and neither it nor its blocks are used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pool_free(pool: *mut CPool) {
    if !pool.is_null() {
        // SAFETY: it came from `Box::into_raw` and goes back once (C1).
        drop(unsafe { Box::from_raw(pool) });
    }
}

/// A block of `size` bytes at `align`, and the key that gives it back.
///
/// # Safety
/// `pool` is null or a pool of this library; `block`, `key` and `error` are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pool_take(
    pool: *const CPool,
    size: usize,
    align: usize,
    block: *mut OutBlock,
    key: *mut Key,
    error: *mut CError,
) -> Status {
    let work = || {
        // SAFETY: null or a pool (C1), which any thread may use.
        let pool = unsafe { pool.as_ref() }.ok_or_else(|| Failure::invalid("pool is NULL"))?;
        if block.is_null() || key.is_null() {
            return Err(Failure::invalid("block or key: the place for it is NULL"));
        }
        if !align.is_power_of_two() {
            return Err(Failure::invalid(format_args!("align is {align}, expected a power of two")));
        }
        let layout = Layout::from_size_align(size, align)
            .map_err(|_| AllocError::too_large(pool.0.space().id(), size, align))?;
        let given = pool.0.allocate(layout)?;
        let out = OutBlock::of(given.block());
        // SAFETY: not null, and valid for a write by the caller's promise.
        unsafe { block.write(out) };
        let parts = given.into_key().to_parts();
        // SAFETY: as above.
        unsafe { key.write(Key { parts }) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guarded(error, work) }
}

/// Gives a block back.
///
/// # Safety
/// `pool` is null or a pool of this library; the block that the key stands for is not used after this; `error` is
/// null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pool_give_back(pool: *const CPool, key: Key, error: *mut CError) -> Status {
    let work = || {
        // SAFETY: null or a pool (C1), which any thread may use.
        let pool = unsafe { pool.as_ref() }.ok_or_else(|| Failure::invalid("pool is NULL"))?;
        pool.0.free(PoolKey::from_parts(key.parts)).map_err(Failure::invalid)
    };
    // SAFETY: the caller's promise.
    unsafe { guarded(error, work) }
}

/// Gives unused memory back to the space; says how many bytes.
///
/// # Safety
/// `pool` is null or a pool of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pool_trim(pool: *const CPool) -> usize {
    // SAFETY: null or a pool (C1), which any thread may use.
    unsafe { pool.as_ref() }.map_or(0, |pool| pool.0.trim())
}

/// What is held and given out; zeros for NULL.
///
/// # Safety
/// `pool` is null or a pool of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_pool_stats_of(pool: *const CPool) -> PoolStats {
    // SAFETY: null or a pool (C1), which any thread may use.
    let Some(pool) = (unsafe { pool.as_ref() }) else { return PoolStats::default() };
    let stats = pool.0.stats();
    PoolStats {
        live_bytes: stats.live_bytes as u64,
        peak_bytes: stats.peak_bytes as u64,
        capacity_bytes: stats.capacity_bytes as u64,
        blocks: stats.blocks as u64,
    }
}
