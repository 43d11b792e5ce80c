#![forbid(unsafe_code)]
//! Reads the tensors of a method: sizes, and which of four places the bytes have.
//!
//! ```text
//!   constant index   planned place   place of the bytes
//!        0               no          the caller's                       Storage::Supplied
//!        0               yes         a planned buffer                   Storage::Planned
//!       > 0              no          the constant segment               Storage::Constant
//!       > 0              yes         a planned buffer, filled at load   Storage::Planned { initial }
//!   external data        no / yes    as the last two, from a data file by name
//! ```
//!
//! Deliberately absent: values that are no tensors.

use super::error::Fault;
use super::method::{DataRef, MethodPlan, Storage, TensorSpec};
use super::schema::{AllocationDetails, Tensor, required};
use super::source::Source;
use crate::space::SpaceId;
use crate::tensor::DType;
use crate::tensor::shape::{RANK_MAX, is_permutation, numel};
use planus::Vector;

/// Checks sizes and dimension order, and appends the sizes to `into`.
pub(super) fn check_sizes(sizes: Vector<'_, i32>, order: &[u8], into: &mut Vec<usize>) -> Result<(), Fault> {
    let rank = sizes.len();
    if rank > RANK_MAX {
        return Err(Fault::Rank { rank, limit: RANK_MAX });
    }
    for (dim, size) in sizes.iter().enumerate() {
        into.push(usize::try_from(size).map_err(|_| Fault::Size { dim, size: size.into() })?);
    }
    if order.len() != rank || !is_permutation(order) {
        let order = order.iter().take(RANK_MAX).copied().collect();
        return Err(Fault::Order { order, rank });
    }
    Ok(())
}

/// The bytes of a tensor.
pub(super) fn check_tensor_bytes(dtype: DType, sizes: &[usize]) -> Result<usize, Fault> {
    numel(sizes)
        .and_then(|count| count.checked_mul(dtype.size_bytes()))
        .filter(|&bytes| isize::try_from(bytes).is_ok())
        .ok_or_else(|| Fault::TensorOverflow { dtype, sizes: sizes.into() })
}

/// The space that a device type and index name.
pub(super) fn space_of(device_type: i8, device_index: i8) -> Result<SpaceId, Fault> {
    match (device_type, u16::try_from(device_index)) {
        (0, Ok(0)) => Ok(SpaceId::HOST),
        (1, Ok(index)) => Ok(SpaceId::cuda(index)),
        _ => Err(Fault::Device { device_type, device_index }),
    }
}

/// What a tensor says beside its sizes.
struct Extra<'a> {
    name: Option<&'a str>,
    is_external: bool,
    space: SpaceId,
}

