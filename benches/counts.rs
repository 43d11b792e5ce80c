//! Instructions and conditional branches a call, counted one by one; fails where a count of ours grew.
//!
//! `cargo bench --bench counts`: each case is a function that is not inlined; a child process runs it once, warm,
//! and its parent steps through it. The table in `benches/counts.txt` holds what is allowed. `-- --write` renews
//! it. Needs Linux on x86-64 and leave to trace a child; elsewhere it says so and succeeds.
//!
//! Deliberately absent: time, and tools that have to be installed.

#![allow(missing_docs, unused_crate_dependencies, reason = "a program that measures")]
#![allow(clippy::print_stdout, clippy::elidable_lifetime_names, reason = "a program that measures")]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod cases {
    use arenite::{AllocError, Arena, HostSpace, Pool};
    use bump_scope::{
        Bump as Scoped, BumpBox, alloc::AllocError as ScopedError, alloc::Global, settings::BumpSettings,
        traits::BumpAllocatorTyped as _,
    };
    use bumpalo::Bump;
    use core::alloc::Layout;
    use core::hint::black_box;

    pub(crate) type Up = Scoped<Global, BumpSettings<8, true>>;
    pub(crate) type Down = Scoped<Global, BumpSettings<8, false>>;
    type Ours = Arena<HostSpace>;

    /// A function a case and allocator, that takes and gives what the case says.
    macro_rules! case {
        ($($name:ident($arena:ident: $owner:ty $(, $value:ident: $kind:ty)*) -> $out:ty { $call:expr })*) => {$(
            #[inline(never)]
            #[allow(clippy::needless_lifetimes, reason = "one macro for all signatures")]
            pub(crate) fn $name<'a>($arena: &'a $owner $(, $value: $kind)*) -> $out { $call }
        )*};
    }

    case! {
        u8_ours(a: Ours, v: u8) -> &'a mut u8 { a.alloc(v) }
        u8_bumpalo(a: Bump, v: u8) -> &'a mut u8 { a.alloc(v) }
        u8_up(a: Up, v: u8) -> &'a mut u8 { a.alloc(v).into_mut() }
        u8_down(a: Down, v: u8) -> &'a mut u8 { a.alloc(v).into_mut() }
        u32_ours(a: Ours, v: u32) -> &'a mut u32 { a.alloc(v) }
        u32_bumpalo(a: Bump, v: u32) -> &'a mut u32 { a.alloc(v) }
        u32_up(a: Up, v: u32) -> &'a mut u32 { a.alloc(v).into_mut() }
        u32_down(a: Down, v: u32) -> &'a mut u32 { a.alloc(v).into_mut() }
        u64_ours(a: Ours, v: u64) -> &'a mut u64 { a.alloc(v) }
        u64_bumpalo(a: Bump, v: u64) -> &'a mut u64 { a.alloc(v) }
        u64_up(a: Up, v: u64) -> &'a mut u64 { a.alloc(v).into_mut() }
        u64_down(a: Down, v: u64) -> &'a mut u64 { a.alloc(v).into_mut() }
        try_u64_ours(a: Ours, v: u64) -> Result<&'a mut u64, AllocError> { a.try_alloc(v) }
        try_u64_bumpalo(a: Bump, v: u64) -> Result<&'a mut u64, bumpalo::AllocErr> { a.try_alloc(v) }
        try_u64_up(a: Up, v: u64) -> Result<&'a mut u64, ScopedError> { a.try_alloc(v).map(BumpBox::into_mut) }
        try_u64_down(a: Down, v: u64) -> Result<&'a mut u64, ScopedError> { a.try_alloc(v).map(BumpBox::into_mut) }
        big_ours(a: Ours, v: &[u64; 32]) -> &'a mut [u64; 32] { a.alloc(*v) }
        big_bumpalo(a: Bump, v: &[u64; 32]) -> &'a mut [u64; 32] { a.alloc(*v) }
        big_up(a: Up, v: &[u64; 32]) -> &'a mut [u64; 32] { a.alloc(*v).into_mut() }
        big_down(a: Down, v: &[u64; 32]) -> &'a mut [u64; 32] { a.alloc(*v).into_mut() }
        slice_ours(a: Ours, v: &[u32]) -> &'a mut [u32] { a.alloc_slice_copy(v) }
        slice_bumpalo(a: Bump, v: &[u32]) -> &'a mut [u32] { a.alloc_slice_copy(v) }
        slice_up(a: Up, v: &[u32]) -> &'a mut [u32] { a.alloc_slice_copy(v).into_mut() }
        slice_down(a: Down, v: &[u32]) -> &'a mut [u32] { a.alloc_slice_copy(v).into_mut() }
        str_ours(a: Ours, v: &str) -> &'a mut str { a.alloc_str(v) }
        str_bumpalo(a: Bump, v: &str) -> &'a mut str { a.alloc_str(v) }
        str_up(a: Up, v: &str) -> &'a mut str { a.alloc_str(v).into_mut() }
        str_down(a: Down, v: &str) -> &'a mut str { a.alloc_str(v).into_mut() }
        layout_ours(a: Ours, v: Layout) -> *mut u8 { a.alloc_layout(v).as_ptr() }
        layout_bumpalo(a: Bump, v: Layout) -> *mut u8 { a.alloc_layout(v).as_ptr() }
        layout_up(a: Up, v: Layout) -> *mut u8 { a.allocate_layout(v).as_ptr() }
        layout_down(a: Down, v: Layout) -> *mut u8 { a.allocate_layout(v).as_ptr() }
    }

    #[inline(never)]
    pub(crate) fn scope_ours(arena: &mut Ours, value: u64) -> u64 {
        arena.scoped(|scope| *scope.alloc(value))
    }
    #[inline(never)]
    pub(crate) fn shown_ours(arena: &mut Ours, value: u64) -> u64 {
        arena.scoped(|scope| *black_box(scope.alloc(value)))
    }
    #[inline(never)]
    pub(crate) fn scope_up(arena: &mut Up, value: u64) -> u64 {
        arena.scoped(|scope| *scope.alloc(value).into_mut())
    }
    #[inline(never)]
    pub(crate) fn shown_up(arena: &mut Up, value: u64) -> u64 {
        arena.scoped(|scope| *black_box(scope.alloc(value).into_mut()))
    }
    #[inline(never)]
    pub(crate) fn scope_down(arena: &mut Down, value: u64) -> u64 {
        arena.scoped(|scope| *scope.alloc(value).into_mut())
    }
    #[inline(never)]
    pub(crate) fn shown_down(arena: &mut Down, value: u64) -> u64 {
        arena.scoped(|scope| *black_box(scope.alloc(value).into_mut()))
    }
    #[inline(never)]
    pub(crate) fn reset_ours(arena: &mut Ours) {
        arena.reset();
    }
    #[inline(never)]
    pub(crate) fn reset_bumpalo(arena: &mut Bump) {
        arena.reset();
    }
    #[inline(never)]
    pub(crate) fn block_ours(arena: &Ours, layout: Layout) -> bool {
        arena.allocate(layout).is_ok_and(|block| black_box(block).size_bytes() > 0)
    }
    #[inline(never)]
    pub(crate) fn pool_pair_ours(pool: &Pool<HostSpace>, layout: Layout) {
        if let Ok(block) = pool.allocate(layout) {
            drop(black_box(block));
        }
    }

    /// What is counted: the case, the allocator, where its code starts.
    pub(crate) fn table() -> Vec<(&'static str, &'static str, usize)> {
        macro_rules! rows {
            ($($case:literal: $($who:literal $function:path),*;)*) => {
                vec![$($(($case, $who, $function as *const () as usize)),*),*]
            };
        }
        rows! {
            "alloc u8": "arenite" u8_ours, "bumpalo" u8_bumpalo, "bump-scope up" u8_up, "bump-scope down" u8_down;
            "alloc u32": "arenite" u32_ours, "bumpalo" u32_bumpalo, "bump-scope up" u32_up, "bump-scope down" u32_down;
            "alloc u64": "arenite" u64_ours, "bumpalo" u64_bumpalo, "bump-scope up" u64_up, "bump-scope down" u64_down;
            "try_alloc u64": "arenite" try_u64_ours, "bumpalo" try_u64_bumpalo, "bump-scope up" try_u64_up, "bump-scope down" try_u64_down;
            "alloc 256 B": "arenite" big_ours, "bumpalo" big_bumpalo, "bump-scope up" big_up, "bump-scope down" big_down;
            "slice of 17 u32": "arenite" slice_ours, "bumpalo" slice_bumpalo, "bump-scope up" slice_up, "bump-scope down" slice_down;
            "str of 16": "arenite" str_ours, "bumpalo" str_bumpalo, "bump-scope up" str_up, "bump-scope down" str_down;
            "opaque layout": "arenite" layout_ours, "bumpalo" layout_bumpalo, "bump-scope up" layout_up, "bump-scope down" layout_down;
            "scope of one u64": "arenite" scope_ours, "bump-scope up" scope_up, "bump-scope down" scope_down;
            "the same, its address shown": "arenite" shown_ours, "bump-scope up" shown_up, "bump-scope down" shown_down;
            "reset": "arenite" reset_ours, "bumpalo" reset_bumpalo;
            "block of any space": "arenite" block_ours;
            "pool pair": "arenite" pool_pair_ours;
        }
    }

    /// Everything that the cases need, there and warm.
    pub(crate) struct Owners {
        ours: Ours,
        bumpalo: Bump,
        up: Up,
        down: Down,
        pool: Pool<HostSpace>,
    }

    impl Owners {
        pub(crate) fn new() -> Self {
            let mut owners = Self {
                ours: Arena::new(HostSpace::new()),
                bumpalo: Bump::with_capacity(1 << 16),
                up: Up::with_size(1 << 16),
                down: Down::with_size(1 << 16),
                pool: Pool::new(HostSpace::new()),
            };
            for _ in 0..3 {
                owners.run();
            }
            owners
        }

        /// Every case once.
        pub(crate) fn run(&mut self) {
            let Self { ours, bumpalo, up, down, pool } = self;
            let layout = black_box(Layout::from_size_align(40, 8).expect("a valid layout"));
            let (big, words, text) = (black_box([7; 32]), black_box([7; 17]), black_box("sixteen letters."));
            macro_rules! all {
                ($($value:expr => $($owner:ident $function:ident)*;)*) => {
                    $($(let _ = black_box($function(black_box($owner), black_box($value)));)*)*
                };
            }
            all! {
                1 => ours u8_ours bumpalo u8_bumpalo up u8_up down u8_down;
                1 => ours u32_ours bumpalo u32_bumpalo up u32_up down u32_down;
                1 => ours u64_ours bumpalo u64_bumpalo up u64_up down u64_down;
                1 => ours try_u64_ours bumpalo try_u64_bumpalo up try_u64_up down try_u64_down;
                &big => ours big_ours bumpalo big_bumpalo up big_up down big_down;
                &words[..] => ours slice_ours bumpalo slice_bumpalo up slice_up down slice_down;
                text => ours str_ours bumpalo str_bumpalo up str_up down str_down;
                layout => ours layout_ours bumpalo layout_bumpalo up layout_up down layout_down;
                layout => ours block_ours pool pool_pair_ours;
                7 => ours scope_ours up scope_up down scope_down;
                7 => ours shown_ours up shown_up down shown_down;
            }
            reset_ours(black_box(ours));
            reset_bumpalo(black_box(bumpalo));
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
    let allowed = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = String::new();
    let mut grown = 0;
    println!("| instructions / conditional branches | arenite | bumpalo | bump-scope up | bump-scope down |");
    println!("|---|---:|---:|---:|---:|");
    let mut cases: Vec<&str> = table.iter().map(|row| row.0).collect();
    cases.dedup();
    for case in cases {
        print!("| {case} ");
        for who in ["arenite", "bumpalo", "bump-scope up", "bump-scope down"] {
            let row = table.iter().find(|row| (row.0, row.1) == (case, who));
            match row.and_then(|row| counts.get(&row.2)) {
                Some((instructions, branches)) => print!("| {instructions} / {branches} "),
                None => print!("| - "),
            }
            let Some((instructions, branches)) = row.and_then(|row| counts.get(&row.2)) else { continue };
            if who != "arenite" {
                continue;
            }
            let _ = writeln!(lines, "{case}: {instructions} {branches}");
            let limit = allowed.lines().find_map(|line| {
                let (instructions, branches) = line.strip_prefix(&format!("{case}: "))?.split_once(' ')?;
                Some((instructions.parse::<u32>().ok()?, branches.parse::<u32>().ok()?))
            });
            if limit.is_some_and(|limit| *instructions > limit.0 || *branches > limit.1) {
                grown += 1;
                print!("**was {} / {}** ", limit.unwrap_or_default().0, limit.unwrap_or_default().1);
            }
        }
        println!("|");
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
