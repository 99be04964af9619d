//! The wall clock: arrivals from outside, stamps, pacing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvdrive_sim::wall::{self, Bell, Pace, Park, Polled, Sleeper, Source, Stopwatch};
use kvdrive_sim::{Histogram, Ns, Resource, Sim, TaskKey, WaitQueue};

/// A small drive: it takes requests in order, and each keeps a resource busy for its span.
struct Server {
    sim: Sim,
    resource: Resource,
    inbox: RefCell<VecDeque<(u32, Ns)>>,
    receiver: Cell<Option<TaskKey>>,
    /// When each request was taken and when it was done.
    log: RefCell<Vec<(Ns, u32, &'static str)>>,
    done: WaitQueue,
}

impl Server {
    fn new() -> Rc<Server> {
        let sim = Sim::new();
        let server = Rc::new(Server {
            resource: Resource::new(&sim, "core", 1),
            inbox: RefCell::default(),
            receiver: Cell::default(),
            log: RefCell::default(),
            done: WaitQueue::new(&sim),
            sim: sim.clone(),
        });
        let server2 = server.clone();
        sim.spawn(move || {
            server2.receiver.set(Some(server2.sim.current()));
            loop {
                while let Some((who, span)) = server2.take() {
                    let server = server2.clone();
                    server2.sim.spawn(move || serve(server, who, span));
                }
                server2.sim.suspend();
            }
        });
        sim.step();
        server
    }

    fn take(&self) -> Option<(u32, Ns)> {
        let request = self.inbox.borrow_mut().pop_front();
        if let Some((who, _)) = request {
            self.note(who, "in");
        }
        request
    }

    fn note(&self, who: u32, what: &'static str) {
        self.log.borrow_mut().push((self.sim.now(), who, what));
    }
}

fn serve(server: Rc<Server>, who: u32, span: Ns) {
    server.resource.run(span);
    server.note(who, "out");
    server.done.wake_one();
}

/// Hands over one request per `looks_between` polls, and keeps the stamps.
struct Script {
    server: Rc<Server>,
    requests: VecDeque<(u32, Ns)>,
    looks_between: u32,
    looks: u32,
    stamps: Vec<Ns>,
    armed: u32,
    lateness: Histogram,
}

impl Source for Script {
    fn poll(&mut self, at: Ns) -> Polled {
        self.looks += 1;
        if !self.looks.is_multiple_of(self.looks_between) {
            return Polled::Nothing;
        }
        let Some(request) = self.requests.pop_front() else {
            return Polled::Closed;
        };
        self.stamps.push(at);
        self.server.inbox.borrow_mut().push_back(request);
        Polled::Woke(self.server.receiver.get().expect("it waits"))
    }

    fn arm(&mut self) -> Duration {
        self.armed += 1;
        Duration::from_micros(100)
    }

    fn disarm(&mut self) {}

