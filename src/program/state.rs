#![forbid(unsafe_code)]
//! Mutable buffers: what lives on from run to run, and what several methods hold in common.
//!
//! A tensor is known as state where it is planned and has a name. An exporter may leave names out; such a
//! buffer looks like any planned tensor in the file, and only the code tells, by reading it first.
//!
//! Deliberately absent: the memory of state, and when it is filled.

use super::method::{DataRef, MethodPlan, Storage, TensorSpec};
use crate::tensor::DType;
use std::collections::BTreeMap;

/// A named mutable buffer of a method.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct State<'a> {
    /// The fully qualified name.
    pub name: &'a str,
    /// The index in [`MethodPlan::tensors`].
    pub tensor: u32,
    /// The memory id.
    pub buffer: u32,
    /// From the start of that planned buffer.
    pub offset_bytes: usize,
    /// What it is when the method is loaded; zeros where the file does not say.
    pub initial: Option<DataRef>,
}

/// A named mutable buffer that several methods place alike: name, memory id, offset, size and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedState {
    /// The fully qualified name.
    pub name: Box<str>,
    /// The memory id, in each method.
    pub buffer: u32,
    /// From the start of that planned buffer.
    pub offset_bytes: usize,
    /// How many bytes.
    pub size_bytes: usize,
    /// The element kind.
    pub dtype: DType,
    /// The tensors, one or more per method.
    pub members: Vec<StateMember>,
}

/// A tensor of a method that is part of a [`SharedState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateMember {
    /// The index in [`super::Program::methods`].
    pub method: u32,
    /// The index in [`MethodPlan::tensors`].
    pub tensor: u32,
}

impl MethodPlan {
    /// The named mutable buffers.
    pub fn state(&self) -> impl Iterator<Item = State<'_>> {
        (0_u32..).zip(&self.tensors).filter_map(|(tensor, spec)| {
            let name = self.tensor_name(spec)?;
            match spec.storage {
                Storage::Planned { buffer, offset_bytes, initial } => {
                    Some(State { name, tensor, buffer, offset_bytes, initial })
                }
                _ => None,
            }
        })
    }

    fn spec(&self, state: &State<'_>) -> Option<&TensorSpec> {
        self.tensors.get(state.tensor as usize)
    }
}

/// What the methods hold in common, in order of names.
pub(super) fn shared(methods: &[MethodPlan]) -> Vec<SharedState> {
    if methods.len() < 2 {
        return Vec::new();
    }
    let mut groups: BTreeMap<_, Vec<StateMember>> = BTreeMap::new();
    for (method, plan) in (0_u32..).zip(methods) {
        for state in plan.state() {
            let Some(spec) = plan.spec(&state) else { continue };
            let place = (state.name, state.buffer, state.offset_bytes, spec.size_bytes, spec.dtype);
            groups.entry(place).or_default().push(StateMember { method, tensor: state.tensor });
        }
    }
    let is_shared = |members: &[StateMember]| members.iter().any(|member| member.method != members[0].method);
    groups
        .into_iter()
        .filter(|(_, members)| is_shared(members))
        .map(|((name, buffer, offset_bytes, size_bytes, dtype), members)| SharedState {
            name: name.into(),
            buffer,
            offset_bytes,
            size_bytes,
            dtype,
            members,
        })
        .collect()
}
