//! Matrix products against plain loops, for every kind, shape class, order and overlap.

use crate::support::kernel::{Call, Data};
use arenite::tensor::{DType, Element};
use half::{bf16, f16};

/// Small whole numbers that every kind holds exactly, and sums of them up to a point.
fn numbers(count: usize, seed: usize) -> Vec<i64> {
    (0..count).map(|at| ((at * 7 + seed * 13 + at / 5) % 5) as i64 - 2).collect()
}

/// Numbers with fractions, for the kinds that have them.
fn reals(count: usize, seed: usize) -> Vec<f64> {
    (0..count)
        .map(|at| f64::from(u16::try_from((at * 7919 + seed * 104_729) % 2003).unwrap()) / 1001.0 - 1.0)
        .collect()
}

trait Make: Element {
    fn make(value: f64) -> Self;
    fn value(self) -> f64;
}

macro_rules! make {
    ($($kind:ty: $from:expr, $to:expr);+ $(;)?) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_lossless, reason = "small whole numbers")]
        impl Make for $kind {
            fn make(value: f64) -> Self { ($from)(value) }
            fn value(self) -> f64 { ($to)(self) }
        }
    )+};
}
make! {
    f32: |v| v as f32, f64::from;
    f64: |v| v, |v| v;
    f16: f16::from_f64, f64::from;
    bf16: bf16::from_f64, f64::from;
    u8: |v: f64| v as i64 as u8, f64::from;
    i8: |v: f64| v as i64 as i8, f64::from;
    i16: |v: f64| v as i64 as i16, f64::from;
    i32: |v: f64| v as i64 as i32, f64::from;
    i64: |v| v as i64, |v: i64| v as f64;
}

fn data<T: Make>(sizes: &[usize], values: &[f64]) -> Data {
    Data::new(sizes, &values.iter().map(|&value| T::make(value)).collect::<Vec<_>>())
}

fn naive(a: &[f64], b: &[f64], [rows, inner, cols]: [usize; 3]) -> Vec<f64> {
    let mut out = vec![0.0; rows * cols];
    for r in 0..rows {
        for c in 0..cols {
            out[r * cols + c] = (0..inner).map(|i| a[r * inner + i] * b[i * cols + c]).sum();
        }
    }
    out
}

fn assert_close(got: &[f64], want: &[f64], relative: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(
            (got - want).abs() <= relative * (1.0 + want.abs()),
            "{what}, element {at}: {got} for {want}"
        );
    }
}

fn values<T: Make>(data: &Data) -> Vec<f64> {
    data.get::<T>().into_iter().map(Make::value).collect()
}

const SHAPES: [[usize; 3]; 14] = [
    [1, 1, 1],
    [4, 16, 32],
    [4, 32, 8],
    [1, 64, 100],
    [100, 64, 1],
    [3, 5, 7],
    [32, 64, 192],
    [2, 300, 3],
    [33, 257, 65],
    [7, 600, 300],
    [90, 40, 270],
    [13, 1, 9],
    [5, 2, 17],
    [130, 19, 24],
];

fn mm_of<T: Make>() {
    for sizes in SHAPES {
        let [rows, inner, cols] = sizes;
        let a: Vec<f64> = numbers(rows * inner, 1).into_iter().map(|v| v as f64).collect();
        let b: Vec<f64> = numbers(inner * cols, 2).into_iter().map(|v| v as f64).collect();
        let wrap = |v: f64| T::make(v).value();
        let want: Vec<f64> = naive(&a, &b, sizes).into_iter().map(wrap).collect();
        for (a_order, b_order, out_order) in [
            ([0, 1], [0, 1], [0, 1]),
            ([1, 0], [0, 1], [0, 1]),
            ([0, 1], [1, 0], [0, 1]),
            ([0, 1], [0, 1], [1, 0]),
        ] {
            let got = Call::new("aten::mm.out")
                .tensor(&data::<T>(&[rows, inner], &a).in_order(&a_order))
                .tensor(&data::<T>(&[inner, cols], &b).in_order(&b_order))
                .out_like(&Data::stale(T::DTYPE, &[rows, cols]).in_order(&out_order))
                .run()
                .unwrap();
            let what = format!("{} {sizes:?} {a_order:?} {b_order:?} {out_order:?}", T::DTYPE);
            assert_close(&values::<T>(got.tensor(0)), &want, 0.0, &what);
        }
    }
}

#[test]
fn mm_gives_exact_sums_for_every_kind_and_order() {
    mm_of::<f32>();
    mm_of::<f64>();
    mm_of::<f16>();
    mm_of::<bf16>();
    mm_of::<i8>();
    mm_of::<i16>();
    mm_of::<i32>();
    mm_of::<i64>();
}

#[test]
fn mm_of_bytes_wraps() {
    let got = Call::new("aten::mm.out")
        .tensor(&Data::new(&[1, 2], &[200_u8, 100]))
        .tensor(&Data::new(&[2, 1], &[2_u8, 3]))
        .out(DType::UInt8, &[1, 1])
        .run()
        .unwrap();
    assert_eq!(got.get::<u8>(), [188], "700 modulo 256");
}

