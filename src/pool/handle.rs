//! Who holds a block of a pool: an owner that gives it back when dropped, or a key.
//!
//! Deliberately absent: references to values. A block is bytes; what they mean is for whoever took them.

use super::{Mark, Pool};
use crate::space::{Block, HostAccessible, MemorySpace};
use core::fmt;
use core::mem::MaybeUninit;
use std::sync::Arc;

mod sealed {
    pub trait Sealed {}
}

/// How a [`PoolBlock`] reaches its pool: `&Pool<S>` or `Arc<Pool<S>>`.
pub trait PoolRef: sealed::Sealed {
    /// The space of the pool.
    type Space: MemorySpace;

    /// The pool.
    fn pool(&self) -> &Pool<Self::Space>;
}

impl<S: MemorySpace> sealed::Sealed for &Pool<S> {}
impl<S: MemorySpace> PoolRef for &Pool<S> {
    type Space = S;

    #[inline(always)]
    fn pool(&self) -> &Pool<S> {
        self
    }
}

impl<S: MemorySpace> sealed::Sealed for Arc<Pool<S>> {}
impl<S: MemorySpace> PoolRef for Arc<Pool<S>> {
    type Space = S;

    #[inline(always)]
    fn pool(&self) -> &Pool<S> {
        self
    }
}

/// A block on loan from a pool; dropping it gives it back, ready for anybody.
///
/// It cannot be given back twice, nor to another pool; the pool cannot be dropped before it:
/// ```compile_fail,E0505
/// use arenite::{HostSpace, Pool};
/// let pool = Pool::new(HostSpace::new());
/// let block = pool.allocate(core::alloc::Layout::new::<u64>()).unwrap();
/// drop(pool);
/// drop(block);
/// ```
#[must_use = "a block that is dropped is given back"]
pub struct PoolBlock<P: PoolRef> {
    /// Gone once the block was given back or became a key.
    pool: Option<P>,
    block: Block,
    /// The node, and above it the owner: one word, which is copied as it was written.
    place: u64,
}

impl<P: PoolRef> PoolBlock<P> {
    #[inline(always)]
    pub(super) fn new(pool: P, block: Block, node: u32, owner: u16) -> Self {
        Self { pool: Some(pool), block, place: u64::from(node) | u64::from(owner) << 32 }
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the node")]
    fn node(&self) -> u32 {
        self.place as u32
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the upper half is the owner")]
    fn owner(&self) -> u16 {
        (self.place >> 32) as u16
    }

    /// Where it is, how large and how aligned.
    #[inline]
    pub fn block(&self) -> Block {
        self.block
    }

    /// Gives it back for the stream of `mark` to use at once, and for others once the mark is reached. With a
    /// mark of another pool it is as if dropped.
    pub fn release_after(mut self, mark: Mark) {
        if let Some(owner) = self.pool.take() {
            let pool = owner.pool();
            let lane = mark.stream.lane_of(pool.id);
            pool.give_after(self.node(), lane.unwrap_or(0), mark.value);
        }
    }

    /// Stops owning the block: the key gives it back, by [`Pool::free`]. It does not keep the pool alive.
    pub fn into_key(mut self) -> PoolKey {
        let gone = PoolKey { pool: 0, node: self.node(), generation: 0 };
        self.pool.take().map_or(gone, |owner| owner.pool().key(self.node()))
    }
}

impl<P: PoolRef> PoolBlock<P>
where
    P::Space: HostAccessible,
{
    /// Its bytes, which may be uninitialised.
    pub fn bytes_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        let (address, size_bytes) = (self.block.address(), self.block.size_bytes());
        // SAFETY: the block is valid host memory of that size (`HostAccessible`), held by `self` alone (P1) for
        // as long as it is borrowed.
        unsafe { core::slice::from_raw_parts_mut(address.as_ptr().cast(), size_bytes) }
    }
}

impl<P: PoolRef> PoolBlock<P>
where
    P::Space: HostAccessible,
{
    /// Its bytes as items, all zero: as many as fit.
    ///
    /// # Examples
    /// ```
    /// use arenite::{HostSpace, Pool};
    /// use core::alloc::Layout;
    /// let pool = Pool::new(HostSpace::new());
    /// let mut block = pool.allocate(Layout::array::<f32>(100).unwrap())?;
    /// block.zeroed_as::<f32>().unwrap()[99] = 1.5;
    /// # Ok::<(), arenite::AllocError>(())
    /// ```
    ///
    /// # Errors
    /// [`bytemuck::PodCastError`] where the block is less aligned than `T`, or no whole number of them.
    pub fn zeroed_as<T: bytemuck::Pod>(&mut self) -> Result<&mut [T], bytemuck::PodCastError> {
        let bytes = self.bytes_mut();
        for byte in &mut *bytes {
            byte.write(0);
        }
        // SAFETY: every byte was written.
        bytemuck::try_cast_slice_mut(unsafe { bytes.assume_init_mut() })
    }
}

impl<P: PoolRef> Drop for PoolBlock<P> {
    #[inline]
    fn drop(&mut self) {
        if let Some(owner) = &self.pool {
            owner.pool().give(self.block, self.node(), self.owner());
        }
    }
}

impl<P: PoolRef> fmt::Debug for PoolBlock<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool{:?}", self.block)
    }
}

/// Stands for a block whose owner cannot be kept: twelve bytes for the far side of a C interface. Good once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    pub(super) pool: u32,
    pub(super) node: u32,
    pub(super) generation: u32,
}

impl PoolKey {
    /// The same as three numbers.
    pub const fn to_parts(self) -> [u32; 3] {
        [self.pool, self.node, self.generation]
    }

    /// A key that was taken apart. One that never was is refused when it is used.
    pub const fn from_parts([pool, node, generation]: [u32; 3]) -> Self {
        Self { pool, node, generation }
    }
}

/// Why a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolKeyError {
    /// It is of another pool.
    #[error("the key is of another pool; give the block back to the pool that it is from")]
    Foreign,
    /// It was used before, or never stood for a block.
    #[error("the key stands for no live block; a block is given back once")]
    Stale,
}
