//! W2: what collections ask of an allocator, through each crate's own trait.

use super::{Side, row};
use allocator_api2::alloc::Allocator as _;
use arenite::{Arena, HostSpace};
use blink_alloc::BlinkAlloc;
use bump_scope::alloc::{Allocator as _, Global};
use bump_scope::{Bump as Scoped, settings::BumpSettings};
use bumpalo::Bump;
use core::alloc::Layout;
use core::hint::black_box;
use core::ptr::NonNull;

type Down = Scoped<Global, BumpSettings<1, false>>;

const COUNT: usize = 500;

/// So many words, a number that the compiler does not know.
fn words(count: usize) -> Layout {
    Layout::array::<u64>(black_box(count)).expect("a valid layout")
}

/// One side: a warm arena, the calls `COUNT` times, and a reset.
macro_rules! side {
    ($make:expr, |$arena:ident| $body:block) => {{
        let mut owner = $make;
        Some(Box::new(move || {
            {
                let $arena = &&owner;
                for _ in 0..COUNT {
                    black_box($body);
                }
            }
            owner.reset();
            COUNT
        }) as Side<'_>)
    }};
}

/// A row for crates whose trait is one of `allocator-api2` or like it; the last has calls of its own.
macro_rules! calls {
    ($name:expr, |$arena:ident| $body:block, |$blink:ident| $blink_body:block) => {
        row(
            $name,
            [
                side!(Arena::new(HostSpace::new()), |$arena| $body),
                side!(Bump::new(), |$arena| $body),
                side!(Down::new(), |$arena| $body),
                side!(BlinkAlloc::new(), |$blink| $blink_body),
            ],
        )
    };
}

fn thin(block: NonNull<[u8]>) -> NonNull<u8> {
    block.cast()
}

/// A block of four words with something in it, as collections have: what is copied unwritten touches other lines of the
/// cache from one arrangement of blocks to the next.
fn written(block: NonNull<[u8]>) -> NonNull<u8> {
    // SAFETY: callers pass a new block of four words.
    unsafe { block.cast::<[u64; 4]>().write([7; 4]) };
    block.cast()
}

/// Every row.
pub(crate) fn all() {
    calls!("W2 allocate 8 words", |a| { a.allocate(words(8)).expect("memory") }, |k| {
        k.allocate(words(8)).expect("memory")
    });
    calls!(
        "W2 allocate and deallocate",
        |a| {
            let block = thin(a.allocate(words(8)).expect("memory"));
            // SAFETY: allocated just now with this layout.
            unsafe { a.deallocate(black_box(block), words(8)) };
        },
        |k| {
            let block = thin(k.allocate(words(8)).expect("memory"));
            // SAFETY: allocated just now with this size.
            unsafe { k.deallocate(black_box(block), words(8).size()) };
        }
    );
    calls!(
        "W2 allocate 4 words, grow to 8",
        |a| {
            let block = thin(a.allocate(words(4)).expect("memory"));
            // SAFETY: allocated just now with this layout.
            unsafe { a.grow(black_box(block), words(4), words(8)) }.expect("memory")
        },
        |k| {
            let block = thin(k.allocate(words(4)).expect("memory"));
            // SAFETY: allocated just now with this layout.
            unsafe { k.resize(black_box(block), words(4), words(8)) }.expect("memory")
        }
    );
    calls!(
        "W2 two of 4 words written, grow the first to 8",
        |a| {
            let block = written(a.allocate(words(4)).expect("memory"));
            black_box(written(a.allocate(words(4)).expect("memory")));
            // SAFETY: allocated just now with this layout.
            unsafe { a.grow(black_box(block), words(4), words(8)) }.expect("memory")
        },
        |k| {
            let block = written(k.allocate(words(4)).expect("memory"));
            black_box(written(k.allocate(words(4)).expect("memory")));
            // SAFETY: allocated just now with this layout.
            unsafe { k.resize(black_box(block), words(4), words(8)) }.expect("memory")
        }
    );
    calls!(
        "W2 allocate 8 words, shrink to 4",
        |a| {
            let block = thin(a.allocate(words(8)).expect("memory"));
            // SAFETY: allocated just now with this layout.
            unsafe { a.shrink(black_box(block), words(8), words(4)) }.expect("memory")
        },
        |k| {
            let block = thin(k.allocate(words(8)).expect("memory"));
            // SAFETY: allocated just now with this layout.
            unsafe { k.resize(black_box(block), words(8), words(4)) }.expect("memory")
        }
    );
}
