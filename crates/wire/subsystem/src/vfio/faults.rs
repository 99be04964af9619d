//! Mappings of files that another process may make shorter, and the handler of SIGBUS that outlives it: the one file of
//! this crate that is not checked by the compiler.
//!
//! ```text
//!   a copy touches a page that its file no longer has ─► SIGBUS, in the same thread, on a stack for signals
//!     in a watched mapping ─► anonymous memory is put under the page (a whole huge page in hugetlbfs), the mapping is
//!                             marked, and the copy goes on: it has zeros, which its caller must not use
//!     anywhere else        ─► the handler that was there before
//! ```
//!
//! A signal's handler is the whole process's, so that only the command `serve` has it ([`handle`]). Without it, nothing is
//! watched. The handler makes one system call, takes no lock, and allocates nothing.

#![allow(unsafe_code, reason = "a signal's handler, and a mapping at a fixed address")]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Most mappings that are watched at a time.
const SLOTS: usize = 4096;
/// `si_code`: there is no such address in the file; its memory has failed.
const BUS_ADRERR: c_int = 2;
const BUS_MCEERR_AR: c_int = 4;
/// Bytes of a stack for signals, for a thread that has none.
const STACK_BYTES: usize = 64 << 10;

/// A mapping that is watched, or a free place for one (`end` is 0).
struct WatchSlot {
    is_taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    page_bytes: AtomicUsize,
    has_faulted: AtomicBool,
}

static WATCHED: [WatchSlot; SLOTS] = [const {
    WatchSlot {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        page_bytes: AtomicUsize::new(0),
        has_faulted: AtomicBool::new(false),
    }
}; SLOTS];
/// Pages that were replaced.
static FAULTS: AtomicU64 = AtomicU64::new(0);
/// The action that was there before; empty: faults are not handled.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping is watched as long as this is there; it has to be dropped before the mapping is.
pub struct Watch {
    slot: &'static WatchSlot,
}

impl Watch {
    /// Was a page of it replaced?
    pub fn has_faulted(&self) -> bool {
        self.slot.has_faulted.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.slot.end.store(0, Ordering::Relaxed);
        self.slot.is_taken.store(false, Ordering::Release);
    }
}

/// Handles SIGBUS in this process, for good.
///
/// # Errors
/// The system refuses.
pub fn handle() -> io::Result<()> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: the system fills the structure.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was filled.
    if BEFORE.set(unsafe { before.assume_init() }).is_err() {
        return Ok(());
    }
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
    // SAFETY: a structure of numbers, of which zeros are one; the handler has the form that SA_SIGINFO asks for, and lives
    // as long as the process.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut())
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Are faults handled?
pub fn are_handled() -> bool {
    BEFORE.get().is_some()
}

/// Pages that were replaced so far, in all mappings.
pub fn count() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// Watches a mapping that this thread will touch, whose file has pages of that size; `None`: faults are not handled, or too
/// many mappings are watched.
pub fn watch(start: usize, bytes: usize, page_bytes: usize) -> Option<Watch> {
    assert!(page_bytes.is_power_of_two() && start.is_multiple_of(page_bytes), "a mapping is of whole pages");
    if !are_handled() || !has_stack() {
        return None;
    }
    let take = |slot: &&WatchSlot| !slot.is_taken.swap(true, Ordering::Acquire);
    let slot = WATCHED.iter().find(take)?;
    slot.has_faulted.store(false, Ordering::Relaxed);
    slot.start.store(start, Ordering::Relaxed);
    slot.page_bytes.store(page_bytes, Ordering::Relaxed);
    slot.end.store(start + bytes, Ordering::Release);
    Some(Watch { slot })
}

/// Gives this thread a stack for signals if it has none: a coroutine's may have no room.
fn has_stack() -> bool {
    let mut now = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: the system fills the structure.
    let now = unsafe {
        if libc::sigaltstack(ptr::null(), now.as_mut_ptr()) != 0 {
            return false;
        }
        now.assume_init()
    };
    if now.ss_flags & libc::SS_DISABLE == 0 {
        return true;
    }
    let memory = Box::leak(vec![0_u8; STACK_BYTES].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: the memory is nobody else's, for good.
    unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) == 0 }
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes what SA_SIGINFO promises; the C library has a place for each thread's `errno`.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let is_fault = [BUS_ADRERR, BUS_MCEERR_AR].contains(&(*info).si_code);
        if !(is_fault && replace((*info).si_addr().addr())) {
            pass_on(signal, info, context);
        }
        *errno = before;
    }
}

/// Puts memory under the page of a watched mapping; `false`: it is not one.
fn replace(address: usize) -> bool {
    let has = |slot: &&WatchSlot| {
        let end = slot.end.load(Ordering::Acquire);
        address < end && slot.start.load(Ordering::Relaxed) <= address
    };
    let Some(slot) = WATCHED.iter().find(has) else { return false };
    let page_bytes = slot.page_bytes.load(Ordering::Relaxed);
    let page = address & !(page_bytes - 1);
    let (rights, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: the page is one of a mapping that is there as long as it is watched, and is reached by volatile copies
    // alone, which expect its bytes to change.
    let mapped = unsafe { libc::mmap(page as *mut c_void, page_bytes, rights, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    slot.has_faulted.store(true, Ordering::Relaxed);
    FAULTS.fetch_add(1, Ordering::Relaxed);
    true
}

/// Does what would be done without this handler.
///
/// # Safety
/// The arguments are those of a handler.
unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: a handler that was there has the form that its flags say. Without one, the signal comes again when this
    // returns, and has the system's default action.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
