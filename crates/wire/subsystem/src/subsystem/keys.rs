//! Key agreements for [`super::authentication`]: the order in which they are computed, and the thread that
//! computes them.
//!
//! An exponentiation takes up to tens of milliseconds (ffdhe8192), which makes it the target of a flood of
//! logins:
//!
//! ```text
//!   challenge    g^x of the group ── there, and younger than PAIR_MS ──► sent at once, no computation
//!                                └─ otherwise ─────────────────┐
//!   reply of asker A  [check]                                  ▼
//!   reply of asker B  [check][check][check]  ──► one of each asker in turn ──► key thread ──► Worked
//!   reply without a group ──► checked at once: two HMACs
//! ```
//!
//! The controller has to send its g^x before the host has proved anything. Therefore one key pair for each
//! group serves all challenges for [`PAIR_MS`]; the random challenge and the sequence number make an exchange
//! unique. All groups use safe primes and public values are checked, so a reused key pair reveals nothing but
//! whether the exponent is even. A check of a reply is the only work that a host without a secret can cause,
//! once per reply. Senders (a host name from one address) are served in turn, so a flood from one sender delays another
//! one by one computation for each of its own. The check of a queue that has ended is dropped without being computed.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use kvdrive_auth::KeyPair;
use kvdrive_nvme::auth::Group;
use kvdrive_sim::wall::Bell;

use super::check::{Check, Checked};
use crate::namespace::QueueId;

/// How long a key pair is used, ms.
const PAIR_MS: u64 = 60_000;
/// Length of the IPv6 prefix of a site, in bits; a site may use every address in it.
const SITE_BITS: u32 = 64;

/// The origin of a request for a computation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Asker {
    host_nqn: String,
    /// `None`: the transport has no addresses.
    from: Option<IpAddr>,
}

impl Asker {
    /// The asker for a host name at an address. All addresses of one IPv6 site count as one.
    pub(super) fn new(host_nqn: &str, from: Option<IpAddr>) -> Asker {
        let site = |address: Ipv6Addr| Ipv6Addr::from_bits(address.to_bits() >> SITE_BITS << SITE_BITS);
        let from = from.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(site(address)),
            address => address,
        });
        Asker { host_nqn: host_nqn.to_owned(), from }
    }
}

/// Waiting work: one line for each asker; lines are served in turn.
struct Lines<T> {
    lines: BTreeMap<Asker, VecDeque<T>>,
    /// Askers that have waiting work, the next one first.
    turn: VecDeque<Asker>,
}

impl<T> Default for Lines<T> {
    fn default() -> Lines<T> {
        Lines { lines: BTreeMap::new(), turn: VecDeque::new() }
    }
}

impl<T> Lines<T> {
    fn push(&mut self, asker: Asker, work: T) {
        let line = self.lines.entry(asker.clone()).or_default();
        if line.is_empty() {
            self.turn.push_back(asker);
        }
        line.push_back(work);
    }

