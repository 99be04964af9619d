//! State that tasks share, and the rule that nobody gives way while he holds it.
//!
//! Firmware is plain functions, and any of them may suspend the task it runs in. A borrow that is held then
//! would be found by whichever task comes next, at some time and place that depend on what else happens. So
//! every borrow is counted, and the executor asserts before it suspends a task that there is none: the first
//! wait under a borrow fails, whether or not somebody else wanted it.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::ops::{Deref, DerefMut};

thread_local! {
    /// Borrows that are held on this thread: by the task that runs, since nobody else may hold one.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Counts itself as a borrow as long as it lives.
struct Held;

impl Held {
    #[inline]
    fn new() -> Held {
        HELD.with(|held| held.set(held.get() + 1));
        Held
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        HELD.with(|held| held.set(held.get() - 1));
    }
}

/// The one who runs is about to give way.
#[inline]
pub(crate) fn assert_nothing_borrowed() {
    let held = HELD.get();
    assert!(held == 0, "a task gives way and holds {held} borrows of what others use");
}

/// A [`RefCell`] that no task may have borrowed while it waits for anything.
#[derive(Default, Debug)]
pub struct TaskCell<T>(RefCell<T>);

impl<T> TaskCell<T> {
    /// A cell with `value` in it.
    pub const fn new(value: T) -> TaskCell<T> {
        TaskCell(RefCell::new(value))
    }

    /// A look at the value. Panics while somebody changes it.
    #[inline]
    #[track_caller]
    pub fn borrow(&self) -> TaskRef<'_, T> {
        TaskRef { value: self.0.borrow(), held: Held::new() }
    }

    /// The value, to change it. Panics while somebody else has it.
    #[inline]
    #[track_caller]
    pub fn borrow_mut(&self) -> TaskRefMut<'_, T> {
        TaskRefMut { value: self.0.borrow_mut(), held: Held::new() }
    }

    /// Puts another value there and returns the one before.
    pub fn replace(&self, value: T) -> T {
        self.0.replace(value)
    }

    /// The value itself.
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
    held: Held,
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
    held: Held,
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
