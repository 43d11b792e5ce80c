#![forbid(unsafe_code)]
//! What a thread gave back last, kept for it: taking it again needs no lock.
//!
//! ```text
//!   thread 3 ─► │ size A: node 7 │ empty │ size B: node 2 │ empty │       filled by thread 3, emptied by anybody
//! ```
//!
//! A kept node stays live and booked in the pool's books, for the same tag and size, so that taking it again
//! changes nothing there. Whoever reads the books or looks for memory empties all magazines first, under the
//! pool's lock. That is rare, taking is not: the thread that takes only says so, and whoever empties makes sure that
//! it is heard (`Barrier`), so that taking has no locked instruction.
//!
//! Deliberately absent: more than a handful. Many blocks of a size are the size classes' work.
//!
//! # Invariants
//! * **M1** Only the thread that a row belongs to fills its slots. It takes from them while `taking` is set and
//!   `wanted` was not seen since; anybody else, with the pool's lock, after `wanted` was set and `taking` was seen
//!   clear, with a barrier in between on both sides. So never both.
//! * **M2** The other fields of a slot are written by its thread alone, before the node.

use super::barrier::Barrier;
use crate::tlsf::NONE;
use core::ptr::NonNull;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering};
use parking_lot::Mutex;

/// Threads that have a row; further ones go without.
const THREADS: usize = if cfg!(loom) { 1 } else { 32 };
const SLOTS: usize = 4;

#[derive(Debug)]
struct Slot {
    node: AtomicU32,
    owner: AtomicU16,
    asked_bytes: AtomicUsize,
    address: AtomicPtr<u8>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Row {
    /// The thread is taking from it.
    taking: AtomicBool,
    /// Somebody else is about to.
    wanted: AtomicBool,
    slots: [Slot; SLOTS],
}

impl Row {
    fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.node.load(Ordering::Relaxed) == NONE)
    }
}

/// The rows of one pool.
#[derive(Debug)]
pub(super) struct Magazines {
    rows: Box<[Row]>,
    barrier: Barrier,
}

impl Magazines {
    pub(super) fn new() -> Self {
        let slot = || Slot {
            node: AtomicU32::new(NONE),
            owner: AtomicU16::new(0),
            asked_bytes: AtomicUsize::new(0),
            address: AtomicPtr::new(core::ptr::null_mut()),
        };
        let row = |_| Row {
            taking: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            slots: core::array::from_fn(|_| slot()),
        };
        Self { rows: (0..THREADS).map(row).collect(), barrier: Barrier::new() }
    }

