#![forbid(unsafe_code)]
//! Pictures of traces: events across, addresses up, a box a block.
//!
//! Addresses that nothing ever used are left out. The file stands alone: no script, no font, no link.
//! Deliberately absent: interaction, but for what a box says on hover.

use super::{Event, Take};
use crate::space::SpaceId;
use core::fmt::Write as _;
use std::collections::BTreeMap;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 16.0;
const TOP: f64 = 40.0;
/// Unused addresses of this many bytes and more are left out.
const GAP_BYTES: u64 = 1 << 16;
const COLOURS: [&str; 8] =
    ["#7fb3d5", "#f0b27a", "#a9cfa4", "#bb8fce", "#e6b0aa", "#76d7c4", "#f7dc6f", "#aeb6bf"];

struct Box {
    take: Take,
    start: u64,
    first: usize,
    last: usize,
}

/// A picture of a trace, as SVG.
///
/// # Examples
/// ```
/// use arenite::trace::{Trace, to_svg};
/// use arenite::{HostSpace, Pool};
/// use core::alloc::Layout;
/// let trace = Trace::new();
/// let pool = Pool::new(HostSpace::new()).with_observer(trace.clone());
/// drop(pool.allocate(Layout::new::<[u8; 100]>())?);
/// assert!(to_svg(&Trace::events(&trace.to_bytes())?, "one block").starts_with("<svg"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn to_svg(events: &[Event], title: &str) -> String {
    let boxes = boxes(events);
    let rows = Rows::new(&boxes);
    let mut tags: Vec<_> = boxes.iter().map(|one| one.take.context.tag).collect();
    tags.sort_by_key(|tag| tag.as_str().to_owned());
    tags.dedup();
    let mut svg = String::new();
    let (width, height) = (LEFT * 2.0 + WIDTH, TOP * 2.0 + HEIGHT);
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
    );
    let _ = writeln!(svg, r##"<rect width="{width}" height="{height}" fill="#fff"/>"##);
    let total = rows.bytes();
    let _ = writeln!(
        svg,
        r#"<text x="{LEFT}" y="20" font-size="14">{} · {} events · {total} bytes of addresses used</text>"#,
        escape(title),
        events.len()
    );
    let across = WIDTH / events.len().max(1) as f64;
    let up = HEIGHT / total.max(1) as f64;
    for one in &boxes {
        let colour = tags.iter().position(|tag| *tag == one.take.context.tag).unwrap_or(0) % COLOURS.len();
        let size = one.take.size_bytes as f64 * up;
        let x = LEFT + one.first as f64 * across;
        let y = TOP + HEIGHT - rows.row(one.take.context.space, one.start) as f64 * up - size;
        let wide = ((one.last - one.first).max(1) as f64 * across).max(0.5);
        let _ = writeln!(
            svg,
            r#"<rect x="{x:.2}" y="{y:.2}" width="{wide:.2}" height="{:.2}" fill="{}"><title>{}</title></rect>"#,
            size.max(0.5),
            COLOURS[colour],
            escape(&Event::Take(one.take).to_string())
        );
    }
    for (index, tag) in tags.iter().enumerate().take(COLOURS.len()) {
        let x = LEFT + index as f64 * WIDTH / COLOURS.len() as f64;
        let y = TOP + HEIGHT + 16.0;
        let name = if tag.is_empty() { "no tag" } else { tag.as_str() };
        let _ = writeln!(
            svg,
            r#"<rect x="{x:.1}" y="{y}" width="10" height="10" fill="{}"/><text x="{:.1}" y="{:.1}">{}</text>"#,
            COLOURS[index],
            x + 14.0,
            y + 9.0,
            escape(name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Every block that was given, from its event to that which gave it back, or to the end.
fn boxes(events: &[Event]) -> Vec<Box> {
    let mut boxes: Vec<Box> = Vec::new();
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        match event {
            Event::Take(take) => {
                let (Ok(start), true) = (take.answer, take.size_bytes > 0) else { continue };
                live.insert(take.id, boxes.len());
                boxes.push(Box { take: *take, start, first: index, last: events.len() });
            }
            Event::Give { id, .. } => {
                if let Some(at) = live.remove(id) {
                    boxes[at].last = index;
                }
            }
            Event::GiveUnknown { .. } => {}
        }
    }
    boxes
}

/// Addresses that are used, one after the other: for each run of a space, where it starts in the picture.
struct Rows(BTreeMap<(SpaceId, u64), (u64, u64)>);

impl Rows {
    fn new(boxes: &[Box]) -> Self {
        let mut ranges: Vec<(SpaceId, u64, u64)> = boxes
            .iter()
            .map(|one| {
                let end = one.start.saturating_add(one.take.size_bytes as u64);
                (one.take.context.space, one.start, end)
            })
            .collect();
        ranges.sort_unstable();
        let mut runs: Vec<(SpaceId, u64, u64)> = Vec::new();
        for (space, start, end) in ranges {
            match runs.last_mut() {
                Some(run) if run.0 == space && start.saturating_sub(run.2) < GAP_BYTES => {
                    run.2 = run.2.max(end);
                }
                _ => runs.push((space, start, end)),
            }
        }
        let mut row = 0_u64;
        let place = |(space, start, end): (SpaceId, u64, u64)| {
            let at = row;
            row = row.saturating_add(end - start);
            ((space, start), (at, row))
        };
        Self(runs.into_iter().map(place).collect())
    }

    fn bytes(&self) -> u64 {
        self.0.values().map(|&(_, end)| end).max().unwrap_or(0)
    }

    fn row(&self, space: SpaceId, address: u64) -> u64 {
        let run = self.0.range(..=(space, address)).next_back();
        run.map_or(0, |((_, start), (row, _))| row + (address - start))
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
