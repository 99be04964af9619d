//! [`Numbered`]: objects by number, the lowest free number first.

use std::collections::BTreeSet;

/// Numbered objects: a new one gets the lowest free number.
pub(super) struct Numbered<T> {
    places: Vec<Option<T>>,
    free: BTreeSet<usize>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { places: Vec::new(), free: BTreeSet::new() }
    }
}

impl<T> Numbered<T> {
    /// One more than the highest number ever used.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&T> {
        self.places.get(number)?.as_ref()
    }

    pub(super) fn next_free(&self) -> usize {
        self.free.first().copied().unwrap_or(self.places.len())
    }

    pub(super) fn put(&mut self, number: usize, thing: T) {
        if !self.free.remove(&number) {
            self.places.push(None);
        }
        self.places[number] = Some(thing);
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.places[number] = None;
        self.free.insert(number);
    }
}
