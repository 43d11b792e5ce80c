//! Pages of host memory from the operating system.
//!
//! Deliberately absent: policy. Ranges are reserved, committed and given back as told; who decides is
//! [`HostSpace`](super::HostSpace). Where there is no `mmap`, nothing can be reserved.

use core::ptr::NonNull;
#[cfg(all(target_os = "linux", not(miri)))]
use core::sync::atomic::{AtomicUsize, Ordering};

/// Whether address space is free to reserve: no limit on it is set.
#[cfg(all(unix, not(miri)))]
pub(super) fn address_space_is_free() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live `rlimit` to write to.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    status == 0 && limit.rlim_cur == libc::RLIM_INFINITY
}

/// The page size in bytes.
#[cfg(all(unix, not(miri)))]
pub(super) fn page_bytes() -> usize {
    // SAFETY: `sysconf` has no requirements.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
}

/// New addresses: readable and writable zeroes if `committed`, else nothing behind them.
#[cfg(all(unix, not(miri)))]
pub(super) fn map(size_bytes: usize, committed: bool) -> Option<NonNull<u8>> {
    let (protection, reserve) = if committed {
        (libc::PROT_READ | libc::PROT_WRITE, 0)
    } else {
        (libc::PROT_NONE, libc::MAP_NORESERVE)
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | reserve;
    // SAFETY: an anonymous mapping at an address of the system's choice touches no existing memory.
    let address = unsafe { libc::mmap(core::ptr::null_mut(), size_bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) }
}

/// Gives addresses back.
///
/// # Safety
/// * The range is page-aligned, lies within one or more mappings of [`map`], and nothing uses it.
#[cfg(all(unix, not(miri)))]
pub(super) unsafe fn unmap(address: NonNull<u8>, size_bytes: usize) {
    // SAFETY: the caller owns the range and no longer uses it.
    unsafe { libc::munmap(address.as_ptr().cast(), size_bytes) };
}

/// Puts zeroed memory behind reserved addresses; false where the system refuses.
///
/// # Safety
/// * The range is page-aligned, lies within a mapping of [`map`], and is not committed.
#[cfg(all(unix, not(miri)))]
pub(super) unsafe fn commit(address: NonNull<u8>, size_bytes: usize) -> bool {
    // SAFETY: the caller owns the range; making it writable changes no byte.
    unsafe { libc::mprotect(address.as_ptr().cast(), size_bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

/// Gives memory back and keeps the addresses; committed again they read as zero.
///
/// # Safety
/// * The range is page-aligned, lies within a mapping of [`map`], and nothing uses its bytes.
#[cfg(all(unix, not(miri)))]
pub(super) unsafe fn decommit(address: NonNull<u8>, size_bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the caller owns the range, so that replacing its pages is seen by nobody.
    let at = unsafe { libc::mmap(address.as_ptr().cast(), size_bytes, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        // Out of mappings: the pages go back, the range stays writable, which is harmless.
        // SAFETY: as above; the bytes are no longer used.
        unsafe { libc::madvise(address.as_ptr().cast(), size_bytes, libc::MADV_DONTNEED) };
    }
}

/// Asks for huge pages behind a range; a hint.
///
/// # Safety
/// * The range is page-aligned and lies within a mapping of [`map`].
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) unsafe fn prefer_huge(address: NonNull<u8>, size_bytes: usize) {
    // SAFETY: the advice changes no byte.
    unsafe { libc::madvise(address.as_ptr().cast(), size_bytes, libc::MADV_HUGEPAGE) };
}

/// Faults a committed range in, so that its first use does not. Large ranges are shared by several threads, since the
/// time goes into zeroes.
///
/// # Safety
/// * The range is page-aligned, committed, and nothing else writes to it meanwhile.
#[cfg(all(unix, not(miri)))]
pub(super) unsafe fn prefault(address: NonNull<u8>, size_bytes: usize) {
    #[cfg(target_os = "linux")]
    if populate(address.addr().get(), size_bytes) {
        return;
    }
    for offset in (0..size_bytes).step_by(page_bytes()) {
        // SAFETY: `offset` lies within the range.
        let page = unsafe { address.add(offset) };
        // SAFETY: the byte is committed and only we reach it; fresh pages are zero, so this changes nothing.
        unsafe { page.write_volatile(0) };
    }
}

/// What a thread populates at a time, in bytes.
#[cfg(all(target_os = "linux", not(miri)))]
const STEP_BYTES: usize = 2 << 20;
/// For how much there is one more thread, in bytes: starting one costs as much as a hundredth of that.
#[cfg(all(target_os = "linux", not(miri)))]
const SHARE_BYTES: usize = 8 << 20;
/// How many threads populate one range at most: up to four each takes its share of the time away, eight are slower.
#[cfg(all(target_os = "linux", not(miri)))]
const THREADS_MAX: usize = 4;

/// Asks the system for the pages of a range, by several threads where it is large; false where it does not know how, or
/// the memory is not there.
#[cfg(all(target_os = "linux", not(miri)))]
fn populate(start: usize, size_bytes: usize) -> bool {
    let shares = size_bytes / SHARE_BYTES;
    if shares < 2 {
        return populate_part(start, size_bytes);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(shares).min(THREADS_MAX);
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let from = next.fetch_add(STEP_BYTES, Ordering::Relaxed);
            if from >= size_bytes {
                return true;
            }
            if !populate_part(start + from, STEP_BYTES.min(size_bytes - from)) {
                return false;
            }
        }
    };
    std::thread::scope(|scope| {
        let (starting, started) = std::sync::mpsc::channel::<()>();
        let helper = |_| {
            let starting = starting.clone();
            let help = move || {
                drop(starting);
                work()
            };
            // Where no thread is to be had, the others do its work.
            std::thread::Builder::new().spawn_scoped(scope, help).ok()
        };
        let helpers: Vec<_> = (1..threads).filter_map(helper).collect();
        drop(starting);
        // A thread that starts maps memory, for which it would wait until nobody populates: it ends when all have started.
        let _ = started.recv();
        let is_done = work();
        helpers.into_iter().fold(is_done, |all, helper| helper.join().unwrap_or(false) && all)
    })
}

#[cfg(all(target_os = "linux", not(miri)))]
fn populate_part(start: usize, size_bytes: usize) -> bool {
    let address = core::ptr::without_provenance_mut(start);
    // SAFETY: populating changes no byte, and fails where nothing is mapped.
    unsafe { libc::madvise(address, size_bytes, libc::MADV_POPULATE_WRITE) == 0 }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) unsafe fn prefer_huge(_address: NonNull<u8>, _size_bytes: usize) {}

#[cfg(not(all(unix, not(miri))))]
mod absent {
    use core::ptr::NonNull;

    pub(in super::super) fn address_space_is_free() -> bool {
        false
    }
    pub(in super::super) fn page_bytes() -> usize {
        4096
    }
    pub(in super::super) fn map(_size_bytes: usize, _committed: bool) -> Option<NonNull<u8>> {
        None
    }
    pub(in super::super) unsafe fn unmap(_address: NonNull<u8>, _size_bytes: usize) {}
    pub(in super::super) unsafe fn commit(_address: NonNull<u8>, _size_bytes: usize) -> bool {
        false
    }
    pub(in super::super) unsafe fn decommit(_address: NonNull<u8>, _size_bytes: usize) {}
    pub(in super::super) unsafe fn prefault(_address: NonNull<u8>, _size_bytes: usize) {}
}
#[cfg(not(all(unix, not(miri))))]
pub(super) use absent::{address_space_is_free, commit, decommit, map, page_bytes, prefault, unmap};
