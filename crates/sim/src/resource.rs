//! A part of the machine that serves a fixed number of users at a time: a die, a channel, a firmware core.
//!
//! Users are served in the order in which they *arrive*; nothing can be booked ahead. Every resource
//! reports how long it was busy and how long its users queued.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::executor::{Sim, Sleep};
use crate::wait_queue::{Wait, WaitQueue};
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

/// Who waits for a server.
#[derive(Clone, Copy)]
struct Claim {
    arrived: Ns,
    /// How long it will be held; 0: until whoever holds it gives it back.
    span: Ns,
}

/// `servers` equal servers with one FIFO queue.
pub struct Resource {
    sim: Sim,
    name: String,
    servers: u32,
    free: Cell<u32>,
    queue: WaitQueue<Claim>,
    busy_ns: Cell<Ns>,
    /// Guards there are, and the sum of the times since which they hold.
    held: Cell<u64>,
    held_since_ns: Cell<Ns>,
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
            held: Cell::new(0),
            held_since_ns: Cell::new(0),
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
    pub fn run(&self, span: Ns) -> Run<'_> {
        Run::new(self, span, None)
    }

    /// [`Resource::run`] for `span` ns, then `rest` ns without the server: a hop that is shared in part.
    #[inline]
    pub async fn run_then(&self, span: Ns, rest: Ns) {
        if !self.pass(span, rest) {
            self.run(span).await;
            self.sim.sleep(rest).await;
        }
    }

    /// [`Resource::run_then`] without a future, where that can be: when a server is free and nothing else
    /// happens until it would be given back, nobody can tell that it was taken, so only the counters move,
    /// and the clock. `false`: nothing was done, wait for [`Resource::run_then`].
    #[inline]
    pub fn pass(&self, span: Ns, rest: Ns) -> bool {
        let events = u64::from(span > 0) + u64::from(rest > 0);
        let began = self.sim.now();
        if self.free.get() == 0 || !self.sim.travel(span.saturating_add(rest), events) {
            return false;
        }
        self.note_pass(span, began);
        true
    }

    /// [`Resource::pass`] of two, one behind the other: `first`, `then`, and `rest` ns without either.
    #[inline]
    pub fn pass_both(first: (&Resource, Ns), then: (&Resource, Ns), rest: Ns) -> bool {
        Resource::pass_parts(first, then, [first.1, then.1, rest])
    }

    /// [`Resource::pass`] of `outer`, held for `outer_ns` alone and then as long as `inner` is: for how
    /// long that is.
    #[inline]
    pub fn pass_nested(outer: &Resource, outer_ns: Ns, inner: (&Resource, Ns)) -> bool {
        Resource::pass_parts((outer, outer_ns.saturating_add(inner.1)), inner, [outer_ns, inner.1, 0])
    }

    /// [`Resource::pass`] of two that are held for so long each, in parts of so many ns.
    #[inline]
    fn pass_parts(one: (&Resource, Ns), other: (&Resource, Ns), parts: [Ns; 3]) -> bool {
        let sim = &one.0.sim;
        let events = parts.iter().filter(|part| **part > 0).count() as u64;
        let span = parts.iter().fold(0, |span: Ns, part| span.saturating_add(*part));
        let began = sim.now();
        if one.0.free.get() == 0 || other.0.free.get() == 0 || !sim.travel(span, events) {
            return false;
        }
        one.0.note_pass(one.1, began);
        other.0.note_pass(other.1, began);
        true
    }

    /// Somebody who passed since `began` had a server for `span` ns of it, or for nothing while the clock is
    /// held.
    #[inline]
    fn note_pass(&self, span: Ns, began: Ns) {
        if span > 0 {
            self.busy_ns.set(self.busy_ns.get() + span.min(self.sim.now() - began));
            self.uses.set(self.uses.get() + 1);
        }
    }

    /// As [`Resource::run`], and says in the trace what for.
    #[inline]
    pub fn run_noted(&self, span: Ns, room: &'static str, what: &'static str) -> Run<'_> {
        Run::new(self, span, Some((room, what)))
    }

    /// As [`Resource::pass`], and says in the trace what for.
    #[inline]
    pub fn pass_noted(&self, span: Ns, room: &'static str, what: &'static str) -> bool {
        let began = self.sim.now();
        let passed = self.pass(span, 0);
        if passed && span > 0 && self.sim.trace().is_on() {
            self.sim.trace().note(began, span, room, what, 0, "");
        }
        passed
    }

    /// Waits for a server; it is held until the guard is dropped.
    #[inline]
    pub async fn acquire(&self) -> ResourceGuard<'_> {
        if self.free.get() > 0 {
            self.free.set(self.free.get() - 1);
            self.begin(self.sim.now());
        } else {
            // The one who leaves hands its server over: `free` stays as it is, so nobody can overtake.
            let claim = Claim { arrived: self.sim.now(), span: 0 };
            self.queue.handover(claim, || self.end(self.sim.now())).await;
        }
        ResourceGuard { resource: self, since: self.sim.now() }
    }

    /// Somebody who arrived then has a server from now on.
    #[inline]
    fn begin(&self, arrived: Ns) {
        let now = self.sim.now();
        self.queue_ns.set(self.queue_ns.get() + (now - arrived));
        self.uses.set(self.uses.get() + 1);
        self.held.set(self.held.get() + 1);
        self.held_since_ns.set(self.held_since_ns.get() + now);
    }

    /// Who had a server since then has it no longer: it goes to who waits longest.
    #[inline]
    fn end(&self, since: Ns) {
        self.busy_ns.set(self.busy_ns.get() + (self.sim.now() - since));
        self.held.set(self.held.get() - 1);
        self.held_since_ns.set(self.held_since_ns.get() - since);
        match self.queue.wake_first(|claim| claim.span) {
            Some(claim) => self.begin(claim.arrived),
            None => self.free.set(self.free.get() + 1),
        }
    }

    /// Is every server free?
    pub fn is_idle(&self) -> bool {
        self.free.get() == self.servers
    }

    /// Counters up to now, those of servers still held included.
    pub fn statistics(&self) -> ResourceStatistics {
        let held_ns = self.held.get() * self.sim.now() - self.held_since_ns.get();
        ResourceStatistics {
            busy_ns: self.busy_ns.get() + held_ns,
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

/// A held server.
pub struct ResourceGuard<'a> {
    resource: &'a Resource,
    since: Ns,
}

impl Drop for ResourceGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.resource.sim.halted() {
            self.resource.end(self.since);
        }
    }
}