    fn ran_late(&mut self, late_ns: Ns) {
        self.lateness.record(late_ns);
    }
}

/// Sleeps for the longest time allowed.
struct Nap;

impl Sleeper for Nap {
    fn sleep(&mut self, timeout: Duration) {
        std::thread::sleep(timeout);
    }
}

fn script(looks_between: u32, requests: &[Ns]) -> Script {
    Script {
        server: Server::new(),
        requests: (0..).zip(requests.iter().copied()).collect(),
        looks_between,
        looks: 0,
        stamps: Vec::new(),
        armed: 0,
        lateness: Histogram::default(),
    }
}

/// Feeds the stamps of a wall run to a virtual run.
fn replay(stamps: &[Ns], requests: &[Ns]) -> Vec<(Ns, u32, &'static str)> {
    let server = Server::new();
    let (server2, stamps) = (server.clone(), stamps.to_vec());
    let requests = requests.to_vec();
    server.sim.spawn(move || {
        for (who, (at, span)) in stamps.into_iter().zip(requests).enumerate() {
            server2.sim.sleep_until_external(at);
            server2.inbox.borrow_mut().push_back((who as u32, span));
            server2.sim.wake(server2.receiver.get().expect("it waits"));
        }
    });
    server.sim.run();
    server.log.take()
}

#[test]
fn unpaced_everything_arrives_is_served_and_replays_exactly() {
    for looks_between in [1, 2, 7] {
        let requests: Vec<Ns> = (0..500).map(|index| index * 37 % 11).collect();
        let mut source = script(looks_between, &requests);
        let sim = source.server.sim.clone();
        let lateness = wall::run(&sim, Pace::Off, &mut [&mut source], &mut Nap).lateness;
        assert_eq!(lateness.summary().count, 0, "nothing is late when unpaced");
        assert_eq!(source.lateness.summary().count, 0, "nor is a source told so");
        assert!(source.stamps.is_sorted_by(|a, b| a < b));
        let log = source.server.log.take();
        assert_eq!(log.len(), 1_000);
        assert_eq!(log, replay(&source.stamps, &requests));
    }
}

#[test]
fn paced_no_event_runs_before_its_time() {
    let requests = [2_000_000, 1_000_000, 500];
    let mut source = script(3, &requests);
    let sim = source.server.sim.clone();
    let watch = Stopwatch::start();
    let lateness = wall::run(&sim, Pace::Model, &mut [&mut source], &mut Nap).lateness;
    let measured_ns = watch.seconds() * 1e9;
    assert!(sim.now() >= 3_000_500);
    assert!(measured_ns >= sim.now() as f64, "{measured_ns}");
    assert!(lateness.summary().count >= 6);
    assert_eq!(source.lateness.summary(), lateness.summary(), "a source is told of every event");
    let log = source.server.log.take();
    assert_eq!(log, replay(&source.stamps, &requests));
}

#[test]
fn a_halted_run_ends() {
    let mut source = script(1, &[10, 10]);
    let server = source.server.clone();
    let sim = server.sim.clone();
    let server2 = server.clone();
    sim.spawn(move || {
        server2.done.wait();
        server2.sim.halt();
    });
    wall::run(&sim, Pace::Off, &mut [&mut source], &mut Nap);
    assert!(sim.halted());
    assert!(server.log.borrow().iter().filter(|entry| entry.2 == "out").count() < 2);
}

/// Requests that another thread puts in, with a bell.
struct Rung {
    server: Rc<Server>,
    bell: Arc<Bell>,
    requests: Arc<Mutex<Vec<(u32, Ns)>>>,
    seen: u64,
    taken: u32,
    last: u32,
}

impl Source for Rung {
    fn poll(&mut self, _: Ns) -> Polled {
        let news = self.bell.news();
        if std::mem::replace(&mut self.seen, news) == news {
            return if self.taken == self.last { Polled::Closed } else { Polled::Nothing };
        }
        let requests = std::mem::take(&mut *self.requests.lock().unwrap());
        self.taken += requests.len() as u32;
        self.server.inbox.borrow_mut().extend(requests);
        Polled::Woke(self.server.receiver.get().expect("it waits"))
    }

    fn arm(&mut self) -> Duration {
        if self.bell.sleeps(self.seen) { Duration::ZERO } else { Duration::MAX }
    }

