//! State shared between tasks, and the rule that no task suspends while it holds a borrow of such state.
//!
//! Firmware is plain functions, and any of them may suspend its task. A borrow held across a suspension would
//! collide with the next task that borrows, at a time and place that depend on the order of events. So every
//! borrow is counted, and the executor asserts that the count is zero before it suspends a task: the first
//! wait under a borrow fails, whether or not another task wanted that state.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::ops::{Deref, DerefMut};

thread_local! {
    /// Number of borrows held on this thread. All belong to the running task, since no other task may hold
    /// one.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Counts one borrow until it is dropped.
struct BorrowCount;

impl BorrowCount {
    #[inline]
    fn new() -> BorrowCount {
        HELD.with(|held| held.set(held.get() + 1));
        BorrowCount
    }
}

impl Drop for BorrowCount {
    #[inline]
    fn drop(&mut self) {
        HELD.with(|held| held.set(held.get() - 1));
    }
}

/// Asserts that the running task, which is about to suspend, holds no borrow.
#[inline]
pub(crate) fn assert_nothing_borrowed() {
    let held = HELD.get();
    assert!(held == 0, "a task gives way and holds {held} borrows of what others use");
}

/// A [`RefCell`] that must not be borrowed while its task is suspended.
#[derive(Default, Debug)]
pub struct TaskCell<T>(RefCell<T>);

impl<T> TaskCell<T> {
    /// A cell that contains `value`.
    pub const fn new(value: T) -> TaskCell<T> {
        TaskCell(RefCell::new(value))
    }

    /// Borrows the value for reading. Panics while it is borrowed for a change.
    #[inline]
    #[track_caller]
    pub fn borrow(&self) -> TaskRef<'_, T> {
        TaskRef { value: self.0.borrow(), held: BorrowCount::new() }
    }

    /// Borrows the value for a change. Panics while it is borrowed otherwise.
    #[inline]
    #[track_caller]
    pub fn borrow_mut(&self) -> TaskRefMut<'_, T> {
        TaskRefMut { value: self.0.borrow_mut(), held: BorrowCount::new() }
    }

    /// Replaces the value and returns the previous one.
    pub fn replace(&self, value: T) -> T {
        self.0.replace(value)
    }

    /// The value, out of the cell.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: Default> TaskCell<T> {
    /// Takes the value and leaves the default.
    pub fn take(&self) -> T {
        self.0.take()
    }
}

/// A borrowed [`TaskCell`], or a part of one.
pub struct TaskRef<'a, T: ?Sized> {
    value: Ref<'a, T>,
    held: BorrowCount,
}

impl<'a, T: ?Sized> TaskRef<'a, T> {
    /// A part of what is borrowed.
    pub fn map<U: ?Sized>(from: TaskRef<'a, T>, part: impl FnOnce(&T) -> &U) -> TaskRef<'a, U> {
        TaskRef { value: Ref::map(from.value, part), held: from.held }
    }
}

impl<T: ?Sized> Deref for TaskRef<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

/// A [`TaskCell`] borrowed for a change, or a part of one.
pub struct TaskRefMut<'a, T: ?Sized> {
    value: RefMut<'a, T>,
    held: BorrowCount,
}

impl<'a, T: ?Sized> TaskRefMut<'a, T> {
    /// A part of what is borrowed.
    pub fn map<U: ?Sized>(from: TaskRefMut<'a, T>, part: impl FnOnce(&mut T) -> &mut U) -> TaskRefMut<'a, U> {
        TaskRefMut { value: RefMut::map(from.value, part), held: from.held }
    }
}

impl<T: ?Sized> Deref for TaskRefMut<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for TaskRefMut<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
