//! A part of the machine that serves a fixed number of tasks at a time: a die, a channel, a firmware core.
//!
//! Tasks are served in the order in which they *arrive*; no task can reserve a later time. Every resource
//! reports how long it was busy and how long its users queued.

use std::cell::Cell;

use crate::executor::Sim;
use crate::wait_queue::WaitQueue;
use crate::{Cause, Ns, Trace};

/// Counters of a resource, in model time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceStatistics {
    /// Time for which servers were held, summed over all servers, ns.
    pub busy_ns: Ns,
    /// Time for which users waited in the queue, summed over all users, ns.
    pub queue_ns: Ns,
    /// Number of times it was acquired.
    pub uses: u64,
    /// Number of servers.
    pub servers: u32,
}

impl ResourceStatistics {
    /// The sum over several resources.
    pub fn sum(all: impl Iterator<Item = ResourceStatistics>) -> ResourceStatistics {
        all.fold(ResourceStatistics::default(), |sum, one| ResourceStatistics {
            busy_ns: sum.busy_ns + one.busy_ns,
            queue_ns: sum.queue_ns + one.queue_ns,
            uses: sum.uses + one.uses,
            servers: sum.servers + one.servers,
        })
    }
}

/// A task that waits for a server.
struct WaitingTask {
    arrived: Ns,
    /// For how long it needs a server, ns; 0: it holds the server until its guard is dropped.
    span: Ns,
}

/// `servers` equal servers with one FIFO queue.
pub struct Resource {
    sim: Sim,
    name: String,
    servers: u32,
    /// The cause to which the time of a task here is charged, queueing included.
    cause: Option<Cause>,
    free: Cell<u32>,
    queue: WaitQueue<WaitingTask>,
    /// Sum of the times at which servers were released, less the times at which they were taken; while a
    /// server is held the sum is negative, as a wrapped number. A hand-over adds and subtracts the same time,
    /// so it is left out.
    busy_ns: Cell<Ns>,
    queue_ns: Cell<Ns>,
    uses: Cell<u64>,
}

impl Resource {
    /// A resource called `name` in reports.
    pub fn new(sim: &Sim, name: impl Into<String>, servers: u32) -> Resource {
        assert!(servers > 0, "a resource needs a server");
        Resource {
            sim: sim.clone(),
            name: name.into(),
            servers,
            cause: None,
            free: Cell::new(servers),
            queue: WaitQueue::tagged(sim),
            busy_ns: Cell::new(0),
            queue_ns: Cell::new(0),
            uses: Cell::new(0),
        }
    }

    /// A task that runs here spends its time on `cause`, queueing included.
    pub fn spending(self, cause: Cause) -> Resource {
        Resource { cause: Some(cause), ..self }
    }

    /// The name in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for a server and holds it for `span` ns. A span of 0 ns does not queue.
    #[inline]
    pub fn run(&self, span: Ns) {
        if span == 0 {
            return;
        }
        let began = self.sim.now();
        if self.pass(span) {
            // Nobody could look meanwhile, so that the time is added at once.
            self.cause.inspect(|cause| self.sim.spent(*cause, began));
        } else {
            self.wait_and_run(span);
        }
    }

    /// [`Resource::run`] where the task has to suspend.
    #[inline]
    fn wait_and_run(&self, span: Ns) {
        let _spent = self.cause.map(|cause| self.sim.spend(cause));
        let (_server, since) = self.acquire_for(span);
        self.sim.sleep_until(since.saturating_add(span));
    }

    /// [`Resource::run`] for `span` ns, then `rest` ns without the server: a hop of which only the first part
    /// is shared.
    #[inline]
    pub fn run_then(&self, span: Ns, rest: Ns) {
        self.run(span);
        self.sim.sleep(rest);
    }

    /// As [`Resource::run`], with an entry in the trace that names the use of the time.
    #[inline]
    pub fn run_noted(&self, span: Ns, room: &'static str, what: &'static str) {
        if span == 0 || !self.sim.trace().is_on() {
            return self.run(span);
        }
        let began = self.sim.now();
        self.run(span);
        self.sim.trace().note(began, self.sim.now() - began, room, what, 0, "");
    }

    /// If a server is free and no other event is due before the server would be released, no task can observe
    /// the acquisition; then only the counters and the clock advance. Returns `false` if nothing was done.
    #[inline]
    fn pass(&self, span: Ns) -> bool {
        let began = self.sim.now();
        let passes = self.free.get() > 0 && self.sim.travel(span, 1);
        if passes {
            // While the clock is held, the server was held for 0 ns.
            self.note_use(self.sim.now() - began);
        }
        passes
    }

