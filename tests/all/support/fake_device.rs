//! A device without a device: addresses that lead nowhere, with the limits and the strictness of a driver.
//!
//! Every byte that the CPU touched by mistake would fault; every block given back wrongly panics.

use arenite::{AllocError, AllocErrorKind, Block, LimitSource, MemorySpace, Reserve, SpaceId};
use core::alloc::Layout;
use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The first address: non-canonical for a CPU.
const FIRST_ADDRESS: u64 = 0x4000_0000_0000_0000;
const UNIT_BYTES: usize = 1 << 16;

/// A fake device of so many bytes.
#[derive(Debug)]
pub struct FakeDevice {
    id: SpaceId,
    capacity_bytes: usize,
    align: usize,
    reserves: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    live_bytes: usize,
    blocks: BTreeMap<u64, Layout>,
    regions: BTreeMap<u64, Region>,
    calls: u64,
}

#[derive(Debug)]
struct Region {
    size_bytes: usize,
    committed: Vec<bool>,
}

impl FakeDevice {
    /// `cuda:0` with exact blocks only.
    pub fn new(capacity_bytes: usize) -> Self {
        Self { id: SpaceId::cuda(0), capacity_bytes, align: 256, reserves: false, state: Mutex::default() }
    }

    /// The same, whose blocks are aligned to `align`.
    pub fn with_align(mut self, align: usize) -> Self {
        self.align = align;
        self
    }

    /// The same, reserving addresses.
    pub fn reserving(mut self) -> Self {
        self.reserves = true;
        self
    }

    /// The bytes in use.
    pub fn live_bytes(&self) -> usize {
        self.state.lock().unwrap().live_bytes
    }

    /// Blocks and regions not given back.
    pub fn live_blocks(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.blocks.len() + state.regions.len()
    }

    /// Calls that took or gave memory.
    pub fn calls(&self) -> u64 {
        self.state.lock().unwrap().calls
    }

    fn claim(&self, state: &mut State, layout: Layout) -> Result<(), AllocError> {
        state.calls += 1;
        let free_bytes = self.capacity_bytes - state.live_bytes;
        if layout.size() > free_bytes {
            let kind = if layout.size() > self.capacity_bytes {
                AllocErrorKind::OverLimit { limit_bytes: self.capacity_bytes, source: LimitSource::Space }
            } else {
                AllocErrorKind::NotNow
            };
            let error = AllocError::new(self.id, layout, kind);
            return Err(error.with_live(state.live_bytes).with_largest_free(free_bytes));
        }
        state.live_bytes += layout.size();
        Ok(())
    }

    fn address(state: &mut State, layout: Layout) -> u64 {
        let align = layout.align() as u64;
        let address = (FIRST_ADDRESS + state.next).next_multiple_of(align);
        state.next = address - FIRST_ADDRESS + layout.size().max(1) as u64;
        address
    }
}

// SAFETY: addresses are given once and never again, at the alignment asked for; the CPU reaches none.
unsafe impl MemorySpace for FakeDevice {
    fn id(&self) -> SpaceId {
        self.id
    }

    fn host_accessible(&self) -> bool {
        false
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        let mut state = self.state.lock().unwrap();
        self.claim(&mut state, layout)?;
        let wide = layout.align_to(self.align).unwrap();
        let address = Self::address(&mut state, wide);
        state.blocks.insert(address, layout);
        Ok(Block::device(address, layout).unwrap())
    }

    unsafe fn deallocate(&self, block: Block) {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let known = state.blocks.remove(&block.address_bits());
        assert_eq!(known, Some(block.layout()), "a block given back that was not given: {block:?}");
        state.live_bytes -= block.size_bytes();
    }

    fn base_align(&self) -> usize {
        self.align
    }

    fn as_reserve(&self) -> Option<&dyn Reserve> {
        self.reserves.then_some(self)
    }
}

// SAFETY: as above.
unsafe impl Reserve for FakeDevice {
    fn granularity_bytes(&self) -> usize {
        UNIT_BYTES
    }

    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError> {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let too_large = || AllocError::too_large(self.id, size_bytes, UNIT_BYTES);
        let size_bytes = size_bytes.checked_next_multiple_of(UNIT_BYTES).ok_or_else(too_large)?;
        // As a real device, it has only so many addresses.
        if size_bytes == 0 || size_bytes > 1 << 44 {
            return Err(too_large());
        }
        let layout = Layout::from_size_align(size_bytes, UNIT_BYTES).map_err(|_| too_large())?;
        let address = Self::address(&mut state, layout);
        let committed = Vec::new();
        state.regions.insert(address, Region { size_bytes, committed });
        Ok(Block::device(address, layout).unwrap())
    }

    unsafe fn commit(&self, region: Block, range: Range<usize>) -> Result<(), AllocError> {
        let mut state = self.state.lock().unwrap();
        self.claim(&mut state, Layout::from_size_align(range.len(), 1).unwrap())?;
        mark(&mut state, region, range, true);
        Ok(())
    }

    unsafe fn decommit(&self, region: Block, range: Range<usize>) {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        state.live_bytes -= range.len();
        mark(&mut state, region, range, false);
    }

    unsafe fn release(&self, region: Block, committed_bytes: usize) {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let known = state.regions.remove(&region.address_bits()).expect("a region that was reserved");
        assert_eq!(known.size_bytes, region.size_bytes());
        let committed = known.committed.iter().filter(|&&is| is).count() * UNIT_BYTES;
        assert_eq!(committed, committed_bytes, "what is committed when a region is released");
        state.live_bytes -= committed_bytes;
    }
}

/// Marks a range of a region, checking that all of it changes.
fn mark(state: &mut State, region: Block, range: Range<usize>, committed: bool) {
    assert_eq!((range.start % UNIT_BYTES, range.end % UNIT_BYTES), (0, 0), "whole units");
    let known = state.regions.get_mut(&region.address_bits()).expect("a region that was reserved");
    assert!(range.start < range.end && range.end <= known.size_bytes, "{range:?} within the region");
    let units = range.start / UNIT_BYTES..range.end / UNIT_BYTES;
    if known.committed.len() < units.end {
        known.committed.resize(units.end, false);
    }
    for unit in &mut known.committed[units] {
        assert_ne!(*unit, committed, "a unit changes when it is marked");
        *unit = committed;
    }
}
