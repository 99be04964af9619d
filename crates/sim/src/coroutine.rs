//! A stack of its own for every task: the one place that knows how a plain function is suspended.
//!
//! A task is a closure that runs on a [`Coroutine`]. Somewhere below it a function calls [`suspend`], and
//! whoever resumed the task goes on; when the task is resumed, `suspend` returns. Nothing in between needs to
//! know. Stacks have a guard page at their low end, so that a task that runs out of one ends the program and
//! does not overwrite a neighbour's; they are kept and used again, by thread.
//!
//! A coroutine that is dropped while it is suspended is unwound: what lies on its stack is dropped, from the
//! innermost call outwards, as by a panic that nobody sees.

#![expect(
    unsafe_code,
    reason = "a suspended stack is reached through a pointer; see the two SAFETY comments"
)]

use std::cell::{Cell, RefCell};

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{CoroutineResult, Yielder};

/// What a body has with it goes to its stack, of which it may take 1024 bytes at the start (`corosensei`). One
/// that has more than this, as a whole configuration, stays on the heap.
const BODY_BYTES: usize = 768;

/// Bytes of a task's stack. Address space: only what was touched takes memory, and a task of a drive under
/// test (unoptimised, with a panic's message being made) touches less than a fifth.
pub const STACK_BYTES: usize = 256 << 10;
/// Stacks that a thread keeps for tasks to come: as many as a deep host, a page buffer and every die have
/// together. More are given back to the system.
const KEPT_STACKS: usize = 512;

/// What runs on this thread now, as it said itself before it gave way for the first time.
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

/// Puts back what ran before, also when a panic comes through.
struct Before(*const Running);

impl Drop for Before {
    #[inline]
    fn drop(&mut self) {
        RUNNING.with(|running| running.set(self.0));
    }
}

/// A closure on a stack of its own, which begins when it is first resumed.
pub(crate) struct Coroutine(Option<corosensei::Coroutine<(), (), (), DefaultStack>>);

impl Coroutine {
    pub fn new(body: impl FnOnce() + 'static) -> Coroutine {
        if size_of_val(&body) > BODY_BYTES {
            let body: Box<dyn FnOnce()> = Box::new(body);
            return Coroutine::new(body);
        }
        let kept = KEPT.with_borrow_mut(Vec::pop);
        let stack = kept
            .unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("the system has memory for a stack"));
        let base = stack.base().get();
        let run = move |yielder: &Yielder<(), ()>, ()| {
            let running = Running { yielder, base };
            RUNNING.set(&raw const running);
            body();
        };
        Coroutine(Some(corosensei::Coroutine::with_stack(stack, run)))
    }

    /// As [`Coroutine::new`], for a body that borrows from its maker.
    ///
    /// # Safety
    ///
    /// The coroutine must have ended or have been dropped before anything that `body` borrows goes away.
    pub unsafe fn borrowing<'a>(body: Box<dyn FnOnce() + 'a>) -> Coroutine {
        // SAFETY: only the lifetime changes, and the caller keeps what it stood for.
        let body: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(body) };
        Coroutine::new(body)
    }

    /// Lets it run until it gives way (`false`) or ends (`true`). A panic in it goes on here.
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
            // Nothing that is dropped may give way: whose stack that were, nobody could say.
            let _before = Before(RUNNING.replace(std::ptr::null()));
            coroutine.force_unwind();
        }
        let stack = coroutine.into_stack();
        // A thread that ends has no place for it any more.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_STACKS {
                kept.push(stack);
            }
        });
    }
}

/// Gives way to whoever resumed the coroutine that calls this.
#[inline]
pub(crate) fn suspend() {
    let running = RUNNING.get();
    assert!(!running.is_null(), "who waits for model time is a task of the executor, or inside `block_on`");
    // SAFETY: not null, so it is what `Coroutine::new` put there at the beginning of this very coroutine, or
    // this function below: `Before` takes it away again when control goes back to the one who resumed it.
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

/// The most bytes that a task of this thread had on its stack when it gave way, of [`STACK_BYTES`].
pub fn deepest_stack_bytes() -> usize {
    DEEPEST.get()
}
