//! Convolution against plain loops: every option, order and kind.

use crate::support::kernel::{Call, Data};
use arenite::tensor::{DType, Element};
use half::{bf16, f16};

#[derive(Clone, Debug)]
struct Case {
    input: Vec<usize>,
    weight: Vec<usize>,
    bias: bool,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    transposed: bool,
    output_padding: Vec<i64>,
    groups: usize,
}

impl Case {
    fn new(input: &[usize], weight: &[usize]) -> Self {
        Self {
            input: input.to_vec(),
            weight: weight.to_vec(),
            bias: true,
            stride: vec![1],
            padding: vec![0],
            dilation: vec![1],
            transposed: false,
            output_padding: vec![0],
            groups: 1,
        }
    }

    fn with(mut self, stride: &[i64], padding: &[i64], dilation: &[i64], groups: usize) -> Self {
        (self.stride, self.padding, self.dilation) = (stride.to_vec(), padding.to_vec(), dilation.to_vec());
        self.groups = groups;
        self
    }

    fn transposed(mut self, output_padding: &[i64]) -> Self {
        (self.transposed, self.output_padding) = (true, output_padding.to_vec());
        self
    }

    fn without_bias(mut self) -> Self {
        self.bias = false;
        self
    }

    fn out_channels(&self) -> usize {
        if self.transposed { self.weight[1] * self.groups } else { self.weight[0] }
    }

    /// Sizes and values of the result, by the definition.
    fn naive(&self, input: &[f64], weight: &[f64], bias: &[f64]) -> (Vec<usize>, Vec<f64>) {
        let one = self.input.len() == 3;
        let four = |s: &[usize]| if one { [s[0], s[1], 1, s[2]] } else { [s[0], s[1], s[2], s[3]] };
        let pair = |v: &[i64], row: i64| match *v {
            [x] if one => [row, x],
            [x] => [x, x],
            [y, x] => [y, x],
            _ => unreachable!(),
        };
        let ([n, c, h, w], [w0, w1, kh, kw]) = (four(&self.input), four(&self.weight));
        let (s, p, d) = (pair(&self.stride, 1), pair(&self.padding, 0), pair(&self.dilation, 1));
        let extra = pair(&self.output_padding, 0);
        let extent = |at: usize, size: usize, k: usize| {
            let (size, k) = (size as i64, k as i64);
            (if self.transposed {
                (size - 1) * s[at] - 2 * p[at] + d[at] * (k - 1) + extra[at] + 1
            } else {
                (size + 2 * p[at] - d[at] * (k - 1) - 1) / s[at] + 1
            }) as usize
        };
        let (oc, oh, ow) = (self.out_channels(), extent(0, h, kh), extent(1, w, kw));
        let mut out = vec![0.0; n * oc * oh * ow];
        let (og, cg) = (oc / self.groups, c / self.groups);
        if self.bias {
            for (at, slot) in out.iter_mut().enumerate() {
                *slot = bias[at / (oh * ow) % oc];
            }
        }
        for b in 0..n {
            for o in 0..oc {
                for ci in 0..cg {
                    let ch = o / og * cg + ci;
                    for i in 0..kh {
                        for j in 0..kw {
                            let weight = if self.transposed {
                                weight[((ch * w1 + o % og) * kh + i) * kw + j]
                            } else {
                                weight[((o * w1 + ci) * kh + i) * kw + j]
                            };
                            let (small_h, small_w) = if self.transposed { (h, w) } else { (oh, ow) };
                            let (large_h, large_w) = if self.transposed { (oh, ow) } else { (h, w) };
                            for y in 0..small_h {
                                for x in 0..small_w {
                                    let ly = y as i64 * s[0] + i as i64 * d[0] - p[0];
                                    let lx = x as i64 * s[1] + j as i64 * d[1] - p[1];
                                    if ly < 0 || lx < 0 || ly >= large_h as i64 || lx >= large_w as i64 {
                                        continue;
                                    }
                                    let (ly, lx) = (ly as usize, lx as usize);
                                    let ((iy, ix), (oy, ox)) =
                                        if self.transposed { ((y, x), (ly, lx)) } else { ((ly, lx), (y, x)) };
                                    out[((b * oc + o) * oh + oy) * ow + ox] +=
                                        weight * input[((b * c + ch) * h + iy) * w + ix];
                                }
                            }
                        }
                    }
                }
            }
        }
        let _ = w0;
        (if one { vec![n, oc, ow] } else { vec![n, oc, oh, ow] }, out)
    }
}

fn reals(count: usize, seed: usize) -> Vec<f64> {
    // Quarters, so that 16-bit floats hold them.
    (0..count).map(|at| ((at * 7919 + seed * 104_729 + at / 9) % 17) as f64 / 4.0 - 2.0).collect()
}

