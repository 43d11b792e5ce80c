#![forbid(unsafe_code)]
//! The tables of `.pte` and `.ptd` files: field names, slots, types and defaults.
//!
//! ```text
//!   Program ── ExecutionPlan ── EValue ── Tensor ── AllocationDetails, ExtraTensorInfo
//!                            ├─ Chain ── Instruction ── KernelCall, DelegateCall, …
//!                            ├─ Operator
//!                            └─ BackendDelegate ── BackendDelegateDataReference, CompileSpec
//!   FlatTensor ── DataSegment, NamedData ── TensorLayout
//! ```
//!
//! Deliberately absent: checks. A field is what the file says, inside the file.
//!
//! # Source
//! `program.fbs` and `flat_tensor.fbs` of ExecuTorch, schema version 0. Fields that no reader needs
//! (stack traces, pytree text, `requires_grad`) are left out.

use super::error::Fault;
use super::flat::{Row, Tab, Tables};
use planus::errors::ErrorKind;
use planus::{SliceWithStartOffset, TableRead, Vector};

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident { $($slot:literal $field:ident: $kind:ty $(= $default:expr)?,)* })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub(super) struct $name<'a>(Tab<'a>);

            impl<'a> $name<'a> {
                $(tables!(@field $name $slot $field $kind $(= $default)?);)*
            }

            impl<'a> Row<'a> for $name<'a> {
                const NAME: &'static str = stringify!($name);
            }

            impl<'a> TableRead<'a> for $name<'a> {
                #[inline]
                fn from_buffer(buffer: SliceWithStartOffset<'a>, offset: usize) -> Result<Self, ErrorKind> {
                    Tab::from_buffer(buffer, offset).map(Self)
                }
            }
        )+
    };
    (@field $name:ident $slot:literal $field:ident $kind:ty) => {
        #[inline]
        pub(super) fn $field(&self) -> planus::Result<Option<$kind>> {
            self.0.field($slot, stringify!($name), stringify!($field))
        }
    };
    (@field $name:ident $slot:literal $field:ident $kind:ty = $default:expr) => {
        #[inline]
        pub(super) fn $field(&self) -> planus::Result<$kind> {
            Ok(self.0.field($slot, stringify!($name), stringify!($field))?.unwrap_or($default))
        }
    };
}

tables! {
    /// The root of a program.
    Program {
        0 version: u32 = 0,
        1 execution_plan: Tables<'a>,
        2 constant_buffer: Tables<'a>,
        3 backend_delegate_data: Tables<'a>,
        4 segments: Tables<'a>,
        5 constant_segment: SubsegmentOffsets<'a>,
        6 mutable_data_segments: Tables<'a>,
        7 named_data: Tables<'a>,
    }
    ExecutionPlan {
        0 name: &'a str,
        2 values: Tables<'a>,
        3 inputs: Vector<'a, i32>,
        4 outputs: Vector<'a, i32>,
        5 chains: Tables<'a>,
        6 operators: Tables<'a>,
        7 delegates: Tables<'a>,
        8 non_const_buffer_sizes: Vector<'a, i64>,
        9 non_const_buffer_device: Tables<'a>,
    }
    /// Also `BackendDelegateInlineData`, which has the same one field.
    Buffer { 0 storage: &'a [u8], }
    DataSegment { 0 offset: u64 = 0, 1 size: u64 = 0, }
    SubsegmentOffsets { 0 segment_index: u32 = 0, 1 offsets: Vector<'a, u64>, }
    /// The layout exists in data files only.
    NamedData { 0 key: &'a str, 1 segment_index: u32 = 0, 2 tensor_layout: TensorLayout<'a>, }

    EValue {
        0 val_type: u8 = 0,
        1 null: Tab<'a>,
        1 int: Int<'a>,
        1 bool: Bool<'a>,
        1 double: Double<'a>,
        1 tensor: Tensor<'a>,
        1 string: Text<'a>,
        1 int_list: IntList<'a>,
        1 double_list: DoubleList<'a>,
        1 bool_list: BoolList<'a>,
        1 tensor_list: TensorList<'a>,
    }
    Int { 0 int_val: i64 = 0, }
    Bool { 0 bool_val: bool = false, }
    Double { 0 double_val: f64 = 0.0, }
    Text { 0 string_val: &'a str, }
    IntList { 0 items: Vector<'a, i64>, }
    DoubleList { 0 items: Vector<'a, f64>, }
    BoolList { 0 items: &'a [u8], }
    /// Also `OptionalTensorList`, which has the same one field.
    TensorList { 0 items: Vector<'a, i32>, }

    Tensor {
        0 scalar_type: i8 = 0,
        1 storage_offset: i32 = 0,
        2 sizes: Vector<'a, i32>,
        3 dim_order: &'a [u8],
        5 data_buffer_idx: u32 = 0,
        6 allocation_info: AllocationDetails<'a>,
        8 shape_dynamism: i8 = 0,
        9 extra_tensor_info: ExtraTensorInfo<'a>,
    }
    AllocationDetails { 0 memory_id: u32 = 0, 1 memory_offset_low: u32 = 0, 2 memory_offset_high: u32 = 0, }
    ExtraTensorInfo {
        1 fully_qualified_name: &'a str,
        2 location: i8 = 0,
        3 device_type: i8 = 0,
        4 device_index: i8 = 0,
    }
    NonConstBufferDevice { 0 buffer_idx: i32 = 0, 1 device_type: i8 = 0, 2 device_index: i8 = 0, }

    Operator { 0 name: &'a str, 1 overload: &'a str, }
    BackendDelegate {
        0 id: &'a str,
        1 processed: BackendDelegateDataReference<'a>,
        2 compile_specs: Tables<'a>,
    }
    BackendDelegateDataReference { 0 location: i8 = 0, 1 index: u32 = 0, }
    CompileSpec { 0 key: &'a str, 1 value: &'a [u8], }

    Chain { 2 instructions: Tables<'a>, }
    Instruction {
        0 instr_args_type: u8 = 0,
        1 kernel: KernelCall<'a>,
        1 delegate: DelegateCall<'a>,
        1 move_: MoveCall<'a>,
        1 jump_false: JumpFalseCall<'a>,
        1 free: FreeCall<'a>,
    }
    KernelCall { 0 op_index: i32 = 0, 1 args: Vector<'a, i32>, }
    DelegateCall { 0 delegate_index: i32 = 0, 1 args: Vector<'a, i32>, }
    MoveCall { 0 move_from: i32 = 0, 1 move_to: i32 = 0, }
    JumpFalseCall { 0 cond_value_index: i32 = 0, 1 destination_instruction: i32 = 0, }
    FreeCall { 0 value_index: i32 = 0, }

    /// The root of a data file.
    FlatTensor { 0 version: u32 = 0, 1 segments: Tables<'a>, 2 named_data: Tables<'a>, }
    TensorLayout { 0 scalar_type: i8 = 0, 1 sizes: Vector<'a, i32>, 2 dim_order: &'a [u8], }
}

macro_rules! roots {
    ($($name:ident)+) => {
        $(impl<'a> $name<'a> {
            /// The root of these bytes.
            pub(super) fn root(bytes: &'a [u8]) -> planus::Result<Self> {
                Tab::root(bytes, Self::NAME).map(Self)
            }
        })+
    };
}

roots! { Program FlatTensor }

/// The field, or the fault that it is missing.
#[inline]
pub(super) fn required<T>(field: Option<T>, name: &'static str) -> Result<T, Fault> {
    match field {
        Some(field) => Ok(field),
        None => Err(Fault::Missing { field: name }),
    }
}
