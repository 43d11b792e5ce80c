//! Random programs of scopes, guards, collections and panics in safe code, against a model that knows where the next
//! block has to start.
//!
//! ```text
//!   the model    chunks left ▓▓▓▓ │ current chunk: base ▓▓▓▓▓▓▓ position        one bump allocator, by addresses alone
//! ```
#![cfg(feature = "allocator-api2")]

use crate::support::numbers::Numbers;
use crate::support::touching::Touching;
use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec as Lent;
use arenite::space::{Poison, Reserve};
use arenite::{
    AllocError, AllocErrorKind, Arena, Block, Checkpoint, Guarded, HeapSpace, HostAccessible, HostSpace,
    MemorySpace, Scope, SharedArena, SpaceId,
};
use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A chunk as its space knows it.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    base: usize,
    size_bytes: usize,
    committed_bytes: usize,
}

/// A space that knows what it gave and has not got back, and refuses now and then.
#[derive(Debug)]
struct Watched<S> {
    inner: S,
    chunks: Mutex<Vec<Chunk>>,
    asks: AtomicUsize,
    /// Every so many requests are refused; 0 for none.
    refuse_every: usize,
}

impl<S: MemorySpace> Watched<S> {
    fn new(inner: S, refuse_every: usize) -> Self {
        Self { inner, chunks: Mutex::default(), asks: AtomicUsize::new(0), refuse_every }
    }

    fn ask(&self) -> Result<(), AllocError> {
        let asks = self.asks.fetch_add(1, Ordering::Relaxed) + 1;
        if self.refuse_every > 0 && asks.is_multiple_of(self.refuse_every) {
            let kind = AllocErrorKind::Refused { reason: "made to fail" };
            return Err(AllocError::new(self.id(), Layout::new::<()>(), kind));
        }
        Ok(())
    }

    fn chunk_of(&self, address: usize) -> Option<Chunk> {
        let chunks = self.chunks.lock().unwrap();
        chunks.iter().copied().find(|chunk| (chunk.base..chunk.base + chunk.size_bytes).contains(&address))
    }

    fn note(&self, block: Block, committed_bytes: usize) -> Block {
        let chunk =
            Chunk { base: block.address().addr().get(), size_bytes: block.size_bytes(), committed_bytes };
        self.chunks.lock().unwrap().push(chunk);
        block
    }

    fn change(&self, block: Block, change: impl FnOnce(&mut Vec<Chunk>, usize)) {
        let mut chunks = self.chunks.lock().unwrap();
        let base = block.address().addr().get();
        let at = chunks.iter().position(|chunk| chunk.base == base && chunk.size_bytes == block.size_bytes());
        change(&mut chunks, at.expect("a live chunk"));
    }
}

// SAFETY: every call goes to the space within.
unsafe impl<S: MemorySpace> MemorySpace for Watched<S> {
    fn id(&self) -> SpaceId {
        self.inner.id()
    }
    fn host_accessible(&self) -> bool {
        self.inner.host_accessible()
    }
    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.ask()?;
        self.inner.allocate(layout).map(|block| self.note(block, block.size_bytes()))
    }
    unsafe fn deallocate(&self, block: Block) {
        self.change(block, |chunks, at| {
            chunks.remove(at);
        });
        // SAFETY: the caller keeps the terms of this very call.
        unsafe { self.inner.deallocate(block) };
    }
    fn base_align(&self) -> usize {
        self.inner.base_align()
    }
    fn gives_zeroed(&self) -> bool {
        self.inner.gives_zeroed()
    }
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        self.inner.as_reserve().map(|_| self as &dyn Reserve)
    }
    fn as_poison(&self) -> Option<&dyn Poison> {
        self.inner.as_poison()
    }
}

// SAFETY: as the space within.
unsafe impl<S: HostAccessible> HostAccessible for Watched<S> {}

