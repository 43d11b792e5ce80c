//! Copies between a caller's strided elements and the gapless bytes of a tensor.
//!
//! Deliberately absent: conversion. Element kinds were compared before.

use super::input::TensorInput;
use crate::tensor::shape::{contiguous_order, strides};
use crate::tensor::{DimOrder, RANK_MAX, Tensor};
use core::ptr::NonNull;

/// One side of a copy: an address and a step in bytes per dimension.
#[derive(Clone, Copy)]
struct Side<'a> {
    address: *mut u8,
    strides: &'a [isize],
}

/// Copies every element of `source` to its place in `target`'s order. Both sizes are equal, the kinds
/// too, and `target` is in host memory.
pub(super) fn copy_in(target: &Tensor, source: &TensorInput<'_>) {
    let Some(address) = target.address() else { return };
    debug_assert_eq!(target.sizes(), source.sizes(), "sizes were compared");
    debug_assert!(target.capacity_bytes() >= target.size_bytes(), "the plan was checked");
    let target_strides = target.strides();
    if source.lies_as(&target_strides) {
        // SAFETY:
        // * the source's elements lie gapless from its address on, so its `size_bytes` bytes are readable
        //   (terms of `TensorInput::new`); the target's are writable (T1);
        // * `copy` allows overlap.
        unsafe { core::ptr::copy(source.address(), address.as_ptr(), target.size_bytes()) };
        return;
    }
    let width = target.dtype().size_bytes();
    let target_bytes = to_bytes(&target_strides, width);
    copy_strided(
        target.sizes(),
        target.order(),
        width,
        Side { address: address.as_ptr(), strides: &target_bytes[..target.rank()] },
        Side { address: source.address().cast_mut(), strides: source.strides_bytes() },
    );
}

/// Copies every element of `source` to `target`, row-major.
///
/// # Safety
/// `target` is valid for writes of `source.size_bytes()` bytes that nothing else names, and `source` is in
/// host memory that was given.
pub(super) unsafe fn copy_out(target: NonNull<u8>, source: &Tensor) {
    let Some(address) = source.address() else { return };
    if source.is_row_major() {
        // SAFETY: the source's bytes are readable (T1), the target's writable and apart (terms above).
        unsafe { core::ptr::copy_nonoverlapping(address.as_ptr(), target.as_ptr(), source.size_bytes()) };
        return;
    }
    let width = source.dtype().size_bytes();
    let order = contiguous_order(source.rank()).unwrap_or_else(DimOrder::empty);
    let source_bytes = to_bytes(&source.strides(), width);
    let target_bytes = to_bytes(&strides(source.sizes(), &order), width);
    copy_strided(
        source.sizes(),
        &order,
        width,
        Side { address: target.as_ptr(), strides: &target_bytes[..source.rank()] },
        Side { address: address.as_ptr(), strides: &source_bytes[..source.rank()] },
    );
}

fn to_bytes(strides: &[usize], width: usize) -> [isize; RANK_MAX] {
    let mut bytes = [0; RANK_MAX];
    for (out, &stride) in bytes.iter_mut().zip(strides) {
        *out = (stride * width).cast_signed();
    }
    bytes
}

/// Walks all elements in `order`, innermost last, and copies each.
fn copy_strided(sizes: &[usize], order: &[u8], width: usize, target: Side<'_>, source: Side<'_>) {
    if sizes.contains(&0) {
        return;
    }
    let Some((&inner, outer)) = order.split_last() else {
        return copy_line(1, width, (target.address, 0), (source.address, 0));
    };
    let inner = usize::from(inner);
    let mut index = [0_usize; RANK_MAX];
    let (mut to, mut from) = (target.address, source.address);
    loop {
        copy_line(sizes[inner], width, (to, target.strides[inner]), (from, source.strides[inner]));
        // The odometer: step the innermost of the outer dimensions, carry where one is full.
        let mut position = outer.len();
        loop {
            if position == 0 {
                return;
            }
            position -= 1;
            let dim = usize::from(outer[position]);
            index[position] += 1;
            if index[position] < sizes[dim] {
                to = to.wrapping_offset(target.strides[dim]);
                from = from.wrapping_offset(source.strides[dim]);
                break;
            }
            let back = (sizes[dim] - 1).cast_signed();
            to = to.wrapping_offset(-target.strides[dim] * back);
            from = from.wrapping_offset(-source.strides[dim] * back);
            index[position] = 0;
        }
    }
}

fn copy_line(count: usize, width: usize, target: (*mut u8, isize), source: (*mut u8, isize)) {
    match width {
        1 => copy_line_of::<u8>(count, target, source),
        2 => copy_line_of::<u16>(count, target, source),
        4 => copy_line_of::<u32>(count, target, source),
        8 => copy_line_of::<u64>(count, target, source),
        _ => copy_line_of::<u128>(count, target, source),
    }
}

fn copy_line_of<T: Copy>(count: usize, target: (*mut u8, isize), source: (*mut u8, isize)) {
    let (mut to, mut from) = (target.0, source.0);
    for _ in 0..count {
        // SAFETY: the walk stays on the elements that the sizes and strides of the source name, which are
        // readable (terms of `TensorInput::new`, or T1).
        let element = unsafe { from.cast::<T>().read_unaligned() };
        // SAFETY: likewise the target's, which are writable.
        unsafe { to.cast::<T>().write_unaligned(element) };
        to = to.wrapping_offset(target.1);
        from = from.wrapping_offset(source.1);
    }
}