    /// Takes the next work that is still `wanted`, and drops work that is not.
    fn pop(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        while let Some(asker) = self.turn.pop_front() {
            let line = self.lines.get_mut(&asker)?;
            let next = std::iter::from_fn(|| line.pop_front()).find(&wanted);
            if line.is_empty() {
                self.lines.remove(&asker);
            } else {
                self.turn.push_back(asker);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

/// A computation for the thread.
enum Work {
    Pair(Group),
    Check(QueueId, Box<Check>),
}

/// The result of a computation.
pub(super) enum Worked {
    /// A key pair for the challenges of its group from now on.
    Pair(Group),
    /// The result of checking a reply.
    Check(QueueId, Checked),
}

enum Computed {
    Pair(Group, KeyPair),
    Check(QueueId, Checked),
}

impl Work {
    fn run(self) -> Computed {
        match self {
            Work::Pair(group) => Computed::Pair(group, KeyPair::new(group)),
            Work::Check(queue, check) => Computed::Check(queue, check.run()),
        }
    }
}

/// A key pair in use, and since when.
struct Serving {
    pair: Arc<KeyPair>,
    since_ms: u64,
}

/// The thread; it runs one computation at a time.
struct KeyThread {
    work: Sender<Work>,
    computed: Receiver<Computed>,
    is_busy: bool,
}

impl KeyThread {
    fn start(bell: Arc<Bell>) -> io::Result<KeyThread> {
        let (work, to_do) = mpsc::channel::<Work>();
        let (done, computed) = mpsc::channel();
        thread::Builder::new().name("key agreement".into()).spawn(move || {
            for work in to_do {
                if done.send(work.run()).is_err() {
                    return;
                }
                bell.ring();
            }
        })?;
        Ok(KeyThread { work, computed, is_busy: false })
    }
}

/// The key pairs of a subsystem and the waiting computations. The thread starts at the first computation and
/// ends with the subsystem.
pub(super) struct Keys {
    thread: Option<KeyThread>,
    checks: Lines<(QueueId, Box<Check>)>,
    /// Groups for which a challenge waits for a key pair.
    wanted: VecDeque<Group>,
    pairs: BTreeMap<Group, Serving>,
    /// S1 of the last challenge.
    sequence: u32,
}

impl Keys {
    pub(super) fn new() -> Keys {
        let mut first = [0; 4];
        first.copy_from_slice(&kvdrive_auth::random(4));
        let (checks, wanted) = (Lines::default(), VecDeque::new());
        Keys { thread: None, checks, wanted, pairs: BTreeMap::new(), sequence: u32::from_le_bytes(first) }
    }

    /// S1 of the next challenge; never 0.
    pub(super) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence
    }

    /// The key pair for a challenge at `now_ms`; `None` if it has to be computed first ([`Keys::want`]).
    pub(super) fn pair(&mut self, group: Group, now_ms: u64) -> Option<Arc<KeyPair>> {
        if group == Group::Null {
            // Without a group there is nothing to compute.
            return Some(Arc::new(KeyPair::new(group)));
        }
        self.forget_old(now_ms);
        self.pairs.get(&group).map(|serving| serving.pair.clone())
    }

    /// Requests a key pair of this group; it is computed before all waiting checks.
    pub(super) fn want(&mut self, group: Group) {
        if !self.wanted.contains(&group) {
            self.wanted.push_back(group);
        }
    }

    /// Drops key pairs that are older than [`PAIR_MS`].
    pub(super) fn forget_old(&mut self, now_ms: u64) {
        self.pairs.retain(|_, serving| now_ms < serving.since_ms + PAIR_MS);
    }

    /// Enqueues the check of a queue's reply in the line of its asker.
    pub(super) fn check(&mut self, asker: Asker, queue: QueueId, check: Box<Check>) {
        self.checks.push(asker, (queue, check));
    }

    /// Hands the next computation to the thread if the thread is idle; `is_there` tells whether a queue still
    /// exists.
    ///
    /// # Errors
    /// The thread does not run, and the system cannot start it.
    pub(super) fn go_on(
        &mut self,
        bell: &Arc<Bell>,
        is_there: impl Fn(QueueId) -> bool,
    ) -> Result<(), io::Error> {
        if self.thread.as_ref().is_some_and(|thread| thread.is_busy) {
            return Ok(());
        }
        let work = match self.wanted.pop_front() {
            Some(group) => Some(Work::Pair(group)),
            None => self.checks.pop(|(queue, _)| is_there(*queue)).map(|(id, check)| Work::Check(id, check)),
        };
        let Some(work) = work else { return Ok(()) };
        let thread = match &mut self.thread {
            Some(thread) => thread,
            none => none.insert(KeyThread::start(bell.clone())?),
        };
        thread.is_busy = true;
        thread.work.send(work).map_err(io::Error::other)
    }

    /// Takes the result of the thread at `now_ms`, if there is one.
    pub(super) fn take_worked(&mut self, now_ms: u64) -> Option<Worked> {
        let thread = self.thread.as_mut()?;
        let computed = thread.computed.try_recv().ok()?;
        thread.is_busy = false;
        Some(match computed {
            Computed::Check(queue, checked) => Worked::Check(queue, checked),
            Computed::Pair(group, pair) => {
                self.pairs.insert(group, Serving { pair: Arc::new(pair), since_ms: now_ms });
                Worked::Pair(group)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(last: u8) -> Asker {
        Asker::new("host", Some(IpAddr::from([10, 0, 0, last])))
    }

    #[test]
    fn askers_are_served_in_turn_and_each_ones_work_in_order() {
        let mut lines = Lines::default();
        (0..5).for_each(|work| lines.push(asker(1), work));
        lines.push(asker(2), 10);
        lines.push(asker(3), 20);
        lines.push(asker(2), 11);
        let order: Vec<i32> = std::iter::from_fn(|| lines.pop(|_| true)).collect();
        assert_eq!(order, [0, 10, 20, 1, 11, 2, 3, 4]);
        assert!(lines.lines.is_empty() && lines.turn.is_empty());
    }

    #[test]
    fn work_that_is_not_wanted_any_more_takes_no_turn() {
        let mut lines = Lines::default();
        (0..100).for_each(|work| lines.push(asker(1), work));
        lines.push(asker(2), 100);
        let order: Vec<i32> = std::iter::from_fn(|| lines.pop(|work| *work >= 98)).collect();
        assert_eq!(order, [98, 100, 99]);
    }

    #[test]
    fn an_ipv6_site_is_one_asker_and_an_ipv4_address_is_one_however_it_is_written() {
        let at = |text: &str| Asker::new("host", Some(text.parse().unwrap()));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:2"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }
}