fn encode<T: Element>(values: &[f64], to: impl Fn(f64) -> T, sizes: &[usize]) -> Data {
    Data::new(sizes, &values.iter().map(|&v| to(v)).collect::<Vec<_>>())
}

fn check<T: Element>(
    case: &Case,
    orders: [&[u8]; 3],
    relative: f64,
    scale: f64,
    to: impl Fn(f64) -> T + Copy,
    from: impl Fn(T) -> f64,
) {
    let count = |sizes: &[usize]| sizes.iter().product::<usize>();
    let scaled = |values: Vec<f64>| {
        values.into_iter().map(|v| (v * scale).trunc() / scale.min(4.0)).collect::<Vec<_>>()
    };
    let (input, weight) = (scaled(reals(count(&case.input), 1)), scaled(reals(count(&case.weight), 2)));
    let bias = scaled(reals(case.out_channels(), 3));
    let (sizes, want) = case.naive(&input, &weight, &bias);
    let bias_data = Data::new(&[bias.len()], &bias.iter().map(|&v| v as f32).collect::<Vec<_>>());
    let got = Call::new("aten::convolution.out")
        .tensor(&encode(&input, to, &case.input).in_order(orders[0]))
        .tensor(&encode(&weight, to, &case.weight).in_order(orders[1]))
        .optional(case.bias.then_some(&bias_data))
        .ints(&case.stride)
        .ints(&case.padding)
        .ints(&case.dilation)
        .bool(case.transposed)
        .ints(&case.output_padding)
        .int(case.groups as i64)
        .out_like(&Data::stale(T::DTYPE, &sizes).in_order(orders[2]))
        .run()
        .unwrap();
    for (at, (got, want)) in got.get::<T>().into_iter().zip(&want).enumerate() {
        let got = from(got);
        assert!(
            (got - want).abs() <= relative * (1.0 + want.abs()),
            "{} {case:?} {orders:?}, element {at}: {got} for {want}",
            T::DTYPE
        );
    }
}

fn cases() -> Vec<Case> {
    vec![
        Case::new(&[1, 3, 8, 9], &[5, 3, 3, 3]).with(&[1], &[1], &[1], 1),
        Case::new(&[2, 3, 11, 7], &[4, 3, 3, 2]).with(&[2, 1], &[1, 0], &[1, 2], 1).without_bias(),
        Case::new(&[1, 6, 5, 5], &[8, 6, 1, 1]),
        Case::new(&[2, 40, 4, 6], &[33, 40, 1, 1]).without_bias(),
        Case::new(&[1, 6, 5, 5], &[8, 6, 1, 1]).with(&[2], &[0], &[1], 1),
        Case::new(&[1, 6, 7, 7], &[4, 3, 3, 3]).with(&[1], &[1], &[1], 2),
        Case::new(&[1, 20, 9, 21], &[20, 1, 3, 3]).with(&[1], &[1], &[1], 20),
        Case::new(&[2, 20, 9, 21], &[20, 1, 3, 5]).with(&[2], &[1, 2], &[1], 20).without_bias(),
        Case::new(&[1, 4, 9, 40], &[8, 1, 3, 3]).with(&[2, 3], &[1], &[2], 4),
        Case::new(&[1, 1, 6, 6], &[3, 1, 3, 3]),
        Case::new(&[1, 2, 3, 3], &[2, 2, 1, 1]).with(&[1], &[2], &[1], 1),
        Case::new(&[1, 2, 40, 60], &[3, 2, 9, 9]).with(&[1], &[4], &[1], 1),
        Case::new(&[1, 1, 4, 4], &[2, 1, 2, 2]).with(&[3], &[5], &[3], 1),
        Case::new(&[2, 4, 13], &[6, 4, 3]).with(&[2], &[1], &[1], 1),
        Case::new(&[1, 4, 13], &[4, 1, 3]).with(&[1], &[2], &[2], 4),
        Case::new(&[1, 3, 5, 4], &[3, 2, 3, 3]).transposed(&[0]),
        Case::new(&[2, 4, 5, 4], &[4, 3, 3, 2]).with(&[2, 3], &[1, 0], &[1], 2).transposed(&[1, 2]),
        Case::new(&[1, 4, 3, 3], &[4, 1, 2, 2]).with(&[2], &[0], &[2], 4).transposed(&[1]).without_bias(),
        Case::new(&[1, 4, 7], &[4, 2, 3]).with(&[2], &[1], &[1], 1).transposed(&[1]),
    ]
}

