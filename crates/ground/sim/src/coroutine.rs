//! A stack for every task: the one module that knows how a plain function is suspended.
//!
//! A task is a closure that runs on a [`Coroutine`]. When a function below it calls [`suspend`], control
//! returns to the caller of [`Coroutine::resume`]; when the task is resumed, `suspend` returns. The functions
//! in between need not know. Each stack has a guard page at its low end, so a task that overflows its stack
//! ends the program instead of overwriting a neighbouring stack. Each thread keeps stacks of ended tasks for
//! reuse.
//!
//! A coroutine that is dropped while it is suspended is unwound: the values on its stack are dropped, from
//! the innermost call outwards, as by a silent panic.

#![expect(
    unsafe_code,
    reason = "a suspended stack is reached through a pointer; see the two SAFETY comments"
)]

use std::alloc::{Layout, handle_alloc_error};
use std::cell::{Cell, RefCell};

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{CoroutineResult, Yielder};

/// `corosensei` moves a body's captured values to its stack, where they may take 1024 bytes at the start. A
/// body with captures larger than this limit, such as a whole configuration, stays on the heap.
const BODY_BYTES: usize = 768;

/// Bytes of a task's stack. This is address space: only touched pages take memory, and a task of a drive in
/// an unoptimised build that formats a panic message touches less than a fifth of it.
pub const STACK_BYTES: usize = 256 << 10;
const STACK: Layout = Layout::new::<[u8; STACK_BYTES]>();
/// Stacks that a thread keeps for reuse: enough for a host with a deep queue, a page buffer and every die
/// together. Stacks above this number are returned to the system.
const KEPT_STACKS: usize = 512;

/// The coroutine that runs on this thread, as it registered itself before its first suspension.
struct Running {
    yielder: *const Yielder<(), ()>,
    /// The high end of its stack.
    base: usize,
}

thread_local! {
    /// The coroutine that runs on this thread; null outside of any.
    static RUNNING: Cell<*const Running> = const { Cell::new(std::ptr::null()) };
    static KEPT: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    static DEEPEST: Cell<usize> = const { Cell::new(0) };
}

/// Restores the previous value of `RUNNING`, also when a panic unwinds.
struct Before(*const Running);

impl Drop for Before {
    #[inline]
    fn drop(&mut self) {
        RUNNING.with(|running| running.set(self.0));
    }
}

/// A closure on a stack of its own; it starts when it is first resumed.
pub(crate) struct Coroutine(Option<corosensei::Coroutine<(), (), (), DefaultStack>>);

impl Coroutine {
    pub fn new(body: impl FnOnce() + 'static) -> Coroutine {
        if size_of_val(&body) > BODY_BYTES {
            let body: Box<dyn FnOnce()> = Box::new(body);
            return Coroutine::new(body);
        }
        let kept = KEPT.with_borrow_mut(Vec::pop);
        // Without memory a program ends, and says so without asking for more: as everywhere else, no panic, whose
        // backtrace would need some.
        let stack = kept
            .unwrap_or_else(|| DefaultStack::new(STACK_BYTES).unwrap_or_else(|_| handle_alloc_error(STACK)));
        let base = stack.base().get();
        let run = move |yielder: &Yielder<(), ()>, ()| {
            let running = Running { yielder, base };
            RUNNING.set(&raw const running);
            body();
        };
        Coroutine(Some(corosensei::Coroutine::with_stack(stack, run)))
    }

    /// As [`Coroutine::new`], for a body that borrows from the function that creates the coroutine.
    ///
    /// # Safety
    ///
    /// The coroutine must have ended or have been dropped before anything that `body` borrows is dropped.
    pub unsafe fn borrowing<'a>(body: Box<dyn FnOnce() + 'a>) -> Coroutine {
        // SAFETY: only the lifetime changes, and the caller keeps alive what `body` borrows.
        let body: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(body) };
        Coroutine::new(body)
    }

    /// Runs the body until it suspends (returns `false`) or ends (returns `true`). A panic in the body
    /// continues here.
    #[inline]
    pub fn resume(&mut self) -> bool {
        let _before = Before(RUNNING.get());
        let coroutine = self.0.as_mut().expect("a coroutine is taken apart when it is dropped only");
        matches!(coroutine.resume(()), CoroutineResult::Return(()))
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        let Some(mut coroutine) = self.0.take() else { return };
        if !coroutine.done() {
            // No destructor may suspend: it would not be known which stack it runs on.
            let _before = Before(RUNNING.replace(std::ptr::null()));
            coroutine.force_unwind();
        }
        let stack = coroutine.into_stack();
        // While a thread ends, its pool of stacks may be gone already.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_STACKS {
                kept.push(stack);
            }
        });
    }
}

/// Suspends the calling coroutine; control returns to the caller of `resume`.
#[inline]
pub(crate) fn suspend() {
    let running = RUNNING.get();
    assert!(!running.is_null(), "model time is waited for by a task of the executor, or inside `block_on`");
    // SAFETY: the pointer is not null, so it was set by `Coroutine::new` at the start of this coroutine, or
    // by this function below: `Before` clears it again when control returns to the caller of `resume`.
    // `Running` and the yielder lie on this coroutine's stack below all of its calls, so they are alive.
    let Running { yielder, base } = unsafe { &*running };
    let depth = base.saturating_sub(std::ptr::from_ref(&running).addr());
    if depth > DEEPEST.get() {
        DEEPEST.set(depth);
    }
    // SAFETY: as above.
    unsafe { &**yielder }.suspend(());
    RUNNING.with(|present| present.set(running));
}

/// The largest number of stack bytes that any task of this thread had in use when it suspended, of
/// [`STACK_BYTES`].
pub fn deepest_stack_bytes() -> usize {
    DEEPEST.get()
}
