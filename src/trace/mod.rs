#![forbid(unsafe_code)]
//! Traces: what was asked of spaces and pools, kept in a few bytes an event, to be checked, replayed and drawn.
//!
//! ```text
//!   Traced<S>, Pool ──► Trace ──► bytes ──► events ──► verify │ replay on any machine │ picture
//!                                 RMM's log ──┘
//! ```
//!
//! Deliberately absent: time. Events are in order; when they happened is for a profiler.

mod format;
mod replay;
mod rmm;
mod svg;

pub use format::TraceError;
pub use replay::{Divergence, Summary, Why, replay, verify};
pub use rmm::parse_rmm;
pub use svg::to_svg;

use crate::pool::PoolObserver;
use crate::space::{
    AllocError, AllocErrorKind, Ask, Block, GiveBack, MemorySpace, SpaceHooks, SpaceId, Tag, Wrapped,
};
use core::alloc::Layout;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use format::Writer;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a request was refused, as far as a trace tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// [`AllocErrorKind::NeverFits`].
    NeverFits,
    /// [`AllocErrorKind::NotNow`].
    NotNow,
    /// [`AllocErrorKind::OverLimit`].
    OverLimit,
    /// Anything else.
    Other,
}

impl From<AllocErrorKind> for Refusal {
    fn from(kind: AllocErrorKind) -> Self {
        match kind {
            AllocErrorKind::NeverFits => Self::NeverFits,
            AllocErrorKind::NotNow => Self::NotNow,
            AllocErrorKind::OverLimit { .. } => Self::OverLimit,
            AllocErrorKind::Refused { .. } => Self::Other,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverFits => "refused, it can never fit",
            Self::NotNow => "refused, no room now",
            Self::OverLimit => "refused, over a limit",
            Self::Other => "refused by the system",
        })
    }
}

/// Where and for whom something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Context {
    /// The space.
    pub space: SpaceId,
    /// The pool, if it has a name.
    pub arena: Tag,
    /// For whom.
    pub tag: Tag,
    /// The stream of the pool, 0 for none.
    pub stream: u16,
}

/// A request for a block, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// Counts the requests, from 0.
    pub id: u64,
    /// Where and for whom.
    pub context: Context,
    /// The thread, numbered in order of appearance in the process.
    pub thread: u32,
    /// How much was asked for, in bytes.
    pub size_bytes: usize,
    /// At which alignment, in bytes.
    pub align: usize,
    /// The address, or why not.
    pub answer: Result<u64, Refusal>,
}

/// One event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request.
    Take(Take),
    /// The block of a request was given back.
    Give {
        /// The request that it came from.
        id: u64,
        /// The thread that gave it back.
        thread: u32,
    },
    /// A block was given back that no request of the trace got.
    GiveUnknown {
        /// Its address.
        address: u64,
        /// The thread that gave it back.
        thread: u32,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take(Take { id, context, thread, size_bytes, align, answer }) => {
                let Context { space, arena, tag, stream } = context;
                write!(f, "take {id} of {size_bytes} bytes at {align} from {space}")?;
                for (word, name) in [("pool", arena), ("for", tag)] {
                    if !name.is_empty() {
                        write!(f, ", {word} {name}")?;
                    }
                }
                write!(f, ", stream {stream}, thread {thread}: ")?;
                match answer {
                    Ok(address) => write!(f, "{address:#x}"),
                    Err(refusal) => write!(f, "{refusal}"),
                }
            }
            Self::Give { id, thread } => write!(f, "give back {id}, thread {thread}"),
            Self::GiveUnknown { address, thread } => {
                write!(f, "give back {address:#x}, which was never given, thread {thread}")
            }
        }
    }
}

/// A trace being written. Cloning is cheap and gives the same trace.
///
/// # Examples
/// ```
/// use arenite::trace::{self, Trace};
/// use arenite::{DeviceRegion, HostSpace, Pool, SpaceId};
/// use core::alloc::Layout;
///
/// let trace = Trace::new();
/// let pool = Pool::new(HostSpace::new()).with_name("kv").with_observer(trace.clone());
/// drop(pool.allocate(Layout::new::<[u8; 100]>())?);
///
/// let events = Trace::events(&trace.to_bytes())?;
/// assert_eq!(events.len(), 2);
/// assert_eq!(trace::verify(&events)?.peak_bytes, 100);
/// // Anywhere else, later: the same requests on memory that is not there.
/// let again = Pool::new(DeviceRegion::imaginary(SpaceId::cuda(0), 1 << 20));
/// assert!(trace::replay(&events, &again).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Recorder>>);

