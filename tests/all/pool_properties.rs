//! Random programs of operations on a pool, checked against a model that keeps every block.

use crate::support::fake_device::FakeDevice;
use crate::support::memory::{fill, holds};
use crate::support::numbers::Numbers;
use arenite::pool::{PoolTag, Stream};
use arenite::{
    DeviceRegion, HostSpace, Mark, MemorySpace, Pool, PoolBlock, Readiness, Recording, Request, SpaceId,
};
use core::alloc::Layout;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Acquire { size: usize, align_log2: u32, stream: usize, tag: usize, grow: bool },
    Release { which: usize, after: Option<u64> },
    Advance { stream: usize },
    Trim { keep_bytes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![6 => 0usize..600, 3 => 600usize..20_000, 1 => 20_000usize..200_000];
    prop_oneof![
        8 => (size, 0u32..13, 0usize..3, 0usize..3, prop::bool::weighted(0.8)).prop_map(
            |(size, align_log2, stream, tag, grow)| Step::Acquire { size, align_log2, stream, tag, grow }
        ),
        7 => (any::<usize>(), prop::option::of(0u64..50)).prop_map(|(which, after)| Step::Release {
            which,
            after
        }),
        1 => (0usize..2).prop_map(|stream| Step::Advance { stream }),
        1 => (0usize..200_000).prop_map(|keep_bytes| Step::Trim { keep_bytes }),
    ]
}

type Space<'a> = Recording<&'a dyn MemorySpace>;

struct Held<'p, 'a> {
    block: PoolBlock<&'p Pool<&'a Space<'a>>>,
    byte: u8,
    tag: usize,
    stream: usize,
}

struct Model<'p, 'a> {
    pool: &'p Pool<&'a Space<'a>>,
    streams: [Stream; 2],
    tags: [PoolTag; 2],
    live: Vec<Held<'p, 'a>>,
    /// The next mark of each stream, and how far it was reached.
    marks: [(u64, u64); 2],
    byte: u8,
}

impl Model<'_, '_> {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Acquire { size, align_log2, stream, tag, grow } => {
                self.acquire(size, 1 << align_log2, stream, tag, grow);
            }
            Step::Release { which, after } if !self.live.is_empty() => {
                let held = self.live.swap_remove(which % self.live.len());
                assert!(holds(self.pool.space(), held.block.block(), held.byte));
                match (after, held.stream) {
                    (Some(step), stream @ (0 | 1)) => {
                        self.marks[stream].0 += step;
                        let value = self.marks[stream].0;
                        held.block.release_after(Mark { stream: self.streams[stream], value });
                    }
                    _ => drop(held),
                }
            }
            Step::Release { .. } => {}
            Step::Advance { stream } => {
                self.marks[stream].1 = self.marks[stream].0;
                self.pool.advance(Mark { stream: self.streams[stream], value: self.marks[stream].1 });
            }
            Step::Trim { keep_bytes } => {
                let before = self.pool.stats().capacity_bytes;
                let given = self.pool.trim_to(keep_bytes);
                assert_eq!(self.pool.stats().capacity_bytes, before - given);
                assert!(before - given >= keep_bytes.min(before));
            }
        }
    }

    fn acquire(&mut self, size: usize, align: usize, stream: usize, tag: usize, grow: bool) {
        let layout = Layout::from_size_align(size, align).unwrap();
        let mut request = Request::new(layout);
        request = if stream < 2 { request.on(self.streams[stream]) } else { request };
        request = if tag < 2 { request.tagged(self.tags[tag]) } else { request };
        request = if grow { request } else { request.without_growth() };
        let held = self.pool.space().counts();
        let answer = self.pool.acquire(&request);
        assert!(grow || self.pool.space().counts() == held, "no growth when told not to");
        let Ok(acquired) = answer else {
            assert!(!grow, "the space has room for everything");
            return;
        };
        if let Readiness::NeedsWait(mark) = acquired.readiness {
            let other = self.streams.iter().position(|&known| known == mark.stream).unwrap();
            assert!(stream < 2 && other != stream, "only streams wait, and only for others");
            assert!(mark.value > self.marks[other].1, "a mark that was reached needs no wait");
        }
        let block = acquired.block.block();
        assert_eq!((block.size_bytes(), block.address_bits() % align as u64), (size, 0));
        let end = block.address_bits() + size as u64;
        for other in self.live.iter().map(|held| held.block.block()).filter(|other| other.size_bytes() > 0) {
            let other_end = other.address_bits() + other.size_bytes() as u64;
            assert!(size == 0 || end <= other.address_bits() || other_end <= block.address_bits());
        }
        self.byte = self.byte.wrapping_add(1);
        fill(self.pool.space(), block, self.byte);
        self.live.push(Held { block: acquired.block, byte: self.byte, tag, stream });
    }

    fn check(&self) {
        let (stats, tags) = (self.pool.stats(), self.pool.tags());
        assert_eq!(tags.iter().map(|tag| tag.live_bytes).sum::<usize>(), stats.live_bytes);
        assert_eq!(tags.iter().map(|tag| tag.blocks).sum::<usize>(), stats.blocks);
        let asked = |tag: usize| {
            let of_tag = self.live.iter().filter(move |held| held.tag == tag);
            of_tag.map(|held| held.block.block().size_bytes()).sum::<usize>()
        };
        assert_eq!(asked(0) + asked(1) + asked(2), stats.live_bytes - stats.padding_bytes);
        for (tag, row) in [(2, 0), (0, 1), (1, 2)] {
            assert!(tags[row].live_bytes >= asked(tag) && tags[row].peak_bytes >= tags[row].live_bytes);
        }
        assert!(stats.live_bytes <= stats.capacity_bytes && stats.peak_bytes >= stats.live_bytes);
        assert_eq!(stats.capacity_bytes, self.pool.space().counts().live_bytes, "the space's ledger");
    }
}

