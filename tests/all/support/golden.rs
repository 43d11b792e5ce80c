//! Calls of kernels with results that PyTorch gave, read from `tests/data`.
//!
//! ```text
//! ["aten::t_copy.out", [{"tensor": ["float32", [3, 4], "<base64>"]}], {"out": ["float32", [4, 3], "<base64>"]}]
//! ```
//!
//! Each call runs several times: row-major, and with its tensors stored in other dimension orders.

use super::kernel::{Call, Data};
use arenite::tensor::DType;
use serde_json::Value as Json;

/// How the tensors of a call are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    RowMajor,
    /// The last dimension outermost.
    Reversed,
    /// Each dimension one place further in, the last outermost.
    Turned,
}

impl Stored {
    fn apply(self, data: &Data) -> Data {
        let mut order = data.order.clone();
        match self {
            Self::RowMajor => {}
            Self::Reversed => order.reverse(),
            Self::Turned => order.rotate_right(1.min(data.order.len())),
        }
        data.in_order(&order)
    }
}

/// The bytes that unpadded base64 stands for.
fn base64(text: &str) -> Vec<u8> {
    let digits = text.bytes().map(|byte| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    });
    let (mut out, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held & 0xff).try_into().unwrap());
        }
    }
    out
}

fn data(json: &Json) -> Data {
    let sizes: Vec<usize> =
        json[1].as_array().unwrap().iter().map(|size| size.as_u64().unwrap().try_into().unwrap()).collect();
    let dtype = DType::from_name(json[0].as_str().unwrap()).unwrap();
    Data::of_bytes(dtype, &sizes, &base64(json[2].as_str().unwrap()))
}

fn items(json: &Json) -> &Vec<Json> {
    json.as_array().unwrap()
}

fn with(call: Call, argument: &Json, stored: Stored) -> Call {
    let (kind, value) = argument.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "tensor" => call.tensor(&stored.apply(&data(value))),
        "inplace" => call.out_like(&stored.apply(&data(value))),
        "tensors" => {
            call.tensors(&items(value).iter().map(|item| stored.apply(&data(item))).collect::<Vec<_>>())
        }
        "optional" => call.optional_tensors(
            &items(value)
                .iter()
                .map(|item| (!item.is_null()).then(|| stored.apply(&data(item))))
                .collect::<Vec<_>>(),
        ),
        "ints" => call.ints(&items(value).iter().map(|item| item.as_i64().unwrap()).collect::<Vec<_>>()),
        "doubles" => {
            call.doubles(&items(value).iter().map(|item| item.as_f64().unwrap()).collect::<Vec<_>>())
        }
        "int" => call.int(value.as_i64().unwrap()),
        "bool" => call.bool(value.as_bool().unwrap()),
        "double" => call.double(value.as_f64().unwrap()),
        "none" => call.none(),
        other => panic!("argument kind {other}"),
    }
}

/// Compares one case; `close` says when two results are equal.
fn check(case: &Json, inputs: Stored, outs: Stored, close: fn(&Data, &Data) -> bool) {
    let name = case[0].as_str().unwrap();
    let mut call = Call::new(name);
    for argument in items(&case[1]) {
        call = with(call, argument, inputs);
    }
    let (kind, value) = case[2].as_object().unwrap().iter().next().unwrap();
    let wanted: Vec<Data> =
        if kind == "outs" { items(value).iter().map(data).collect() } else { vec![data(value)] };
    let stale = |wanted: &Data| outs.apply(&Data::stale(wanted.dtype, &wanted.sizes));
    call = match kind.as_str() {
        "inplace" => call,
        "outs" => call.outs(&wanted.iter().map(stale).collect::<Vec<_>>()),
        _ => call.out_like(&stale(&wanted[0])),
    };
    let outcome = call.run().unwrap_or_else(|error| panic!("{name} {inputs:?} {outs:?}: {error}\n{case}"));
    for (at, wanted) in wanted.iter().enumerate() {
        let got = Stored::RowMajor.apply(outcome.tensor(at));
        let order = wanted.order.clone();
        let got = got.in_order(&order);
        assert!(close(&got, wanted), "{name} {inputs:?} {outs:?} output {at}: {got:?}\n{case}");
    }
}

/// Runs every case of these operators, and says how many there were.
pub fn run(text: &str, names: &[&str], close: fn(&Data, &Data) -> bool) -> usize {
    let cases: Json = serde_json::from_str(text).unwrap();
    let mut count = 0;
    for case in items(&cases).iter().filter(|case| names.contains(&case[0].as_str().unwrap())) {
        count += 1;
        check(case, Stored::RowMajor, Stored::RowMajor, close);
        // A strided view of memory means another thing when the memory is stored otherwise.
        if case[0].as_str() == Some("aten::as_strided_copy.out") {
            check(case, Stored::RowMajor, Stored::Turned, close);
            continue;
        }
        check(case, Stored::RowMajor, Stored::Reversed, close);
        check(case, Stored::Reversed, Stored::RowMajor, close);
        check(case, Stored::Turned, Stored::Reversed, close);
        check(case, Stored::Reversed, Stored::Reversed, close);
    }
    count
}

/// Equal byte for byte.
pub fn same_bytes(got: &Data, wanted: &Data) -> bool {
    got.dtype == wanted.dtype && got.sizes == wanted.sizes && got.bytes == wanted.bytes
}

/// The cases of data movement.
pub const INDEX: &str = include_str!("../../data/kernel_index.json");
