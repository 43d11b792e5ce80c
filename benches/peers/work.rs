//! W1 to W8: what arenas of the host are asked.

use super::{Side, layout, numbers, row};
use arenite::{Arena, HeapSpace, HostSpace, SharedArena};
use blink_alloc::{Blink, BlinkAlloc};
use bump_scope::traits::BumpAllocatorTyped as _;
use bump_scope::{Bump as Scoped, BumpBox, alloc::Global, settings::BumpSettings};
use bumpalo::Bump;
use core::alloc::Layout;
use core::hint::black_box;

type Down = Scoped<Global, BumpSettings<1, false>>;

const COUNT: usize = 1000;

/// An arena with memory of the heap, as the others have: what is written into pages of another origin takes a few
/// hundredths more or less, whoever gave them out.
fn heap_arena() -> Arena<HeapSpace> {
    Arena::exact(HeapSpace, COUNT * (4096 + 16)).expect("memory of the heap")
}

/// A warm arena, `COUNT` times an expression, and a reset.
macro_rules! warm_side {
    ($make:expr, $index:ident, $arena:ident, $body:expr) => {{
        let mut owner = $make;
        Some(Box::new(move || {
            let $arena = &owner;
            for $index in 0..COUNT {
                black_box($body);
            }
            owner.reset();
            COUNT
        }) as Side<'_>)
    }};
}

/// One row of warm arenas of each kind.
macro_rules! warm {
    ($name:expr, |$index:ident| $ours:ident => $ours_do:expr, $bump:ident => $bump_do:expr,
     $scoped:ident => $scoped_do:expr, $blink:ident => $blink_do:expr) => {
        row(
            $name,
            [
                warm_side!(heap_arena(), $index, $ours, $ours_do),
                warm_side!(Bump::new(), $index, $bump, $bump_do),
                warm_side!(Down::new(), $index, $scoped, $scoped_do),
                warm_side!(Blink::new(), $index, $blink, $blink_do),
            ],
        )
    };
}

fn families() {
    warm!("W1 alloc u8", |i| a => a.alloc(i as u8), b => b.alloc(i as u8),
        s => s.alloc(i as u8).into_mut(), k => k.put_no_drop(i as u8));
    warm!("W1 alloc u64", |i| a => a.alloc(i), b => b.alloc(i), s => s.alloc(i).into_mut(), k => k.put_no_drop(i));
    warm!("W1 alloc 256 B", |i| a => a.alloc([i; 32]), b => b.alloc([i; 32]),
        s => s.alloc([i; 32]).into_mut(), k => k.put_no_drop([i; 32]));
    warm!("W1 alloc_with 256 B", |i| a => a.alloc_with(|| [i; 32]), b => b.alloc_with(|| [i; 32]),
        s => s.alloc_with(|| [i; 32]).into_mut(), k => k.emplace_no_drop().value([i; 32]));
    warm!("W1 try_alloc u64", |i| a => a.try_alloc(i).ok(), b => b.try_alloc(i).ok(),
        s => s.try_alloc(i).ok().map(BumpBox::into_mut), k => k.emplace_no_drop().try_value(i).ok());
    warm!("W1 slice copy of 17 u32", |i| a => a.alloc_slice_copy(&[i as u32; 17]),
        b => b.alloc_slice_copy(&[i as u32; 17]), s => s.alloc_slice_copy(&[i as u32; 17]).into_mut(),
        k => k.copy_slice(&[i as u32; 17]));
    warm!("W1 slice copy of 4 KiB", |_i| a => a.alloc_slice_copy(black_box(&[7_u8; 4096])),
        b => b.alloc_slice_copy(black_box(&[7_u8; 4096])),
        s => s.alloc_slice_copy(black_box(&[7_u8; 4096])).into_mut(), k => k.copy_slice(black_box(&[7_u8; 4096])));
    warm!("W1 slice fill of 32 u64", |i| a => a.alloc_slice_fill(32, i), b => b.alloc_slice_fill_copy(32, i),
        s => s.alloc_slice_fill(32, i).into_mut(), k => k.copy_slice(&[i; 32]));
    warm!("W1 str of 16", |_i| a => a.alloc_str(black_box("sixteen letters.")),
        b => b.alloc_str(black_box("sixteen letters.")), s => s.alloc_str(black_box("sixteen letters.")).into_mut(),
        k => k.copy_str(black_box("sixteen letters.")));
}

/// Layouts that the compiler does not know.
fn opaque() {
    let mut next = numbers(5);
    let mixed: Vec<Layout> = (0..COUNT).map(|_| layout(1 + next(4096), 1 << next(7))).collect();
    for (name, layouts) in [
        ("W4 opaque layout 64 at 16", vec![layout(64, 16); COUNT]),
        ("W4 opaque layout 1000 at 64", vec![layout(1000, 64); COUNT]),
        ("W4 opaque layout 4000 at 256", vec![layout(4000, 256); COUNT]),
        ("W4 opaque layouts, 1,000 mixed to 4,096 B", mixed),
    ] {
        let layouts = black_box(layouts);
        macro_rules! side {
            ($make:expr, |$arena:ident, $layout:ident| $body:expr) => {{
                let (mut owner, layouts) = ($make, layouts.clone());
                Some(Box::new(move || {
                    let $arena = &owner;
                    for &$layout in &layouts {
                        black_box($body);
                    }
                    owner.reset();
                    COUNT
                }) as Side<'_>)
            }};
        }
        row(
            name,
            [
                side!(Arena::new(HostSpace::new()), |a, l| a.alloc_layout(l)),
                side!(Bump::new(), |b, l| b.alloc_layout(l)),
                side!(Down::new(), |s, l| s.allocate_layout(l)),
                side!(BlinkAlloc::new(), |k, l| k.allocate(l).expect("host memory")),
            ],
        );
    }
}

/// Growing from nothing, and giving everything back.
fn growth() {
    for (name, count) in [("W5 new, one u64, drop", 1_usize), ("W5 new, 1,000 of 256 B, drop; a block", 1000)]
    {
        macro_rules! side {
            ($make:expr, |$arena:ident| $body:expr) => {
                Some(Box::new(move || {
                    let $arena = $make;
                    for _ in 0..count {
                        black_box($body);
                    }
                    count
                }) as Side<'_>)
            };
        }
        let value = black_box([7_u64; 32]);
        if count == 1 {
            row(
                name,
                [
                    side!(Arena::new(HeapSpace), |a| a.alloc(7_u64)),
                    side!(Bump::new(), |b| b.alloc(7_u64)),
                    side!(Down::new(), |s| s.alloc(7_u64).into_mut()),
                    side!(Blink::new(), |k| k.put_no_drop(7_u64)),
                ],
            );
        } else {
            row(
                name,
                [
                    side!(Arena::new(HeapSpace), |a| a.alloc(value)),
                    side!(Bump::new(), |b| b.alloc(value)),
                    side!(Down::new(), |s| s.alloc(value).into_mut()),
                    side!(Blink::new(), |k| k.put_no_drop(value)),
                ],
            );
        }
    }
}

fn scopes() {
    macro_rules! side {
        ($make:expr, |$scope:ident, $index:ident| $body:expr) => {{
            let mut owner = $make;
            Some(Box::new(move || {
                for _ in 0..COUNT {
                    owner.scoped(|$scope| {
                        for $index in 0..8_u64 {
                            black_box($body);
                        }
                    });
                }
                COUNT
            }) as Side<'_>)
        }};
    }
    row(
        "W6 scope of 8 u64",
        [
            side!(Arena::new(HostSpace::new()), |scope, index| scope.alloc(index)),
            None,
            side!(Down::new(), |scope, index| scope.alloc(index).into_mut()),
            None,
        ],
    );
    let big = black_box([7_u64; 8]);
    warm!("W7 64 B many times and reset", |_i| a => a.alloc(big), b => b.alloc(big), s => s.alloc(big).into_mut(),
        k => k.put_no_drop(big));
}

/// Two threads, each 64 B blocks: from one range through views, and from arenas of their own.
fn threads() {
    const BLOCKS: usize = 20_000;
    let two = |work: &(dyn Fn() + Sync)| {
        std::thread::scope(|threads| {
            threads.spawn(work);
            threads.spawn(work);
        });
        BLOCKS
    };
    let big = black_box([7_u64; 8]);
    let mut shared = SharedArena::new(HostSpace::new(), 64 << 20).expect("host memory");
    row(
        "W8 two threads, views of one range; a block and thread, starting threads included",
        [
            Some(Box::new(move || {
                shared.reset();
                two(&|| {
                    let arena = shared.view();
                    (0..BLOCKS).for_each(|_| {
                        black_box(arena.alloc(big));
                    });
                })
            })),
            None,
            None,
            None,
        ],
    );
    row(
        "W8 two threads, an arena each",
        [
            Some(Box::new(move || {
                two(&|| {
                    let arena = Arena::new(HeapSpace);
                    (0..BLOCKS).for_each(|_| {
                        black_box(arena.alloc(big));
                    });
                })
            })),
            Some(Box::new(move || {
                two(&|| {
                    let bump = Bump::new();
                    (0..BLOCKS).for_each(|_| {
                        black_box(bump.alloc(big));
                    });
                })
            })),
            Some(Box::new(move || {
                two(&|| {
                    let bump = Down::new();
                    (0..BLOCKS).for_each(|_| {
                        black_box(bump.alloc(big).into_mut());
                    });
                })
            })),
            Some(Box::new(move || {
                two(&|| {
                    let blink = Blink::new();
                    (0..BLOCKS).for_each(|_| {
                        black_box(blink.put_no_drop(big));
                    });
                })
            })),
        ],
    );
}

/// Every row, after a look at what each gives.
pub(crate) fn all() {
    let (arena, bump, scoped, blink) = (Arena::new(HostSpace::new()), Bump::new(), Down::new(), Blink::new());
    assert_eq!((*arena.alloc(7), *bump.alloc(7), *scoped.alloc(7), *blink.put_no_drop(7)), (7, 7, 7, 7));
    families();
    opaque();
    growth();
    scopes();
    threads();
}
