//! Random programs of operations on an arena, checked against a model that keeps every byte's owner.

use crate::support::fake_device::FakeDevice;
use crate::support::memory::{fill, holds};
use crate::support::numbers::Numbers;
use arenite::{Arena, Block, Checkpoint, HostSpace, MemorySpace, Recording};
use core::alloc::Layout;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Allocate { size: usize, align_log2: u32, zeroed: bool },
    Mark,
    Rewind { which: usize },
    Reset,
    Trim { keep_bytes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![8 => 0usize..300, 2 => 300usize..20_000, 1 => 20_000usize..400_000];
    prop_oneof![
        12 => (size, 0u32..14, any::<bool>())
            .prop_map(|(size, align_log2, zeroed)| Step::Allocate { size, align_log2, zeroed }),
        2 => Just(Step::Mark),
        2 => any::<usize>().prop_map(|which| Step::Rewind { which }),
        1 => Just(Step::Reset),
        1 => (0usize..500_000).prop_map(|keep_bytes| Step::Trim { keep_bytes }),
    ]
}

/// What should be live: blocks in order, with the byte each was filled with.
#[derive(Default)]
struct Model {
    live: Vec<(Block, u8)>,
    marks: Vec<(Checkpoint, usize)>,
    peak_bytes: usize,
    filler: u8,
}

impl Model {
    fn run(&mut self, arena: &mut Arena<&dyn MemorySpace>, step: &Step) {
        match *step {
            Step::Allocate { size, align_log2, zeroed } => {
                self.allocate(arena, size, 1 << align_log2, zeroed);
            }
            Step::Mark => self.marks.push((arena.checkpoint(), self.live.len())),
            Step::Rewind { which } if !self.marks.is_empty() => {
                let which = which % self.marks.len();
                let (mark, live) = self.marks[which];
                assert!(arena.rewind(mark), "a mark that was not passed by");
                self.live.truncate(live);
                self.marks.truncate(which + 1);
            }
            Step::Rewind { .. } => {}
            Step::Reset => {
                arena.reset();
                self.live.clear();
                self.marks.clear();
            }
            Step::Trim { keep_bytes } => {
                let held = arena.stats().capacity_bytes;
                arena.trim_to(keep_bytes);
                assert!(arena.stats().capacity_bytes <= held);
                assert!(arena.stats().capacity_bytes >= held.min(keep_bytes));
            }
        }
    }

    fn allocate(&mut self, arena: &Arena<&dyn MemorySpace>, size: usize, align: usize, zeroed: bool) {
        let layout = Layout::from_size_align(size, align).unwrap();
        let host = arena.space().host_accessible();
        let block = if zeroed && host {
            let block = arena.allocate_zeroed(layout).unwrap();
            assert!(holds(*arena.space(), block, 0), "a zeroed block of {size}");
            block
        } else {
            arena.allocate(layout).unwrap()
        };
        assert_eq!(block.address_bits() % align as u64, 0);
        let end = block.address_bits() + size as u64;
        for (other, _) in self.live.iter().filter(|(other, _)| size > 0 && other.size_bytes() > 0) {
            let other_end = other.address_bits() + other.size_bytes() as u64;
            assert!(end <= other.address_bits() || other_end <= block.address_bits(), "{block:?} {other:?}");
        }
        self.filler = self.filler.wrapping_add(1);
        fill(*arena.space(), block, self.filler);
        self.live.push((block, self.filler));
    }

    fn check(&mut self, arena: &Arena<&dyn MemorySpace>) {
        let stats = arena.stats();
        let asked_bytes: usize = self.live.iter().map(|(block, _)| block.size_bytes()).sum();
        assert!(stats.live_bytes >= asked_bytes);
        assert!(stats.live_bytes <= stats.capacity_bytes && stats.capacity_bytes <= stats.reserved_bytes);
        self.peak_bytes = self.peak_bytes.max(stats.live_bytes);
        assert_eq!(stats.peak_bytes, self.peak_bytes);
        assert_eq!(stats.live_bytes, arena.live_bytes());
        let space = *arena.space();
        assert!(
            self.live.iter().all(|&(block, byte)| holds(space, block, byte)),
            "live bytes stay as written"
        );
    }
}

