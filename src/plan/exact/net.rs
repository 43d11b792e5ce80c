#![forbid(unsafe_code)]
//! One independent part of an instance as the search sees it: sections instead of steps, units instead of
//! bytes, conflicts in one list.
//!
//! A section ends at each distinct end of a life; two items conflict exactly if their sections meet.

use crate::plan::instance::{Instance, align_up};

/// The integer the search counts memory in: 32 bits where capacities fit, else 64.
pub(crate) trait Units:
    Copy
    + Ord
    + core::ops::Add<Output = Self>
    + core::ops::Sub<Output = Self>
    + core::ops::AddAssign
    + core::ops::SubAssign
{
    const ZERO: Self;
    /// Larger than any offset, with room to add a size.
    const BIG: Self;
    fn of(units: u64) -> Self;
    fn to_u64(self) -> u64;
    fn round_up(self, align: Self) -> Self;
}

macro_rules! units {
    ($int:ty) => {
        impl Units for $int {
            const ZERO: Self = 0;
            const BIG: Self = <$int>::MAX / 4;
            fn of(units: u64) -> Self {
                <$int>::try_from(units).unwrap_or(Self::BIG)
            }
            fn to_u64(self) -> u64 {
                u64::try_from(self).unwrap_or(0)
            }
            #[inline(always)]
            fn round_up(self, align: Self) -> Self {
                (self + (align - 1)) & !(align - 1)
            }
        }
    };
}
units!(i32);
units!(i64);

pub(crate) const NO_ITEM: u32 = u32::MAX;

/// Lists of equal standing in one array.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    starts: Vec<u32>,
    all: Vec<u32>,
}