fn run(space: &dyn MemorySpace, steps: &[Step]) {
    let space = Recording::new(space);
    {
        let pool = Pool::new(&space);
        let streams = [pool.add_stream().unwrap(), pool.add_stream().unwrap()];
        let tags = [pool.tag("a").unwrap(), pool.tag("b").unwrap()];
        let mut model = Model { pool: &pool, streams, tags, live: Vec::new(), marks: [(0, 0); 2], byte: 0 };
        for step in steps {
            model.run(step);
            model.check();
        }
        model.live.clear();
        model.check();
        assert_eq!(pool.stats().live_bytes, 0);
    }
    assert_eq!((space.counts().live_bytes, space.counts().live_blocks), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(120) })]

    #[test]
    fn host_pools_keep_to_the_model(steps in prop::collection::vec(step(), 1..120)) {
        run(&HostSpace::new(), &steps);
    }

    #[test]
    fn device_pools_keep_to_the_model(steps in prop::collection::vec(step(), 1..200)) {
        run(&FakeDevice::new(1 << 40), &steps);
    }
}

#[test]
fn a_million_operations_keep_blocks_apart_and_the_books_right() {
    let pool = Pool::new(DeviceRegion::imaginary(SpaceId::cuda(0), 1 << 30)).with_limit(256 << 20);
    let mut numbers = Numbers::new(11);
    let mut live: Vec<PoolBlock<_>> = Vec::new();
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    let mut asked_bytes = 0;
    for step in 0..1_000_000 {
        if live.len() > 500 || (numbers.below(2) == 0 && !live.is_empty()) {
            let block = live.swap_remove(numbers.below(live.len()));
            asked_bytes -= block.block().size_bytes();
            ends.remove(&block.block().address_bits());
        } else {
            let size_log2 = 4 + numbers.below(17);
            let size = 1 + numbers.below(1 << size_log2);
            let align = 1 << numbers.below(10);
            let Ok(block) = pool.allocate(Layout::from_size_align(size, align).unwrap()) else { continue };
            let (start, end) = (block.block().address_bits(), block.block().address_bits() + size as u64);
            assert_eq!(start % align as u64, 0);
            assert!(ends.range(..end).next_back().is_none_or(|(_, &other)| other <= start), "step {step}");
            ends.insert(start, end);
            asked_bytes += size;
            live.push(block);
        }
        if step % 4096 == 0 {
            let stats = pool.stats();
            assert_eq!((stats.blocks, stats.live_bytes - stats.padding_bytes), (live.len(), asked_bytes));
            assert!(stats.capacity_bytes <= 256 << 20);
        }
        if step % 100_000 == 0 {
            pool.trim();
        }
    }
}