// SAFETY: every call goes to the space within, which reserves where this is asked.
unsafe impl<S: MemorySpace> Reserve for Watched<S> {
    fn granularity_bytes(&self) -> usize {
        self.inner.as_reserve().unwrap().granularity_bytes()
    }
    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError> {
        self.ask()?;
        self.inner.as_reserve().unwrap().reserve(size_bytes).map(|block| self.note(block, 0))
    }
    unsafe fn commit(&self, region: Block, range: Range<usize>) -> Result<(), AllocError> {
        self.ask()?;
        let end = range.end;
        // SAFETY: the caller keeps the terms of this very call.
        unsafe { self.inner.as_reserve().unwrap().commit(region, range) }?;
        self.change(region, |chunks, at| chunks[at].committed_bytes = end);
        Ok(())
    }
    unsafe fn decommit(&self, region: Block, range: Range<usize>) {
        self.change(region, |chunks, at| chunks[at].committed_bytes = range.start);
        // SAFETY: the caller keeps the terms of this very call.
        unsafe { self.inner.as_reserve().unwrap().decommit(region, range) };
    }
    unsafe fn release(&self, region: Block, committed_bytes: usize) {
        self.change(region, |chunks, at| {
            assert_eq!(chunks.remove(at).committed_bytes, committed_bytes);
        });
        // SAFETY: the caller keeps the terms of this very call.
        unsafe { self.inner.as_reserve().unwrap().release(region, committed_bytes) };
    }
}

/// Where the arena should stand.
#[derive(Clone, Debug, Default, PartialEq)]
struct Point {
    /// The bases of the chunks that were left, and what was used of them.
    left: Vec<(usize, usize)>,
    /// The base of the current chunk and the position in it; none before the first.
    here: Option<(usize, usize)>,
}

/// What is known of the arena from its answers alone.
struct World<'w, S> {
    space: &'w Watched<S>,
    numbers: Numbers,
    point: Point,
    peak_bytes: usize,
    /// Whether the arena never grows: its one chunk may be full to the last byte.
    is_sole: bool,
    filler: u8,
}

/// Slices that should stay as written, with the byte.
type Kept<'a> = Vec<(&'a mut [u8], u8)>;