#[test]
fn mm_of_reals_is_within_a_rounding_of_long_sums() {
    let sizes = [17, 1000, 70];
    let (a, b) = (reals(17 * 1000, 1), reals(1000 * 70, 2));
    let call = |a: &Data, b: &Data, dtype| {
        Call::new("aten::mm.out").tensor(a).tensor(b).out(dtype, &[17, 70]).run().unwrap()
    };
    let want = naive(&a, &b, sizes);
    let got = call(&data::<f32>(&[17, 1000], &a), &data::<f32>(&[1000, 70], &b), DType::Float32);
    assert_close(&values::<f32>(got.tensor(0)), &want, 1e-5, "f32");
    let got = call(&data::<f64>(&[17, 1000], &a), &data::<f64>(&[1000, 70], &b), DType::Float64);
    assert_close(&values::<f64>(got.tensor(0)), &want, 1e-13, "f64");
    // 16-bit factors, exact in f32, summed there: one rounding at the end.
    let round = |v: &[f64]| v.iter().map(|&v| bf16::from_f64(v).to_f64()).collect::<Vec<_>>();
    let want = naive(&round(&a), &round(&b), sizes);
    let got = call(&data::<bf16>(&[17, 1000], &a), &data::<bf16>(&[1000, 70], &b), DType::BFloat16);
    assert_close(&values::<bf16>(got.tensor(0)), &want, 1.0 / 256.0, "bf16");
}

#[test]
fn bmm_multiplies_each_batch_in_any_order() {
    let (batch, sizes) = (3, [5, 4, 6]);
    let (a, b) = (reals(3 * 20, 1), reals(3 * 24, 2));
    let want: Vec<f64> =
        (0..batch).flat_map(|at| naive(&a[at * 20..][..20], &b[at * 24..][..24], sizes)).collect();
    for order in [[0, 1, 2], [1, 0, 2], [0, 2, 1], [2, 1, 0]] {
        let got = Call::new("aten::bmm.out")
            .tensor(&data::<f32>(&[3, 5, 4], &a).in_order(&order))
            .tensor(&data::<f32>(&[3, 4, 6], &b).in_order(&order))
            .out_like(&Data::stale(DType::Float32, &[3, 5, 6]).in_order(&order))
            .run()
            .unwrap();
        assert_close(&values::<f32>(got.tensor(0)), &want, 1e-6, &format!("{order:?}"));
    }
}

fn addmm_of<T: Make>(relative: f64) {
    let (a, b) = (numbers(3 * 4, 1), numbers(4 * 20, 2));
    let (a, b): (Vec<f64>, Vec<f64>) =
        (a.iter().map(|&v| v as f64).collect(), b.iter().map(|&v| v as f64).collect());
    for (bias, beta, alpha) in
        [(vec![20], 1, 1), (vec![3, 20], 2, 1), (vec![], 1, 3), (vec![3, 1], 1, 2), (vec![1], 0, 1)]
    {
        let start: Vec<f64> = numbers(bias.iter().product(), 3).into_iter().map(|v| v as f64).collect();
        let got = Call::new("aten::addmm.out")
            .tensor(&data::<T>(&bias, &start))
            .tensor(&data::<T>(&[3, 4], &a))
            .tensor(&data::<T>(&[4, 20], &b))
            .int(beta)
            .int(alpha)
            .out(T::DTYPE, &[3, 20])
            .run()
            .unwrap();
        let want: Vec<f64> = naive(&a, &b, [3, 4, 20])
            .into_iter()
            .enumerate()
            .map(|(at, sum)| {
                let start = match bias[..] {
                    [] | [1] => start[0],
                    [20] => start[at % 20],
                    [3, 1] => start[at / 20],
                    _ => start[at],
                };
                alpha as f64 * sum + beta as f64 * start
            })
            .collect();
        assert_close(&values::<T>(got.tensor(0)), &want, relative, &format!("{} {bias:?}", T::DTYPE));
    }
}

#[test]
fn addmm_stretches_scales_and_adds_for_every_kind() {
    addmm_of::<f32>(0.0);
    addmm_of::<f64>(0.0);
    addmm_of::<f16>(0.0);
    addmm_of::<bf16>(0.0);
    addmm_of::<i8>(0.0);
    addmm_of::<i32>(0.0);
    addmm_of::<i64>(0.0);
}

#[test]
fn addmm_with_beta_zero_still_reads_self() {
    let got = Call::new("aten::addmm.out")
        .tensor(&Data::new(&[1], &[f32::NAN]))
        .tensor(&Data::new(&[1, 1], &[1.0_f32]))
        .tensor(&Data::new(&[1, 1], &[1.0_f32]))
        .int(0)
        .int(1)
        .out(DType::Float32, &[1, 1])
        .run()
        .unwrap();
    assert!(got.get::<f32>()[0].is_nan());
}

