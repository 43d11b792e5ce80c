#![forbid(unsafe_code)]
//! Pictures of plans: steps across, bytes up, a panel a space.
//!
//! Boxes are buffers, with their facts on hover; the line is what is alive at each step; the dashed line is
//! the capacity; where two live buffers share bytes, the box is hatched. The file stands alone: no script,
//! no font, no link. Deliberately absent: interaction.

use core::fmt::Write as _;

use super::Plan;
use super::bound::active_parts;
use super::spec::{Alias, Problem};

/// What a buffer is for, which is how it is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Given by the caller.
    Input,
    /// Given to the caller.
    Output,
    /// Kept from run to run.
    State,
    /// Needed within a run only.
    #[default]
    Scratch,
}

impl Role {
    const ALL: [Self; 4] = [Self::Input, Self::Output, Self::State, Self::Scratch];

    const fn colour(self) -> &'static str {
        match self {
            Self::Input => "#7fb3d5",
            Self::Output => "#f0b27a",
            Self::State => "#bb8fce",
            Self::Scratch => "#a9cfa4",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::State => "state",
            Self::Scratch => "scratch",
        }
    }
}

/// A picture to be drawn.
///
/// # Examples
/// ```
/// use arenite::plan::{BufferSpec, GreedyBySize, Lifespan, Planner, Problem, svg::Picture};
/// let problem = Problem::new(vec![BufferSpec::new(64, Lifespan::new(0, 2))]);
/// let plan = GreedyBySize.plan(&problem)?;
/// let svg = Picture::new(&problem, &plan).title("one buffer").label(|_| "x".into()).to_svg();
/// assert!(svg.starts_with("<svg") && svg.contains("one buffer"));
/// # Ok::<(), arenite::plan::PlanError>(())
/// ```
pub struct Picture<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
    title: String,
    label: Box<dyn Fn(usize) -> String + 'a>,
    role: Box<dyn Fn(usize) -> Role + 'a>,
    space: Box<dyn Fn(usize) -> String + 'a>,
}

impl core::fmt::Debug for Picture<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Picture").field("title", &self.title).finish_non_exhaustive()
    }
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 56.0;
const PANEL: f64 = HEIGHT + 64.0;
/// More conflicts than anyone looks at are not drawn.
const CONFLICTS_MAX: usize = 2000;

/// A box: steps, bytes, the buffer.
#[derive(Clone, Copy)]
struct Rect {
    first: u64,
    last: u64,
    from: u64,
    to: u64,
    buffer: usize,
}

impl<'a> Picture<'a> {
    /// A plain picture: buffers are labelled by their index.
    pub fn new(problem: &'a Problem, plan: &'a Plan) -> Self {
        Self {
            problem,
            plan,
            title: String::new(),
            label: Box::new(|buffer| format!("buffer {buffer}")),
            role: Box::new(|_| Role::Scratch),
            space: Box::new(|space| format!("space {space}")),
        }
    }

    /// With a title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// With this text first in a buffer's hover title: a name, dtype, shape.
    #[must_use]
    pub fn label(mut self, label: impl Fn(usize) -> String + 'a) -> Self {
        self.label = Box::new(label);
        self
    }

    /// With buffers coloured by role.
    #[must_use]
    pub fn role(mut self, role: impl Fn(usize) -> Role + 'a) -> Self {
        self.role = Box::new(role);
        self
    }

    /// With names for the spaces.
    #[must_use]
    pub fn space_name(mut self, name: impl Fn(usize) -> String + 'a) -> Self {
        self.space = Box::new(name);
        self
    }

    /// The boxes of a space, by start.
    fn rects(&self, space: usize) -> Vec<Rect> {
        let mut rects = Vec::new();
        for (buffer, spec) in self.problem.buffers.iter().enumerate() {
            let here = self.plan.spaces.get(buffer).is_some_and(|&own| own as usize == space);
            let Some(&offset) = self.plan.offsets.get(buffer).filter(|_| here) else { continue };
            let mut used = spec.gaps().iter();
            for (span, bytes) in active_parts(self.problem, buffer) {
                let window = (bytes < spec.size_bytes)
                    .then(|| used.find(|gap| gap.span == span).and_then(|gap| gap.used_bytes.clone()))
                    .flatten()
                    .unwrap_or(0..bytes);
                let (from, to) = (offset.saturating_add(window.start), offset.saturating_add(window.end));
                rects.push(Rect { first: span.first, last: span.last, from, to, buffer });
            }
        }
        rects.sort_by_key(|rect| (rect.first, rect.buffer));
        rects
    }