impl<S: HostAccessible> World<'_, S> {
    fn reach(&self, chunk: Chunk) -> usize {
        let most = if self.is_sole { chunk.size_bytes } else { chunk.size_bytes - 1 };
        chunk.base + chunk.committed_bytes.min(most)
    }

    /// Used in the current chunk; the last byte counts where it may have been given.
    fn used_bytes(&self) -> usize {
        let Some((base, position)) = self.point.here else { return 0 };
        let chunk = self.space.chunk_of(base).unwrap();
        if position == self.reach(chunk) { chunk.committed_bytes } else { position - base }
    }

    fn live_bytes(&self) -> usize {
        self.point.left.iter().map(|left| left.1).sum::<usize>() + self.used_bytes()
    }

    fn note_peak(&mut self) {
        self.peak_bytes = self.peak_bytes.max(self.live_bytes());
    }

    /// A block was given: it starts where it must.
    fn gave(&mut self, start: usize, size: usize, align: usize) {
        assert_eq!(start % align, 0);
        let next = self.point.here.map(|(base, position)| (base, position.next_multiple_of(align)));
        if size == 0 && next.is_none_or(|(_, next)| next != start) {
            assert_eq!(start, align, "a block of no bytes lies nowhere");
            return;
        }
        let chunk =
            self.space.chunk_of(start).or_else(|| self.space.chunk_of(start - 1)).expect("in a chunk");
        let is_here = next.is_some_and(|(base, next)| base == chunk.base && start == next);
        if !is_here {
            let used_bytes = self.used_bytes();
            if let Some((base, _)) = self.point.here {
                assert_ne!(base, chunk.base, "a block that does not follow the one before");
                self.point.left.push((base, used_bytes));
            }
            assert!(self.point.left.iter().all(|left| left.0 != chunk.base), "a chunk that was left");
            assert_eq!(start, chunk.base.next_multiple_of(align));
        }
        let base = if is_here { next.unwrap().0 } else { chunk.base };
        let chunk = self.space.chunk_of(base).unwrap();
        assert!(start + size <= chunk.base + chunk.committed_bytes);
        self.point.here = Some((chunk.base, (start + size).min(self.reach(chunk))));
        self.note_peak();
    }

    /// A block was given back: the last serves again.
    fn took(&mut self, start: usize, size: usize, keep: usize) {
        if let Some((_, position)) = &mut self.point.here
            && start + size == *position
        {
            *position = start + keep;
        }
    }

    /// What a scope took is taken back, and spoiled where the space does.
    fn back_to(&mut self, point: Point) {
        // What was nowhere is the start of the first chunk.
        let first = self.point.left.first().map(|left| left.0).or(self.point.here.map(|here| here.0));
        let point = match point.here {
            None => Point { left: Vec::new(), here: first.map(|base| (base, base)) },
            Some(_) => point,
        };
        if self.space.as_poison().is_some()
            && let (Some((base, from)), Some((now, position))) = (point.here, self.point.here)
        {
            // Where it stood at the end, the last byte is given no more.
            let chunk = self.space.chunk_of(base).unwrap();
            let from = if from == self.reach(chunk) { base + chunk.committed_bytes } else { from };
            let left = self.point.left.iter().find(|left| left.0 == base).map(|left| base + left.1);
            self.is_poisoned(from, left.unwrap_or(position));
            if now != base {
                self.is_poisoned(now, position);
            }
        }
        self.point = point;
    }

    fn is_poisoned(&self, from: usize, to: usize) {
        let bytes: *const u8 = core::ptr::with_exposed_provenance(from);
        // SAFETY: memory of a chunk that is held, of which nothing is in use.
        let bytes = unsafe { core::slice::from_raw_parts(bytes, to.saturating_sub(from)) };
        assert!(bytes.iter().all(|&byte| byte == 0xdd), "spoiled");
    }

    fn layout(&mut self) -> Layout {
        let near = self.point.here.map_or(5, |(base, position)| {
            let chunk = self.space.chunk_of(base).unwrap();
            base + chunk.committed_bytes - position
        });
        // Often just what is left, or a byte more or less.
        let near = near.min(1 << 14);
        let sizes = [
            0,
            1,
            3,
            16,
            17,
            40,
            64,
            65,
            300,
            1023,
            4095,
            4096,
            5000,
            near,
            near.saturating_sub(1),
            near + 1,
        ];
        let size = sizes[self.numbers.below(sizes.len())];
        Layout::from_size_align(size, 1 << self.numbers.below(8)).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.filler = self.filler % 200 + 1;
        self.filler
    }

    /// Keeps a slice that was just given, which overlaps nothing that is kept.
    fn keep<'a>(&mut self, kept: &mut Kept<'a>, slice: &'a mut [u8], align: usize) {
        let (start, byte) = (slice.as_ptr().addr(), self.byte());
        self.gave(start, slice.len(), align);
        for (other, _) in &*kept {
            let from = other.as_ptr().addr();
            assert!(
                slice.is_empty()
                    || other.is_empty()
                    || start + slice.len() <= from
                    || from + other.len() <= start
            );
        }
        slice.fill(byte);
        kept.push((slice, byte));
    }

    fn check(&self, arena: &Arena<&Watched<S>>) {
        let stats = arena.stats();
        assert_eq!((stats.live_bytes, stats.peak_bytes), (self.live_bytes(), self.peak_bytes));
        let chunks = self.space.chunks.lock().unwrap();
        let sum = |bytes: fn(&Chunk) -> usize| chunks.iter().map(bytes).sum::<usize>();
        assert_eq!(stats.capacity_bytes, sum(|chunk| chunk.committed_bytes));
        assert_eq!((stats.reserved_bytes, stats.chunks), (sum(|chunk| chunk.size_bytes), chunks.len()));
        let tags = arena.tags();
        assert_eq!(tags.iter().map(|owner| owner.bytes).sum::<usize>(), stats.live_bytes);
    }
}

/// What is thrown here.
struct OnPurpose;

/// Whether `work` comes to its end; what is not thrown on purpose goes on.
fn caught(work: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => true,
        Err(thrown) if thrown.is::<OnPurpose>() => false,
        Err(thrown) => resume_unwind(thrown),
    }
}

fn check_kept(kept: &Kept<'_>) {
    for (slice, byte) in kept {
        assert!(slice.iter().all(|held| held == byte), "live bytes stay as written");
    }
}