#[test]
fn every_option_in_every_order_matches_the_definition() {
    for case in cases() {
        let plain: &[u8] = if case.input.len() == 3 { &[0, 1, 2] } else { &[0, 1, 2, 3] };
        let last: &[u8] = if case.input.len() == 3 { &[0, 2, 1] } else { &[0, 2, 3, 1] };
        for orders in [
            [plain; 3],
            [last, plain, last],
            [last; 3],
            [plain, last, plain],
            [plain, plain, last],
            [last, plain, plain],
        ] {
            check::<f32>(&case, orders, 1e-6, 4.0, |v| v as f32, f64::from);
        }
        // Rows and columns exchanged: nothing follows without a gap.
        if case.input.len() == 4 {
            check::<f32>(&case, [&[0, 1, 3, 2], plain, &[0, 1, 3, 2]], 1e-6, 4.0, |v| v as f32, f64::from);
        }
    }
}

#[test]
fn every_kind_is_convolved() {
    for case in cases() {
        let plain: &[u8] = if case.input.len() == 3 { &[0, 1, 2] } else { &[0, 1, 2, 3] };
        let orders = [plain; 3];
        check::<f64>(&case, orders, 1e-13, 4.0, |v| v, |v| v);
        check::<f16>(&case, orders, 1.0 / 1024.0, 4.0, f16::from_f64, f64::from);
        check::<bf16>(&case, orders, 1.0 / 128.0, 4.0, bf16::from_f64, f64::from);
        check::<i32>(&case, orders, 0.0, 1.0, |v| v as i32, f64::from);
        check::<i64>(&case, orders, 0.0, 1.0, |v| v as i64, |v| v as f64);
        check::<i16>(&case, orders, 0.0, 1.0, |v| v as i16, f64::from);
    }
}

#[test]
fn an_input_without_elements_gives_the_bias() {
    let got = Call::new("aten::convolution.out")
        .tensor(&Data::new::<f32>(&[2, 3, 0, 4], &[]))
        .tensor(&Data::new(&[2, 3, 1, 1], &[1.0_f32; 6]))
        .tensor(&Data::new(&[2], &[5.0_f32, 6.0]))
        .ints(&[1])
        .ints(&[1, 0])
        .ints(&[1])
        .bool(false)
        .ints(&[0])
        .int(1)
        .out(DType::Float32, &[2, 2, 2, 4])
        .run()
        .unwrap();
    assert_eq!(got.get::<f32>()[..16], [[5.0; 8], [6.0; 8]].concat());
}

fn refusal(case: &Case, out: &[usize]) -> String {
    let zeros = |sizes: &[usize]| Data::new(sizes, &vec![0.0_f32; sizes.iter().product()]);
    Call::new("aten::convolution.out")
        .tensor(&zeros(&case.input))
        .tensor(&zeros(&case.weight))
        .none()
        .ints(&case.stride)
        .ints(&case.padding)
        .ints(&case.dilation)
        .bool(case.transposed)
        .ints(&case.output_padding)
        .int(case.groups as i64)
        .out(DType::Float32, out)
        .run()
        .unwrap_err()
        .to_string()
}

#[test]
fn what_does_not_fit_is_named() {
    let case = Case::new(&[1, 3, 4, 4], &[2, 2, 3, 3]);
    assert_eq!(
        refusal(&case, &[1]),
        "convolution: input (1, 3, 4, 4) and weight (2, 2, 3, 3) do not fit together in 1 groups"
    );
    let case = Case::new(&[1, 2, 2, 4], &[2, 2, 3, 3]);
    assert_eq!(
        refusal(&case, &[1]),
        "convolution: 2 rows with 3 taps, stride 1, padding 0 and dilation 1 give 0, expected at least 1"
    );
    let case = Case::new(&[1, 2, 4, 4], &[2, 2, 3, 3]).with(&[0], &[0], &[1], 1);
    assert_eq!(refusal(&case, &[1]), "convolution: stride is 0, expected 1 to 2147483647");
    let case = Case::new(&[1, 2, 4, 4], &[2, 2, 3, 3]).with(&[1, 1, 1], &[0], &[1], 1);
    assert_eq!(
        refusal(&case, &[1]),
        "convolution: stride has 3 items, expected 1 or one for each of 2 dimensions"
    );
    let case = Case::new(&[1, 2, 4, 4], &[2, 2, 3]);
    assert_eq!(refusal(&case, &[1]), "convolution: input has rank 4 and weight 3, expected both 3 or both 4");
    let case = Case::new(&[1, 2, 4, 4], &[2, 2, 3, 3]).transposed(&[1]);
    assert_eq!(refusal(&case, &[1]), "convolution: output padding 1 is not less than stride 1 or dilation 1");
}
