//! A scope takes back what was allocated in it; nothing can leave it.
#![expect(clippy::print_stdout, reason = "an example prints")]

use arenite::{Arena, HostSpace};

/// The mean of the squares, using scratch memory that is gone when it returns.
fn mean_square(arena: &mut Arena<HostSpace>, values: &[f32]) -> f32 {
    arena.scoped(|scope| {
        let squares = scope.alloc_slice_copy(values);
        for value in squares.iter_mut() {
            *value *= *value;
        }
        squares.iter().sum::<f32>() / values.len() as f32
        // Returning `squares` itself would not compile: it lives as long as the scope, no longer.
    })
}

fn main() {
    let mut arena = Arena::new(HostSpace::new());
    println!("mean square: {}", mean_square(&mut arena, &[1.0, 2.0, 3.0]));
    assert_eq!(arena.live_bytes(), 0);

    // Scopes nest. What the outer one holds stays usable while inner ones come and go.
    let total = arena.scoped(|mut scope| {
        let totals = scope.alloc_slice_fill(3, 0u64);
        for (index, total) in totals.iter_mut().enumerate() {
            *total = scope.scoped(|inner| inner.alloc_slice_fill(100, index as u64).iter().sum());
        }
        totals.iter().sum::<u64>()
    });
    println!("total: {total}");

    // A guard does the same without a closure: it ends its scope when it is dropped, also by `?` or a panic.
    let mut guard = arena.scope_guard();
    let scope = guard.scope();
    let line = scope.alloc_str("gone at the end of the block");
    println!("{line}");
    drop(guard);
    assert_eq!(arena.live_bytes(), 0);

    // A checkpoint is a plain value. Rewinding to it needs the arena mutably, so that nothing allocated
    // since can still be borrowed; a checkpoint that has been passed by is refused.
    let start = arena.checkpoint();
    arena.alloc([0u8; 4096]);
    let later = arena.checkpoint();
    assert!(arena.rewind(start));
    assert!(!arena.rewind(later));
}