/// One block, by a call chosen at random; refused, it changes nothing.
macro_rules! give {
    ($giver:expr, $world:expr, $kept:expr) => {{
        let (giver, world, kept) = (&$giver, &mut *$world, &mut *$kept);
        let layout = world.layout();
        let size = layout.size();
        macro_rules! keep {
            ($align:ty, $given:expr) => {
                if let Ok(given) = $given {
                    world.keep(kept, given, align_of::<$align>());
                }
            };
        }
        let is_refusing = world.space.refuse_every > 0 || world.is_sole;
        match world.numbers.below(13) {
            0 => keep!(u8, giver.try_alloc(1_u8).map(bytemuck::bytes_of_mut)),
            1 => keep!(u64, giver.try_alloc(1_u64).map(bytemuck::bytes_of_mut)),
            2 => keep!(u128, giver.try_alloc_with(|| [1_u128; 32]).map(bytemuck::bytes_of_mut)),
            3 if !is_refusing => keep!(u32, Ok::<_, AllocError>(bytemuck::bytes_of_mut(giver.alloc(1_u32)))),
            4 if !is_refusing => keep!(u8, Ok::<_, AllocError>(giver.alloc_slice_fill(size, 7_u8))),
            5 => keep!(u16, giver.try_alloc_slice_copy(&vec![1_u16; size / 2]).map(bytemuck::cast_slice_mut)),
            6 => keep!(u64, giver.try_alloc_slice_with(size / 8, |_| 1_u64).map(bytemuck::cast_slice_mut)),
            7 | 8 => {
                let zeroed =
                    giver.try_alloc_slice_zeroed::<u64>(size / 8).map(bytemuck::cast_slice_mut::<_, u8>);
                if let Ok(zeroed) = &zeroed {
                    assert!(zeroed.iter().all(|&byte| byte == 0), "zeroed");
                }
                keep!(u64, zeroed);
            }
            9 => {
                if let Ok(range) = giver.alloc_device::<u32>(size / 4) {
                    world.gave(range.address() as usize, range.size_bytes(), 4);
                }
            }
            10 if world.numbers.below(8) == 0 => {
                // Refused by a panic, it changes nothing either.
                let given = catch_unwind(AssertUnwindSafe(|| giver.alloc_slice_fill(size, 7_u8)));
                keep!(u8, given);
            }
            _ => {
                if let Ok(block) = giver.allocate(layout) {
                    world.gave(block.address().addr().get(), size, layout.align());
                }
            }
        }
    }};
}

