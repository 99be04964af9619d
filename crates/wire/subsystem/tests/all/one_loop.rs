//! Sockets in the drive's own loop: one thread that serves both and sleeps in one place.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use kvdrive_config::Document;
use kvdrive_link::shared::{CompletionSink, Control, Server, ServerConfig, SharedLink, SharedQueue};
use kvdrive_nvme::{Command, Cqe, Key, SglDescriptor, Sqe, Status, Store, StoreOptions};
use kvdrive_run::wall::served;
use kvdrive_sim::Ns;
use kvdrive_sim::wall::{Pace, Polled, Sleeper, Source};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(0);
const PEER: Token = Token(1);
const BELL: Token = Token(2);

/// Completions, for the same thread.
#[derive(Default)]
struct Outlet(Mutex<VecDeque<Cqe>>);

impl CompletionSink for Outlet {
    fn complete(&self, _: &SharedQueue, cqes: &[Cqe]) {
        self.0.lock().unwrap().extend(cqes);
    }

    fn power_off(&self) {}
}

/// A small door: a peer sends the number of a key, one byte, and gets a byte; 0: the key is absent.
struct Door {
    poll: Rc<RefCell<(Poll, Events)>>,
    listener: TcpListener,
    peer: Option<TcpStream>,
    link: Arc<SharedLink>,
    queue: Arc<SharedQueue>,
    outlet: Arc<Outlet>,
    /// There may be bytes to read.
    readable: bool,
    closed: bool,
}

impl Door {
    fn note(&mut self) {
        for event in &self.poll.borrow().1 {
            self.readable |= event.token() != BELL;
        }
        if self.peer.is_none()
            && let Ok((mut peer, _)) = self.listener.accept()
        {
            let registry = self.poll.borrow().0.registry().try_clone().unwrap();
            registry.register(&mut peer, PEER, Interest::READABLE).unwrap();
            self.peer = Some(peer);
            self.readable = true;
        }
    }
}

