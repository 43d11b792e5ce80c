#![expect(unsafe_code, reason = "the micro-kernels take raw pointers")]
//! The micro-kernels of the `gemm` crates, behind bounds.
//!
//! ```text
//!            cols ≤ kernels.cols_max                    a tile: out += alpha · a · b, with
//!        ┌──────────────┐                               * b row-major, its columns readable up to
//!  rows  │  out tile    │ = a[rows, inner] · b[inner, cols]   a multiple of `lanes`
//!  ≤ rows_max ──────────┘                               * a anywhere
//! ```
//!
//! Deliberately absent: blocking and packing, see [`super::product`]; the crate's own driver is not used,
//! since it allocates in each call.

use super::product::Matrix;
use crate::kernel::numeric::Float;
use core::cell::Cell;
use gemm_f32::microkernel as f32_kernels;
use gemm_f64::microkernel as f64_kernels;
use std::sync::LazyLock;

type TileFn<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    *const T,
    *const T,
    isize,
    isize,
    isize,
    isize,
    isize,
    T,
    T,
    u8,
    bool,
    bool,
    bool,
    *const T,
);

type DotFn<T> =
    unsafe fn(usize, *mut T, *const T, *const T, isize, isize, isize, isize, T, T, u8, bool, bool, bool);

/// The micro-kernels for one element type that suit this machine.
///
/// # Invariants
/// * **K1** `tiles` has `cols_max / lanes` rows of `rows_max` kernels; kernel `[c − 1][r − 1]` computes up
///   to `c · lanes` columns and `r` rows. `dots`, if any, has `dots_max` rows of `dots_max` kernels.
/// * **K2** The machine has the instructions that the kernels use.
pub(crate) struct MicroKernels<T: 'static> {
    /// Columns that one vector holds.
    pub(super) lanes: usize,
    /// The most columns of a tile.
    pub(super) cols_max: usize,
    /// The most rows of a tile.
    pub(super) rows_max: usize,
    /// The most rows and columns of a tile of dot products; 0 where there are no such kernels.
    pub(super) dots_max: usize,
    tiles: &'static [TileFn<T>],
    dots: &'static [DotFn<T>],
}

macro_rules! micro_kernels {
    ($kernels:ident :: $arch:ident :: $kind:ident, $lanes:expr) => {{
        use $kernels::$arch::$kind::{H_M, H_N, H_UKR, MR_DIV_N, NR, UKR};
        static TILES: [[TileFn<$kind>; NR]; MR_DIV_N] = UKR;
        static DOTS: [[DotFn<$kind>; H_N]; H_M] = H_UKR;
        const { assert!(H_M == H_N, "dot tiles are square") };
        MicroKernels {
            lanes: $lanes,
            cols_max: MR_DIV_N * $lanes,
            rows_max: NR,
            dots_max: H_M,
            tiles: TILES.as_flattened(),
            dots: DOTS.as_flattened(),
        }
    }};
}

/// A type whose products run on micro-kernels.
pub(crate) trait Gemm: Float {
    /// The kernels that suit this machine.
    fn kernels() -> &'static MicroKernels<Self>;
}

macro_rules! gemm {
    ($kind:ident, $kernels:ident, $lanes_of_16_bytes:expr) => {
        impl Gemm for $kind {
            #[inline]
            fn kernels() -> &'static MicroKernels<Self> {
                static KERNELS: LazyLock<MicroKernels<$kind>> = LazyLock::new(|| {
                    #[cfg(target_arch = "x86_64")]
                    {
                        if std::arch::is_x86_feature_detected!("avx512f") {
                            return micro_kernels!($kernels::avx512f::$kind, 4 * $lanes_of_16_bytes);
                        }
                        if std::arch::is_x86_feature_detected!("avx2")
                            && std::arch::is_x86_feature_detected!("fma")
                        {
                            return micro_kernels!($kernels::fma::$kind, 2 * $lanes_of_16_bytes);
                        }
                    }
                    #[cfg(target_arch = "aarch64")]
                    if std::arch::is_aarch64_feature_detected!("neon") {
                        return micro_kernels!($kernels::neon::$kind, $lanes_of_16_bytes);
                    }
                    micro_kernels!($kernels::scalar::$kind, 1)
                });
                &KERNELS
            }
        }
    };
}
gemm!(f32, f32_kernels, 4);
gemm!(f64, f64_kernels, 2);