/// Vectors that grow, shrink and go in any order, between blocks that stay.
fn lend<S: HostAccessible, A: Allocator + Copy>(
    world: &mut World<'_, S>,
    from: A,
    mut between: impl FnMut(&mut World<'_, S>),
) {
    let mut lent: Vec<(Lent<u32, A>, u32)> = Vec::new();
    for _ in 0..world.numbers.below(12) {
        match world.numbers.below(6) {
            0 | 1 if lent.len() < 6 => lent.push((Lent::new_in(from), u32::from(world.byte()))),
            2 => between(world),
            3 if !lent.is_empty() => {
                let at = world.numbers.below(lent.len());
                let (vec, _) = lent.remove(at);
                let (start, size) = (vec.as_ptr().addr(), vec.capacity() * 4);
                drop(vec);
                if size > 0 {
                    world.took(start, size, 0);
                }
            }
            4 if !lent.is_empty() => {
                let at = world.numbers.below(lent.len());
                let (vec, _) = &mut lent[at];
                let (start, size) = (vec.as_ptr().addr(), vec.capacity() * 4);
                vec.truncate(world.numbers.below(vec.len() + 1));
                vec.shrink_to_fit();
                if vec.capacity() * 4 < size {
                    world.took(start, size, vec.capacity() * 4);
                }
            }
            _ if !lent.is_empty() => {
                let more = world.layout().size() / 4;
                let at = world.numbers.below(lent.len());
                let (vec, number) = &mut lent[at];
                let (start, size) = (vec.as_ptr().addr(), vec.capacity() * 4);
                let is_served = vec.try_reserve_exact(more).is_ok();
                let (now, more) = (vec.as_ptr().addr(), vec.capacity() * 4);
                if is_served {
                    vec.resize(vec.capacity(), *number);
                }
                if more == size {
                } else if size > 0 && now == start {
                    world.took(start, size, more);
                    let (base, position) = world.point.here.unwrap();
                    assert!(
                        position == start + more
                            && world.space.chunk_of(base).is_some_and(|c| position <= world.reach(c))
                    );
                    world.note_peak();
                } else {
                    world.gave(now, more, 4);
                }
                if more > 0 {
                    let chunk = world.space.chunk_of(now).unwrap();
                    assert!(
                        now + more <= world.reach(chunk),
                        "a block of a collection ends before the end (A5)"
                    );
                }
            }
            _ => {}
        }
        for (vec, number) in &lent {
            assert!(vec.iter().all(|held| held == number), "what collections hold stays as written");
        }
    }
    // In the order of the list, mostly not the last first.
    for (vec, _) in lent {
        let (start, size) = (vec.as_ptr().addr(), vec.capacity() * 4);
        drop(vec);
        if size > 0 {
            world.took(start, size, 0);
        }
    }
}

/// Steps in a scope.
fn play<S: HostAccessible>(scope: &mut Scope<'_, &Watched<S>>, world: &mut World<'_, S>, depth: usize) {
    let mut kept = Kept::new();
    for _ in 0..world.numbers.below(14) {
        let mark = world.point.clone();
        match world.numbers.below(if depth < 5 { 14 } else { 8 }) {
            0..=4 => give!(*scope, world, &mut kept),
            5 => {
                let shared = &*scope;
                lend(world, shared, |world| give!(*shared, world, &mut kept));
            }
            6 => {
                let arena = scope.arena();
                let mut short = Kept::new();
                for _ in 0..world.numbers.below(4) {
                    give!(*arena, world, &mut short);
                }
                lend(world, arena, |world| give!(*arena, world, &mut short));
                check_kept(&short);
                world.check(arena);
            }
            7 => {
                let owners = scope.arena().tags().len();
                assert!(owners <= 7);
            }
            8 | 9 => {
                scope.scoped(|mut inner| play(&mut inner, world, depth + 1));
                world.back_to(mark);
            }
            10 => {
                let name = ["attention", "softmax", ""][world.numbers.below(3)];
                let owners = scope.arena().tags().len();
                scope.scoped_as(name, |mut inner| {
                    assert_eq!(inner.arena().tags().len(), owners + 1);
                    play(&mut inner, world, depth + 1);
                });
                world.back_to(mark);
                assert_eq!(scope.arena().tags().len(), owners);
            }
            11 => {
                let mut guard = scope.scope_guard();
                play(&mut guard.scope(), world, depth + 1);
                play(&mut guard.scope(), world, depth + 1);
                if world.numbers.below(2) == 0 {
                    // What was taken stays taken.
                    let _forgotten = ManuallyDrop::new(guard);
                } else {
                    drop(guard);
                    world.back_to(mark);
                }
            }
            12 => {
                let is_done = caught(|| {
                    scope.scoped_as("panics", |mut inner| {
                        play(&mut inner, world, depth + 1);
                        resume_unwind(Box::new(OnPurpose));
                    })
                });
                assert!(!is_done);
                world.back_to(mark);
            }
            _ => {
                let (panics, inside) = (world.numbers.below(2) == 0, world.numbers.below(2) == 0);
                let is_done = caught(|| {
                    let mut guard = scope.scope_guard();
                    guard.scope().scoped(|mut inner| {
                        play(&mut inner, world, depth + 1);
                        if panics && inside {
                            resume_unwind(Box::new(OnPurpose));
                        }
                    });
                    if panics {
                        resume_unwind(Box::new(OnPurpose));
                    }
                });
                assert_eq!(is_done, !panics);
                world.back_to(mark);
            }
        }
        check_kept(&kept);
        if world.numbers.below(4) == 0 {
            world.check(scope.arena());
        }
    }
    check_kept(&kept);
}

/// A life of an arena.
fn live<S: HostAccessible>(space: &Watched<S>, mut arena: Arena<&Watched<S>>, is_sole: bool, seed: u64) {
    let mut world = World {
        space,
        numbers: Numbers::new(seed),
        point: Point::default(),
        peak_bytes: 0,
        is_sole,
        filler: 0,
    };
    if let Some(chunk) = space.chunks.lock().unwrap().first() {
        world.point.here = Some((chunk.base, chunk.base));
    }
    let mut marks: Vec<(Checkpoint, Point)> = Vec::new();
    for _ in 0..30 {
        let mark = world.point.clone();
        match world.numbers.below(13) {
            0 | 1 => {
                let mut kept = Kept::new();
                for _ in 0..world.numbers.below(5) {
                    give!(arena, &mut world, &mut kept);
                }
                lend(&mut world, &arena, |world| give!(arena, world, &mut kept));
                check_kept(&kept);
            }
            2 => marks.push((arena.checkpoint(), mark)),
            3 if !marks.is_empty() => {
                let which = world.numbers.below(marks.len());
                marks.truncate(which + 1);
                let (checkpoint, point) = marks[which].clone();
                assert!(arena.rewind(checkpoint), "it was not passed by");
                world.back_to(point);
            }
            4 | 5 => {
                arena.scoped(|mut scope| play(&mut scope, &mut world, 0));
                world.back_to(mark);
            }
            6 => {
                arena.scoped_as("top", |mut scope| play(&mut scope, &mut world, 0));
                world.back_to(mark);
            }
            7 => {
                let mut guard = arena.scope_guard();
                play(&mut guard.scope(), &mut world, 0);
                if world.numbers.below(2) == 0 {
                    let _forgotten = ManuallyDrop::new(guard);
                } else {
                    drop(guard);
                    world.back_to(mark);
                }
            }
            8 => play(&mut arena.root_scope(), &mut world, 0),
            9 => {
                let is_done = caught(|| {
                    arena.scoped(|mut scope| {
                        play(&mut scope, &mut world, 0);
                        resume_unwind(Box::new(OnPurpose));
                    })
                });
                assert!(!is_done);
                world.back_to(mark);
            }
            10 => {
                arena.reset();
                marks.clear();
                world.back_to(Point::default());
                assert_eq!((arena.stats().padding_bytes, arena.stats().blocks), (0, 0));
            }
            11 => {
                let keep_bytes = [0, 4096, 70_000, 1 << 20][world.numbers.below(4)];
                arena.trim_to(keep_bytes);
                if space.chunks.lock().unwrap().is_empty() {
                    world.point = Point::default();
                    marks.clear();
                }
            }
            12 if !is_sole => {
                let size_bytes = world.layout().size();
                let before = space.chunks.lock().unwrap().len();
                if arena.make_room(size_bytes).is_ok() && size_bytes > 0 {
                    // It stands where the room is: known by a block.
                    let block = arena.allocate(Layout::from_size_align(size_bytes, 1).unwrap()).unwrap();
                    let start = block.address().addr().get();
                    let base = space.chunk_of(start).unwrap().base;
                    if world.point.here.is_none_or(|here| here.0 != base) {
                        assert!(space.chunks.lock().unwrap().len() >= before);
                    }
                    world.gave(start, size_bytes, 1);
                }
            }
            _ => {}
        }
        world.check(&arena);
    }
    drop(arena);
    assert!(space.chunks.lock().unwrap().is_empty(), "all is given back");
}

/// Lives of every kind of arena over one kind of space.
fn lives<S: HostAccessible>(seeds: Range<u64>, space: impl Fn() -> S) {
    for seed in seeds {
        let refuse_every = [0, 0, 5][(seed % 3) as usize];
        let space = |refuse_every| Watched::new(space(), refuse_every);
        let watched = space(refuse_every);
        live(&watched, Arena::new(&watched), false, seed);
        let watched = space(refuse_every);
        live(&watched, Arena::with_chunks(&watched), false, seed);
        let watched = space(refuse_every);
        live(&watched, Arena::with_reserve(&watched, 100_000), false, seed);
        let watched = space(0);
        let exact = Arena::exact(&watched, [1, 100, 4096, 10_000][(seed % 4) as usize]).unwrap();
        live(&watched, exact, true, seed);
    }
}

#[test]
fn programs_over_reserved_memory_keep_to_the_model() {
    lives(0..8, HostSpace::new);
}

#[test]
fn programs_over_the_heap_keep_to_the_model() {
    lives(100..108, || HeapSpace);
}

#[test]
fn programs_over_memory_that_touches_keep_to_the_model() {
    lives(200..208, || Touching::new(true));
}

#[test]
fn programs_over_memory_that_is_spoiled_keep_to_the_model() {
    lives(300..306, || Guarded::new(HostSpace::new()).with_delayed_reuse(0));
}

#[test]
fn programs_over_a_shared_range_keep_to_the_model() {
    lives(400..406, || SharedArena::new(HostSpace::new(), 1 << 26).unwrap());
}

/// Memory of the heap that is spoiled when it is taken back; the first time, that panics.
#[derive(Debug, Default)]
struct Clumsy(AtomicUsize);

// SAFETY: every call goes to the heap.
unsafe impl MemorySpace for Clumsy {
    fn id(&self) -> SpaceId {
        HeapSpace.id()
    }
    fn host_accessible(&self) -> bool {
        true
    }
    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        HeapSpace.allocate(layout)
    }
    unsafe fn deallocate(&self, block: Block) {
        // SAFETY: the caller keeps the terms of this very call.
        unsafe { HeapSpace.deallocate(block) };
    }
    fn as_poison(&self) -> Option<&dyn Poison> {
        Some(self)
    }
}

