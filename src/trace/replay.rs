#![forbid(unsafe_code)]
//! Checking a trace, by itself and by doing it again.
//!
//! Deliberately absent: guesses. The first event that does not fit ends it, and is named.

use super::{Context, Event, Refusal, Take};
use crate::pool::{Pool, PoolBlock, Request, Stream};
use crate::space::{MemorySpace, SpaceId};
use core::alloc::Layout;
use core::fmt;
use std::collections::{BTreeMap, HashMap};

/// What a trace comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// How many events.
    pub events: usize,
    /// How many requests were served.
    pub served: usize,
    /// How many were refused.
    pub refused: usize,
    /// The most asked-for bytes that were live at a time.
    pub peak_bytes: usize,
    /// The asked-for bytes that were never given back.
    pub left_bytes: usize,
}

/// What does not fit about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Its address is not a multiple of the alignment.
    Misaligned,
    /// Its block shares bytes with that of this request, which is live.
    Overlaps(u64),
    /// It gives back what is not live.
    NotLive,
    /// It was served, and is refused now.
    RefusedNow(Refusal),
    /// It was refused, and is served now.
    ServedNow,
    /// Its size and alignment are none that can be asked for.
    NoLayout,
}

/// The first event at which a trace goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Its place in the trace, from 0.
    pub index: usize,
    /// The event.
    pub event: Event,
    /// What does not fit.
    pub why: Why,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} ({}): ", self.index, self.event)?;
        match self.why {
            Why::Misaligned => f.write_str("the address is not a multiple of the alignment"),
            Why::Overlaps(id) => write!(f, "the block overlaps that of take {id}, which is live"),
            Why::NotLive => f.write_str("it is not live"),
            Why::RefusedNow(refusal) => write!(f, "it was served, and is {refusal} in the replay"),
            Why::ServedNow => f.write_str("it was refused, and is served in the replay"),
            Why::NoLayout => f.write_str("no such size and alignment can be asked for"),
        }
    }
}

impl core::error::Error for Divergence {}

/// Live bytes, counted.
#[derive(Default)]
struct Count {
    summary: Summary,
    live: HashMap<u64, usize>,
}

impl Count {
    fn take(&mut self, take: &Take) {
        self.summary.events += 1;
        if take.answer.is_ok() {
            self.summary.served += 1;
            self.summary.left_bytes += take.size_bytes;
            self.summary.peak_bytes = self.summary.peak_bytes.max(self.summary.left_bytes);
            self.live.insert(take.id, take.size_bytes);
        } else {
            self.summary.refused += 1;
        }
    }

    fn give(&mut self, id: u64) -> Option<usize> {
        let size_bytes = self.live.remove(&id)?;
        self.summary.events += 1;
        self.summary.left_bytes -= size_bytes;
        Some(size_bytes)
    }
}

/// Checks a trace by itself: every address aligned, no two live blocks sharing a byte, every block given back
/// once.
///
/// # Errors
/// [`Divergence`] at the first event that does not fit.
pub fn verify(events: &[Event]) -> Result<Summary, Divergence> {
    let mut count = Count::default();
    // The live blocks of each space, by start: their end and request.
    let mut ranges: HashMap<SpaceId, BTreeMap<u64, (u64, u64)>> = HashMap::new();
    let mut places: HashMap<u64, (SpaceId, u64)> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        let wrong = |why| Divergence { index, event: *event, why };
        match event {
            Event::Take(take) => {
                Layout::from_size_align(take.size_bytes, take.align).map_err(|_| wrong(Why::NoLayout))?;
                count.take(take);
                let (Ok(start), true) = (take.answer, take.size_bytes > 0) else { continue };
                let Take { id, context: Context { space, .. }, size_bytes, align, .. } = *take;
                if start % align as u64 != 0 {
                    return Err(wrong(Why::Misaligned));
                }
                let end = start.checked_add(size_bytes as u64).ok_or(wrong(Why::NoLayout))?;
                let live = ranges.entry(space).or_default();
                if let Some((_, &(other_end, other))) = live.range(..end).next_back()
                    && other_end > start
                {
                    return Err(wrong(Why::Overlaps(other)));
                }
                live.insert(start, (end, id));
                places.insert(id, (space, start));
            }
            Event::Give { id, .. } => {
                count.give(*id).ok_or(wrong(Why::NotLive))?;
                if let Some((space, start)) = places.remove(id) {
                    ranges.entry(space).or_default().remove(&start);
                }
            }
            Event::GiveUnknown { .. } => return Err(wrong(Why::NotLive)),
        }
    }
    Ok(count.summary)
}

/// Does a trace again on a pool, which needs no memory behind it: each request is served or refused as it was.
///
/// A request is for its tag and on its stream; what a stream gave back is taken to be done.
///
/// # Errors
/// [`Divergence`] at the first event that goes another way.
pub fn replay<S: MemorySpace>(events: &[Event], pool: &Pool<S>) -> Result<Summary, Divergence> {
    let mut count = Count::default();
    let mut live: HashMap<u64, PoolBlock<&Pool<S>>> = HashMap::new();
    let mut streams: HashMap<u16, Stream> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        let wrong = |why| Divergence { index, event: *event, why };
        match event {
            Event::Take(take) => {
                let layout = Layout::from_size_align(take.size_bytes, take.align);
                let mut request = Request::new(layout.map_err(|_| wrong(Why::NoLayout))?);
                if !take.context.tag.is_empty()
                    && let Ok(tag) = pool.tag(take.context.tag)
                {
                    request = request.tagged(tag);
                }
                if take.context.stream > 0 {
                    let known = streams.get(&take.context.stream).copied();
                    let stream = known.or_else(|| pool.add_stream().ok());
                    streams.extend(stream.map(|stream| (take.context.stream, stream)));
                    request = stream.map_or(request, |stream| request.on(stream));
                }
                match (pool.acquire(&request), take.answer) {
                    (Ok(acquired), Ok(_)) => {
                        live.insert(take.id, acquired.block);
                    }
                    (Err(_), Err(_)) => {}
                    (Ok(_), Err(_)) => return Err(wrong(Why::ServedNow)),
                    (Err(error), Ok(_)) => return Err(wrong(Why::RefusedNow(error.kind().into()))),
                }
                count.take(take);
            }
            Event::Give { id, .. } => {
                drop(live.remove(id).ok_or(wrong(Why::NotLive))?);
                count.give(*id);
            }
            Event::GiveUnknown { .. } => return Err(wrong(Why::NotLive)),
        }
    }
    Ok(count.summary)
}