/// Chooses the kernels of this machine now, so that no later call does.
pub(crate) fn warm_up() {
    let _ = (f32::kernels(), f64::kernels());
}

/// As `isize`; strides of cells in memory always fit.
#[inline(always)]
#[expect(clippy::cast_possible_wrap, reason = "a slice has at most isize::MAX bytes")]
fn signed(step: usize) -> isize {
    step as isize
}

/// `out = alpha · a · b`, added to what `out` holds where `accumulate`.
///
/// `out` is row-major with rows `out_step` apart, of `a.rows × b.cols`.
///
/// # Panics
/// Where the tile is larger than [`MicroKernels`] says, or something lies outside its cells: a bug here.
#[inline]
pub(super) fn tile<T: Gemm>(
    kernels: &MicroKernels<T>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: &[Cell<T>],
    out_step: usize,
    alpha: T,
    accumulate: bool,
) {
    let (rows, cols, inner) = (a.rows, b.cols, a.cols);
    if rows == 0 || cols == 0 || inner == 0 {
        return;
    }
    let padded = cols.next_multiple_of(kernels.lanes);
    assert!(rows <= kernels.rows_max && cols <= kernels.cols_max, "the tile fits a kernel");
    assert!(b.rows == inner && b.col_step == 1, "the factors fit together");
    assert!(a.is_inside() && Matrix { cols: padded, ..b }.is_inside(), "the factors lie in their cells");
    assert!((rows - 1).saturating_mul(out_step).saturating_add(cols) <= out.len(), "out lies in its cells");
    let run = kernels.tiles[(padded / kernels.lanes - 1) * kernels.rows_max + rows - 1];
    // SAFETY:
    // * K2: the machine runs this kernel; K1 and the first assertion: it is the one for `padded` columns
    //   and `rows` rows;
    // * it reads `b[k, 0..padded]` and `a[0..rows, k]` for each `k < inner`: inside their cells, by the
    //   third assertion, initialised and readable, since they are cells;
    // * it reads and writes `out[r, 0..cols]`: inside `out`, by the fourth, and cells may be written;
    // * it takes raw pointers only, so factors that share bytes with `out` are wrong numbers, not
    //   undefined behaviour; no other thread has the cells, which are not `Sync`.
    unsafe {
        run(
            cols,
            rows,
            inner,
            out.as_ptr().cast::<T>().cast_mut(),
            b.cells.as_ptr().cast::<T>(),
            a.cells.as_ptr().cast::<T>(),
            signed(out_step),
            1,
            signed(b.row_step),
            signed(a.col_step),
            signed(a.row_step),
            T::ONE,
            alpha,
            u8::from(accumulate),
            false,
            false,
            false,
            core::ptr::null(),
        );
    }
}

/// As [`tile`], for factors whose inner dimension is contiguous in both.
///
/// # Panics
/// As [`tile`].
#[inline]
pub(super) fn dot_tile<T: Gemm>(
    kernels: &MicroKernels<T>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: &[Cell<T>],
    (out_row_step, out_col_step): (usize, usize),
    alpha: T,
    accumulate: bool,
) {
    let (rows, cols, inner) = (a.rows, b.cols, a.cols);
    if rows == 0 || cols == 0 || inner == 0 {
        return;
    }
    assert!(rows <= kernels.dots_max && cols <= kernels.dots_max, "the tile fits a kernel");
    assert!(b.rows == inner && a.col_step == 1 && b.row_step == 1, "the factors fit together");
    assert!(a.is_inside() && b.is_inside(), "the factors lie in their cells");
    let last =
        (rows - 1).saturating_mul(out_row_step).saturating_add((cols - 1).saturating_mul(out_col_step));
    assert!(last < out.len(), "out lies in its cells");
    let run = kernels.dots[(rows - 1) * kernels.dots_max + cols - 1];
    // SAFETY: as in `tile`; this kernel reads `a[0..rows, 0..inner]` and `b[0..inner, 0..cols]` and nothing
    // past them (its last vector is masked), and writes the `rows × cols` cells checked last.
    unsafe {
        run(
            inner,
            out.as_ptr().cast::<T>().cast_mut(),
            a.cells.as_ptr().cast::<T>(),
            b.cells.as_ptr().cast::<T>(),
            signed(out_col_step),
            signed(out_row_step),
            signed(a.row_step),
            signed(b.col_step),
            T::ONE,
            alpha,
            u8::from(accumulate),
            false,
            false,
            false,
        );
    }
}