    /// A way through several parts of the machine in place: a server of each of `legs` in turn for its span, then
    /// `rest` ns without one, with a server of `held` throughout, all of it spent on `cause`. As [`Resource::pass`],
    /// and with the same counts and times as one step after the other, but with one look at the other events. Returns
    /// `false` if nothing was done: the caller then takes the steps.
    #[inline]
    pub fn pass_all(
        sim: &Sim,
        cause: Cause,
        held: Option<&Resource>,
        legs: [(&Resource, Ns); 2],
        rest: Ns,
    ) -> bool {
        let is_free = |(leg, span): (&Resource, Ns)| span == 0 || leg.free.get() > 0;
        if !is_free(legs[0]) || !is_free(legs[1]) || held.is_some_and(|held| held.free.get() == 0) {
            return false;
        }
        let (span, began) = (legs[0].1 + legs[1].1 + rest, sim.now());
        let steps = u64::from(legs[0].1 > 0) + u64::from(legs[1].1 > 0) + u64::from(rest > 0);
        if !sim.travel(span, steps) {
            return false;
        }
        // While the clock is held, servers were held for 0 ns.
        let has_passed = sim.now() != began;
        for (leg, span) in legs.into_iter().filter(|(_, span)| *span > 0) {
            leg.note_use(if has_passed { span } else { 0 });
        }
        held.inspect(|held| held.note_use(sim.now() - began));
        sim.spent(cause, began);
        true
    }

    /// Counts a use of `span` ns that nobody could see.
    #[inline]
    fn note_use(&self, span: Ns) {
        self.busy_ns.set(self.busy_ns.get().wrapping_add(span));
        self.uses.set(self.uses.get() + 1);
    }

    /// Waits for a server; it is held until the guard is dropped.
    ///
    /// Not inlined: when it was inlined, LLVM 22 (Rust 1.95) overwrote the exception with this resource at
    /// the beginning of a caller's landing pad, and unwinding a task that was dropped while it waited here
    /// crashed (release builds of `FlashPort::read_part_reserved`; its test has the name
    /// `..._is_dropped_whole`).
    #[inline(never)]
    pub fn acquire(&self) -> ResourceGuard<'_> {
        self.acquire_for(0).0
    }

    /// Waits for a server, and returns the guard and the time since which it is held. A task that had to
    /// queue may be resumed only when it has held the server for `span` ns: resuming it earlier, only to
    /// sleep, would be a needless switch of stacks.
    #[inline]
    fn acquire_for(&self, span: Ns) -> (ResourceGuard<'_>, Ns) {
        let now = self.sim.now();
        let since = if self.free.get() > 0 {
            self.free.set(self.free.get() - 1);
            self.busy_ns.set(self.busy_ns.get().wrapping_sub(now));
            self.uses.set(self.uses.get() + 1);
            now
        } else {
            // The releasing task hands its server over: `free` stays as it is, so no task can overtake.
            self.queue.handover(WaitingTask { arrived: now, span }, || self.end())
        };
        (ResourceGuard { resource: self }, since)
    }

    /// Releases a server; the task that has waited longest gets it.
    #[inline]
    fn end(&self) {
        let now = self.sim.now();
        match self.queue.wake_first(|turn| turn.span) {
            Some(turn) => {
                self.queue_ns.set(self.queue_ns.get() + (now - turn.arrived));
                self.uses.set(self.uses.get() + 1);
            }
            None => {
                self.free.set(self.free.get() + 1);
                self.busy_ns.set(self.busy_ns.get().wrapping_add(now));
            }
        }
    }

    /// Is every server free?
    pub fn is_idle(&self) -> bool {
        self.free.get() == self.servers
    }

    /// Is a server free?
    pub fn has_free(&self) -> bool {
        self.free.get() > 0
    }

    /// Number of tasks that hold a server or wait for one.
    pub fn users(&self) -> u32 {
        self.servers - self.free.get() + self.queue.len() as u32
    }

    /// Counters up to now, including those of servers still held.
    pub fn statistics(&self) -> ResourceStatistics {
        let held = u64::from(self.servers - self.free.get());
        ResourceStatistics {
            busy_ns: self.busy_ns.get().wrapping_add(held.wrapping_mul(self.sim.now())),
            queue_ns: self.queue_ns.get(),
            uses: self.uses.get(),
            servers: self.servers,
        }
    }

    /// The trace of this resource's executor.
    pub fn trace(&self) -> &Trace {
        self.sim.trace()
    }
}

/// A processor that can work: a resource, or a share of several ([`crate::TimeShare`]).
pub trait Core {
    /// Works for `span` ns, with an entry in the trace that names the use. Suspends the calling task.
    fn run_noted(&self, span: Ns, room: &'static str, what: &'static str);
}

impl Core for Resource {
    fn run_noted(&self, span: Ns, room: &'static str, what: &'static str) {
        Resource::run_noted(self, span, room, what);
    }
}

/// A held server.
pub struct ResourceGuard<'a> {
    resource: &'a Resource,
}

impl Drop for ResourceGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.resource.sim.halted() {
            self.resource.end();
        }
    }
}
