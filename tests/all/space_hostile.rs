//! Spaces that break their promises, over addresses that lead nowhere: what stands on them answers with errors or with
//! blocks, and neither panics nor loses count.

use arenite::space::{Guarded, Limited, Recording, Reserve};
use arenite::{
    AllocError, AllocErrorKind, Arena, ArenaSet, Block, MemorySpace, Pool, PoolBlock, SharedArena, SpaceId,
};
use core::alloc::Layout;
use core::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What is wrong with a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Blocks at the very end of the address space.
    AtTheTop,
    /// Blocks at the end of the lower half of the address space.
    AtTheMiddle,
    /// Blocks at address 1.
    AtOne,
    /// Blocks that start one byte off.
    Misaligned,
    /// Blocks of half the size.
    Half,
    /// Blocks of no bytes.
    Empty,
    /// Blocks of twice the size.
    Twice,
    /// The same block again and again.
    Same,
    /// A block for every second request.
    Moody,
    /// This alignment of all blocks.
    BaseAlign(usize),
    /// Ranges with this unit.
    Unit(usize),
    /// Ranges that are smaller than asked.
    SmallRange,
    /// Ranges where nothing can be committed.
    NeverCommits,
    /// A space that reserves in every second answer.
    SometimesReserves,
}

const LIES: [Lie; 24] = [
    Lie::AtTheTop,
    Lie::AtTheMiddle,
    Lie::AtOne,
    Lie::Misaligned,
    Lie::Half,
    Lie::Empty,
    Lie::Twice,
    Lie::Same,
    Lie::Moody,
    Lie::BaseAlign(0),
    Lie::BaseAlign(1),
    Lie::BaseAlign(3),
    Lie::BaseAlign(1 << 62),
    Lie::BaseAlign(1 << 63),
    Lie::BaseAlign(usize::MAX),
    Lie::Unit(0),
    Lie::Unit(1),
    Lie::Unit(3),
    Lie::Unit(1 << 62),
    Lie::Unit(1 << 63),
    Lie::Unit(usize::MAX),
    Lie::SmallRange,
    Lie::NeverCommits,
    Lie::SometimesReserves,
];

#[derive(Debug)]
struct Liar {
    lie: Lie,
    next: AtomicU64,
    calls: AtomicUsize,
}

impl Liar {
    fn new(lie: Lie) -> Self {
        Self { lie, next: AtomicU64::new(1 << 40), calls: AtomicUsize::new(0) }
    }

    fn address(&self, size_bytes: usize, align: usize) -> u64 {
        let align = align.max(256) as u64;
        let size = (size_bytes as u64).min(1 << 50);
        match self.lie {
            Lie::AtTheTop => (u64::MAX - size + 1) & align.wrapping_neg(),
            Lie::AtTheMiddle => ((1 << 63) - size) & align.wrapping_neg(),
            Lie::AtOne => 1,
            Lie::Same => 1 << 40,
            _ => {
                let start = self.next.fetch_add(size + 2 * align, Ordering::Relaxed).next_multiple_of(align);
                start + u64::from(self.lie == Lie::Misaligned)
            }
        }
    }
}

// SAFETY: none: it breaks its promises. Its blocks lead nowhere, and nobody reads them.
unsafe impl MemorySpace for Liar {
    fn id(&self) -> SpaceId {
        SpaceId::cuda(0)
    }
    fn host_accessible(&self) -> bool {
        false
    }
    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if layout.size() > 1 << 40 || self.lie == Lie::Moody && call.is_multiple_of(2) {
            return Err(AllocError::new(self.id(), layout, AllocErrorKind::NotNow));
        }
        let size = match self.lie {
            Lie::Half => layout.size() / 2,
            Lie::Empty => 0,
            Lie::Twice => layout.size() * 2,
            _ => layout.size(),
        };
        let given = Layout::from_size_align(size, layout.align()).unwrap();
        let address = self.address(size, layout.align());
        Ok(Block::device(address.max(1), given).unwrap())
    }
    unsafe fn deallocate(&self, _block: Block) {}
    fn base_align(&self) -> usize {
        if let Lie::BaseAlign(align) = self.lie { align } else { 64 }
    }
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        let reserves = match self.lie {
            Lie::Unit(_) | Lie::SmallRange | Lie::NeverCommits => true,
            Lie::SometimesReserves => self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2),
            _ => false,
        };
        reserves.then_some(self as &dyn Reserve)
    }
}