fn run(space: &dyn MemorySpace, chunked: bool, steps: &[Step]) {
    let space = Recording::new(space);
    {
        let space: &dyn MemorySpace = &space;
        let mut arena = if chunked { Arena::with_chunks(space) } else { Arena::new(space) };
        let mut model = Model::default();
        for step in steps {
            model.run(&mut arena, step);
            model.check(&arena);
        }
    }
    let counts = space.counts();
    assert_eq!((counts.live_bytes, counts.reserved_bytes, counts.live_blocks), (0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn a_reserved_host_arena_keeps_to_the_model(steps in prop::collection::vec(step(), 1..60)) {
        run(&HostSpace::new(), false, &steps);
    }

    #[test]
    fn a_chunked_host_arena_keeps_to_the_model(steps in prop::collection::vec(step(), 1..60)) {
        run(&HostSpace::new(), true, &steps);
    }

    #[test]
    fn a_huge_page_arena_keeps_to_the_model(steps in prop::collection::vec(step(), 1..60)) {
        run(&HostSpace::new().with_huge_pages(), false, &steps);
    }

    #[test]
    fn device_arenas_keep_to_the_model(steps in prop::collection::vec(step(), 1..120)) {
        run(&FakeDevice::new(1 << 34), false, &steps);
        run(&FakeDevice::new(1 << 34).reserving(), false, &steps);
    }
}

#[test]
fn a_million_operations_keep_to_one_line_of_blocks() {
    let space = FakeDevice::new(1 << 40);
    let mut arena = Arena::with_chunks(&space);
    let mut numbers = Numbers::new(3);
    // What is live, in order, and the point before each block.
    let mut live: Vec<(Block, Checkpoint)> = Vec::new();
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    for step in 0..1_000_000 {
        if numbers.below(400) == 0 && !live.is_empty() {
            let keep = numbers.below(live.len());
            assert!(arena.rewind(live[keep].1));
            for (block, _) in live.drain(keep..) {
                ends.remove(&block.address_bits());
            }
        } else if numbers.below(5000) == 0 {
            arena.reset();
            live.clear();
            ends.clear();
        } else {
            let size_log2 = numbers.below(14);
            let (size, align) = (1 + numbers.below(1 << size_log2), 1 << numbers.below(9));
            let mark = arena.checkpoint();
            let block = arena.allocate(Layout::from_size_align(size, align).unwrap()).unwrap();
            let (start, end) = (block.address_bits(), block.address_bits() + size as u64);
            assert_eq!(start % align as u64, 0);
            assert!(ends.range(..end).next_back().is_none_or(|(_, &other)| other <= start), "step {step}");
            ends.insert(start, end);
            live.push((block, mark));
        }
        if step % 4096 == 0 {
            let stats = arena.stats();
            assert!(stats.live_bytes <= stats.capacity_bytes && stats.capacity_bytes == space.live_bytes());
        }
    }
}

/// Addresses that lead nowhere, in blocks that touch: each the neighbour of the one before, above or below it.
#[derive(Debug)]
struct Touching {
    next: std::sync::Mutex<u64>,
    upwards: bool,
}

// SAFETY: blocks never overlap, since `next` only moves on; nobody reads them, as they are not host-accessible.
unsafe impl MemorySpace for Touching {
    fn id(&self) -> arenite::SpaceId {
        arenite::SpaceId::cuda(0)
    }
    fn host_accessible(&self) -> bool {
        false
    }
    fn allocate(&self, layout: Layout) -> Result<Block, arenite::AllocError> {
        let mut next = self.next.lock().unwrap();
        let size = layout.size() as u64;
        let start = if self.upwards { *next } else { *next - size };
        assert_eq!(start % layout.align() as u64, 0, "the test asks for bytes");
        *next = if self.upwards { start + size } else { start };
        Ok(Block::device(start, layout).unwrap())
    }
    unsafe fn deallocate(&self, _block: Block) {}
    fn base_align(&self) -> usize {
        1
    }
}

/// Allocates and opens scopes at random; whatever a scope took is free afterwards, and nothing else.
fn nest(
    arena: &mut arenite::Scope<'_, &Touching>,
    numbers: &mut Numbers,
    live: &mut Vec<Block>,
    depth: usize,
) {
    for _ in 0..numbers.below(6) {
        if depth < 6 && numbers.below(3) == 0 {
            let (before, kept) = (arena.arena().live_bytes(), live.len());
            arena.scoped(|mut inner| nest(&mut inner, numbers, live, depth + 1));
            live.truncate(kept);
            assert_eq!(arena.arena().live_bytes(), before);
        }
        // Often as much as a chunk has, so that chunks are full to the end.
        let size = [1, 7, 4096, 4095, 1 + numbers.below(9000)][numbers.below(5)];
        let block = arena.arena().allocate(Layout::from_size_align(size, 1).unwrap()).unwrap();
        let end = |block: &Block| block.address_bits() + block.size_bytes() as u64;
        for other in &*live {
            assert!(end(&block) <= other.address_bits() || end(other) <= block.address_bits());
        }
        live.push(block);
    }
}

#[test]
fn scopes_keep_to_their_chunk_where_chunks_touch() {
    for seed in 0..400 {
        let space = Touching { next: std::sync::Mutex::new(1 << 40), upwards: seed % 2 == 0 };
        let mut numbers = Numbers::new(seed);
        let mut arena = if seed % 4 < 2 { Arena::with_chunks(&space) } else { Arena::new(&space) };
        let mut peak_bytes = 0;
        for _ in 0..20 {
            let (mut live, before) = (Vec::new(), arena.live_bytes());
            arena.scoped(|mut scope| nest(&mut scope, &mut numbers, &mut live, 0));
            assert_eq!((arena.live_bytes(), before), (0, 0));
            assert!(arena.stats().peak_bytes >= peak_bytes);
            peak_bytes = arena.stats().peak_bytes;
            if numbers.below(4) == 0 {
                arena.reset();
            }
        }
        assert!(arena.stats().peak_bytes <= arena.stats().capacity_bytes);
    }
}
