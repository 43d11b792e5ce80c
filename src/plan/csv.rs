#![forbid(unsafe_code)]
//! Problems and plans as text: the planning benchmarks' comma-separated format.
//!
//! ```text
//! id,lower,upper,size          a header, then a row a buffer: half-open steps, bytes
//! conv1,0,3,4096
//! ```
//!
//! Columns, in any order: `id` (or `buffer`, `buffer_id`), `lower` (`begin`, `start`), `upper` (or `end`, the
//! last step itself), `size`; optional `alignment`, `hint` (-1: none), `gaps` (`2-5 7-9@0:64`), `offset` (a
//! pin; in a solution the answer), `space`, `alias` (an id it is a view of) with `inner` (where in it),
//! and `reuse` (an id it may be written over). Deliberately absent: quoting.

use core::fmt::Write as _;
use std::collections::HashMap;

use super::Plan;
use super::spec::{Alias, BufferSpec, IdleGap, Lifespan, Problem};

/// A problem with the names of its buffers.
///
/// # Examples
/// ```
/// use arenite::plan::csv::Table;
/// use arenite::plan::{GreedyBySize, Planner};
/// let table = Table::parse("id,lower,upper,size\na,0,2,64\nb,1,3,32\n")?;
/// let plan = GreedyBySize.plan(&table.problem)?;
/// assert_eq!(table.write_solution(&plan), "id,lower,upper,size,offset\na,0,2,64,0\nb,1,3,32,64\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// The name of each buffer.
    pub ids: Vec<String>,
    /// The buffers.
    pub problem: Problem,
}

/// What is wrong with a file. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// The header names a column that is not known.
    #[error("line 1: unknown column {column:?}")]
    UnknownColumn {
        /// The name.
        column: String,
    },
    /// The header names a column, or a synonym of it, twice.
    #[error("line 1: column {column:?} is there twice")]
    DuplicateColumn {
        /// The name.
        column: String,
    },
    /// The header lacks a column.
    #[error("line 1: column {column:?} is missing")]
    MissingColumn {
        /// The name.
        column: &'static str,
    },
    /// A row with too few or too many fields.
    #[error("line {line}: {got} fields, expected {expected}")]
    FieldCount {
        /// The line.
        line: usize,
        /// Columns in the header.
        expected: usize,
        /// Fields in the row.
        got: usize,
    },
    /// A field that is not what its column holds.
    #[error("line {line}, column {column:?}: {text:?} is not {expected}")]
    Field {
        /// The line.
        line: usize,
        /// The column.
        column: &'static str,
        /// The field.
        text: String,
        /// What the column holds.
        expected: &'static str,
    },
    /// An id that an earlier row has.
    #[error("line {line}: id {id:?} is there already, in line {first_line}")]
    DuplicateId {
        /// The line.
        line: usize,
        /// The line of the first.
        first_line: usize,
        /// The id.
        id: String,
    },
    /// An id that no buffer has.
    #[error("line {line}: there is no buffer {id:?}")]
    UnknownId {
        /// The line.
        line: usize,
        /// The id.
        id: String,
    },
    /// A solution without one of the buffers.
    #[error("the solution has no row for buffer {id:?}")]
    MissingId {
        /// The id.
        id: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Id,
    Lower,
    Upper,
    Last,
    Size,
    Alignment,
    Hint,
    Gaps,
    Offset,
    Space,
    Alias,
    Inner,
    Reuse,
}

impl Column {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "id" | "buffer" | "buffer_id" => Self::Id,
            "lower" | "begin" | "start" => Self::Lower,
            "upper" => Self::Upper,
            "end" => Self::Last,
            "size" => Self::Size,
            "alignment" => Self::Alignment,
            "hint" => Self::Hint,
            "gaps" => Self::Gaps,
            "offset" => Self::Offset,
            "space" => Self::Space,
            "alias" => Self::Alias,
            "inner" => Self::Inner,
            "reuse" => Self::Reuse,
            _ => return None,
        })
    }

    /// What it is called in messages; `end` and `upper` count as one.
    const fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Lower => "lower",
            Self::Upper | Self::Last => "upper",
            Self::Size => "size",
            Self::Alignment => "alignment",
            Self::Hint => "hint",
            Self::Gaps => "gaps",
            Self::Offset => "offset",
            Self::Space => "space",
            Self::Alias => "alias",
            Self::Inner => "inner",
            Self::Reuse => "reuse",
        }
    }
}