    /// The row of a thread, and its slot for blocks of a size.
    #[inline(always)]
    fn slot(&self, thread: Option<usize>, asked_bytes: usize) -> Option<(&Row, &Slot)> {
        let row = self.rows.get(thread?)?;
        // The upper bits of a product with an odd number spread sizes that differ little.
        let at = asked_bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SLOTS.ilog2());
        Some((row, row.slots.get(at)?))
    }

    /// Takes what this thread keeps for the same owner and size, if it is aligned.
    #[inline(always)]
    pub(super) fn take(&self, owner: u16, asked_bytes: usize, align: usize) -> Option<(NonNull<u8>, u32)> {
        self.take_of(thread_number(), owner, asked_bytes, align)
    }

    #[inline(always)]
    fn take_of(
        &self,
        thread: Option<usize>,
        owner: u16,
        asked_bytes: usize,
        align: usize,
    ) -> Option<(NonNull<u8>, u32)> {
        let (row, slot) = self.slot(thread, asked_bytes)?;
        let address = NonNull::new(slot.address.load(Ordering::Relaxed))?;
        let is_wanted = slot.asked_bytes.load(Ordering::Relaxed) == asked_bytes
            && slot.owner.load(Ordering::Relaxed) == owner
            && address.addr().get() & (align - 1) == 0;
        if !is_wanted {
            return None;
        }
        row.taking.store(true, Ordering::Relaxed);
        self.barrier.light();
        let mut node = NONE;
        if !row.wanted.load(Ordering::Acquire) {
            node = slot.node.load(Ordering::Relaxed);
            slot.node.store(NONE, Ordering::Relaxed);
        }
        row.taking.store(false, Ordering::Release);
        (node != NONE).then_some((address, node))
    }

    /// Keeps a live node; false where there is no room.
    #[inline(always)]
    pub(super) fn keep(&self, address: NonNull<u8>, node: u32, owner: u16, asked_bytes: usize) -> bool {
        self.keep_of(thread_number(), address, node, owner, asked_bytes)
    }

    #[inline(always)]
    fn keep_of(
        &self,
        thread: Option<usize>,
        address: NonNull<u8>,
        node: u32,
        owner: u16,
        asked_bytes: usize,
    ) -> bool {
        let Some((_, slot)) = self.slot(thread, asked_bytes) else { return false };
        if slot.node.load(Ordering::Relaxed) != NONE {
            return false;
        }
        slot.asked_bytes.store(asked_bytes, Ordering::Relaxed);
        slot.owner.store(owner, Ordering::Relaxed);
        slot.address.store(address.as_ptr(), Ordering::Relaxed);
        // What this thread wrote into the block happens before whoever empties the slot uses it.
        slot.node.store(node, Ordering::Release);
        true
    }

    /// Empties every slot. One at a time: the caller has the pool's lock.
    pub(super) fn empty(&self, mut each: impl FnMut(u32)) {
        // What was kept before this call is seen; what is kept meanwhile may be.
        let filled = || self.rows.iter().filter(|row| row.wanted.load(Ordering::Relaxed));
        let mut any = false;
        for row in self.rows.iter().filter(|row| !row.is_empty()) {
            row.wanted.store(true, Ordering::Relaxed);
            any = true;
        }
        // Where the system gives no barrier, what threads keep stays theirs.
        let is_heard = any && self.barrier.heavy();
        for row in filled() {
            while is_heard && row.taking.load(Ordering::Acquire) {
                wait_a_little();
            }
            for slot in row.slots.iter().filter(|_| is_heard) {
                let node = slot.node.load(Ordering::Acquire);
                if node != NONE {
                    slot.node.store(NONE, Ordering::Relaxed);
                    each(node);
                }
            }
            row.wanted.store(false, Ordering::Release);
        }
    }
}

/// Lets a thread that is taking, which is a few instructions, go on.
fn wait_a_little() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// The numbers of threads that are gone, and the next new one.
static NUMBERS: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// A number that no other living thread has.
struct Number(usize);

impl Number {
    fn claim() -> Self {
        let (free, next) = &mut *NUMBERS.lock();
        Self(free.pop().unwrap_or_else(|| {
            *next += 1;
            // Giving back must not allocate.
            free.reserve(*next);
            *next - 1
        }))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // The lock orders what this thread did before what the next one with the number does (M1).
        NUMBERS.lock().0.push(self.0);
    }
}

/// The number of this thread; none while it ends.
#[inline(always)]
fn thread_number() -> Option<usize> {
    thread_local!(static NUMBER: Number = Number::claim());
    NUMBER.try_with(|number| number.0).ok()
}

/// `RUSTFLAGS="--cfg loom" cargo test --release --no-default-features --lib every_order`
#[cfg(all(test, loom))]
mod every_order {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    /// Every order of a thread that gives and takes, and one that empties: a node is held once at a time.
    #[test]
    fn a_node_is_never_held_twice() {
        loom::model(|| {
            let magazines = Arc::new(Magazines::new());
            let held: Arc<[AtomicBool; 2]> = Arc::new([AtomicBool::new(true), AtomicBool::new(true)]);
            let give = |held: &[AtomicBool; 2], magazines: &Magazines, node: u32| {
                held[node as usize].store(false, Ordering::Relaxed);
                let address = NonNull::without_provenance(core::num::NonZeroUsize::new(64).unwrap());
                magazines.keep_of(Some(0), address, node, 0, 64)
            };
            let owner = {
                let (magazines, held) = (Arc::clone(&magazines), Arc::clone(&held));
                loom::thread::spawn(move || {
                    for node in 0..2 {
                        if give(&held, &magazines, node)
                            && let Some((_, taken)) = magazines.take_of(Some(0), 0, 64, 8)
                        {
                            assert!(!held[taken as usize].swap(true, Ordering::Relaxed));
                        }
                    }
                })
            };
            magazines.empty(|node| {
                assert!(!held[node as usize].swap(true, Ordering::Relaxed), "what was given happens before");
            });
            owner.join().unwrap();
        });
    }
}
