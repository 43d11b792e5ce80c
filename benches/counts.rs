//! Instructions and conditional branches a call, counted one by one; fails where a count of ours grew.
//!
//! `cargo bench --features allocator-api2 --bench counts`: each case is a function that is not inlined; a child process
//! runs it once, warm, and its parent steps through it. The table in `benches/counts.txt` holds what is allowed.
//! `-- --write` renews it. Needs Linux on x86-64 and leave to trace a child; elsewhere it says so and succeeds.
//!
//! Deliberately absent: time, and tools that have to be installed.

#![allow(missing_docs, unused_crate_dependencies, reason = "a program that measures")]
#![allow(clippy::print_stdout, clippy::elidable_lifetime_names, reason = "a program that measures")]

/// What is counted, for each allocator: functions that take the allocator and give what the case says.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod cases {
    use ::bumpalo::{AllocErr, Bump};
    use allocator_api2::alloc::{AllocError as Refused, Allocator as _};
    use arenite::{AllocError, Arena, HeapSpace, HostSpace, Pool};
    use bump_scope::alloc::{AllocError as ScopedRefused, Allocator as _, Global};
    use bump_scope::{Bump as Scoped, BumpBox, settings::BumpSettings};
    use core::alloc::Layout;
    use core::hint::black_box;
    use core::ptr::NonNull;

    type Ours = Arena<HostSpace>;
    type Block<E> = Result<NonNull<[u8]>, E>;

    const ONE: Layout = Layout::new::<u32>();
    const TWO: Layout = Layout::new::<[u32; 2]>();

    /// A layout that the compiler does not know.
    fn opaque(words: usize) -> Layout {
        black_box(Layout::array::<u32>(black_box(words)).expect("a valid layout"))
    }

    /// Puts a new allocator where there is none: dropping what was there is not to be counted.
    #[inline(always)]
    #[expect(clippy::mem_forget, reason = "it is none")]
    fn put<T>(place: &mut Option<T>, new: T) -> &T {
        core::mem::forget(place.replace(new));
        place.as_ref().expect("just put there")
    }

    /// The functions of one allocator, where their code starts, and one run of each.
    macro_rules! side {
        ($side:ident of $owner:ty, |$arena:ident|
         $(shared $name:ident($($value:ident: $kind:ty = $given:expr),*) -> $out:ty { $call:expr })*
         $(alone $alone:ident($($part:ident: $of:ty = $with:expr),*) -> $alone_out:ty { $alone_call:expr })*) => {
            pub(crate) mod $side {
                use super::*;
                $(
                    #[inline(never)]
                    #[allow(clippy::needless_lifetimes, reason = "one macro for all signatures")]
                    fn $name<'a>($arena: &'a $owner $(, $value: $kind)*) -> $out { $call }
                )*
                $(
                    #[inline(never)]
                    fn $alone($arena: &mut $owner $(, $part: $of)*) -> $alone_out { $alone_call }
                )*
                pub(crate) fn table() -> Vec<(&'static str, usize)> {
                    vec![
                        $((stringify!($name), $name as *const () as usize),)*
                        $((stringify!($alone), $alone as *const () as usize),)*
                    ]
                }
                pub(crate) fn run(owner: &mut $owner) {
                    $({
                        let $arena: &$owner = owner;
                        let _ = black_box($name(black_box($arena) $(, black_box::<$kind>($given))*));
                    })*
                    $(let _ = black_box($alone(black_box(owner) $(, black_box::<$of>($with))*));)*
                }
            }
        };
    }

    /// The same cases for every bump allocator; what differs is how a value comes out of its box, and what refuses.
    macro_rules! bump_side {
        ($side:ident of $owner:ty, refusing $refused:ty | $typed_refused:ty, |$made:ident| $out:expr, |$arena:ident|
         $($rest:tt)*) => {
            side! {
                $side of $owner, |$arena|
                shared alloc_u8(v: u8 = 1) -> &'a mut u8 { { let $made = $arena.alloc(v); $out } }
                shared alloc_u32(v: u32 = 1) -> &'a mut u32 { { let $made = $arena.alloc(v); $out } }
                shared alloc_u64(v: u64 = 1) -> &'a mut u64 { { let $made = $arena.alloc(v); $out } }
                shared alloc_56_bytes(v: &[u64; 7] = &[7; 7]) -> &'a mut [u64; 7] { { let $made = $arena.alloc(*v); $out } }
                shared alloc_256_bytes(v: &[u64; 32] = &[7; 32]) -> &'a mut [u64; 32] { { let $made = $arena.alloc(*v); $out } }
                shared try_alloc_u8(v: u8 = 1) -> Result<&'a mut u8, $typed_refused> { $arena.try_alloc(v).map(|$made| $out) }
                shared try_alloc_u64(v: u64 = 1) -> Result<&'a mut u64, $typed_refused> { $arena.try_alloc(v).map(|$made| $out) }
                shared try_alloc_56_bytes(v: &[u64; 7] = &[7; 7]) -> Result<&'a mut [u64; 7], $typed_refused> { $arena.try_alloc(*v).map(|$made| $out) }
                shared slice_of_17_u8(v: &[u8] = &[7; 17]) -> &'a mut [u8] { { let $made = $arena.alloc_slice_copy(v); $out } }
                shared slice_of_17_u32(v: &[u32] = &[7; 17]) -> &'a mut [u32] { { let $made = $arena.alloc_slice_copy(v); $out } }
                shared try_slice_of_17_u32(v: &[u32] = &[7; 17]) -> Result<&'a mut [u32], $typed_refused> { $arena.try_alloc_slice_copy(v).map(|$made| $out) }
                shared str_of_16(v: &str = "sixteen letters.") -> &'a mut str { { let $made = $arena.alloc_str(v); $out } }
                shared allocate_u32() -> Block<$refused> { (&$arena).allocate(ONE) }
                shared allocate_opaque_layout(v: Layout = opaque(10)) -> Block<$refused> { (&$arena).allocate(v) }
                // SAFETY: allocated just now, with this layout.
                shared grow_u32_to_two(v: NonNull<u8> = (&$arena).allocate(ONE).expect("memory").cast()) -> Block<$refused> { unsafe { (&$arena).grow(v, ONE, TWO) } }
                shared grow_opaque_layout(v: NonNull<u8> = (&$arena).allocate(opaque(1)).expect("memory").cast(), old: Layout = opaque(1), new: Layout = opaque(2)) -> Block<$refused> {
                    // SAFETY: allocated just now, with this layout.
                    unsafe { (&$arena).grow(v, old, new) }
                }
                // SAFETY: allocated just now, with this layout.
                shared shrink_two_u32_to_one(v: NonNull<u8> = (&$arena).allocate(TWO).expect("memory").cast()) -> Block<$refused> { unsafe { (&$arena).shrink(v, TWO, ONE) } }
                // SAFETY: allocated just now, with this layout.
                shared deallocate_the_last(v: NonNull<u8> = (&$arena).allocate(ONE).expect("memory").cast()) -> () { unsafe { (&$arena).deallocate(v, ONE) } }
                shared deallocate_another(v: NonNull<u8> = { let first = (&$arena).allocate(TWO).expect("memory").cast(); $arena.alloc(7_u32); first }) -> () {
                    // SAFETY: allocated just now, with this layout.
                    unsafe { (&$arena).deallocate(v, TWO) }
                }
                $($rest)*
                alone reset() -> () { $arena.reset() }
            }
        };
    }

    /// A setting of bump-scope: the least alignment, whether upwards.
    macro_rules! scoped_side {
        ($side:ident, $align:literal, $up:literal) => {
            bump_side! {
                $side of Scoped<Global, BumpSettings<$align, $up>>, refusing ScopedRefused | ScopedRefused,
                |made| BumpBox::into_mut(made), |arena|
                shared new_and_first_u32(v: u32 = 1, place: &mut Option<Scoped<Global, BumpSettings<$align, $up>>> = &mut None) -> () {
                    {
                        let _ = arena;
                        let new = put(place, Scoped::new());
                        black_box(new.alloc(v));
                    }
                }
                alone scope_of_one_u64(v: u64 = 7) -> u64 { arena.scoped(|scope| *scope.alloc(v)) }
                alone the_same_its_address_shown(v: u64 = 7) -> u64 { arena.scoped(|scope| *black_box(scope.alloc(v).into_mut())) }
            }
        };
    }

    bump_side! {
        ours of Ours, refusing Refused | AllocError, |made| made, |arena|
        shared new_and_first_u32(v: u32 = 1, place: &mut Option<Arena<HeapSpace>> = &mut None) -> () {
            {
                let _ = arena;
                let new = put(place, Arena::new(HeapSpace));
                black_box(new.alloc(v));
            }
        }
        shared block_of_any_space(v: Layout = opaque(10)) -> bool {
            Arena::allocate(arena, v).is_ok_and(|block| black_box(block).size_bytes() > 0)
        }
        alone scope_of_one_u64(v: u64 = 7) -> u64 { arena.scoped(|scope| *scope.alloc(v)) }
        alone the_same_its_address_shown(v: u64 = 7) -> u64 { arena.scoped(|scope| *black_box(scope.alloc(v))) }
    }
    bump_side! {
        plain of Bump, refusing Refused | AllocErr, |made| made, |arena|
        shared new_and_first_u32(v: u32 = 1, place: &mut Option<Bump> = &mut None) -> () {
            {
                let _ = arena;
                let new = put(place, Bump::new());
                black_box(new.alloc(v));
            }
        }
    }
    scoped_side!(up, 1, true);
    scoped_side!(down, 1, false);
    scoped_side!(up8, 8, true);
    scoped_side!(down8, 8, false);
    side! {
        pool of Pool<HostSpace>, |arena|
        shared pool_pair(v: Layout = opaque(10)) -> () {
            if let Ok(block) = arena.allocate(v) {
                black_box(block.block());
            }
        }
    }

    /// Who is counted, in columns; several settings share one.
    pub(crate) const COLUMNS: [&str; 3] =
        ["arenite", "bumpalo 3.20", "bump-scope 2.4, the best of four settings"];

    /// What is counted: the column, the case, where its code starts.
    pub(crate) fn table() -> Vec<(usize, &'static str, usize)> {
        let ours = ours::table().into_iter().chain(pool::table()).map(|(case, start)| (0, case, start));
        let bumpalo = plain::table().into_iter().map(|(case, start)| (1, case, start));
        let scoped = [up::table(), down::table(), up8::table(), down8::table()];
        let scoped = scoped.into_iter().flatten().map(|(case, start)| (2, case, start));
        ours.chain(bumpalo).chain(scoped).collect()
    }

    /// Everything that the cases need, there and warm.
    pub(crate) struct Owners {
        ours: Ours,
        bumpalo: Bump,
        up: Scoped<Global, BumpSettings<1, true>>,
        down: Scoped<Global, BumpSettings<1, false>>,
        up8: Scoped<Global, BumpSettings<8, true>>,
        down8: Scoped<Global, BumpSettings<8, false>>,
        pool: Pool<HostSpace>,
    }

    impl Owners {
        pub(crate) fn new() -> Self {
            let mut owners = Self {
                ours: Arena::new(HostSpace::new()),
                bumpalo: Bump::with_capacity(1 << 16),
                up: Scoped::with_size(1 << 16),
                down: Scoped::with_size(1 << 16),
                up8: Scoped::with_size(1 << 16),
                down8: Scoped::with_size(1 << 16),
                pool: Pool::new(HostSpace::new()),
            };
            for _ in 0..3 {
                owners.run();
            }
            owners
        }

        /// Every case once.
        pub(crate) fn run(&mut self) {
            ours::run(&mut self.ours);
            plain::run(&mut self.bumpalo);
            up::run(&mut self.up);
            down::run(&mut self.down);
            up8::run(&mut self.up8);
            down8::run(&mut self.down8);
            pool::run(&mut self.pool);
        }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod step {
    use std::collections::HashMap;

    /// Instructions and conditional branches.
    pub(crate) type Count = (u32, u32);

    /// Runs `child` in a child process and counts, for each start of a function, its first call.
    pub(crate) fn count(starts: &[usize], child: impl FnOnce()) -> Result<HashMap<usize, Count>, String> {
        // SAFETY: the child runs `child` on what it already has, and ends without unwinding.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: asks to be traced; no pointers.
            let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
            if traced == 0 {
                // SAFETY: stops this process until its parent goes on.
                unsafe { libc::raise(libc::SIGSTOP) };
                child();
            }
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(traced != 0)) };
        }
        if pid < 0 {
            return Err("a child process is refused".into());
        }
        wait(pid)?.then_some(()).ok_or("this process may not trace a child")?;
        let mut counts = HashMap::new();
        let mut inside: Option<(usize, usize, Count)> = None;
        loop {
            let registers = registers(pid)?;
            let at = usize::try_from(registers.rip).map_err(|error| error.to_string())?;
            if let Some((start, back, count)) = inside.take() {
                if at == back {
                    counts.entry(start).or_insert(count);
                } else {
                    inside = Some((start, back, (count.0 + 1, count.1 + u32::from(is_conditional(at)))));
                }
            } else if starts.contains(&at) && !counts.contains_key(&at) {
                let back = peek(pid, registers.rsp);
                inside = Some((at, back, (1, u32::from(is_conditional(at)))));
            }
            // SAFETY: the child is stopped; it goes on by one instruction.
            unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
            if !wait(pid)? {
                return Ok(counts);
            }
        }
    }

    /// Waits for the child; whether it stopped rather than ended.
    fn wait(pid: libc::pid_t) -> Result<bool, String> {
        let mut status = 0;
        // SAFETY: a place for the status.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if waited == pid { Ok(libc::WIFSTOPPED(status)) } else { Err("the child is lost".into()) }
    }

    fn registers(pid: libc::pid_t) -> Result<libc::user_regs_struct, String> {
        // SAFETY: plain numbers.
        let mut registers: libc::user_regs_struct = unsafe { core::mem::zeroed() };
        // SAFETY: the child is stopped; a place for its registers.
        let read = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers) };
        if read == 0 { Ok(registers) } else { Err("the registers of the child cannot be read".into()) }
    }

    /// A word of the child's stack.
    fn peek(pid: libc::pid_t, address: u64) -> usize {
        // SAFETY: the child is stopped; reads its memory only.
        let word = unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, pid, address, 0) };
        usize::try_from(word).unwrap_or(0)
    }

    /// Whether the instruction at this address of the code, which parent and child share, is a conditional jump.
    fn is_conditional(at: usize) -> bool {
        // SAFETY: an address that the child runs; the code is mapped here as well, and instructions are readable.
        let first = unsafe { core::ptr::with_exposed_provenance::<u8>(at).read_volatile() };
        if (0x70..0x80).contains(&first) {
            return true;
        }
        // SAFETY: as above; an instruction that begins so has a second byte.
        first == 0x0f
            && unsafe { core::ptr::with_exposed_provenance::<u8>(at + 1).read_volatile() } & 0xf0 == 0x80
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    use std::fmt::Write as _;
    use std::process::ExitCode;

    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/counts.txt");
    let table = cases::table();
    let starts: Vec<usize> = table.iter().map(|&(.., start)| start).collect();
    let mut owners = cases::Owners::new();
    let counts = match step::count(&starts, || owners.run()) {
        Ok(counts) => counts,
        Err(reason) => {
            println!("skipped: {reason}");
            return ExitCode::SUCCESS;
        }
    };
    let least = |column: usize, case: &str| {
        let rows = table.iter().filter(|row| (row.0, row.1) == (column, case));
        rows.filter_map(|row| counts.get(&row.2).copied()).min()
    };
    let allowed = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = String::new();
    let mut grown = 0;
    println!("| instructions / conditional branches | {} |", cases::COLUMNS.join(" | "));
    println!("|---|{}", "---:|".repeat(cases::COLUMNS.len()));
    for &(_, case, _) in table.iter().filter(|row| row.0 == 0) {
        let name = case.replace('_', " ");
        let cells = (0..cases::COLUMNS.len()).map(|column| {
            least(column, case).map_or_else(|| "-".into(), |(all, branches)| format!("{all} / {branches}"))
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
        let Some((all, branches)) = least(0, case) else { continue };
        let _ = writeln!(lines, "{name}: {all} {branches}");
        let limit = allowed.lines().find_map(|line| {
            let (all, branches) = line.strip_prefix(&format!("{name}: "))?.split_once(' ')?;
            Some((all.parse::<u32>().ok()?, branches.parse::<u32>().ok()?))
        });
        if let Some(limit) = limit.filter(|limit| all > limit.0 || branches > limit.1) {
            grown += 1;
            println!("| **{name} was** | **{} / {}** |", limit.0, limit.1);
        }
    }
    let compiler = compiler();
    if std::env::args().any(|word| word == "--write") {
        return std::fs::write(path, format!("{compiler}\n{lines}"))
            .map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if allowed.lines().next() != Some(&*compiler) {
        println!("\nnot compared: this is {compiler}, benches/counts.txt is of another compiler");
        return ExitCode::SUCCESS;
    }
    if grown > 0 {
        println!("\n{grown} counts grew over those in benches/counts.txt");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The compiler, which counts depend on: `rustc 1.95.0 (…)`.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|_| "an unknown compiler".to_owned())
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    println!("skipped: instructions are counted on Linux and x86-64 only");
}