/// A file's rows, each field under its column.
struct Rows<'t> {
    columns: Vec<Column>,
    lines: Vec<(usize, Vec<&'t str>)>,
}

impl<'t> Rows<'t> {
    fn parse(text: &'t str, required: &[Column]) -> Result<Self, CsvError> {
        let mut lines = text.lines().map(|line| line.trim_end_matches('\r')).enumerate();
        let header = lines.next().map_or("", |(_, line)| line.trim_start_matches('\u{feff}'));
        let mut columns: Vec<Column> = Vec::new();
        for name in header.split(',').filter(|_| !header.is_empty()) {
            let column = name.trim();
            let known = Column::parse(column).ok_or(CsvError::UnknownColumn { column: column.to_owned() })?;
            if columns.iter().any(|other| other.name() == known.name()) {
                return Err(CsvError::DuplicateColumn { column: known.name().to_owned() });
            }
            columns.push(known);
        }
        for &column in required {
            if !columns.iter().any(|other| other.name() == column.name()) {
                return Err(CsvError::MissingColumn { column: column.name() });
            }
        }
        let mut rows = Vec::new();
        for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            if fields.len() != columns.len() {
                let (expected, got) = (columns.len(), fields.len());
                return Err(CsvError::FieldCount { line: at + 1, expected, got });
            }
            rows.push((at + 1, fields));
        }
        Ok(Self { columns, lines: rows })
    }

    fn at(&self, column: Column) -> Option<usize> {
        self.columns.iter().position(|&other| other == column)
    }
}

fn number(line: usize, column: &'static str, text: &str) -> Result<u64, CsvError> {
    let expected = "a whole number from 0 to 2^64 - 1";
    text.parse().map_err(|_| CsvError::Field { line, column, text: text.to_owned(), expected })
}

/// A number, or nothing where the field is empty or -1.
fn optional(line: usize, column: &'static str, text: &str) -> Result<Option<u64>, CsvError> {
    if text.is_empty() || text == "-1" { Ok(None) } else { number(line, column, text).map(Some) }
}

fn gaps(line: usize, text: &str) -> Result<Vec<IdleGap>, CsvError> {
    let expected = "gaps such as 2-5 or 2-5@0:64, separated by spaces";
    let fault = || CsvError::Field { line, column: "gaps", text: text.to_owned(), expected };
    let pair = |text: &str, separator: char| {
        let (a, b) = text.split_once(separator)?;
        Some((a.parse().ok()?, b.parse().ok()?))
    };
    let gap = |part: &str| {
        let (span, used) = part.split_once('@').map_or((part, None), |(span, used)| (span, Some(used)));
        let (first, last) = pair(span, '-').ok_or_else(fault)?;
        let used_bytes = match used {
            Some(used) => Some(pair(used, ':').map(|(from, to)| from..to).ok_or_else(fault)?),
            None => None,
        };
        Ok(IdleGap { span: Lifespan::new(first, last), used_bytes })
    };
    text.split_whitespace().map(gap).collect()
}