    fn disarm(&mut self) {
        self.bell.is_awake();
    }
}

/// Two sources, each with a thread that adds a request `count` times, `between` apart; the thread of the run
/// has no other work. Returns how often that thread slept, and how often the bells rang.
fn rung(pace: Pace, count: u32, between: Duration) -> (u64, u64) {
    let server = Server::new();
    let thread = std::thread::current();
    let source = || {
        let thread = thread.clone();
        let bell = Arc::new(Bell::waking(move || thread.unpark()));
        Rung { server: server.clone(), bell, requests: Arc::default(), seen: 0, taken: 0, last: count }
    };
    let (mut one, mut other) = (source(), source());
    let sim = server.sim.clone();
    let ran = std::thread::scope(|scope| {
        for source in [&one, &other] {
            let (bell, requests) = (source.bell.clone(), source.requests.clone());
            scope.spawn(move || {
                for who in 0..count {
                    std::thread::sleep(between);
                    requests.lock().unwrap().push((who, 100));
                    bell.ring();
                }
            });
        }
        wall::run(&sim, pace, &mut [&mut one, &mut other], &mut Park)
    });
    assert_eq!(server.log.borrow().len(), 4 * count as usize, "each came in and went out");
    (ran.sleeps, one.bell.news() + other.bell.news())
}

/// The thread wakes up only for a ring or a due event.
#[test]
fn an_idle_run_sleeps_until_a_bell_rings() {
    let (sleeps, rings) = rung(Pace::Off, 6, Duration::from_millis(40));
    assert_eq!(rings, 12);
    // A token of an earlier unpark may be left once for each ring.
    assert!((1..=2 * rings + 2).contains(&sleeps), "it slept {sleeps} times");
    // Each request waits for two more events, of 100 ns.
    let (sleeps, rings) = rung(Pace::Model, 6, Duration::from_millis(40));
    assert!((1..=4 * rings + 4).contains(&sleeps), "it slept {sleeps} times");
}

/// A ring at the moment when the thread falls asleep is not lost: otherwise it would sleep for ever.
#[test]
fn no_ring_is_lost() {
    for between in [0, 40, 60, 80, 120] {
        rung(Pace::Off, 500, Duration::from_micros(between));
    }
}

/// A source without a bell: its requests are found when its timer has ended, one at the third time and its
/// end at the sixth.
struct Timer {
    server: Rc<Server>,
    armed: u32,
    is_sent: bool,
}

const TIMER: Duration = Duration::from_micros(100);

impl Source for Timer {
    fn poll(&mut self, _: Ns) -> Polled {
        match self.armed {
            6.. => Polled::Closed,
            3.. if !std::mem::replace(&mut self.is_sent, true) => {
                self.server.inbox.borrow_mut().push_back((0, 5));
                Polled::Woke(self.server.receiver.get().expect("it waits"))
            }
            _ => Polled::Nothing,
        }
    }

    fn arm(&mut self) -> Duration {
        self.armed += 1;
        TIMER
    }

    fn disarm(&mut self) {}
}

/// Notes how long it was asked to sleep.
#[derive(Default)]
struct Noted(Vec<Duration>);

impl Sleeper for Noted {
    fn sleep(&mut self, timeout: Duration) {
        self.0.push(timeout);
    }
}

#[test]
fn a_source_with_a_timer_of_its_own_is_looked_at_when_that_ends() {
    let mut source = Timer { server: Server::new(), armed: 0, is_sent: false };
    let (sim, mut rest) = (source.server.sim.clone(), Noted::default());
    let ran = wall::run(&sim, Pace::Off, &mut [&mut source], &mut rest);
    assert_eq!((ran.sleeps, rest.0), (6, vec![TIMER; 6]));
    assert_eq!(source.server.log.borrow().len(), 2);
}

/// A task that works for long without a sleep: between its slices arrivals are let in, whether or not the
/// clock is held.
#[test]
fn a_source_is_looked_at_between_two_slices_of_a_long_task() {
    for pace in [Pace::Off, Pace::Jump] {
        let mut source = script(1, &[5, 5, 5]);
        let sim = source.server.sim.clone();
        let slices = Rc::new(Cell::new(0));
        let (task, ended) = (sim.clone(), slices.clone());
        let server = source.server.clone();
        sim.spawn(move || {
            let _held = (pace == Pace::Off).then(|| task.hold_clock());
            while server.log.borrow().len() < 6 {
                ended.set(ended.get() + 1);
                task.end_slice();
            }
        });
        wall::run(&sim, pace, &mut [&mut source], &mut Noted::default());
        assert!(slices.get() < 10, "{pace:?}: {} slices while three requests came and went", slices.get());
    }
}

/// A held clock alone has no arrivals to let in: in model time slices are no events.
#[test]
fn in_model_time_a_slice_ends_without_an_event() {
    let sim = Sim::new();
    let task = sim.clone();
    sim.spawn(move || {
        let _held = task.hold_clock();
        (0..1000).for_each(|_| task.end_slice());
    });
    sim.run();
    assert_eq!(sim.events(), 1);
}
