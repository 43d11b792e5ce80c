#![forbid(unsafe_code)]
//! RMM's log of a memory resource, as events.
//!
//! ```text
//! Thread,Time,Action,Pointer,Size,Stream
//! 4221,10:33:05:911523,allocate,0x7f1c3a000000,1048576,0x0
//! 4221,10:33:06:004211,free,0x7f1c3a000000,1048576,0x0
//! ```
//!
//! Threads and streams are numbered in order of appearance; alignments are RMM's, 256 bytes.
//!
//! # Source
//! RMM's logging resource adaptor, columns as of version 24.

use super::{Context, Event, Refusal, Take, TraceError};
use crate::space::{SpaceId, Tag};
use std::collections::HashMap;

const ALIGN: usize = 256;

/// The events of RMM's log.
///
/// # Examples
/// ```
/// use arenite::trace::{parse_rmm, verify};
/// let log = "Thread,Time,Action,Pointer,Size,Stream\n\
///            7,10:00:00:000001,allocate,0x100,512,0x0\n\
///            7,10:00:00:000002,free,0x100,512,0x0\n";
/// assert_eq!(verify(&parse_rmm(log)?)?.peak_bytes, 512);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`TraceError`] with the line, counted from 1, that is no row of such a log.
pub fn parse_rmm(text: &str) -> Result<Vec<Event>, TraceError> {
    let mut threads: Vec<String> = Vec::new();
    let mut streams: Vec<String> = vec![String::new()];
    let mut live: HashMap<u64, u64> = HashMap::new();
    let mut events = Vec::new();
    let mut next_id = 0;
    for (index, line) in text.lines().enumerate() {
        let offset = index + 1;
        let wrong = |what| TraceError { offset, what };
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if line.trim().is_empty() || cells[0] == "Thread" {
            continue;
        }
        let [thread, _time, action, pointer, size, stream] = cells[..] else {
            return Err(wrong("a row has six cells: thread, time, action, pointer, size, stream"));
        };
        let thread = u32::try_from(number_of(&mut threads, thread)).map_err(|_| wrong("too many threads"))?;
        let stream = u16::try_from(number_of(&mut streams, stream)).map_err(|_| wrong("too many streams"))?;
        let address = address(pointer).ok_or(wrong("the pointer is no number"))?;
        let size_bytes = size.parse().map_err(|_| wrong("the size is no number"))?;
        let answer = match action {
            "allocate" => Ok(address),
            "allocate failure" => Err(Refusal::Other),
            "free" => {
                let known = live.remove(&address);
                events.push(match known {
                    Some(id) => Event::Give { id, thread },
                    None => Event::GiveUnknown { address, thread },
                });
                continue;
            }
            _ => return Err(wrong("the action is allocate, allocate failure or free")),
        };
        let context = Context { space: SpaceId::cuda(0), arena: Tag::NONE, tag: Tag::NONE, stream };
        if answer.is_ok() {
            live.insert(address, next_id);
        }
        events.push(Event::Take(Take { id: next_id, context, thread, size_bytes, align: ALIGN, answer }));
        next_id += 1;
    }
    Ok(events)
}

/// The place of a name in a list, entered if it is new.
fn number_of(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

fn address(text: &str) -> Option<u64> {
    if text == "(nil)" {
        return Some(0);
    }
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    u64::from_str_radix(digits, 16).ok()
}