impl Table {
    /// Reads a problem.
    ///
    /// # Errors
    /// [`CsvError`] with the line, for anything the format does not allow.
    pub fn parse(text: &str) -> Result<Self, CsvError> {
        let rows = Rows::parse(text, &[Column::Id, Column::Lower, Column::Upper, Column::Size])?;
        let id_at = rows.at(Column::Id).unwrap_or(0);
        let mut by_id: HashMap<&str, usize> = HashMap::with_capacity(rows.lines.len());
        for (buffer, (line, fields)) in rows.lines.iter().enumerate() {
            if let Some(first) = by_id.insert(fields[id_at], buffer) {
                let first_line = rows.lines[first].0;
                let id = fields[id_at].to_owned();
                return Err(CsvError::DuplicateId { line: *line, first_line, id });
            }
        }
        let mut buffers = Vec::with_capacity(rows.lines.len());
        for (line, fields) in &rows.lines {
            buffers.push(buffer(*line, &rows.columns, fields, &by_id)?);
        }
        let ids = rows.lines.iter().map(|(_, fields)| fields[id_at].to_owned()).collect();
        Ok(Self { ids, problem: Problem::new(buffers) })
    }

    /// Reads a solution of this problem: the columns `id` and `offset`, others are ignored. Not verified.
    ///
    /// # Errors
    /// [`CsvError`] for a malformed file, and for ids that are unknown, repeated or missing.
    pub fn parse_solution(&self, text: &str) -> Result<Plan, CsvError> {
        let rows = Rows::parse(text, &[Column::Id, Column::Offset])?;
        let (id_at, offset_at) = (rows.at(Column::Id).unwrap_or(0), rows.at(Column::Offset).unwrap_or(0));
        let by_id: HashMap<&str, usize> = self.ids.iter().map(String::as_str).zip(0..).collect();
        let mut lines = vec![0; self.ids.len()];
        let mut offsets = vec![0; self.ids.len()];
        for (line, fields) in rows.lines {
            let id = fields[id_at];
            let unknown = || CsvError::UnknownId { line, id: id.to_owned() };
            let buffer = *by_id.get(id).ok_or_else(unknown)?;
            if lines[buffer] != 0 {
                return Err(CsvError::DuplicateId { line, first_line: lines[buffer], id: id.to_owned() });
            }
            lines[buffer] = line;
            offsets[buffer] = number(line, "offset", fields[offset_at])?;
        }
        if let Some(missing) = lines.iter().position(|&line| line == 0) {
            return Err(CsvError::MissingId { id: self.ids[missing].clone() });
        }
        Ok(Plan::from_offsets(&self.problem, offsets))
    }

    /// Writes the problem, with the optional columns that it needs.
    pub fn write(&self) -> String {
        self.write_rows(None)
    }

    /// Writes the problem with the plan's offsets.
    pub fn write_solution(&self, plan: &Plan) -> String {
        self.write_rows(Some(plan))
    }

    fn write_rows(&self, plan: Option<&Plan>) -> String {
        let buffers = &self.problem.buffers;
        let any = |test: fn(&BufferSpec) -> bool| buffers.iter().any(test);
        let view = |b: &BufferSpec| matches!(b.alias(), Some(Alias::Must { .. }));
        let reuse = |b: &BufferSpec| matches!(b.alias(), Some(Alias::May { .. }));
        let optional = [
            ("alignment", any(|b| b.align_bytes != 1)),
            ("hint", any(|b| b.hint_bytes().is_some())),
            ("gaps", any(|b| !b.gaps().is_empty())),
            ("space", any(|b| b.space != 0)),
            ("alias", any(view)),
            ("inner", any(view)),
            ("reuse", any(reuse)),
            ("offset", plan.is_some() || any(|b| b.pinned_bytes.is_some())),
        ];
        let used: Vec<&str> = optional.iter().filter(|(_, used)| *used).map(|(name, _)| *name).collect();
        let mut out = String::from("id,lower,upper,size");
        for name in &used {
            out.extend([",", name]);
        }
        out.push('\n');
        let id = |at: usize| self.ids.get(at).map_or("", String::as_str);
        for (at, spec) in buffers.iter().enumerate() {
            let Lifespan { first, last } = spec.lifespan;
            let _ = write!(out, "{},{first},{last},{}", id(at), spec.size_bytes);
            for name in &used {
                let text = match (*name, spec.alias()) {
                    ("alignment", _) => spec.align_bytes.to_string(),
                    ("hint", _) => spec.hint_bytes().map_or("-1".to_owned(), |hint| hint.to_string()),
                    ("gaps", _) => gaps_text(spec),
                    ("space", _) => plan.map_or(spec.space, |plan| plan.spaces[at]).to_string(),
                    ("alias", Some(Alias::Must { of, .. })) | ("reuse", Some(Alias::May { of })) => {
                        id(of).to_owned()
                    }
                    ("inner", Some(Alias::Must { inner_offset_bytes, .. })) => inner_offset_bytes.to_string(),
                    ("offset", _) => match plan {
                        Some(plan) => plan.offsets[at].to_string(),
                        None => spec.pinned_bytes.map_or("-1".to_owned(), |pin| pin.to_string()),
                    },
                    _ => String::new(),
                };
                out.extend([",", &text]);
            }
            out.push('\n');
        }
        out
    }
}

