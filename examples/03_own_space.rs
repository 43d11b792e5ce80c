//! A memory space of one's own: a file, mapped into memory, as the place that blocks come from.
#![expect(clippy::print_stdout, reason = "an example prints")]

use arenite::{AllocError, AllocErrorKind, Arena, Block, HostAccessible, LimitSource, MemorySpace, SpaceId};
use core::alloc::Layout;
use core::ptr::NonNull;
use memmap2::MmapRaw;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared mapping of a file, carved from its start on. Bytes given back are not used again.
#[derive(Debug)]
struct FileSpace {
    map: MmapRaw,
    used_bytes: AtomicUsize,
}

// SAFETY: `used_bytes` only grows, so that no byte is handed out twice; the mapping lives as long as the
// space, and nobody else maps the file.
unsafe impl MemorySpace for FileSpace {
    fn id(&self) -> SpaceId {
        SpaceId::new("file", 0).expect("a valid name")
    }

    fn host_accessible(&self) -> bool {
        true
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        let start = self.map.as_mut_ptr();
        let place = |used| start.wrapping_add(used).align_offset(layout.align()).checked_add(used);
        let end = |used| place(used)?.checked_add(layout.size()).filter(|&end| end <= self.map.len());
        let kind = AllocErrorKind::OverLimit { limit_bytes: self.map.len(), source: LimitSource::Space };
        let refused = |used| AllocError::new(self.id(), layout, kind).with_live(used);
        let used =
            self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).map_err(refused)?;
        let address = place(used).and_then(|offset| NonNull::new(start.wrapping_add(offset)));
        Ok(Block::new(address.ok_or(refused(used))?, layout))
    }

    unsafe fn deallocate(&self, _block: Block) {}
}

// SAFETY: it is ordinary memory.
unsafe impl HostAccessible for FileSpace {}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("arenite-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.set_len(1 << 20)?;
    let space = FileSpace { map: MmapRaw::map_raw(&file)?, used_bytes: AtomicUsize::new(0) };

    // From here on it is a space like any other: arenas, scopes, limits and arena sets work over it.
    let arena = Arena::new(&space);
    arena.alloc_str("written through an arena");
    println!("the file begins: {}", String::from_utf8_lossy(&std::fs::read(&path)?[..24]));
    if let Err(error) = arena.try_alloc_slice_with(2 << 20, |_| 0u8) {
        println!("{error}");
    }
    Ok(std::fs::remove_file(&path)?)
}
