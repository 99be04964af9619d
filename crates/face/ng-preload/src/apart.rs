//! How a call about a node runs in a thread of the program: undisturbed, as a thread that waits in Linux's driver, and on a
//! stack of this library's.
//!
//! * No handler of a signal runs before the call ends. So a handler may itself make such calls, or leave by `siglongjmp`:
//!   no lock is held then. Signals that have no handler wait, too.
//! * `pthread_cancel` acts after the call: an ioctl is no cancellation point, and the functions that it calls here are.
//! * A thread may have the smallest stack there is (16 KiB).

#![allow(
    unsafe_code,
    reason = "a thread's mask of signals and its cancellation are set by calls that take pointers"
)]

use std::mem::MaybeUninit;
use std::os::raw::c_int;
use std::sync::{Mutex, PoisonError};

use corosensei::stack::DefaultStack;

/// Bytes of a stack; pages that are never touched take no memory.
const STACK_BYTES: usize = 256 << 10;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
/// Signals of the thread's own faults. Blocked, they would end the program.
const FAULTS: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Stacks that no call is on.
#[derive(Default)]
pub(crate) struct Stacks {
    idle: Mutex<Vec<DefaultStack>>,
}

/// What the thread's state was, which it gets back when this is dropped.
struct Undisturbed {
    mask: libc::sigset_t,
    cancel: c_int,
}

impl Undisturbed {
    fn new() -> Undisturbed {
        let mut all = MaybeUninit::uninit();
        let mut mask = MaybeUninit::uninit();
        let mut cancel = 0;
        // SAFETY: the functions fill what they are given, and change this thread alone.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), mask.as_mut_ptr());
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut cancel);
            Undisturbed { mask: mask.assume_init(), cancel }
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        let mut was = 0;
        // SAFETY: both values came from this thread.
        unsafe {
            pthread_setcancelstate(self.cancel, &raw mut was);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, std::ptr::null_mut());
        }
    }
}

/// Runs a function undisturbed, on this thread's stack.
pub(crate) fn undisturbed<T>(function: impl FnOnce() -> T) -> T {
    let _undisturbed = Undisturbed::new();
    function()
}

impl Stacks {
    /// Runs a function undisturbed and on one of these stacks.
    pub(crate) fn apart<T>(&self, function: impl FnOnce() -> T) -> T {
        let _undisturbed = Undisturbed::new();
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let stack = idle.or_else(|| DefaultStack::new(STACK_BYTES).ok());
        let Some(mut stack) = stack else { return function() };
        let answer = corosensei::on_stack(&mut stack, function);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(stack);
        answer
    }
}
