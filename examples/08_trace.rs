//! Traces: recorded here, or read from a file (ours or RMM's log), checked, replayed and drawn.
//!
//! `cargo run --example 08_trace [FILE [LIMIT_BYTES]]`: ends with 1 at the first event that does not fit, and
//! names it; writes `FILE.svg`. Without a file it records a small workload and replays that.
#![expect(clippy::print_stdout, reason = "an example prints")]

use arenite::trace::{self, Event, Trace};
use arenite::{DeviceRegion, Pool, SpaceId};
use core::alloc::Layout;
use std::error::Error;
use std::process::ExitCode;

/// A pool over memory that is not there: a trace needs no device.
fn pool(limit_bytes: usize) -> Pool<DeviceRegion> {
    Pool::new(DeviceRegion::imaginary(SpaceId::cuda(0), limit_bytes)).with_limit(limit_bytes)
}

fn record() -> Result<Vec<Event>, Box<dyn Error>> {
    let trace = Trace::new();
    let pool = pool(1 << 20).with_name("demo").with_observer(trace.clone());
    let mut live = Vec::new();
    for step in 1..200 {
        live.push(pool.allocate(Layout::from_size_align(step * 37 % 9000 + 1, 256)?)?);
        if step % 3 == 0 {
            drop(live.swap_remove(step * 7 % live.len()));
        }
    }
    drop(live);
    Ok(Trace::events(&trace.to_bytes())?)
}

fn read(path: &str) -> Result<Vec<Event>, Box<dyn Error>> {
    let bytes = std::fs::read(path)?;
    if bytes.starts_with(b"arenite1") {
        return Ok(Trace::events(&bytes)?);
    }
    Ok(trace::parse_rmm(&String::from_utf8(bytes)?)?)
}

fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let events = words.first().map_or_else(record, |path| read(path))?;
    let limit_bytes = words.get(1).map_or(Ok(64 << 30), |word| word.parse())?;
    println!("{:?}", trace::verify(&events)?);
    println!("{:?}", trace::replay(&events, &pool(limit_bytes))?);
    if let Some(path) = words.first() {
        std::fs::write(format!("{path}.svg"), trace::to_svg(&events, path))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    run(&words).map_or_else(
        |error| {
            println!("{error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