impl Source for Door {
    fn poll(&mut self, _: Ns) -> Polled {
        for _ in self.outlet.0.lock().unwrap().drain(..) {
            self.queue.ring_completion();
            self.peer.as_mut().unwrap().write_all(&[0]).unwrap();
        }
        if std::mem::take(&mut self.readable)
            && let Some(peer) = &mut self.peer
        {
            let mut bytes = [0; 64];
            match peer.read(&mut bytes) {
                Ok(0) => {
                    self.closed = true;
                    self.link.close();
                }
                Ok(count) => {
                    self.readable = true;
                    for byte in &bytes[..count] {
                        let key = Key::from_u32_be(u32::from(*byte));
                        let mut sqes = vec![Command::Exist { key }.encode(u16::from(*byte), 1)];
                        assert!(self.queue.submit(&mut sqes, 0));
                    }
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        if self.closed { Polled::Closed } else { Polled::Nothing }
    }

    fn arm(&mut self) -> Duration {
        let nothing = !self.readable && self.outlet.0.lock().unwrap().is_empty();
        if nothing { Duration::MAX } else { Duration::ZERO }
    }

    fn disarm(&mut self) {
        self.note();
    }
}

/// Sleeps until a socket is ready.
struct Epoll(Rc<RefCell<(Poll, Events)>>);

impl Sleeper for Epoll {
    fn sleep(&mut self, timeout: Duration) {
        let (poll, events) = &mut *self.0.borrow_mut();
        poll.poll(events, (timeout != Duration::MAX).then_some(timeout)).unwrap();
    }
}

/// The whole server, on this thread.
fn serve(ready: &mpsc::Sender<(SocketAddr, Control<kvdrive_run::wall::Running>)>) -> u64 {
    let outlet = Arc::new(Outlet::default());
    let (link, _admin) = SharedLink::new(outlet.clone());
    let control = Control::new(&link);
    let config = Document::profile("cosmos-plus").unwrap().config().unwrap();
    let server_config = ServerConfig { pace: Pace::Off, recorder: None };
    let server = Server::new(&link, &control, server_config, |sim, memory| {
        let built = served(config, None)(sim, memory)?;
        let finish = |ended: kvdrive_link::shared::RunEnd| ended.sleeps;
        Ok(kvdrive_link::shared::Built { link: built.link, drive: built.drive, finish })
    });
    let poll = Poll::new().unwrap();
    let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE).unwrap();
    let waker = mio::Waker::new(poll.registry(), BELL).unwrap();
    ready.send((listener.local_addr().unwrap(), control)).unwrap();
    let queue = link.create_queue(300, outlet.clone()).unwrap();
    let poll = Rc::new(RefCell::new((poll, Events::with_capacity(16))));
    let mut rest = Epoll(poll.clone());
    let mut door = Door { poll, listener, peer: None, link, queue, outlet, readable: false, closed: false };
    server.unwrap().run_beside(&mut [&mut door], &mut rest, move || waker.wake().unwrap())
}

#[test]
fn one_thread_serves_sockets_and_drive_and_sleeps_for_both() {
    let (ready, is_ready) = mpsc::channel();
    let server = std::thread::spawn(move || serve(&ready));
    let (at, control) = is_ready.recv().unwrap();
    let mut peer = std::net::TcpStream::connect(at).unwrap();
    peer.set_nodelay(true).unwrap();
    let mut asked = 0;
    for round in 0..30u8 {
        let burst: Vec<u8> = (0..=round).collect();
        peer.write_all(&burst).unwrap();
        let mut answers = vec![9; burst.len()];
        peer.read_exact(&mut answers).unwrap();
        asked += 1;
        // Another thread reaches the drive without a socket, and wakes it where sockets would.
        control.look(|_, running| running.snapshot().counts.of("drive.commands")).unwrap();
        asked += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    let commands = control.look(|_, running| running.snapshot().counts.of("drive.commands")).unwrap();
    assert_eq!(commands, (1..=30).sum::<u64>());
    drop(peer);
    let sleeps = server.join().unwrap();
    // A burst may come in pieces, and each answer goes out alone: still a few sleeps for each.
    assert!((1..=asked * 8 + 8).contains(&sleeps), "{sleeps} sleeps for {asked} questions");
}

/// Two hosts without sockets: one lists all keys once, and meanwhile the other one alternately retrieves a
/// key and stores it.
struct TwoHosts {
    link: Arc<SharedLink>,
    /// The queue of each host, and the place of its answers.
    queues: [(Arc<SharedQueue>, Arc<Outlet>); 2],
    stored: u16,
    list: Sqe,
    is_listing: bool,
    /// Slices that have ended, and looks while the List waits for its turn.
    looks: u32,
    /// Answers to the other host while the List was under way.
    beside: Rc<RefCell<Option<u32>>>,
}

const HOG: usize = 0;
const OTHER: usize = 1;
/// Keys that are listed; a slice is 256 of them.
const LISTED: u16 = 20_000;

impl TwoHosts {
    fn submit(&self, host: usize, sqe: Sqe) {
        assert!(self.queues[host].0.submit(&mut vec![sqe], 0));
    }

    fn answers(&self, host: usize) -> u32 {
        let (queue, outlet) = &self.queues[host];
        let taken: Vec<Cqe> = outlet.0.lock().unwrap().drain(..).collect();
        for cqe in &taken {
            queue.ring_completion();
            assert_eq!(cqe.status(), Status::SUCCESS);
        }
        taken.len() as u32
    }

    fn store(&self, host: usize, number: u16) {
        let key = Key::from_u32_be(u32::from(number));
        let store = Store { key, value_bytes: 0, options: StoreOptions::default() };
        self.submit(host, Command::Store(store).encode(1, 1));
    }

    /// Submits the other host's next command, after `answers` answers.
    fn go_on(&self, answers: u32) {
        if answers.is_multiple_of(2) {
            self.submit(OTHER, Command::Exist { key: Key::from_u32_be(7) }.encode(1, 1));
        } else {
            self.store(OTHER, 7);
        }
    }
}

impl Source for TwoHosts {
    fn poll(&mut self, _: Ns) -> Polled {
        let (listed, asked) = (self.answers(HOG), self.answers(OTHER));
        if !self.is_listing {
            if self.stored > 0 && listed == 0 {
                return Polled::Nothing;
            }
            if self.stored < LISTED {
                self.store(HOG, self.stored);
                self.stored += 1;
            } else {
                self.submit(HOG, self.list);
                self.go_on(0);
                (self.is_listing, *self.beside.borrow_mut()) = (true, Some(0));
            }
            return Polled::Nothing;
        }
        if listed > 0 {
            self.link.close();
            return Polled::Closed;
        }
        if asked > 0 {
            let mut beside = self.beside.borrow_mut();
            let answers = beside.as_mut().expect("it is listing");
            *answers += asked;
            self.go_on(*answers);
        }
        Polled::Nothing
    }

    fn arm(&mut self) -> Duration {
        let is_empty = |(_, outlet): &(_, Arc<Outlet>)| outlet.0.lock().unwrap().is_empty();
        if self.stored > 0 && self.queues.iter().all(is_empty) { Duration::MAX } else { Duration::ZERO }
    }

    fn disarm(&mut self) {}

    fn look_closely(&mut self) {
        self.looks += 1;
    }
}

/// Work is counted, not time: during a List of 78 slices the other host gets an answer every few slices.
#[test]
fn a_long_list_lets_another_host_in_between_its_slices() {
    [Pace::Off, Pace::Jump].into_iter().for_each(list_beside);
}

fn list_beside(pace: Pace) {
    const LIST_BYTES: u32 = 1 << 20;
    let outlets = [Arc::new(Outlet::default()), Arc::new(Outlet::default())];
    let (link, _admin) = SharedLink::new(outlets[HOG].clone());
    let control = Control::new(&link);
    let config = Document::profile("cosmos-plus").unwrap().config().unwrap();
    let server_config = ServerConfig { pace, recorder: None };
    let server = Server::new(&link, &control, server_config, |sim, memory| {
        let built = served(config, None)(sim, memory)?;
        Ok(kvdrive_link::shared::Built { link: built.link, drive: built.drive, finish: drop })
    });
    let answer = link.memory().map(LIST_BYTES);
    let mut list = Command::List { start: None, buffer_bytes: LIST_BYTES }.encode(1, 1);
    list.set_sgl(SglDescriptor::data_block(answer.address(), LIST_BYTES));
    let queues = outlets.map(|outlet| (link.create_queue(8, outlet.clone()).unwrap(), outlet));
    let beside = Rc::new(RefCell::new(None));
    let mut hosts =
        TwoHosts { link, queues, stored: 0, list, is_listing: false, looks: 0, beside: beside.clone() };
    server.unwrap().run_beside(&mut [&mut hosts], &mut kvdrive_sim::wall::Park, || ());
    let slices = u32::from(LISTED) / 256;
    assert!(hosts.looks >= slices / 4, "{pace:?}: {} looks", hosts.looks);
    let answers = beside.take().expect("it was listed");
    // An exchange takes at least some slices: the command arrives after one, is served after another, and
    // then its answer is seen.
    assert!(answers >= slices / 8, "{pace:?}: {answers} answers beside {LISTED} keys");
}
