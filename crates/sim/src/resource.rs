//! A part of the machine that serves a fixed number of users at a time: a die, a channel, a firmware core.
//!
//! Users are served in the order in which they *arrive*; nothing can be booked ahead. Every resource
//! reports how long it was busy and how long its users queued.

use std::cell::Cell;

use crate::executor::Sim;
use crate::wait_queue::WaitQueue;
use crate::{Ns, Trace};

/// What a resource has done so far. Counted in model time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceStatistics {
    /// Sum over its servers of the time they were held, ns.
    pub busy_ns: Ns,
    /// Sum over its users of the time they waited, ns.
    pub queue_ns: Ns,
    /// How often it was acquired.
    pub uses: u64,
    /// Servers.
    pub servers: u32,
}

impl ResourceStatistics {
    /// What several resources did together.
    pub fn sum(all: impl Iterator<Item = ResourceStatistics>) -> ResourceStatistics {
        all.fold(ResourceStatistics::default(), |sum, one| ResourceStatistics {
            busy_ns: sum.busy_ns + one.busy_ns,
            queue_ns: sum.queue_ns + one.queue_ns,
            uses: sum.uses + one.uses,
            servers: sum.servers + one.servers,
        })
    }
}

/// Who waits for a server.
struct Turn {
    arrived: Ns,
    /// For how long it wants one, ns; 0: it says so when it has one.
    span: Ns,
}

/// `servers` equal servers with one FIFO queue.
pub struct Resource {
    sim: Sim,
    name: String,
    servers: u32,
    free: Cell<u32>,
    queue: WaitQueue<Turn>,
    /// The sum of the times at which servers were given back, less those at which they were taken; below zero,
    /// around the end of the numbers, while one is held. Where it is handed over both are one time.
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
            free: Cell::new(servers),
            queue: WaitQueue::tagged(sim),
            busy_ns: Cell::new(0),
            queue_ns: Cell::new(0),
            uses: Cell::new(0),
        }
    }

    /// Its name in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for a server and holds it for `span` ns. A span of zero does not even queue.
    #[inline]
    pub fn run(&self, span: Ns) {
        if span > 0 && !self.pass(span) {
            let (_server, since) = self.acquire_for(span);
            self.sim.sleep_until(since.saturating_add(span));
        }
    }

    /// [`Resource::run`] for `span` ns, then `rest` ns without the server: a hop that is shared in part.
    #[inline]
    pub fn run_then(&self, span: Ns, rest: Ns) {
        self.run(span);
        self.sim.sleep(rest);
    }

    /// As [`Resource::run`], and says in the trace what for.
    #[inline]
    pub fn run_noted(&self, span: Ns, room: &'static str, what: &'static str) {
        if span == 0 || !self.sim.trace().is_on() {
            return self.run(span);
        }
        let began = self.sim.now();
        self.run(span);
        self.sim.trace().note(began, self.sim.now() - began, room, what, 0, "");
    }

    /// When a server is free and nothing else happens until it would be given back, nobody can tell that it
    /// was taken, so only the counters move, and the clock. `false`: nothing was done.
    #[inline]
    fn pass(&self, span: Ns) -> bool {
        let began = self.sim.now();
        let passes = self.free.get() > 0 && self.sim.travel(span);
        if passes {
            // While the clock is held, it was held for nothing.
            self.busy_ns.set(self.busy_ns.get().wrapping_add(self.sim.now() - began));
            self.uses.set(self.uses.get() + 1);
        }
        passes
    }

    /// Waits for a server; it is held until the guard is dropped.
    ///
    /// Not inlined: where it was, LLVM 22 (Rust 1.95) overwrote the exception with this resource at the beginning of
    /// a caller's landing pad, and a task dropped while it waited here was unwound into nowhere (release builds of
    /// `FlashPort::read_part_reserved`; its test has the name `..._is_dropped_whole`).
    #[inline(never)]
    pub fn acquire(&self) -> ResourceGuard<'_> {
        self.acquire_for(0).0
    }

    /// Waits for a server, and says since when it is held. Whoever had to queue for one may come back when it has
    /// had it for `span` ns already: to be resumed only to sleep would be a switch of stacks for nothing.
    #[inline]
    fn acquire_for(&self, span: Ns) -> (ResourceGuard<'_>, Ns) {
        let now = self.sim.now();
        let since = if self.free.get() > 0 {
            self.free.set(self.free.get() - 1);
            self.busy_ns.set(self.busy_ns.get().wrapping_sub(now));
            self.uses.set(self.uses.get() + 1);
            now
        } else {
            // The one who leaves hands its server over: `free` stays as it is, so nobody can overtake.
            self.queue.handover(Turn { arrived: now, span }, || self.end())
        };
        (ResourceGuard { resource: self }, since)
    }

    /// Who had a server has it no longer: it goes to who waits longest.
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

    /// How many have a server or wait for one.
    pub fn users(&self) -> u32 {
        self.servers - self.free.get() + self.queue.len() as u32
    }

    /// Counters up to now, those of servers still held included.
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

/// What works: a resource, or somebody's part of several ([`crate::TimeShare`]).
pub trait Core {
    /// Works for `span` ns, and says in the trace what for. Suspends whoever calls.
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