fn gaps_text(spec: &BufferSpec) -> String {
    let text = |gap: &IdleGap| {
        let used =
            gap.used_bytes.as_ref().map_or(String::new(), |used| format!("@{}:{}", used.start, used.end));
        format!("{}-{}{used}", gap.span.first, gap.span.last)
    };
    spec.gaps().iter().map(text).collect::<Vec<_>>().join(" ")
}

fn buffer(
    line: usize,
    columns: &[Column],
    fields: &[&str],
    by_id: &HashMap<&str, usize>,
) -> Result<BufferSpec, CsvError> {
    let mut spec = BufferSpec::new(0, Lifespan::default());
    let (mut alias, mut inner) = (None, 0);
    for (&column, &text) in columns.iter().zip(fields) {
        let number = |text| number(line, column.name(), text);
        let optional = |text| optional(line, column.name(), text);
        let named = |id: &str| {
            let unknown = || CsvError::UnknownId { line, id: id.to_owned() };
            by_id.get(id).copied().ok_or_else(unknown)
        };
        match column {
            Column::Id => {}
            Column::Lower => spec.lifespan.first = number(text)?,
            Column::Upper => spec.lifespan.last = number(text)?,
            Column::Last => {
                let expected = "a last step below 2^64 - 1";
                let fault = || CsvError::Field { line, column: "end", text: text.to_owned(), expected };
                spec.lifespan.last = number(text)?.checked_add(1).ok_or_else(fault)?;
            }
            Column::Size => spec.size_bytes = number(text)?,
            Column::Alignment => spec.align_bytes = optional(text)?.unwrap_or(1),
            Column::Hint => {
                if let Some(hint) = optional(text)? {
                    spec = spec.wished_at(hint);
                }
            }
            Column::Gaps => {
                let gaps = gaps(line, text)?;
                if !gaps.is_empty() {
                    spec = spec.idle(gaps);
                }
            }
            Column::Offset => spec.pinned_bytes = optional(text)?,
            Column::Space => {
                let space = optional(text)?.unwrap_or(0);
                let expected = "a space below 2^32";
                let fault = |_| CsvError::Field { line, column: "space", text: text.to_owned(), expected };
                spec.space = u32::try_from(space).map_err(fault)?;
            }
            Column::Alias if !text.is_empty() => alias = Some(named(text)?),
            Column::Inner => inner = optional(text)?.unwrap_or(0),
            Column::Reuse if !text.is_empty() => spec = spec.may_alias(named(text)?),
            Column::Alias | Column::Reuse => {}
        }
    }
    Ok(match alias {
        Some(of) => spec.must_alias(of, inner),
        None => spec,
    })
}

/// The capacity that a file name such as `A.1048576.csv` carries.
///
/// # Examples
/// ```
/// use arenite::plan::csv::capacity_of_name;
/// assert_eq!(capacity_of_name("A.1048576.csv"), Some(1_048_576));
/// assert_eq!(capacity_of_name("lm4.csv"), None);
/// ```
pub fn capacity_of_name(name: &str) -> Option<u64> {
    name.strip_suffix(".csv")?.rsplit_once('.')?.1.parse().ok()
}
