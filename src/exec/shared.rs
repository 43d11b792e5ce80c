#![forbid(unsafe_code)]
//! Memory that several methods use: state that they keep together, and scratch that they lend each other.
//!
//! ```text
//!   state     a block per name that the file plans at one place in several methods; whoever runs holds `running`
//!   scratch   one block per space, as large as the largest taker's; whoever runs holds `running`
//!             │ method a ████████          │
//!             │ method b ███████████████   │      the same bytes, one run at a time
//! ```
//!
//! What a run leaves in either is copied to a block of the method's own before `running` is let go.
//!
//! Deliberately absent: which bytes are scratch; see [`super::placement`].

use super::error::LoadError;
use super::holdings::{Carved, Holdings, Refusal, block_align, total_bytes};
use super::load::LoadOptions;
use super::memory::Temp;
use super::wants::Wants;
use crate::arena::{ArenaSet, PooledArena};
use crate::program::{MethodPlan, Program, StateMember, Storage};
use crate::space::{AllocError, Block, QueueError, SpaceId};
use core::alloc::Layout;
use core::ptr::NonNull;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// State that several methods of a program keep together.
pub(super) struct SharedState {
    holdings: Mutex<Holdings>,
    /// Per entry of [`Program::shared_state`].
    blocks: Vec<Option<Carved>>,
    /// Held by the method that runs.
    pub(super) running: Mutex<()>,
}

impl core::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedState").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl SharedState {
    /// Takes a block for each shared buffer of the program, with its initial value.
    pub(super) fn take(
        program: &Program,
        plan: &MethodPlan,
        options: &LoadOptions,
    ) -> Result<Self, LoadError> {
        let wants = Wants::shared_state(program, options);
        let label = format!("state of {}", program.file_name());
        let (holdings, blocks) = Holdings::take(&options.arenas, &wants, &label)
            .map_err(|refused| LoadError::refused(plan, "shared state", refused))?;
        let state = Self { holdings: holdings.into(), blocks, running: Mutex::default() };
        state.reset(program).map_err(|error| LoadError::queue(plan, "shared state", &error))?;
        Ok(state)
    }

    /// Makes every shared buffer what the file says it is initially.
    pub(super) fn reset(&self, program: &Program) -> Result<(), QueueError> {
        let mut holdings = self.holdings.lock();
        for (entry, block) in program.shared_state().iter().zip(&self.blocks) {
            let Some(block) = *block else { continue };
            holdings.zero(block)?;
            let initial = entry.members.iter().find_map(|member| {
                let method = program.methods().get(member.method as usize)?;
                match method.tensors.get(member.tensor as usize)?.storage {
                    Storage::Planned { initial, .. } => initial,
                    _ => None,
                }
            });
            if let Some(initial) = initial {
                holdings.fill(block.address, block.space, program.data(initial))?;
            }
        }
        holdings.synchronize()
    }

    /// The block of a tensor, where it is shared.
    pub(super) fn block(&self, program: &Program, member: (usize, usize)) -> Option<Carved> {
        self.blocks.get(shared_entry(program, member)?).copied().flatten()
    }
}

/// The entry of [`Program::shared_state`] that a tensor, given by its method and index, is a member of.
pub(super) fn shared_entry(program: &Program, member: (usize, usize)) -> Option<usize> {
    let is_member = |known: &StateMember| (known.method as usize, known.tensor as usize) == member;
    program.shared_state().iter().position(|entry| entry.members.iter().any(is_member))
}

/// Scratch that methods lend each other: one arena per space, for one run at a time. Cloning is cheap and gives
/// the same scratch. Used with [`Share::Scratch`](super::Share::Scratch).
///
/// The memory is as large as the largest method that uses it, and goes back when the last such method goes.
#[derive(Clone, Debug, Default)]
pub struct SharedScratch(Arc<Lenders>);

#[derive(Debug, Default)]
struct Lenders {
    lent: Mutex<Vec<Weak<Lent>>>,
    /// The scratch of kernels.
    temp: Mutex<Weak<Mutex<Temp>>>,
    /// Held by the method that runs.
    running: Mutex<()>,
}

