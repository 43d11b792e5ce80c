//! A failed check in compiled code: unwinds through it, as C++ would.
//!
//! Deliberately absent: panics of Rust, which C++ may not swallow.

use super::run::set_error;
use core::ffi::c_char;

/// An exception of no language, as the unwinder of the platform wants it.
#[repr(C, align(16))]
struct Exception {
    class: u64,
    cleanup: extern "C" fn(i32, *mut Exception),
    reserved: [usize; 2],
}

extern "C" fn free_exception(_reason: i32, exception: *mut Exception) {
    // SAFETY: it came from `Box::into_raw` in `aoti_torch_check`, and the unwinder is done with it.
    drop(unsafe { Box::from_raw(exception) });
}

unsafe extern "C-unwind" {
    fn _Unwind_RaiseException(exception: *mut Exception) -> i32;
}

/// Called where a condition does not hold: unwinds through the compiled code, which ends its handles and
/// returns an error from its run. A Rust panic would not do: C++ may not swallow one.
pub(super) unsafe extern "C-unwind" fn aoti_torch_check(
    holds: bool,
    _function: *const c_char,
    _file: *const c_char,
    _line: u32,
    message: *const c_char,
) {
    if holds {
        return;
    }
    let text = if message.is_null() {
        "a check failed".into()
    } else {
        // SAFETY: the C interface: a text that ends in NUL.
        let text = unsafe { core::ffi::CStr::from_ptr(message) };
        format!("a check of the program failed: {}", text.to_string_lossy())
    };
    set_error(text);
    let exception =
        Exception { class: u64::from_be_bytes(*b"ARENITE\0"), cleanup: free_exception, reserved: [0; 2] };
    let exception = Box::into_raw(Box::new(exception));
    // SAFETY: a block laid out as the unwinder wants, kept until its cleanup is called.
    unsafe { _Unwind_RaiseException(exception) };
    std::process::abort();
}
