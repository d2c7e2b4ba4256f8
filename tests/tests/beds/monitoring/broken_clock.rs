//! A library for `LD_PRELOAD`: the next time that a process reads a clock in the function
//! `BROKEN_FOR` after the file `BROKEN_CLOCK` was created, it gets an error, which no program
//! expects. Compiled by the test that needs it.

use std::backtrace::Backtrace;
use std::env;
use std::ffi::{c_int, c_long};
use std::fs;
use std::path::Path;

const EINVAL: c_int = 22;
#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;

#[repr(C)]
pub struct Time {
    seconds: i64,
    nanoseconds: c_long,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
}

/// In place of the function of the C library.
///
/// # Safety
/// `time` points to a place for a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Time) -> c_int {
    if is_broken() {
        // SAFETY: it is this thread's own.
        unsafe { *__errno_location() = EINVAL };
        return -1;
    }
    // SAFETY: the system call takes what this function takes.
    let code = unsafe { syscall(CLOCK_GETTIME, c_long::from(clock), time) };
    if code == 0 { 0 } else { -1 }
}

/// Once for each time that the file is created.
fn is_broken() -> bool {
    let (Some(file), Ok(function)) = (env::var_os("BROKEN_CLOCK"), env::var("BROKEN_FOR")) else {
        return false;
    };
    Path::new(&file).exists()
        && Backtrace::force_capture().to_string().contains(&function)
        && fs::remove_file(file).is_ok()
}
