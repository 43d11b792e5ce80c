#![forbid(unsafe_code)]
//! What a pool does when no free range fits: grow, wait, retry, explain.
//!
//! ```text
//!   drain and merge ─► grow ─► another stream's, with a wait ─► trim and grow ─► callback ─► error
//! ```

use super::{Mark, Pool, Readiness, Request, State, Stream, Taken};
use crate::space::{AllocError, AllocErrorKind, Block, LimitSource, MemorySpace, Retries};
use crate::tlsf::READY;
use core::alloc::Layout;

impl<S: MemorySpace> Pool<S> {
    #[cold]
    #[inline(never)]
    pub(super) fn take_slowly(
        &self,
        request: &Request,
        lane: Option<u16>,
        owner: u16,
    ) -> Result<(Block, u32, u16, Readiness), AllocError> {
        let layout = request.layout;
        if layout.size() == 0 {
            return Ok(Self::empty(layout));
        }
        let never_fits = || AllocError::new(self.space.id(), layout, AllocErrorKind::NeverFits);
        let size = self.rounded(layout).ok_or_else(never_fits)?;
        let mut retries = Retries::default();
        let failure = match self.climb(request, lane, owner, size, &mut retries) {
            Ok((at, readiness)) => {
                let mut state = self.state.lock();
                if retries.trimmed_bytes > 0 || retries.callback_bytes > 0 {
                    state.ledger.stats.rescued += 1;
                }
                return Ok((state.hand_out(at, layout, owner), at, owner, readiness));
            }
            Err(failure) => failure,
        };
        Err(self.explain(failure.kind(), layout, size, owner).with_retries(retries))
    }

    /// The ladder. A node that is given is live, and not booked yet.
    fn climb(
        &self,
        request: &Request,
        lane: Option<u16>,
        owner: u16,
        size: usize,
        retries: &mut Retries,
    ) -> Result<Taken, AllocError> {
        let (layout, align) = (request.layout, request.layout.align());
        {
            let mut state = self.settled();
            if !state.ledger.may(owner, size) {
                return Err(self.over_tag(&state, owner, layout));
            }
            let largest_bytes = state.tlsf.largest_free(READY);
            retries.drained_bytes = state.drain();
            retries.merged_bytes = state.tlsf.largest_free(READY).saturating_sub(largest_bytes);
            if let Some(at) = state.take_ready(lane, size, align) {
                return Ok((at, Readiness::Ready));
            }
        }
        let mut failure = AllocError::new(self.space.id(), layout, AllocErrorKind::NotNow);
        if request.may_grow {
            for ample in [true, false] {
                match self.grow_and_take(request, size, ample) {
                    Ok(taken) => return Ok(taken),
                    Err(error) => failure = error,
                }
            }
        }
        if lane.is_some()
            && let Some(taken) = self.state.lock().take_waiting(self.id, size, align)
        {
            return Ok(taken);
        }
        if !request.may_grow {
            return Err(failure);
        }
        retries.trimmed_bytes = self.trim();
        if retries.trimmed_bytes > 0 {
            match self.grow_and_take(request, size, false) {
                Ok(taken) => return Ok(taken),
                Err(error) => failure = error,
            }
        }
        let Some(rescue) = &self.rescue else { return Err(failure) };
        let explained = self.explain(failure.kind(), layout, size, owner).with_retries(*retries);
        retries.callback_bytes = rescue(&explained);
        if retries.callback_bytes == 0 {
            return Err(failure);
        }
        {
            let mut state = self.settled();
            state.drain();
            if let Some(at) = state.take_ready(lane, size, align) {
                return Ok((at, Readiness::Ready));
            }
        }
        self.trim();
        self.grow_and_take(request, size, false)
    }

    fn grow_and_take(&self, request: &Request, size: usize, ample: bool) -> Result<Taken, AllocError> {
        self.grow(request.layout, size, ample)?;
        let taken = self.state.lock().tlsf.take(READY, size, request.layout.align());
        // Another thread may have been faster.
        let kind = AllocErrorKind::NotNow;
        let at = taken.ok_or_else(|| AllocError::new(self.space.id(), request.layout, kind))?;
        Ok((at, Readiness::Fresh))
    }

    pub(super) fn over_limit(&self, layout: Layout) -> AllocError {
        let kind = AllocErrorKind::OverLimit { limit_bytes: self.limit_bytes, source: LimitSource::Pool };
        AllocError::new(self.space.id(), layout, kind)
    }

    fn over_tag(&self, state: &State, owner: u16, layout: Layout) -> AllocError {
        let limit_bytes = state.ledger.of(owner).limit_bytes;
        let kind = AllocErrorKind::OverLimit { limit_bytes, source: LimitSource::Tag };
        AllocError::new(self.space.id(), layout, kind)
    }

    /// An error that knows what the pool knows. Allocates nothing.
    fn explain(&self, kind: AllocErrorKind, layout: Layout, size: usize, owner: u16) -> AllocError {
        let state = self.state.lock();
        AllocError::new(self.space.id(), layout, kind)
            .with_aligned(size)
            .with_place(self.name, state.ledger.of(owner).tag)
            .with_live(state.ledger.stats.live_bytes)
            .with_largest_free(state.tlsf.largest_free(READY))
            .with_owners(state.ledger.largest())
    }
}

impl State {
    /// A range that another stream gave back, with the mark to wait for.
    fn take_waiting(&mut self, pool: u32, size: usize, align: usize) -> Option<Taken> {
        for lane in 1..u16::try_from(self.reached.len()).unwrap_or(u16::MAX) {
            if let Some(at) = self.tlsf.take(lane, size, align) {
                let value = self.tlsf.node(at).mark;
                let reached = self.reached.get(usize::from(lane)).is_some_and(|&reached| value <= reached);
                let mark = Mark { stream: Stream { pool, lane }, value };
                return Some((at, if reached { Readiness::Ready } else { Readiness::NeedsWait(mark) }));
            }
        }
        None
    }
}
