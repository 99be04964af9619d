//! Futures over a socket on an executor that is not ours: no poll waits, and a future may be dropped.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use kvdrive_content::Region;
use kvdrive_host::tcp::{Initiator, Options as HostOptions};
use kvdrive_host::{Answer, Call, Calls, Driver, Error};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::served::{Backend, Running, serve};

const DEPTH: u32 = 8;

/// Forwards connections to a server; while it is shut, nothing that the server says goes on, or only the next bytes. A gate
/// that breaks loses what it holds, and the connections.
struct Gate {
    at: SocketAddr,
    is_shut: Arc<AtomicBool>,
    /// Bytes that go on although it is shut.
    passes: Arc<AtomicUsize>,
    is_broken: Arc<AtomicBool>,
}

impl Gate {
    fn before(server: SocketAddr) -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let flag = || Arc::new(AtomicBool::new(false));
        let (at, is_shut, is_broken) = (listener.local_addr().unwrap(), flag(), flag());
        let passes = Arc::new(AtomicUsize::new(0));
        let (shut, broken, pass) = (is_shut.clone(), is_broken.clone(), passes.clone());
        thread::spawn(move || {
            for host in listener.incoming() {
                let (host, drive) = (host.unwrap(), TcpStream::connect(server).unwrap());
                let ends = (host.try_clone().unwrap(), drive.try_clone().unwrap());
                let (shut, broken, pass) = (shut.clone(), broken.clone(), pass.clone());
                let (never, to_drive) = (AtomicBool::new(false), broken.clone());
                thread::spawn(move || forward(ends.0, ends.1, (&never, &AtomicUsize::new(0)), &to_drive));
                thread::spawn(move || forward(drive, host, (&shut, &pass), &broken));
            }
        });
        Gate { at, is_shut, passes, is_broken }
    }

    /// Lets the next `bytes` bytes of the server pass and no more; returns when they have.
    fn shut_after(&self, bytes: usize, act: impl FnOnce()) {
        self.passes.store(bytes, Ordering::SeqCst);
        self.shut(true);
        act();
        while self.passes.load(Ordering::SeqCst) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::SeqCst);
    }

    /// Answers that the server has sent, and that are held here, never arrive.
    fn break_off(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
        self.shut(false);
    }
}

fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    (is_shut, passes): (&AtomicBool, &AtomicUsize),
    is_broken: &AtomicBool,
) {
    let mut bytes = vec![0; 1 << 16];
    'all: while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut rest = &bytes[..count];
        while !rest.is_empty() {
            let mut part = rest.len();
            if is_shut.load(Ordering::SeqCst) {
                part = part.min(passes.load(Ordering::SeqCst));
                if part == 0 {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
            }
            if is_broken.load(Ordering::SeqCst) || to.write_all(&rest[..part]).is_err() {
                break 'all;
            }
            passes.fetch_sub(part.min(passes.load(Ordering::SeqCst)), Ordering::SeqCst);
            rest = &rest[part..];
        }
    }
    _ = to.shutdown(Shutdown::Both);
}

/// Wakes a thread that polls, and counts.
struct Woken {
    thread: Thread,
    times: AtomicU32,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.times.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn waker() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken { thread: thread::current(), times: AtomicU32::new(0) });
    (woken.clone(), woken.into())
}

/// An executor of one thread that knows nothing of drives.
fn run<T>(future: impl Future<Output = T>) -> T {
    let (_, waker) = waker();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn driver(at: SocketAddr, server: &Running) -> (Initiator, Driver) {
    driver_with(at, server, &HostOptions::default())
}

fn driver_with(at: SocketAddr, server: &Running, options: &HostOptions) -> (Initiator, Driver) {
    let mut host = Initiator::connect(at, &server.nqn, options).unwrap();
    let queue = host.io_queue(1, DEPTH as u16 + 1).unwrap();
    (host, queue.into_driver(DEPTH, 1 << 20, 1 << 20).unwrap())
}

fn store(key: u32, value: Vec<u8>) -> Call<Vec<u8>> {
    Call::Store { key: Key::from_u32_be(key), value, options: StoreOptions::default() }
}

type CallFuture<'d> = Pin<Box<dyn Future<Output = Result<Answer, Error>> + 'd>>;

/// If a poll waited for the drive, this test would never end: the drive's answers are held until all are polled.
#[test]
fn no_poll_waits_for_a_drive_on_a_network() {
    let server = serve(Backend::Drive(Vec::new()), Options::default(), 1 << 20);
    let gate = Gate::before(server.at);
    let (host, driver) = driver(gate.at, &server);
    gate.shut(true);
    // More futures than slots: the later ones wait for a slot.
    let of = &driver;
    let call = |key: u32| -> CallFuture<'_> {
        Box::pin(async move { of.call(store(key, vec![7; 100_000]), &mut Region::new()).await })
    };
    let mut calls: Vec<_> = (0..3 * DEPTH).map(call).collect();
    let (woken, waker) = waker();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(woken.times.load(Ordering::SeqCst), 0, "nothing has come");
    gate.shut(false);
    while !calls.is_empty() {
        let mut context = Context::from_waker(&waker);
        let before = calls.len();
        calls.retain_mut(|call| match call.as_mut().poll(&mut context) {
            Poll::Ready(answer) => {
                assert_eq!(answer, Ok(Answer::Done));
                false
            }
            Poll::Pending => true,
        });
        if calls.len() == before {
            thread::park();
        }
    }
    drop(calls);
    assert!(woken.times.load(Ordering::SeqCst) > 0);
    // A thread that waits uses the same driver, whose completions another thread brings now.
    let mut value = Region::new();
    let bytes = driver.blocking().retrieve(Key::from_u32_be(5), &mut value).unwrap();
    assert_eq!(value.to_bytes(bytes), [7; 100_000]);
    drop((driver, host));
    assert_eq!(server.end().leaked_bytes, 0);
}

