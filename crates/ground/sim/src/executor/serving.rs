//! Tasks that serve requests say what they spend their time on; [`crate::occupation`] has the sums.

use super::Sim;
use crate::Ns;
use crate::occupation::{Cause, OccupationId, OccupationStatistics};
use crate::tasks::TaskKey;

impl Sim {
    /// Declares that the running task serves requests from now on: its time is added up by cause under `name`, together
    /// with that of other tasks of this name.
    pub fn occupy(&self, name: &'static str) {
        let place = self.0.occupations.borrow_mut().open(name);
        self.0.occupies.set(place);
        self.0.schedule.borrow_mut().tasks.occupy(self.current(), place);
    }

    /// Declares that the running task serves requests in place of `other`, which must exist: the time of both is added
    /// up as that of one task.
    pub fn occupy_with(&self, other: TaskKey) {
        let mut schedule = self.0.schedule.borrow_mut();
        let place = schedule.tasks.occupied_by(other);
        self.0.occupies.set(place);
        schedule.tasks.occupy(self.current(), place);
    }

    /// The running task spends its time on `cause` until the guard is dropped, or on a cause before it in the order
    /// of the enumeration that one of its branches names. Without effect in a task that does not serve requests.
    #[inline]
    pub fn spend(&self, cause: Cause) -> Spending<'_> {
        let place = self.0.occupies.get();
        if place != OccupationId::default() {
            self.0.occupations.borrow_mut().begin(place, cause, self.now());
        }
        Spending { sim: self, place, cause }
    }

    /// The running task has spent its time since `began` on `cause`, and did not suspend meanwhile: what
    /// [`Sim::spend`] does, in one step.
    #[inline]
    pub(crate) fn spent(&self, cause: Cause, began: Ns) {
        let place = self.0.occupies.get();
        if place != OccupationId::default() {
            self.0.occupations.borrow_mut().add(place, cause, began, self.now());
        }
    }

    /// Time of tasks that serve requests until now, by name and cause.
    pub fn occupations(&self) -> Vec<OccupationStatistics> {
        self.0.occupations.borrow().statistics(self.now())
    }
}

/// A cause on which a task spends its time while this is held; see [`Sim::spend`].
pub struct Spending<'a> {
    sim: &'a Sim,
    place: OccupationId,
    cause: Cause,
}

impl Drop for Spending<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.place != OccupationId::default() {
            self.sim.0.occupations.borrow_mut().end(self.place, self.cause, self.sim.now());
        }
    }
}
