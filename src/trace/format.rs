#![forbid(unsafe_code)]
//! The bytes of a trace.
//!
//! ```text
//!   "arenite1"   then records, each a byte of kind and flags, then numbers of 7 bits a byte, lowest first
//!   name     00  length, bytes                                            numbered from 0
//!   take     1f  [space index, space name, pool, tag, stream] [thread] log2 of alignment, size, answer
//!            f: 1 the context differs from the last, 2 the thread does, 4 refused
//!   give     2f  [thread] requests since         3f  [thread] address, of nobody
//! ```
//!
//! Answers are distances from the last address. Deliberately absent: an index; a trace is read from its start.

use super::{Context, Event, Refusal, Take};
use crate::space::{SpaceId, Tag};
use std::collections::HashMap;

const MAGIC: &[u8; 8] = b"arenite1";
const CONTEXT: u8 = 1;
const THREAD: u8 = 2;
const REFUSED: u8 = 4;

/// Why bytes are no trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {what}")]
#[non_exhaustive]
pub struct TraceError {
    /// Where, in bytes from the start; for a text, the line.
    pub offset: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// What both sides remember from record to record.
#[derive(Debug, Default)]
struct Last {
    context: Option<Context>,
    thread: u32,
    address: u64,
    next_id: u64,
}

/// Appends events.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    names: HashMap<Vec<u8>, u64>,
    last: Last,
}

impl Default for Writer {
    fn default() -> Self {
        Self { bytes: MAGIC.to_vec(), names: HashMap::new(), last: Last::default() }
    }
}

impl Writer {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.bytes.push(value.to_le_bytes()[0]);
    }

    /// The number of a name, written out when it is new.
    fn name(&mut self, name: &str) -> u64 {
        if let Some(&known) = self.names.get(name.as_bytes()) {
            return known;
        }
        let number = self.names.len() as u64;
        self.names.insert(name.as_bytes().to_vec(), number);
        self.bytes.push(0x00);
        self.number(name.len() as u64);
        self.bytes.extend_from_slice(name.as_bytes());
        number
    }

    pub(super) fn event(&mut self, event: &Event) {
        let (kind, thread) = match event {
            Event::Take(take) => (0x10, take.thread),
            Event::Give { thread, .. } => (0x20, *thread),
            Event::GiveUnknown { thread, .. } => (0x30, *thread),
        };
        let mut flags = if thread == self.last.thread { 0 } else { THREAD };
        let mut context = None;
        if let Event::Take(take) = event {
            if self.last.context != Some(take.context) {
                flags |= CONTEXT;
                let Context { space, arena, tag, stream } = take.context;
                let names = [space.name(), arena.as_str(), tag.as_str()].map(|name| self.name(name));
                context = Some((u64::from(space.index()), names, u64::from(stream)));
                self.last.context = Some(take.context);
            }
            flags |= if take.answer.is_err() { REFUSED } else { 0 };
        }
        self.bytes.push(kind | flags);
        if let Some((index, names, stream)) = context {
            for value in [index, names[0], names[1], names[2], stream] {
                self.number(value);
            }
        }
        if flags & THREAD != 0 {
            self.number(u64::from(thread));
            self.last.thread = thread;
        }
        match event {
            Event::Take(take) => self.take(take),
            Event::Give { id, .. } => self.number(self.last.next_id - id),
            Event::GiveUnknown { address, .. } => self.number(*address),
        }
    }

    fn take(&mut self, take: &Take) {
        self.number(u64::from(take.align.trailing_zeros()));
        self.number(take.size_bytes as u64);
        match take.answer {
            Ok(address) => {
                let distance = address.wrapping_sub(self.last.address).cast_signed();
                self.number(((distance << 1) ^ (distance >> 63)).cast_unsigned());
                self.last.address = address;
            }
            Err(refusal) => self.number(refusal as u64),
        }
        self.last.next_id = take.id + 1;
    }
}

/// Reads records.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    names: Vec<&'a str>,
    last: Last,
}

impl<'a> Reader<'a> {
    fn wrong<T>(&self, what: &'static str) -> Result<T, TraceError> {
        Err(TraceError { offset: self.at, what })
    }