// SAFETY: as the heap.
unsafe impl HostAccessible for Clumsy {}

// SAFETY: it writes nothing.
unsafe impl Poison for Clumsy {
    unsafe fn poison(&self, _block: Block) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            resume_unwind(Box::new(OnPurpose));
        }
    }
}

#[test]
fn a_scope_whose_end_panics_leaves_the_one_around_it_where_the_arena_is() {
    let mut arena = Arena::with_chunks(Clumsy::default());
    arena.scoped(|mut outer| {
        let first = outer.alloc([1u8; 16]);
        assert!(!caught(|| outer.scoped(|inner| assert!(inner.alloc([2u8; 100_000])[0] == 2))));
        // It does not fit in the first chunk.
        let last = outer.alloc([3u8; 5000]);
        assert!(first.iter().all(|&byte| byte == 1) && last.iter().all(|&byte| byte == 3));
        assert!(outer.arena().live_bytes() >= 5016);
    });
    assert_eq!(arena.live_bytes(), 0);
}

#[test]
fn a_block_of_no_bytes_that_lies_nowhere_takes_nothing_back() {
    let mut arena = Arena::new(Guarded::new(HeapSpace));
    let kept = arena.alloc([1u8; 100]).as_ptr();
    let nowhere = Layout::from_size_align(0, 1 << 63).unwrap();
    arena.scoped(|mut scope| {
        let block = Allocator::allocate(&&scope, nowhere).unwrap().cast();
        scope.arena();
        // SAFETY: allocated above with this layout.
        unsafe { Allocator::deallocate(&&scope, block, nowhere) };
        assert_eq!(scope.arena().live_bytes(), 100);
    });
    assert!(kept < core::ptr::from_mut(arena.alloc(1u8)));
}

