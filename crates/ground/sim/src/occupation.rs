//! How the time of tasks that serve requests divides into causes. Such tasks are the contexts and threads of a
//! controller, which take one request after another.
//!
//! A task is *occupied* while it spends its time on some [`Cause`], and idle otherwise. Only sums of times are kept:
//! no event is added, and no order changed. Branches ([`crate::join_all`]) count for the task that waits for them;
//! spawned tasks do not.

use crate::Ns;

/// What a task spends its time on. If branches and nested calls name several causes at once, the first in this order
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Computing, or waiting for a core.
    Core,
    /// Bytes that cross a link, or waiting to let them.
    Link,
    /// Reading from a medium, queueing for it included.
    Read,
    /// Writing to a medium.
    Program,
    /// Erasing.
    Erase,
    /// Waiting for room that other tasks make, by writing pages or by collection.
    Room,
    /// Anything else: waiting for other requests, for a host.
    Other,
}

impl Cause {
    /// Every cause, in the order of the enumeration, and its name in reports.
    pub const ALL: [(Cause, &'static str); 7] = [
        (Cause::Core, "core"),
        (Cause::Link, "link"),
        (Cause::Read, "read"),
        (Cause::Program, "program"),
        (Cause::Erase, "erase"),
        (Cause::Room, "room"),
        (Cause::Other, "other"),
    ];
}

/// The time of all tasks of one name, by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OccupationStatistics {
    /// Their name.
    pub name: &'static str,
    /// Their number.
    pub tasks: u32,
    /// Time spent on each cause, in the order of [`Cause::ALL`], summed over all tasks, ns.
    pub spent_ns: [Ns; Cause::ALL.len()],
}

impl OccupationStatistics {
    /// The time added since `earlier`, in which names may be missing.
    pub fn since(&self, earlier: &[OccupationStatistics]) -> OccupationStatistics {
        let mut since = self.clone();
        if let Some(before) = earlier.iter().find(|before| before.name == self.name) {
            since.spent_ns.iter_mut().zip(&before.spent_ns).for_each(|(ns, before)| *ns -= before);
        }
        since
    }

    /// Time in which the tasks were occupied, summed over all of them, ns.
    pub fn occupied_ns(&self) -> Ns {
        self.spent_ns.iter().sum()
    }

    /// The causes on which time was spent, by name, and the times.
    pub fn spent(&self) -> impl Iterator<Item = (&'static str, Ns)> {
        let spent = Cause::ALL.iter().zip(self.spent_ns);
        spent.filter(|(_, ns)| *ns > 0).map(|((_, cause), ns)| (*cause, ns))
    }
}

/// The place of a task's sums in [`Occupations`]; 0: the task does not serve requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OccupationId(u32);

/// Stands in the place of a cause while a task is idle; its sum is kept, so that a change need not ask, and not told.
const IDLE: usize = Cause::ALL.len();

/// The sums of one task.
struct Occupation {
    name: &'static str,
    /// How many guards name each cause now.
    named: [u32; IDLE],
    /// A bit for each cause that a guard names, and for [`IDLE`]: the lowest is the cause that counts.
    names: u32,
    spent_ns: [Ns; IDLE + 1],
    /// Time spent before this time has been added.
    since: Ns,
}

impl Occupation {
    fn new(name: &'static str) -> Occupation {
        Occupation { name, named: [0; IDLE], names: 1 << IDLE, spent_ns: [0; IDLE + 1], since: 0 }
    }

    /// The cause that counts now, or [`IDLE`].
    #[inline]
    fn counts(&self) -> usize {
        self.names.trailing_zeros() as usize
    }

    /// Adds the time until `now` to `cause`.
    #[inline]
    fn add_until(&mut self, now: Ns, cause: usize) {
        self.spent_ns[cause] += now - self.since;
        self.since = now;
    }

    #[inline]
    fn begin(&mut self, cause: usize, now: Ns) {
        let before = self.counts();
        self.named[cause] += 1;
        self.names |= 1 << cause;
        // While another cause counts, its time runs on.
        if cause < before {
            self.add_until(now, before);
        }
    }

    #[inline]
    fn end(&mut self, cause: usize, now: Ns) {
        let named = &mut self.named[cause];
        assert!(*named > 0, "a cause ends after it began");
        *named -= 1;
        if *named == 0 {
            if cause == self.counts() {
                self.add_until(now, cause);
            }
            self.names &= !(1 << cause);
        }
    }
}

#[derive(Default)]
pub(crate) struct Occupations(Vec<Occupation>);

impl Occupations {
    pub(crate) fn open(&mut self, name: &'static str) -> OccupationId {
        self.0.push(Occupation::new(name));
        OccupationId(self.0.len() as u32)
    }

    #[inline]
    fn at(&mut self, place: OccupationId) -> &mut Occupation {
        &mut self.0[place.0 as usize - 1]
    }

    /// A guard names `cause` from `now` on.
    #[inline]
    pub(crate) fn begin(&mut self, place: OccupationId, cause: Cause, now: Ns) {
        self.at(place).begin(cause as usize, now);
    }

    /// A guard names `cause` until `now`.
    #[inline]
    pub(crate) fn end(&mut self, place: OccupationId, cause: Cause, now: Ns) {
        self.at(place).end(cause as usize, now);
    }

    /// `cause` was named from `began` to `now`, and no other guard came or went meanwhile.
    #[inline]
    pub(crate) fn add(&mut self, place: OccupationId, cause: Cause, began: Ns, now: Ns) {
        let occupation = self.at(place);
        let counts = occupation.counts();
        if (cause as usize) < counts {
            occupation.add_until(began, counts);
            occupation.add_until(now, cause as usize);
        }
    }

    pub(crate) fn statistics(&self, now: Ns) -> Vec<OccupationStatistics> {
        let mut all: Vec<OccupationStatistics> = Vec::new();
        for occupation in &self.0 {
            let name = occupation.name;
            let index = all.iter().position(|known| known.name == name).unwrap_or_else(|| {
                all.push(OccupationStatistics { name, ..OccupationStatistics::default() });
                all.len() - 1
            });
            let sum = &mut all[index];
            sum.tasks += 1;
            sum.spent_ns.iter_mut().zip(&occupation.spent_ns).for_each(|(sum, ns)| *sum += ns);
            if let Some(open) = sum.spent_ns.get_mut(occupation.counts()) {
                *open += now - occupation.since;
            }
        }
        all
    }
}
