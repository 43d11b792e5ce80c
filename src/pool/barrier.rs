//! Two barriers that belong together, one of which costs nothing.
//!
//! ```text
//!   often:   store A, light(), load B          rarely:   store B, heavy(), load A
//! ```
//!
//! One of the two loads sees the other's store, as with a full fence on both sides. On Linux `heavy` has the system
//! put a fence into every running thread (`membarrier`), so that `light` is left to the compiler; elsewhere both are
//! fences.
//!
//! Deliberately absent: a way to have `light` without its `heavy`.

use core::sync::atomic::Ordering;
#[cfg(not(loom))]
use core::sync::atomic::fence;
#[cfg(loom)]
use loom::sync::atomic::fence;

/// How a pair of barriers works; the same for as long as it is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barrier {
    by_system: bool,
}

impl Barrier {
    pub(super) fn new() -> Self {
        Self { by_system: system::is_there() }
    }

    /// The side that comes often.
    #[inline(always)]
    pub(super) fn light(self) {
        if self.by_system {
            core::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The side that comes rarely. False where the system, which said that it could, no longer does: nothing is
    /// known then of what others stored.
    #[must_use]
    pub(super) fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        !self.by_system || system::barrier()
    }
}

/// `membarrier` of Linux.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod system {
    use core::sync::atomic::{AtomicU8, Ordering};

    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn call(command: libc::c_int) -> bool {
        // SAFETY: the call has no pointers, and changes nothing but the order in which threads see stores.
        let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
        answer == 0
    }

    /// Whether it is there: asked once, since a process has to register.
    pub(super) fn is_there() -> bool {
        static ANSWER: AtomicU8 = AtomicU8::new(0);
        if ANSWER.load(Ordering::Relaxed) == 0 {
            let answer = call(REGISTER_PRIVATE_EXPEDITED) && call(PRIVATE_EXPEDITED);
            ANSWER.store(1 + u8::from(answer), Ordering::Relaxed);
        }
        ANSWER.load(Ordering::Relaxed) == 2
    }

    pub(super) fn barrier() -> bool {
        call(PRIVATE_EXPEDITED)
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
mod system {
    pub(super) fn is_there() -> bool {
        false
    }
    pub(super) fn barrier() -> bool {
        false
    }
}