    /// Whether two buffers share storage on purpose.
    fn may_share(&self, a: usize, b: usize) -> bool {
        let root = |mut at: usize| {
            for _ in 0..self.problem.buffers.len() {
                match self.problem.buffers[at].alias() {
                    Some(Alias::Must { of, .. }) if of < self.problem.buffers.len() => at = of,
                    _ => break,
                }
            }
            at
        };
        let taken = |x: usize, y: usize| {
            self.plan.shared.iter().any(|&(writer, of)| root(writer as usize) == x && root(of as usize) == y)
        };
        let (a, b) = (root(a), root(b));
        a == b || taken(a, b) || taken(b, a)
    }

    /// The boxes that two live buffers both cover.
    fn conflicts(&self, rects: &[Rect]) -> Vec<(Rect, usize)> {
        let (mut live, mut out): (Vec<Rect>, Vec<_>) = (Vec::new(), Vec::new());
        for &rect in rects {
            live.retain(|other| other.last > rect.first);
            for other in &live {
                let (from, to) = (rect.from.max(other.from), rect.to.min(other.to));
                if from < to && out.len() < CONFLICTS_MAX && !self.may_share(rect.buffer, other.buffer) {
                    out.push((Rect { from, to, last: rect.last.min(other.last), ..rect }, other.buffer));
                }
            }
            live.push(rect);
        }
        out
    }

    /// Draws it.
    pub fn to_svg(&self) -> String {
        let spaces = self.problem.spaces.len();
        let total = TOP + PANEL * precise(spaces as u64) + 8.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {total:.0}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<defs><pattern id=\"h\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><path d=\"M0 0V6\" stroke=\"#c00\" stroke-width=\"3\"/></pattern></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"16\">{}</text>\n",
            LEFT + WIDTH + 20.0,
            escape(&self.title)
        );
        for (at, role) in Role::ALL.into_iter().enumerate() {
            let x = LEFT + 90.0 * precise(at as u64);
            let (colour, name) = (role.colour(), role.name());
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"32\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"42\">{name}</text>",
                x + 16.0
            );
        }
        for space in 0..spaces {
            self.panel(space, TOP + PANEL * precise(space as u64), &mut out);
        }
        out.push_str("</svg>\n");
        out
    }

    fn panel(&self, space: usize, top: f64, out: &mut String) {
        let rects = self.rects(space);
        let peak = rects.iter().map(|rect| rect.to).max().unwrap_or(0);
        let capacity = self.problem.spaces[space].capacity_bytes;
        let (live, live_most) = live_line(&rects);
        let shown = peak.max(live_most).max(capacity.filter(|&c| c / 4 <= peak.max(1)).unwrap_or(0)).max(1);
        let start = rects.first().map_or(0, |rect| rect.first);
        let end = rects.iter().map(|rect| rect.last).max().unwrap_or(1).max(start + 1);
        let x = |step: u64| LEFT + WIDTH * precise(step - start) / precise(end - start);
        let y = |bytes: u64| top + 24.0 + HEIGHT * (1.0 - precise(bytes) / precise(shown));
        let limit = capacity.map_or("no limit".to_owned(), |bytes| format!("capacity {bytes} B"));
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.1}\">{}: peak {peak} B, most live {live_most} B, {limit}</text>",
            top + 14.0,
            escape(&(self.space)(space))
        );
        for rect in &rects {
            let size = self.problem.buffers[rect.buffer].size_bytes;
            let text = format!(
                "{}: {size} B at {}, steps {}..{}",
                (self.label)(rect.buffer),
                rect.from,
                rect.first,
                rect.last
            );
            let colour = (self.role)(rect.buffer).colour();
            rect_svg(out, [x(rect.first), y(rect.to), x(rect.last), y(rect.from)], colour, &text);
        }
        for (rect, other) in self.conflicts(&rects) {
            let (a, b) = ((self.label)(rect.buffer), (self.label)(other));
            let text = format!("conflict: {a} and {b} share bytes {}..{}", rect.from, rect.to);
            rect_svg(out, [x(rect.first), y(rect.to), x(rect.last), y(rect.from)], "url(#h)", &text);
        }
        let mut path = String::new();
        for (at, &(step, bytes)) in live.iter().enumerate() {
            let command = if at == 0 { "M" } else { "H" };
            let _ = match command {
                "M" => write!(path, "M{:.1} {:.1}", x(step), y(bytes)),
                _ => write!(path, "H{:.1}V{:.1}", x(step), y(bytes)),
            };
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"#222\" stroke-width=\"1.5\"><title>bytes alive</title></path>"
        );
        if let Some(bytes) = capacity.filter(|&bytes| bytes <= shown) {
            let _ = writeln!(
                out,
                "<path d=\"M{LEFT} {:.1}h{WIDTH}\" stroke=\"#c00\" stroke-dasharray=\"6 4\"><title>capacity {bytes} B</title></path>",
                y(bytes)
            );
        }
        axes(out, [top, y(0)], [start, end], shown);
    }

    /// The same in characters, for terminals: `#` more than half in use, `+` some, `!` a conflict.
    pub fn to_text(&self, columns: usize, rows: usize) -> String {
        let (columns, rows) = (columns.clamp(1, 500), rows.clamp(1, 200));
        let mut out = String::new();
        if !self.title.is_empty() {
            let _ = writeln!(out, "{}", self.title);
        }
        for space in 0..self.problem.spaces.len() {
            let rects = self.rects(space);
            let peak = rects.iter().map(|rect| rect.to).max().unwrap_or(0).max(1);
            let start = rects.first().map_or(0, |rect| rect.first);
            let end = rects.iter().map(|rect| rect.last).max().unwrap_or(1).max(start + 1);
            let mut cells = vec![0.0_f64; columns * rows];
            let mut fill = |rect: &Rect, weight: f64| {
                let scale = |at: u64, from: u64, to: u64, count: usize| {
                    precise(at - from) / precise(to - from) * precise(count as u64)
                };
                let (x0, x1) =
                    (scale(rect.first, start, end, columns), scale(rect.last, start, end, columns));
                let (y0, y1) = (scale(rect.from, 0, peak, rows), scale(rect.to, 0, peak, rows));
                for (row, line) in cells.chunks_mut(columns).enumerate() {
                    let y = (y1.min(precise(row as u64 + 1)) - y0.max(precise(row as u64))).max(0.0);
                    for (column, cell) in line.iter_mut().enumerate().filter(|_| y > 0.0) {
                        let x =
                            (x1.min(precise(column as u64 + 1)) - x0.max(precise(column as u64))).max(0.0);
                        *cell += x * y * weight;
                    }
                }
            };
            for rect in &rects {
                fill(rect, 1.0);
            }
            for (rect, _) in &self.conflicts(&rects) {
                fill(rect, 1e6);
            }
            let _ = writeln!(out, "{}: {peak} B, steps {start}..{end}", (self.space)(space));
            for line in cells.chunks(columns).rev() {
                out.push('|');
                out.extend(line.iter().map(|&cell| match cell {
                    c if c > 1.5 => '!',
                    c if c > 0.5 => '#',
                    c if c > 0.0 => '+',
                    _ => ' ',
                }));
                out.push('\n');
            }
        }
        out
    }
}

