//! The wall clock: arrivals from outside, stamps, pacing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use kvdrive_sim::wall::{self, Arrival, Pace, Source, Stopwatch};
use kvdrive_sim::{Ns, Resource, Sim, TaskKey, WaitQueue};

/// A drive in small: takes requests in order, each keeps a resource busy for its span.
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

/// Hands over one request per so many looks, and remembers the stamps.
struct Script {
    server: Rc<Server>,
    requests: VecDeque<(u32, Ns)>,
    looks_between: u32,
    looks: u32,
    stamps: Vec<Ns>,
    parked: Duration,
}

impl Source for Script {
    fn poll(&mut self, at: Ns) -> Arrival {
        self.looks += 1;
        if !self.looks.is_multiple_of(self.looks_between) {
            return Arrival::None;
        }
        let Some(request) = self.requests.pop_front() else {
            return Arrival::Closed;
        };
        self.stamps.push(at);
        self.server.inbox.borrow_mut().push_back(request);
        Arrival::Some(self.server.receiver.get().expect("it waits"))
    }

    fn park(&mut self, timeout: Duration) {
        self.parked += timeout;
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
        parked: Duration::ZERO,
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
        let lateness = wall::run(&sim, Pace::Off, &mut source);
        assert_eq!(lateness.summary().count, 0, "nothing is late when unpaced");
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
    let lateness = wall::run(&sim, Pace::Model, &mut source);
    let measured_ns = watch.seconds() * 1e9;
    assert!(sim.now() >= 3_000_500);
    assert!(measured_ns >= sim.now() as f64, "{measured_ns}");
    assert!(lateness.summary().count >= 6);
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
    wall::run(&sim, Pace::Off, &mut source);
    assert!(sim.halted());
    assert!(server.log.borrow().iter().filter(|entry| entry.2 == "out").count() < 2);
}

#[test]
fn an_idle_run_sleeps_until_something_arrives() {
    let mut source = script(2_010, &[5]);
    let sim = source.server.sim.clone();
    wall::run(&sim, Pace::Off, &mut source);
    assert!(source.parked > Duration::ZERO);
    assert_eq!(source.server.log.borrow().len(), 2);
}