    fn byte(&mut self) -> Result<u8, TraceError> {
        let Some(&byte) = self.bytes.get(self.at) else {
            return self.wrong("the trace ends within an event");
        };
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, TraceError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return self.wrong("a number has more than 64 bits");
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.wrong("a number has more than 64 bits")
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, TraceError> {
        let value = self.number()?;
        T::try_from(value).or_else(|_| self.wrong("a number is larger than its field"))
    }

    fn name(&mut self) -> Result<&'a str, TraceError> {
        let at: usize = self.small()?;
        self.names.get(at).copied().map_or_else(|| self.wrong("a name was not written before its use"), Ok)
    }

    fn define(&mut self) -> Result<(), TraceError> {
        let len: usize = self.small()?;
        let name = self.at.checked_add(len).and_then(|end| self.bytes.get(self.at..end));
        let Some(name) = name.and_then(|name| core::str::from_utf8(name).ok()) else {
            return self.wrong("a name ends after the trace, or is no text");
        };
        self.at += len;
        self.names.push(name);
        Ok(())
    }

    fn context(&mut self) -> Result<Context, TraceError> {
        let index = self.small()?;
        let name = self.name()?;
        let Ok(space) = SpaceId::new(name, index) else {
            return self.wrong("a space has a name it cannot have");
        };
        let (arena, tag) = (Tag::new(self.name()?), Tag::new(self.name()?));
        Ok(Context { space, arena, tag, stream: self.small()? })
    }

    fn event(&mut self) -> Result<Option<Event>, TraceError> {
        let head = self.byte()?;
        if head == 0 {
            self.define()?;
            return Ok(None);
        }
        if head & 0x0f & !(CONTEXT | THREAD | REFUSED) != 0 || (head & 0xf0 != 0x10 && head & 0x05 != 0) {
            return self.wrong("an event has flags that no event has");
        }
        if head & CONTEXT != 0 {
            self.last.context = Some(self.context()?);
        }
        if head & THREAD != 0 {
            self.last.thread = self.small()?;
        }
        let thread = self.last.thread;
        match head & 0xf0 {
            0x10 => self.take(thread, head & REFUSED != 0).map(|take| Some(Event::Take(take))),
            0x20 => {
                let since = self.number()?;
                match self.last.next_id.checked_sub(since) {
                    Some(id) if since > 0 => Ok(Some(Event::Give { id, thread })),
                    _ => self.wrong("a block is given back before it is taken"),
                }
            }
            0x30 => Ok(Some(Event::GiveUnknown { address: self.number()?, thread })),
            _ => self.wrong("an event is of no known kind"),
        }
    }

    fn take(&mut self, thread: u32, refused: bool) -> Result<Take, TraceError> {
        let Some(context) = self.last.context else { return self.wrong("the first event has no context") };
        let align = match self.number()? {
            log2 @ 0..63 => 1 << log2,
            _ => return self.wrong("an alignment is too large"),
        };
        let size_bytes = self.small()?;
        let value = self.number()?;
        let answer = if refused {
            Err(match value {
                0 => Refusal::NeverFits,
                1 => Refusal::NotNow,
                2 => Refusal::OverLimit,
                3 => Refusal::Other,
                _ => return self.wrong("a refusal is of no known kind"),
            })
        } else {
            let distance = (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
            self.last.address = self.last.address.wrapping_add(distance.cast_unsigned());
            Ok(self.last.address)
        };
        let id = self.last.next_id;
        self.last.next_id += 1;
        Ok(Take { id, context, thread, size_bytes, align, answer })
    }
}

/// Every event of a trace.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Event>, TraceError> {
    if !bytes.starts_with(MAGIC) {
        return Err(TraceError { offset: 0, what: "this is no trace: it does not begin with arenite1" });
    }
    let mut reader = Reader { bytes, at: MAGIC.len(), names: Vec::new(), last: Last::default() };
    let mut events = Vec::new();
    while reader.at < bytes.len() {
        events.extend(reader.event()?);
    }
    Ok(events)
}