#[derive(Debug, Default)]
struct Recorder {
    writer: Writer,
    next_id: u64,
    /// What is live at an address of a space: the request that got it, and its size.
    live: BTreeMap<(SpaceId, u64), (u64, usize)>,
}

impl Recorder {
    fn take(&mut self, context: Context, layout: Layout, answer: Result<u64, Refusal>) {
        let id = self.next_id;
        self.next_id += 1;
        let (size_bytes, align) = (layout.size(), layout.align());
        if let Ok(address) = answer
            && size_bytes > 0
        {
            self.live.insert((context.space, address), (id, size_bytes));
        }
        let thread = thread_number();
        self.writer.event(&Event::Take(Take { id, context, thread, size_bytes, align, answer }));
    }

    fn give(&mut self, space: SpaceId, address: u64) {
        let thread = thread_number();
        let event = match self.live.remove(&(space, address)) {
            Some((id, _)) => Event::Give { id, thread },
            None => Event::GiveUnknown { address, thread },
        };
        self.writer.event(&event);
    }

    /// Gives back a range of addresses: what reaches out of it is taken anew, without it.
    fn give_range(&mut self, space: SpaceId, start: u64, size_bytes: usize) {
        let end = start.saturating_add(size_bytes as u64);
        let context = Context { space, arena: Tag::NONE, tag: Tag::NONE, stream: 0 };
        while let Some((&(_, at), &(_, size_bytes))) = self.live.range((space, 0)..(space, end)).next_back()
            && at.saturating_add(size_bytes as u64) > start
        {
            let at_end = at.saturating_add(size_bytes as u64);
            self.give(space, at);
            for (from, to) in [(at, start), (end, at_end)] {
                let left = to.checked_sub(from).and_then(|left| usize::try_from(left).ok()).unwrap_or(0);
                if let (Ok(layout), true) = (Layout::from_size_align(left, 1), left > 0) {
                    self.take(context, layout, Ok(from));
                }
            }
        }
    }
}

/// A space whose calls go into a trace: exact blocks, and memory behind reserved addresses.
pub type Traced<S> = Wrapped<S, Trace>;

impl<S: MemorySpace> Traced<S> {
    /// Writes every call of `inner` into `trace`.
    pub fn new(inner: S, trace: &Trace) -> Self {
        Self::around(inner, trace.clone())
    }
}

impl Trace {
    /// An empty trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// The trace so far, as a file holds it.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.lock().writer.bytes().to_vec()
    }

    /// The events of a file.
    ///
    /// # Errors
    /// [`TraceError`] where the bytes are no trace, with the offset where they cease to be one.
    pub fn events(bytes: &[u8]) -> Result<Vec<Event>, TraceError> {
        format::read(bytes)
    }

    fn take(&self, context: Context, layout: Layout, answer: Result<Block, &AllocError>) {
        let answer = answer.map(|block| block.address_bits()).map_err(|error| error.kind().into());
        self.0.lock().take(context, layout, answer);
    }
}

impl SpaceHooks for Trace {
    fn after(&self, space: SpaceId, ask: Ask, layout: Layout, answer: Result<Block, &AllocError>) {
        if ask != Ask::Reserve {
            self.take(Context { space, arena: Tag::NONE, tag: Tag::NONE, stream: 0 }, layout, answer);
        }
    }

    fn giving_back(&self, space: SpaceId, what: GiveBack) {
        match what {
            GiveBack::Block(block) if block.size_bytes() > 0 => {
                self.0.lock().give(space, block.address_bits());
            }
            GiveBack::Block(_) => {}
            GiveBack::Decommit(part) => {
                self.0.lock().give_range(space, part.address_bits(), part.size_bytes());
            }
            GiveBack::Release(region, bytes) => self.0.lock().give_range(space, region.address_bits(), bytes),
        }
    }
}

impl PoolObserver for Trace {
    fn taken(
        &self,
        space: SpaceId,
        pool: Tag,
        tag: Tag,
        stream: u16,
        layout: Layout,
        answer: Result<Block, &AllocError>,
    ) {
        self.take(Context { space, arena: pool, tag, stream }, layout, answer);
    }

    fn giving_back(&self, space: SpaceId, address: u64) {
        self.0.lock().give(space, address);
    }
}

/// A number for this thread, from 0, in order of appearance.
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}
