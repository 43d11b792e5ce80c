//! The planning instances: those in the repository, those beside it if they are there, and generated ones.

use arenite::plan::csv::Table;
use arenite::plan::{BufferSpec, IdleGap, Lifespan, Problem};
use std::path::PathBuf;

/// An instance with the offsets of a plan that is known to hold.
pub struct Known {
    pub name: String,
    pub problem: Problem,
    pub offsets: Vec<u64>,
}

fn sections(text: &str) -> Vec<(String, Vec<Vec<Option<u64>>>)> {
    let mut out: Vec<(String, Vec<Vec<Option<u64>>>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.contains(',') {
            out.last_mut().unwrap().1.push(line.split(',').map(|field| field.parse().ok()).collect());
        } else {
            out.push((line.to_owned(), Vec::new()));
        }
    }
    out
}

/// Programs with exact sizes, with the exporter's own plan; `reuse` keeps the offers to write in place.
pub fn programs(reuse: bool) -> Vec<Known> {
    let known = |(name, rows): (String, Vec<Vec<Option<u64>>>)| {
        let spec = |row: &Vec<Option<u64>>| {
            let life = Lifespan::new(row[0].unwrap(), row[1].unwrap());
            let spec = BufferSpec::new(row[2].unwrap(), life);
            match row[5] {
                Some(of) if reuse => spec.may_alias(usize::try_from(of).unwrap()),
                _ => spec,
            }
        };
        let problem = Problem::new(rows.iter().map(spec).collect());
        Known { name, problem, offsets: rows.iter().map(|row| row[4].unwrap()).collect() }
    };
    let text = include_str!("../data/plan/programs.txt");
    sections(text).into_iter().map(known).collect()
}

/// A problem with sizes rounded up, and buffers without bytes dropped.
pub fn rounded(problem: &Problem, to: u64) -> Problem {
    let sized = problem.buffers.iter().filter(|spec| spec.size_bytes > 0);
    let round = |spec: &BufferSpec| BufferSpec::new(spec.size_bytes.next_multiple_of(to), spec.lifespan);
    Problem::new(sized.map(round).collect())
}

/// Rectangles without a gap: the optimum is 1,024.
pub fn perfect() -> Vec<Known> {
    let known = |(name, rows): (String, Vec<Vec<Option<u64>>>)| {
        let spec = |row: &Vec<Option<u64>>| {
            BufferSpec::new(row[2].unwrap(), Lifespan::new(row[0].unwrap(), row[1].unwrap()))
        };
        let problem = Problem::new(rows.iter().map(spec).collect());
        Known { name, problem, offsets: rows.iter().map(|row| row[3].unwrap()).collect() }
    };
    let text = include_str!("../data/plan/perfect.txt");
    sections(text).into_iter().map(known).collect()
}

/// An instance from the folder beside the repository, if it is there.
pub fn beside(path: &str) -> Option<Table> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let found =
        root.ancestors().skip(1).take(3).map(|up| up.join("shared/data").join(path)).find(|p| p.exists())?;
    Some(Table::parse(&std::fs::read_to_string(found).unwrap()).unwrap())
}

/// A small, fast generator: the same numbers everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A long program with few buffers alive at once: step i makes buffer i, most die soon.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
pub fn sparse(count: u64, seed: u64) -> Problem {
    let mut random = Random(seed);
    let mut buffers = Vec::new();
    for step in 0..count {
        let mut life = 1 + (-4.0 * (1.0 - random.unit()).ln()) as u64;
        if random.below(20) == 0 {
            life += random.below(200);
        }
        if random.below(200) == 0 {
            life += random.below(5000);
        }
        let size = 64 * (1 + (random.unit() * 11.0).exp() as u64);
        buffers.push(BufferSpec::new(size, Lifespan::new(step, step + life)));
    }
    Problem::new(buffers)
}

/// A few buffers with sizes, spans and alignments from small ranges, so that everything happens.
pub fn tiny(random: &mut Random, count: u64, aligned: bool) -> Problem {
    let steps = 2 + random.below(5);
    let spec = |random: &mut Random| {
        let first = random.below(steps);
        let last = first + random.below(steps - first + 1);
        let align = if aligned { 1 << random.below(3) } else { 1 };
        BufferSpec::new(random.below(7), Lifespan::new(first, last)).align_bytes(align)
    };
    Problem::new((0..count).map(|_| spec(random)).collect())
}

/// Many buffers alive at once over few steps, some with idle gaps, some pinned one above another.
pub fn crowded(count: u64, steps: u64, seed: u64, gaps: bool, pins: bool) -> Problem {
    let mut random = Random(seed);
    let mut top = 0;
    let spec = |_| {
        let first = random.below(steps);
        let most = if random.below(4) == 0 { steps } else { 12 };
        let life = 1 + random.below(most);
        let last = (first + life).min(steps + 12);
        let align = 1 << random.below(8);
        let mut spec =
            BufferSpec::new(1 + random.below(1 << 14), Lifespan::new(first, last)).align_bytes(align);
        if gaps && last - first > 4 && random.below(3) == 0 {
            let span = Lifespan::new(first + 1, last - 1);
            let used_bytes = (random.below(2) == 0).then_some(0..spec.size_bytes / 4);
            spec = spec.idle(vec![IdleGap { span, used_bytes }]);
        }
        if pins && random.below(50) == 0 {
            let offset: u64 = top;
            spec = spec.pinned_at(offset.next_multiple_of(align));
            top = offset.next_multiple_of(align) + spec.size_bytes;
        }
        spec
    };
    Problem::new((0..count).map(spec).collect())
}