#[test]
fn linear_takes_any_leading_dimensions_and_an_optional_bias() {
    let (x, w, bias) = (reals(2 * 3 * 10, 1), reals(7 * 10, 2), reals(7, 3));
    let mut wt = vec![0.0; 70];
    for r in 0..7 {
        for i in 0..10 {
            wt[i * 7 + r] = w[r * 10 + i];
        }
    }
    let want = naive(&x, &wt, [6, 10, 7]);
    for with_bias in [false, true] {
        let bias_data = data::<f32>(&[7], &bias);
        let got = Call::new("aten::linear.out")
            .tensor(&data::<f32>(&[2, 3, 10], &x))
            .tensor(&data::<f32>(&[7, 10], &w))
            .optional(with_bias.then_some(&bias_data))
            .out(DType::Float32, &[2, 3, 7])
            .run()
            .unwrap();
        let want: Vec<f64> =
            want.iter().enumerate().map(|(at, v)| if with_bias { v + bias[at % 7] } else { *v }).collect();
        assert_close(&values::<f32>(got.tensor(0)), &want, 1e-6, "linear");
    }
}

#[test]
fn an_inner_dimension_of_zero_gives_zeros_or_the_start() {
    let empty = |sizes: &[usize]| Data::new::<f32>(sizes, &[]);
    let got = Call::new("aten::mm.out")
        .tensor(&empty(&[2, 0]))
        .tensor(&empty(&[0, 3]))
        .out(DType::Float32, &[2, 3])
        .run()
        .unwrap();
    assert_eq!(got.get::<f32>(), [0.0; 6]);
    let got = Call::new("aten::addmm.out")
        .tensor(&Data::new(&[3], &[1.0_f32, 2.0, 3.0]))
        .tensor(&empty(&[2, 0]))
        .tensor(&empty(&[0, 3]))
        .int(1)
        .int(1)
        .out(DType::Float32, &[2, 3])
        .run()
        .unwrap();
    assert_eq!(got.get::<f32>(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    let got = Call::new("aten::bmm.out")
        .tensor(&empty(&[0, 2, 2]))
        .tensor(&empty(&[0, 2, 2]))
        .out(DType::Float32, &[0, 2, 2])
        .run()
        .unwrap();
    assert_eq!(got.sizes(), [0, 2, 2]);
}

#[test]
fn a_result_over_its_factors_is_right() {
    let (a, b) = (reals(36, 1), reals(36, 2));
    let want = naive(&a, &b, [6, 6, 6]);
    for (nth, offset_bytes) in [(0, 0), (0, 16), (1, 0), (1, 64)] {
        let got = Call::new("aten::mm.out")
            .tensor(&data::<f32>(&[6, 6], &a))
            .tensor(&data::<f32>(&[6, 6], &b))
            .out_over(nth, offset_bytes, DType::Float32, &[6, 6])
            .run()
            .unwrap();
        assert_close(&values::<f32>(got.tensor(0)), &want, 1e-6, "over a factor");
    }
    // Over the start value: at the same places, and shifted.
    for offset_bytes in [0, 8] {
        let got = Call::new("aten::addmm.out")
            .tensor(&data::<f32>(&[6, 6], &b))
            .tensor(&data::<f32>(&[6, 6], &a))
            .tensor(&data::<f32>(&[6, 6], &b))
            .int(1)
            .int(1)
            .out_over(0, offset_bytes, DType::Float32, &[6, 6])
            .run()
            .unwrap();
        let want: Vec<f64> = want.iter().zip(&b).map(|(sum, start)| sum + start).collect();
        assert_close(&values::<f32>(got.tensor(0)), &want, 1e-6, "over the start");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let x = Data::new(&[2, 3], &[0.0_f32; 6]);
    let error =
        Call::new("aten::mm.out").tensor(&x).tensor(&x).out(DType::Float32, &[2, 3]).run().unwrap_err();
    assert_eq!(error.to_string(), "mm: sizes (2, 3) and (2, 3) do not fit together");
    let cube = Data::new(&[1, 2, 3], &[0.0_f32; 6]);
    let error =
        Call::new("aten::bmm.out").tensor(&cube).tensor(&x).out(DType::Float32, &[1]).run().unwrap_err();
    assert_eq!(error.to_string(), "bmm: ranks 3 and 2, expected 3 and 3");
    let other = Data::new(&[3, 1], &[0.0_f64; 3]);
    let error =
        Call::new("aten::mm.out").tensor(&x).tensor(&other).out(DType::Float32, &[2, 1]).run().unwrap_err();
    assert_eq!(error.to_string(), "mm: elements are float64 and float32, expected one kind");
    let bias = Data::new(&[4], &[0.0_f32; 4]);
    let column = Data::new(&[3, 1], &[0.0_f32; 3]);
    let error = Call::new("aten::addmm.out")
        .tensor(&bias)
        .tensor(&x)
        .tensor(&column)
        .int(1)
        .int(1)
        .out(DType::Float32, &[2, 1])
        .run()
        .unwrap_err();
    assert_eq!(error.to_string(), "addmm: sizes (4,) do not stretch over (2, 1)");
    let truth = Data::of_bytes(DType::Bool, &[1, 1], &[1]);
    let error =
        Call::new("aten::mm.out").tensor(&truth).tensor(&truth).out(DType::Bool, &[1, 1]).run().unwrap_err();
    assert_eq!(error.to_string(), "mm: elements are bool, expected float and integer kinds");
}