#[test]
fn the_last_byte_of_a_chunk_is_zeroed_as_well() {
    let mut arena = Arena::with_chunks(Watched::new(HostSpace::new(), 0));
    arena.make_room(1).unwrap();
    let size_bytes = arena.capacity_bytes();
    arena.scoped(|scope| scope.alloc_slice_fill(size_bytes, 0xffu8).len());
    let zeroed = arena.try_alloc_slice_zeroed::<u8>(size_bytes).unwrap();
    assert!(zeroed.iter().all(|&byte| byte == 0));
    assert_eq!(arena.stats().chunks, 1);
}

#[test]
fn a_forgotten_guard_takes_nothing_back_and_zeroed_memory_is_zero() {
    let mut arena = Arena::new(HostSpace::new());
    arena.alloc(1u8);
    let mut guard = arena.scope_guard();
    guard.scope().alloc_slice_fill(1000, 0xffu8);
    let _forgotten = ManuallyDrop::new(guard);
    assert_eq!((arena.live_bytes(), arena.stats().peak_bytes), (1001, 1001));
    assert!(arena.try_alloc_slice_zeroed::<u8>(1000).unwrap().iter().all(|&byte| byte == 0));
    arena.reset();
    assert!(arena.try_alloc_slice_zeroed::<u8>(1001).unwrap().iter().all(|&byte| byte == 0));
    // One within a scope leaves that to the scope.
    let (kept, peak_bytes) = (arena.live_bytes(), arena.stats().peak_bytes);
    arena.scoped(|mut outer| {
        let mut guard = outer.scope_guard();
        guard.scope().alloc_slice_fill(peak_bytes, 7u8);
        let _forgotten = ManuallyDrop::new(guard);
    });
    assert_eq!((arena.live_bytes(), arena.stats().peak_bytes), (kept, kept + peak_bytes));
    assert!(arena.try_alloc_slice_zeroed::<u8>(9000).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn a_scope_goes_on_in_the_chunk_of_a_forgotten_guard() {
    let mut arena = Arena::with_chunks(HeapSpace);
    arena.scoped(|mut outer| {
        let first = outer.alloc([1u8; 16]);
        let mut guard = outer.scope_guard();
        guard.scope().alloc([2u8; 100_000]);
        let _forgotten = ManuallyDrop::new(guard);
        // It does not fit in the first chunk.
        let last = outer.alloc([3u8; 5000]);
        assert!(first.iter().all(|&byte| byte == 1) && last.iter().all(|&byte| byte == 3));
        assert!(outer.arena().live_bytes() >= 100_000 + 5016);
    });
    assert_eq!(arena.live_bytes(), 0);
}
