//! Primitive operators count as Python counts, and refuse what has no answer.

use crate::support::kernel::{Call, Data};
use arenite::kernel::{KernelError, KernelRegistry};
use arenite::tensor::{Bool, DType};
use arenite::value::Value;
use half::{bf16, f16};

/// Calls with plain values; gives the value of the last argument afterwards.
fn prim(name: &str, args: &[Value]) -> Result<Value, KernelError> {
    let mut call = Call::new(name);
    for &arg in args {
        call = call.value(arg);
    }
    call.value(Value::None).run().map(|outcome| *outcome.values.last().unwrap())
}

use Value::{Bool as B, Double as D, Int as I};

fn op(name: &str, args: &[Value]) -> Value {
    prim(&format!("executorch_prim::{name}"), args).unwrap()
}

fn error(name: &str, args: &[Value]) -> String {
    prim(&format!("executorch_prim::{name}"), args).unwrap_err().to_string()
}

#[test]
fn all_28_are_there() {
    let names = KernelRegistry::new().names();
    let prims = names.iter().filter(|name| name.starts_with("executorch_prim::")).count();
    assert_eq!(prims, 25);
    for name in ["aten::sym_size.int", "aten::sym_numel", "aten::_local_scalar_dense"] {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn arithmetic_keeps_ints_and_mixes_to_double() {
    assert_eq!(op("add.Scalar", &[I(3), I(4)]), I(7));
    assert_eq!(op("add.Scalar", &[I(3), D(0.5)]), D(3.5));
    assert_eq!(op("sub.Scalar", &[I(3), I(4)]), I(-1));
    assert_eq!(op("mul.Scalar", &[D(1.5), I(4)]), D(6.0));
    assert_eq!(op("truediv.Scalar", &[I(1), I(0)]), D(f64::INFINITY));
    assert_eq!(op("truediv.Scalar", &[I(7), I(2)]), D(3.5));
    assert_eq!(op("neg.Scalar", &[I(5)]), I(-5));
    assert_eq!(op("neg.Scalar", &[D(0.5)]), D(-0.5));
}

#[test]
fn divisions_round_as_their_names_say() {
    for (a, b, floor, quotient, remainder) in
        [(7, 2, 3, 3, 1), (-7, 2, -4, -3, -1), (7, -2, -4, -3, 1), (-7, -2, 3, 3, -1), (6, -3, -2, -2, 0)]
    {
        assert_eq!(op("floordiv.Scalar", &[I(a), I(b)]), I(floor), "{a} // {b}");
        assert_eq!(op("floordiv.int", &[I(a), I(b)]), I(quotient), "{a} / {b}");
        assert_eq!(op("mod.int", &[I(a), I(b)]), I(remainder), "{a} % {b}");
        assert_eq!(op("mod.Scalar", &[I(a), I(b)]), I(remainder), "{a} % {b}");
    }
    assert_eq!(op("floordiv.Scalar", &[D(-7.0), I(2)]), D(-4.0));
}

#[test]
fn what_has_no_answer_is_an_error() {
    assert_eq!(error("floordiv.Scalar", &[I(1), I(0)]), "1 // 0: division by zero");
    assert_eq!(error("floordiv.int", &[I(1), I(0)]), "1 // 0: division by zero");
    assert_eq!(error("mod.Scalar", &[I(1), I(0)]), "1 % 0: division by zero");
    assert_eq!(error("mod.int", &[I(1), I(0)]), "1 % 0: division by zero");
    let min = i64::MIN;
    assert_eq!(error("floordiv.Scalar", &[I(min), I(-1)]), format!("{min} // -1 does not fit an int"));
    assert_eq!(error("mod.int", &[I(min), I(-1)]), format!("{min} % -1 does not fit an int"));
    assert_eq!(error("add.Scalar", &[I(i64::MAX), I(1)]), format!("{} + 1 does not fit an int", i64::MAX));
    assert_eq!(error("neg.Scalar", &[I(min)]), format!("0 - {min} does not fit an int"));
    assert_eq!(error("sym_int.Scalar", &[D(1e30)]), "1000000000000000000000000000000 does not fit an int");
    assert_eq!(error("ceil.Scalar", &[D(f64::NAN)]), "NaN does not fit an int");
    assert_eq!(error("add.Scalar", &[B(true), I(1)]), "argument 0 is bool, expected int or float");
    assert_eq!(error("mod.Scalar", &[D(1.0), I(1)]), "argument 0 is float, expected int");
    assert_eq!(error("lt.Scalar", &[B(true), I(1)]), "argument 0 is bool, expected int or float");
}

#[test]
fn comparisons_mix_ints_and_doubles() {
    for (name, less, equal, more) in [
        ("eq.Scalar", false, true, false),
        ("lt.Scalar", true, false, false),
        ("le.Scalar", true, true, false),
        ("gt.Scalar", false, false, true),
        ("ge.Scalar", false, true, true),
    ] {
        for (other, wanted) in [(3, less), (2, equal), (1, more)] {
            assert_eq!(op(name, &[I(2), I(other)]), B(wanted), "{name} 2 {other}");
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let real = D(other as f64);
            assert_eq!(op(name, &[I(2), real]), B(wanted), "{name} 2 {other} as double");
        }
        assert_eq!(op(name, &[B(false), B(true)]), B(less), "{name} false true");
        assert_eq!(op(name, &[B(true), B(true)]), B(equal), "{name} true true");
        assert_eq!(op(name, &[B(true), B(false)]), B(more), "{name} true false");
    }
    assert_eq!(op("lt.Scalar", &[I(i64::MAX - 1), I(i64::MAX)]), B(true));
}

#[test]
fn choices_and_conversions() {
    assert_eq!(op("sym_not.Scalar", &[B(true)]), B(false));
    assert_eq!(op("sym_ite.Scalar", &[B(true), I(1), D(2.0)]), I(1));
    assert_eq!(op("sym_ite.Scalar", &[B(false), I(1), D(2.0)]), D(2.0));
    assert_eq!(op("sym_max.Scalar", &[I(1), I(-2)]), I(1));
    assert_eq!(op("sym_min.Scalar", &[I(1), I(-2)]), I(-2));
    assert_eq!(op("sym_float.Scalar", &[I(3)]), D(3.0));
    assert_eq!(op("sym_int.Scalar", &[D(-3.7)]), I(-3));
    assert_eq!(op("ceil.Scalar", &[D(1.2)]), I(2));
    assert_eq!(op("trunc.Scalar", &[D(-1.8)]), I(-1));
    for (value, wanted) in [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2)] {
        assert_eq!(op("round.Scalar", &[D(value)]), I(wanted), "{value}");
    }
}

#[test]
fn sizes_are_read_now() {
    let x = Data::stale(DType::Int8, &[2, 3]);
    let size = |dim| {
        let call = Call::new("aten::sym_size.int").tensor(&x).int(dim).value(Value::None);
        call.run().map(|outcome| outcome.values[2])
    };
    assert_eq!(size(1), Ok(I(3)));
    assert_eq!(size(-1).unwrap_err().to_string(), "dimension -1 of a tensor of sizes (2, 3)");
    assert_eq!(size(2).unwrap_err().to_string(), "dimension 2 of a tensor of sizes (2, 3)");
    let numel = Call::new("aten::sym_numel").tensor(&x).value(Value::None).run().unwrap();
    assert_eq!(numel.values[1], I(6));
}

#[test]
fn the_first_element_becomes_a_value_of_its_kind() {
    let first = |x: &Data| {
        let call = Call::new("aten::_local_scalar_dense").tensor(x).value(Value::None);
        call.run().map(|outcome| outcome.values[1])
    };
    assert_eq!(first(&Data::new(&[2], &[-3_i16, 4])), Ok(I(-3)));
    assert_eq!(first(&Data::new(&[], &[u8::MAX])), Ok(I(255)));
    assert_eq!(first(&Data::new(&[], &[i64::MIN])), Ok(I(i64::MIN)));
    assert_eq!(first(&Data::new(&[1], &[f16::from_f32(0.5)])), Ok(D(0.5)));
    assert_eq!(first(&Data::new(&[1], &[bf16::from_f32(-2.0)])), Ok(D(-2.0)));
    assert_eq!(first(&Data::new(&[1], &[0.25_f64])), Ok(D(0.25)));
    assert_eq!(first(&Data::new(&[1], &[Bool::from(true)])), Ok(B(true)));
    let empty = first(&Data::new::<f32>(&[0, 2], &[])).unwrap_err();
    assert_eq!(empty.to_string(), "a tensor of sizes (0, 2) has no element to read");
}

#[test]
fn items_of_a_loop_are_appended() {
    let item = Data::new(&[2], &[5.0_f32, 6.0]);
    let whole = Data::new(&[3, 2], &[0.0_f32; 6]);
    let call =
        |index| Call::new("executorch_prim::et_copy_index.tensor").out_like(&whole).tensor(&item).int(index);
    assert_eq!(call(1).run().unwrap().get::<f32>(), [0.0, 0.0, 5.0, 6.0, 0.0, 0.0]);
    assert_eq!(call(3).run().unwrap_err().to_string(), "index 3 of a tensor of sizes (3, 2)");
    assert_eq!(call(-1).run().unwrap_err().to_string(), "index -1 is negative or too large");
    let grown = Call::new("executorch_prim::et_copy_index.tensor");
    let grown = grown.out_dynamic(DType::Float32, &[3, 2], &[3, 2]).tensor(&item).int(0).run().unwrap();
    assert_eq!((grown.sizes(), grown.get::<f32>()), (&[1, 2][..], vec![5.0, 6.0]));
    let other = Call::new("executorch_prim::et_copy_index.tensor").out_like(&whole).tensor(&whole).int(0);
    assert_eq!(
        other.run().unwrap_err().to_string(),
        "an item of sizes (3, 2) does not fit a tensor of sizes (3, 2)"
    );
}

#[test]
fn a_view_with_memory_of_its_own_is_copied() {
    let x = Data::new(&[2, 3], &[1_i32, 2, 3, 4, 5, 6]);
    let call = |sizes: &[i64]| Call::new("executorch_prim::et_view.default").tensor(&x).ints(sizes);
    let out = call(&[3, -1]).out(DType::Int32, &[3, 2]).run().unwrap();
    assert_eq!(out.get::<i32>(), [1, 2, 3, 4, 5, 6]);
    let error = call(&[4, -1]).out(DType::Int32, &[3, 2]).run().unwrap_err();
    assert_eq!(error.to_string(), "a tensor of sizes (2, 3) cannot be viewed as (4, -1)");
}