// SAFETY: none, as above.
unsafe impl Reserve for Liar {
    fn granularity_bytes(&self) -> usize {
        if let Lie::Unit(unit) = self.lie { unit } else { 4096 }
    }
    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError> {
        let size = if self.lie == Lie::SmallRange { size_bytes / 2 } else { size_bytes };
        let too_large = || AllocError::too_large(self.id(), size_bytes, 4096);
        let layout = Layout::from_size_align(size, 4096).map_err(|_| too_large())?;
        if size > 1 << 40 {
            return Err(too_large());
        }
        Ok(Block::device(self.address(size, 4096), layout).unwrap())
    }
    unsafe fn commit(&self, region: Block, _range: Range<usize>) -> Result<(), AllocError> {
        let kind = AllocErrorKind::NotNow;
        if self.lie == Lie::NeverCommits {
            Err(AllocError::new(self.id(), region.layout(), kind))
        } else {
            Ok(())
        }
    }
    unsafe fn decommit(&self, _region: Block, _range: Range<usize>) {}
    unsafe fn release(&self, _region: Block, _committed_bytes: usize) {}
}

fn layouts() -> impl Iterator<Item = Layout> {
    let sizes = [0, 1, 64, 1000, 4096, 70_000, 1 << 20, 1 << 41, isize::MAX as usize - 63];
    sizes.into_iter().flat_map(|size| {
        [1, 64, 4096, 1 << 21, 1 << 62]
            .into_iter()
            .filter_map(move |align| Layout::from_size_align(size, align).ok())
    })
}

fn use_arena<S: MemorySpace>(arena: &mut Arena<S>) {
    for round in 0..3 {
        for layout in layouts() {
            let before = arena.live_bytes();
            match arena.allocate(layout) {
                Ok(block) => assert_eq!(block.layout(), layout),
                Err(_) => assert_eq!(arena.live_bytes(), before, "a failed call changes nothing"),
            }
        }
        let mark = arena.checkpoint();
        let _ = arena.make_room(round * 5000);
        let _ = arena.alloc_device::<f64>(100);
        // Where blocks overlap, a point may be in either.
        let _ = arena.rewind(mark);
        arena.scoped(|scope| scope.allocate(Layout::new::<[u64; 100]>()).is_ok());
        arena.trim_to(10_000);
        let stats = arena.stats();
        assert!(stats.live_bytes <= stats.capacity_bytes);
        arena.reset();
        assert_eq!(arena.live_bytes(), 0);
    }
}

fn use_pool<S: MemorySpace>(pool: &Pool<S>) {
    let mut live: Vec<PoolBlock<_>> = Vec::new();
    for layout in layouts() {
        live.extend(pool.allocate(layout).ok());
        if live.len() % 3 == 0 {
            live.pop();
        }
    }
    pool.trim();
    drop(live);
    pool.trim();
    let stats = pool.stats();
    assert_eq!((stats.live_bytes, stats.blocks), (0, 0));
}

/// Everything that takes memory from a space, over this one.
fn use_everything(lie: Lie) {
    use_arena(&mut Arena::new(Liar::new(lie)));
    use_arena(&mut Arena::with_reserve(Liar::new(lie), usize::MAX));
    use_arena(&mut Arena::with_chunks(Liar::new(lie)));
    for size in [0, 1, 5000] {
        if let Ok(mut arena) = Arena::exact(Liar::new(lie), size) {
            use_arena(&mut arena);
        }
    }
    use_pool(&Pool::new(Liar::new(lie)));
    use_pool(&Pool::new(Limited::new(Recording::new(Liar::new(lie)), 1 << 21)));
    for size in [0, 4096, 1 << 20] {
        if let Ok(mut shared) = SharedArena::new(Liar::new(lie), size) {
            use_arena(&mut shared.view());
            shared.reset();
            assert_eq!(shared.used_bytes(), 0);
        }
    }
    let limited = Limited::new(Recording::new(Liar::new(lie)), 1 << 30);
    use_arena(&mut Arena::new(&limited));
    let set = ArenaSet::builder().space(Arc::new(Liar::new(lie))).limit(SpaceId::cuda(0), 1 << 22).build();
    let taken: Vec<_> = (0..3).filter_map(|n| set.take(SpaceId::cuda(0), 5000 * n, "owner").ok()).collect();
    for arena in &taken {
        for layout in layouts() {
            let _ = arena.allocate(layout);
        }
    }
    drop(taken);
    assert_eq!(set.report().spaces[0].current_bytes, 0);
    set.trim();
    let guarded = Guarded::new(Liar::new(lie));
    for layout in layouts() {
        if let Ok(block) = guarded.allocate(layout) {
            // SAFETY: allocated just now, given back once.
            unsafe { guarded.deallocate(block) };
        }
    }
}

#[test]
fn no_lie_of_a_space_ends_in_a_panic() {
    let panicked: Vec<Lie> =
        LIES.into_iter().filter(|&lie| std::panic::catch_unwind(|| use_everything(lie)).is_err()).collect();
    assert!(panicked.is_empty(), "{panicked:?}");
}