fn axes(out: &mut String, [top, bottom]: [f64; 2], [start, end]: [u64; 2], shown: u64) {
    let _ = writeln!(
        out,
        "<path d=\"M{LEFT} {:.1}V{bottom:.1}h{WIDTH}\" fill=\"none\" stroke=\"#888\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{shown} B</text>\
         <text x=\"{:.1}\" y=\"{bottom:.1}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{LEFT}\" y=\"{:.1}\">step {start}</text>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{end}</text>",
        top + 24.0,
        LEFT - 6.0,
        top + 32.0,
        LEFT - 6.0,
        bottom + 16.0,
        LEFT + WIDTH,
        bottom + 16.0
    );
}

fn precise(number: u64) -> f64 {
    number as f64
}

fn rect_svg(out: &mut String, [left, top, right, bottom]: [f64; 4], fill: &str, title: &str) {
    let _ = writeln!(
        out,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\" stroke=\"#555\" \
         stroke-width=\".4\"><title>{}</title></rect>",
        right - left,
        bottom - top,
        escape(title)
    );
}

/// What is alive from each step on, and the most.
fn live_line(rects: &[Rect]) -> (Vec<(u64, u64)>, u64) {
    let changes = rects.iter().flat_map(|r| {
        let bytes = i128::from(r.to - r.from);
        [(r.first, bytes), (r.last, -bytes)]
    });
    let mut changes: Vec<(u64, i128)> = changes.collect();
    changes.sort_unstable();
    let (mut live, mut line): (i128, Vec<(u64, u64)>) = (0, Vec::new());
    for (step, change) in changes {
        live += change;
        let bytes = u64::try_from(live).unwrap_or(0);
        match line.last_mut() {
            Some(last) if last.0 == step => last.1 = bytes,
            _ => line.push((step, bytes)),
        }
    }
    let most = line.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
    (line, most)
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Control characters are not allowed in the format at all.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