impl Lists {
    /// Builds the lists from pairs `(list, member)` given twice in the same order.
    pub(crate) fn new(count: usize, each: impl Fn(&mut dyn FnMut(usize, u32))) -> Self {
        let mut starts = vec![0_u32; count + 1];
        each(&mut |list, _| starts[list + 1] += 1);
        for at in 1..=count {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut all = vec![0; starts[count] as usize];
        each(&mut |list, member| {
            all[next[list] as usize] = member;
            next[list] += 1;
        });
        Self { starts, all }
    }

    #[inline]
    pub(crate) fn get(&self, list: usize) -> &[u32] {
        &self.all[self.starts[list] as usize..self.starts[list + 1] as usize]
    }
}

/// What never changes during a search.
#[derive(Clone, Debug)]
pub(crate) struct Net<T> {
    /// Bytes a unit.
    pub unit: u64,
    pub sections: usize,
    pub size: Vec<T>,
    /// Size as it counts in sums: rounded up where all have one alignment.
    pub weight: Vec<T>,
    pub align: Vec<T>,
    /// Where an item is pinned; `BIG` if it is not.
    pub pin: Vec<T>,
    /// First section and one past the last.
    pub hull: Vec<(u32, u32)>,
    /// The sections an item covers, where those are not its whole hull.
    pub spans: Option<Vec<Vec<(u32, u32)>>>,
    pub near: Lists,
    pub members: Lists,
    /// What the top item's padding may leave off, by section.
    pub pad: Vec<T>,
    /// Items that cover the same sections, by class.
    pub class: Vec<u32>,
    pub classes: Lists,
    /// The life in steps and its product with the size, for ranking.
    pub width: Vec<u64>,
    pub area: Vec<u128>,
    /// Whether every item has alignment of one unit.
    pub plain: bool,
}

/// The unit in which all sizes, pins and larger alignments of these items are whole.
pub(crate) fn unit_of(instance: &Instance, items: &[u32]) -> u64 {
    let mut unit = 0;
    for &item in items {
        unit = gcd(unit, instance.items[item as usize].size);
        unit = instance.pin(item as usize).map_or(unit, |pin| gcd(unit, pin));
    }
    for &item in items {
        let align = instance.align_of(item as usize);
        if unit % align != 0 {
            unit = gcd(unit, align);
        }
    }
    unit.max(1)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl<T: Units> Net<T> {
    pub(crate) fn new(instance: &Instance, items: &[u32], unit: u64) -> Self {
        let parts = |item: u32| instance.segments_of(item as usize);
        let mut ends: Vec<u32> = items.iter().flat_map(|&item| parts(item).map(|s| s.upper)).collect();
        ends.sort_unstable();
        ends.dedup();
        let section = |time: u32| u32::try_from(ends.partition_point(|&end| end <= time)).unwrap_or(NO_ITEM);
        let rounds = instance.shifts.is_empty() && instance.align > 1;
        let of = |bytes: u64| T::of(bytes / unit);
        let size_of = |item: u32| instance.items[item as usize].size;
        let weigh = |bytes: u64| if rounds { align_up(bytes, instance.align) } else { bytes };
        let spans_of = |item: u32| {
            let mut spans: Vec<(u32, u32)> = Vec::new();
            for part in parts(item) {
                let (from, to) = (section(part.lower), section(part.upper));
                match spans.last_mut() {
                    Some(last) if last.1 == from => last.1 = to,
                    _ => spans.push((from, to)),
                }
            }
            spans
        };
        let spans: Option<Vec<_>> =
            instance.segments.is_some().then(|| items.iter().map(|&item| spans_of(item)).collect());
        let whole = |&item: &u32| {
            let own = instance.items[item as usize];
            (section(own.lower), section(own.upper))
        };
        let hull: Vec<(u32, u32)> = spans.as_ref().map_or_else(
            || items.iter().map(whole).collect(),
            |spans| spans.iter().map(|s| (s[0].0, s[s.len() - 1].1)).collect(),
        );
        let sections = ends.len();
        let near = conflicts(&hull, spans.as_deref());
        let members = Lists::new(sections, |push| {
            for (item, whole) in hull.iter().enumerate() {
                let item_id = u32::try_from(item).unwrap_or(NO_ITEM);
                for &(from, to) in span_slice(spans.as_deref(), item, whole) {
                    (from..to).for_each(|s| push(s as usize, item_id));
                }
            }
        });
        let mut pad = vec![T::ZERO; sections];
        if rounds {
            for (item, whole) in hull.iter().enumerate() {
                let slack = of(weigh(size_of(items[item]))) - of(size_of(items[item]));
                for &(from, to) in span_slice(spans.as_deref(), item, whole) {
                    pad[from as usize..to as usize].iter_mut().for_each(|most| *most = slack.max(*most));
                }
            }
        }
        let (class, classes) = classes(&hull, spans.as_deref());
        let width = |&item: &u32| {
            let own = instance.items[item as usize];
            u64::from(own.upper - own.lower)
        };
        let align = |&item: &u32| T::of((instance.align_of(item as usize) / unit).max(1));
        let align: Vec<T> = items.iter().map(align).collect();
        Self {
            unit,
            sections,
            size: items.iter().map(|&item| of(size_of(item))).collect(),
            weight: items.iter().map(|&item| of(weigh(size_of(item)))).collect(),
            plain: align.iter().all(|&align| align == T::of(1)),
            align,
            pin: items.iter().map(|&i| instance.pin(i as usize).map_or(T::BIG, of)).collect(),
            hull,
            spans,
            near,
            members,
            pad,
            class,
            classes,
            width: items.iter().map(width).collect(),
            area: items.iter().map(|item| u128::from(width(item)) * u128::from(size_of(*item))).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.size.len()
    }

    /// About how many steps it takes to begin a search.
    pub(crate) fn begin_steps(&self) -> u64 {
        (self.members.all.len() / 2 + 8 * self.len()) as u64
    }

    /// The sections that an item covers.
    #[inline(always)]
    pub(crate) fn spans_of(&self, item: usize) -> &[(u32, u32)] {
        match &self.spans {
            None => core::slice::from_ref(&self.hull[item]),
            Some(spans) => &spans[item],
        }
    }
}

fn span_slice<'a>(
    spans: Option<&'a [Vec<(u32, u32)>]>,
    item: usize,
    hull: &'a (u32, u32),
) -> &'a [(u32, u32)] {
    spans.map_or(core::slice::from_ref(hull), |spans| &spans[item])
}

/// Who conflicts with whom, for items without gaps in order of start: whatever starts before an item's end.
fn conflicts_in_order(hull: &[(u32, u32)]) -> Lists {
    let later = |item: usize| {
        let end = hull.partition_point(|other| other.0 < hull[item].1);
        item + 1..end.max(item + 1)
    };
    // How many begin or cease to be alive with the items from here on.
    let mut change = vec![0_i64; hull.len() + 2];
    let mut starts = vec![0_u32; hull.len() + 1];
    let (mut earlier, mut total) = (0_i64, 0_i64);
    for item in 0..hull.len() {
        let later = later(item);
        earlier += change[item];
        change[later.start] += 1;
        change[later.end] -= 1;
        total += earlier + later.len() as i64;
        starts[item + 1] = u32::try_from(total).unwrap_or(NO_ITEM);
    }
    let mut next = starts.clone();
    let mut all = vec![0; starts[hull.len()] as usize];
    let mut push = |list: usize, member: usize| {
        all[next[list] as usize] = u32::try_from(member).unwrap_or(NO_ITEM);
        next[list] += 1;
    };
    for item in 0..hull.len() {
        for other in later(item) {
            push(item, other);
            push(other, item);
        }
    }
    Lists { starts, all }
}

/// Who conflicts with whom, from the sections they cover.
fn conflicts(hull: &[(u32, u32)], spans: Option<&[Vec<(u32, u32)>]>) -> Lists {
    if spans.is_none() && hull.is_sorted_by_key(|hull| hull.0) {
        return conflicts_in_order(hull);
    }
    let mut by_start: Vec<u32> = (0..u32::try_from(hull.len()).unwrap_or(NO_ITEM)).collect();
    by_start.sort_by_key(|&item| hull[item as usize].0);
    let meet = |a: u32, b: u32| {
        spans.is_none_or(|spans| {
            let (a, b) = (&spans[a as usize], &spans[b as usize]);
            a.iter().any(|x| b.iter().any(|y| x.0 < y.1 && y.0 < x.1))
        })
    };
    Lists::new(hull.len(), |push| {
        let mut alive: Vec<u32> = Vec::new();
        for &item in &by_start {
            let from = hull[item as usize].0;
            alive.retain(|&other| hull[other as usize].1 > from);
            for &other in &alive {
                if meet(item, other) {
                    push(item as usize, other);
                    push(other as usize, item);
                }
            }
            alive.push(item);
        }
    })
}

/// Groups items that cover the same sections.
fn classes(hull: &[(u32, u32)], spans: Option<&[Vec<(u32, u32)>]>) -> (Vec<u32>, Lists) {
    let mut order: Vec<u32> = (0..u32::try_from(hull.len()).unwrap_or(NO_ITEM)).collect();
    let key = |item: u32| (hull[item as usize], spans.map(|spans| &spans[item as usize]));
    order.sort_by(|&a, &b| key(a).cmp(&key(b)).then(a.cmp(&b)));
    let mut class = vec![0; hull.len()];
    let mut count = 0;
    for at in 0..order.len() {
        if at > 0 && key(order[at]) != key(order[at - 1]) {
            count += 1;
        }
        class[order[at] as usize] = count;
    }
    let lists = Lists::new(count as usize + 1, |push| {
        for &item in &order {
            push(class[item as usize] as usize, item);
        }
    });
    (class, lists)
}
