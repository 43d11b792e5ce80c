#![forbid(unsafe_code)]
//! Running sums along a dimension.
//!
//! Deliberately absent: running products and extremes.

use super::plan::{Plan, Reduced};
use super::store::Store;
use super::{check_dtype, fold};
use crate::kernel::cells::apart;
use crate::kernel::numeric::with_numeric;
use crate::kernel::{KernelCall, KernelError};
use crate::tensor::{DType, Dims};

const OUT: usize = 3;

pub(super) fn cumsum(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let rank = call.tensor(0)?.rank();
    let dim = super::wrap("cumsum", call.int(1)?, rank)?;
    let reduced = Reduced::one("cumsum", call.int(1)?, rank)?;
    check_dtype("cumsum", call.optional_int(2)?, call.tensor(OUT)?)?;
    let sizes = Dims::new(call.tensor(0)?.sizes()).unwrap_or_else(Dims::empty);
    call.resize(OUT, &sizes)?;
    let (input, out) = (call.tensor(0)?, call.tensor(OUT)?);
    let plan = Plan::new(input, out, reduced, true, true);
    let out_step = out.strides().get(dim).copied().unwrap_or(1);
    let dtype = out.dtype();
    let store = Store::new("cumsum", OUT, out)?;
    with_numeric!(any, input.dtype(), "cumsum", T => {
        let cells = apart::<T>(input, 0, out, call.scratch())?;
        plan.groups(|from, to| {
            let (mut to, mut real, mut whole) = (to, 0.0, 0_i64);
            plan.runs(from, |from, len, step| {
                for cell in cells[from..].iter().step_by(step).take(len) {
                    if dtype.is_float() {
                        real += crate::kernel::numeric::Numeric::to_f64(cell.get());
                        store.real(to, real);
                    } else {
                        whole = whole.wrapping_add(fold::whole(cell.get(), dtype == DType::Bool));
                        store.whole(to, whole);
                    }
                    to += out_step;
                }
            });
        });
    });
    Ok(())
}