/// A controller that stops in the middle of a unit holds up nobody but those who wait for its answer.
#[test]
fn no_poll_waits_for_the_rest_of_a_unit() {
    let server = serve(Backend::Drive(Vec::new()), Options::default(), 1 << 20);
    let gate = Gate::before(server.at);
    for digests in [false, true] {
        let options = HostOptions { header_digest: digests, data_digest: digests, ..HostOptions::default() };
        let (host, driver) = &driver_with(gate.at, &server, &options);
        run(driver.call(store(0, vec![7; 100_000]), &mut Region::new())).unwrap();
        // In the common header, in that of the data, in the data, and in what follows them.
        for bytes in [1, 7, 8, 20, 25, 30, 9000, 100_000] {
            let (mut value, mut of_other) = (Region::new(), Region::new());
            let retrieve = Call::<Vec<u8>>::Retrieve { key: Key::from_u32_be(0) };
            let (_, waker) = waker();
            let mut stopped = Box::pin(driver.call(retrieve, &mut value));
            gate.shut_after(bytes, || {
                assert!(stopped.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            });
            // The thread that reads has come to the end of what there is.
            thread::sleep(Duration::from_millis(20));
            let mut other = Box::pin(driver.call(store(1, vec![8; 50]), &mut of_other));
            assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "{bytes}");
            gate.shut(false);
            let read = run(stopped).unwrap().value();
            assert_eq!(run(other), Ok(Answer::Done), "{bytes}");
            assert_eq!(value.to_bytes(read), [7; 100_000], "{bytes}");
        }
        assert!(host.controller_id() > 0);
    }
    server.end();
}

/// A dropped NEXT leaves its pair, and a dropped SEEK no iterator, as on a drive of this program.
#[test]
fn futures_over_a_network_may_be_dropped() {
    let server = serve(Backend::Drive(Vec::new()), Options::default(), 1 << 20);
    let gate = Gate::before(server.at);
    let (host, driver) = driver(gate.at, &server);
    let mut into = Region::new();
    for key in 0..100 {
        run(driver.call(store(key, key.to_be_bytes().to_vec()), &mut into)).unwrap();
    }
    let dropped = |call: Call<Vec<u8>>| {
        gate.shut(true);
        let mut region = Region::new();
        let mut future = Box::pin(driver.call(call, &mut region));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(future);
        gate.shut(false);
    };
    for _ in 0..300 {
        // A drive has 64 iterators or fewer: if they stayed open, the last SEEK would be refused.
        dropped(Call::Seek { key: None });
    }
    let (iterator, first) =
        run(driver.call(Call::<Vec<u8>>::Seek { key: None }, &mut into)).unwrap().opened();
    let mut found = vec![first.unwrap().key];
    dropped(Call::Next { iterator });
    while let Some(pair) = run(driver.call(Call::<Vec<u8>>::Next { iterator }, &mut into)).unwrap().pair() {
        found.push(pair.key);
    }
    assert_eq!(found, (0..100).map(Key::from_u32_be).collect::<Vec<_>>());
    run(driver.call(Call::<Vec<u8>>::Close { iterator }, &mut into)).unwrap();
    let missing = run(driver.call(Call::<Vec<u8>>::Retrieve { key: Key::from_u32_be(1000) }, &mut into));
    assert_eq!(missing, Err(Error::Status(Status::KEY_NOT_FOUND)));
    drop((driver, host));
    assert_eq!(server.end().leaked_bytes, 0);
}

/// A connection that breaks ends every future, waiting or not, with an error.
#[test]
fn a_connection_that_breaks_ends_futures() {
    let server = serve(Backend::Drive(Vec::new()), Options::default(), 1 << 20);
    let gate = Gate::before(server.at);
    let (host, driver) = &driver(gate.at, &server);
    gate.shut(true);
    let call = |key| -> CallFuture<'_> { Box::pin(driver_call(driver, key)) };
    let mut calls: Vec<_> = (0..DEPTH + 2).map(call).collect();
    let (_, waker) = waker();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    server.end();
    gate.break_off();
    for call in calls {
        assert!(run(call).is_err());
    }
    assert!(run(driver_call(driver, 1)).is_err());
    assert!(host.controller_id() > 0);
}

async fn driver_call(driver: &Driver, key: u32) -> Result<Answer, Error> {
    driver.call(Call::<Vec<u8>>::Exist { key: Key::from_u32_be(key) }, &mut Region::new()).await
}