/// One block that several methods use.
#[derive(Debug)]
pub(super) struct Lent {
    arenas: ArenaSet,
    space: SpaceId,
    held: Mutex<(PooledArena, Block)>,
}

impl SharedScratch {
    /// What the method that runs holds.
    pub(super) fn running(&self) -> &Mutex<()> {
        &self.0.running
    }

    /// The scratch of kernels, which goes from one method that runs to the next.
    pub(super) fn lend_temp(&self, arenas: &ArenaSet) -> Result<Arc<Mutex<Temp>>, Refusal> {
        let mut known = self.0.temp.lock();
        if let Some(temp) = known.upgrade() {
            return Ok(temp);
        }
        let temp = Temp::take(arenas, "scratch lent to kernels");
        let temp = Arc::new(Mutex::new(temp.map_err(|error| (SpaceId::HOST, 0, error.to_string()))?));
        *known = Arc::downgrade(&temp);
        Ok(temp)
    }

    /// Blocks of these sizes in a space; other takers use the same bytes.
    pub(super) fn lend(
        &self,
        arenas: &ArenaSet,
        space: SpaceId,
        sizes: &[usize],
    ) -> Result<(Arc<Lent>, Vec<Carved>), Refusal> {
        let total = total_bytes(space, sizes.iter().copied())?;
        let refused = |error: AllocError| (space, total, error.to_string());
        let mut known = self.0.lent.lock();
        known.retain(|lent| lent.strong_count() > 0);
        let mut found = None;
        let like = |lent: &Arc<Lent>| lent.space == space && lent.arenas.is_same(arenas);
        for lent in known.iter().filter_map(Weak::upgrade).filter(like) {
            if found.is_none() && lent.grow(total).map_err(refused)? {
                found = Some(lent);
            }
        }
        let lent = if let Some(lent) = found {
            lent
        } else {
            let lent = Arc::new(Lent::take(arenas, space, total).map_err(refused)?);
            known.push(Arc::downgrade(&lent));
            lent
        };
        let mut address = lent.held.lock().1.address();
        let carve = |&size_bytes: &usize| {
            let block = Carved { address, size_bytes, space };
            let step = size_bytes.next_multiple_of(block_align(space));
            // A pointer that may be the device's: moved as an address, never read here.
            address = NonNull::new(address.as_ptr().wrapping_add(step)).unwrap_or(address);
            block
        };
        let blocks = sizes.iter().map(carve).collect();
        Ok((lent, blocks))
    }
}

impl Lent {
    fn take(arenas: &ArenaSet, space: SpaceId, size_bytes: usize) -> Result<Self, AllocError> {
        let arena = arenas.take(space, size_bytes, "scratch lent to methods")?;
        let layout = Layout::from_size_align(size_bytes, block_align(space))
            .map_err(|_| AllocError::too_large(space, size_bytes, block_align(space)))?;
        let block = arena.allocate(layout)?;
        Ok(Self { arenas: arenas.clone(), space, held: Mutex::new((arena, block)) })
    }

    /// Whether the block has at least `size_bytes`, now that it has grown in place if need be. An arena that
    /// cannot grow in place says no.
    fn grow(&self, size_bytes: usize) -> Result<bool, AllocError> {
        let mut held = self.held.lock();
        let (arena, block) = &mut *held;
        let Some(more) = size_bytes.checked_sub(block.size_bytes()).filter(|&more| more > 0) else {
            return Ok(true);
        };
        if arena.space().as_reserve().is_none() {
            return Ok(false);
        }
        let too_large = |_| AllocError::too_large(self.space, size_bytes, block.align());
        let next = arena.allocate(Layout::from_size_align(more, 1).map_err(too_large)?)?;
        if next.address_bits() != block.address_bits() + block.size_bytes() as u64 {
            return Ok(false);
        }
        let layout = Layout::from_size_align(size_bytes, block.align()).map_err(too_large)?;
        *block = Block::new(block.address(), layout);
        Ok(true)
    }
}