/// See [`Resource::run`]. Dropped earlier, it leaves the queue or gives its server back.
pub struct Run<'a> {
    resource: &'a Resource,
    span: Ns,
    stage: Stage<'a>,
    /// When it was first polled, and what the trace is told of it.
    began: Ns,
    note: Option<(&'static str, &'static str)>,
}

enum Stage<'a> {
    New,
    Waiting(Wait<'a, Claim>),
    /// Has a server since then. `None`: the executor has put the task to sleep.
    Served(Ns, Option<Sleep<'a>>),
    Over,
}

impl<'a> Run<'a> {
    #[inline]
    fn new(resource: &'a Resource, span: Ns, note: Option<(&'static str, &'static str)>) -> Run<'a> {
        Run { resource, span, stage: Stage::New, began: 0, note }
    }

    /// Takes a server or a place in the queue, if it cannot just pass.
    #[inline]
    fn begin(&mut self) -> Stage<'a> {
        let (resource, now) = (self.resource, self.resource.sim.now());
        self.began = now;
        if self.span == 0 || resource.pass(self.span, 0) {
            return Stage::Over;
        }
        if resource.free.get() == 0 {
            return Stage::Waiting(resource.queue.place(Claim { arrived: now, span: self.span }));
        }
        resource.free.set(resource.free.get() - 1);
        resource.begin(now);
        Stage::Served(now, Some(resource.sim.sleep(self.span)))
    }

    #[inline]
    fn poll_stages(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (resource, span) = (self.resource, self.span);
        if let Stage::New = self.stage {
            self.stage = self.begin();
        }
        if let Stage::Waiting(wait) = &mut self.stage {
            let Poll::Ready(grant) = wait.poll_grant() else { return Poll::Pending };
            let sleep = (!grant.is_asleep).then(|| resource.sim.sleep(span));
            self.stage = Stage::Served(grant.at, sleep);
        }
        if let Stage::Served(since, sleep) = &mut self.stage {
            let is_over = match sleep {
                Some(sleep) => Pin::new(sleep).poll(context).is_ready(),
                None => resource.sim.now() >= since.saturating_add(span) && !resource.sim.halted(),
            };
            if !is_over {
                return Poll::Pending;
            }
            let since = *since;
            self.stage = Stage::Over;
            resource.end(since);
        }
        Poll::Ready(())
    }
}

impl Future for Run<'_> {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let polled = self.poll_stages(context);
        if let (Poll::Ready(()), Some((room, what))) = (polled, self.note)
            && self.span > 0
            && self.resource.sim.trace().is_on()
        {
            let sim = &self.resource.sim;
            sim.trace().note(self.began, sim.now() - self.began, room, what, 0, "");
        }
        polled
    }
}

impl Drop for Run<'_> {
    #[inline]
    fn drop(&mut self) {
        let since = match &mut self.stage {
            Stage::New | Stage::Over => None,
            Stage::Waiting(wait) => wait.leave().map(|grant| grant.at),
            Stage::Served(since, _) => Some(*since),
        };
        if let Some(since) = since.filter(|_| !self.resource.sim.halted()) {
            self.resource.end(since);
        }
    }
}