fn read_extra(tensor: Tensor<'_>) -> Result<Extra<'_>, Fault> {
    let Some(extra) = tensor.extra_tensor_info()? else {
        return Ok(Extra { name: None, is_external: false, space: SpaceId::HOST });
    };
    let is_external = match extra.location()? {
        0 => false,
        1 => true,
        tag => return Err(Fault::Tag { what: "location of tensor data", tag: tag.into() }),
    };
    let space = space_of(extra.device_type()?, extra.device_index()?)?;
    Ok(Extra { name: extra.fully_qualified_name()?, is_external, space })
}

impl Source<'_> {
    /// Reads one tensor into `plan`.
    pub(super) fn read_tensor(&mut self, tensor: Tensor<'_>, plan: &mut MethodPlan) -> Result<u32, Fault> {
        let code = i64::from(tensor.scalar_type()?);
        let dtype = DType::from_code(code).ok_or(Fault::DType { code })?;
        let offset = tensor.storage_offset()?;
        if offset != 0 {
            return Err(Fault::StorageOffset { offset: offset.into() });
        }
        let dynamic = match tensor.shape_dynamism()? {
            0 => false,
            1 => true,
            2 => return Err(Fault::Unbounded),
            tag => return Err(Fault::Tag { what: "shape dynamism", tag: tag.into() }),
        };
        let sizes = required(tensor.sizes()?, "sizes")?;
        let order = required(tensor.dim_order()?, "dim_order")?;
        self.budget.charge::<TensorSpec>(1)?;
        self.budget.charge::<(usize, u8)>(sizes.len())?;
        let dims = self.budget.span(plan.sizes.len(), sizes.len())?;
        check_sizes(sizes, order, &mut plan.sizes)?;
        plan.orders.extend_from_slice(order);
        let size_bytes = check_tensor_bytes(dtype, dims.of(&plan.sizes))?;

        let extra = read_extra(tensor)?;
        let name = match extra.name {
            Some(name) => Some(self.text(name, plan)?),
            None => None,
        };
        let mut spec = TensorSpec {
            dtype,
            dynamic,
            dims,
            size_bytes,
            storage: Storage::Supplied,
            space: extra.space,
            name,
        };
        let index = self.budget.index(plan.tensors.len())?;
        let data = if extra.is_external {
            let name = extra.name.ok_or(Fault::ExternalUnnamed)?;
            Data::External(self.external(name, &spec, plan)?)
        } else {
            match tensor.data_buffer_idx()? {
                0 => Data::None,
                constant => Data::Internal(constant),
            }
        };
        if let Some(place) = tensor.allocation_info()? {
            let initial = match data {
                Data::None => None,
                Data::Internal(index) => Some(self.initial(index, size_bytes)?),
                Data::External(found) => found,
            };
            let initial = initial.filter(|_| size_bytes > 0);
            (spec.storage, spec.space) = planned_place(place, &spec, initial, plan)?;
        } else {
            spec.storage = match data {
                Data::None => Storage::Supplied,
                Data::Internal(index) => Storage::Constant(self.constant(index, &spec)?),
                Data::External(Some(found)) => Storage::Constant(self.aligned(found, dtype)?),
                Data::External(None) => Storage::Missing,
            };
            if !matches!(spec.storage, Storage::Supplied) && spec.space != SpaceId::HOST {
                return Err(Fault::ConstantSpace { space: spec.space });
            }
        }
        if matches!(data, Data::External(None)) {
            plan.missing.push(index);
        }
        plan.tensors.push(spec);
        Ok(index)
    }
}

/// Where the bytes of a tensor are written down.
#[derive(Clone, Copy)]
enum Data {
    None,
    /// In the program, by index.
    Internal(u32),
    /// In a data file; `None` where no file that was given has it.
    External(Option<DataRef>),
}

/// The place of a planned tensor, and its space.
fn planned_place(
    place: AllocationDetails<'_>,
    spec: &TensorSpec,
    initial: Option<DataRef>,
    plan: &MethodPlan,
) -> Result<(Storage, SpaceId), Fault> {
    let memory_id = place.memory_id()?;
    let offset = u64::from(place.memory_offset_low()?) | u64::from(place.memory_offset_high()?) << 32;
    let buffer = match plan.buffers.get(memory_id as usize) {
        Some(buffer) if memory_id > 0 => buffer,
        _ => return Err(Fault::MemoryId { memory_id, last: plan.buffers.len().saturating_sub(1) }),
    };
    let start = usize::try_from(offset).ok();
    let end = start.and_then(|start| start.checked_add(spec.size_bytes));
    let (Some(offset_bytes), Some(_)) = (start, end.filter(|&end| end <= buffer.size_bytes)) else {
        return Err(Fault::PlannedOutside {
            buffer: memory_id,
            offset_bytes: offset,
            size_bytes: spec.size_bytes,
            buffer_bytes: buffer.size_bytes,
        });
    };
    let alignment = spec.dtype.size_bytes();
    if !offset_bytes.is_multiple_of(alignment) {
        return Err(Fault::PlannedMisaligned { buffer: memory_id, offset_bytes: offset, alignment });
    }
    // The host is also what a tensor says that says nothing.
    if spec.space != SpaceId::HOST && spec.space != buffer.space {
        return Err(Fault::PlannedSpace { space: spec.space, buffer: memory_id, buffer_space: buffer.space });
    }
    Ok((Storage::Planned { buffer: memory_id, offset_bytes, initial }, buffer.space))
}
