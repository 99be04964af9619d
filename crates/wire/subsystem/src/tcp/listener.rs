//! Sockets: one thread waits for all of them and passes bytes through connections to the subsystem. A drive
//! may run in the same loop ([`beside`]); otherwise drives have threads of their own.
//!
//! | module | what |
//! |---|---|
//! | `sockets` | listening sockets, and where the thread sleeps |
//! | `accept` | new connections, TLS handshakes |
//! | `handle` | access to the server for other threads |
//! | `run` | the loop of the server, with a drive or without |
//! | `beside` | a drive in that loop |
//! | `turns` | how much is read of a host, and sent to it, in one turn |
//!
//! One turn of the loop: reads from the connections that have input, so much of a host that none starves ([`turns`]);
//! collects completions of the namespaces; gives returned memory to connections that wait for it; sends output, so much
//! of a host. While commands are in progress, the thread polls a few more times before it sleeps, because waking it
//! takes longer than a fast drive takes.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_sim::wall::Stopwatch;
use mio::{Events, Token};

use super::channel::Channel;
use super::connection::{Connection, Limits};
use super::handshake::Handshakes;
use crate::namespace::{Completion, QueueId};
use crate::shared::{Core, TURN_BYTES, Use};
use crate::subsystem::Event;
use crate::vfio::functions::Functions;
pub use handle::{ServerEnded, ServerHandle};
use peer_line::PeerLine;
use sockets::BELL;
pub use sockets::Sockets;

/// Most pieces in one send call.
const SLICES: usize = 64;
/// Most events taken from the system at a time.
const EVENTS: usize = 1024;
/// Interval between two checks of timeouts.
const TICK: Duration = Duration::from_millis(100);
/// The same while a command waits for the turn of its host, which may come only because time passes.
const TURN: Duration = Duration::from_millis(1);
/// Memory that was not needed for this long is returned to the system.
const TRIM_MS: u64 = 10_000;
/// How long a host may take to read why its connection ended.
const LINGER_MS: u64 = 1_000;
/// How long commands in progress may take after the server was asked to end.
const DRAIN_MS: u64 = 5_000;

mod accept;
mod beside;
mod handle;
mod peer_line;
mod run;
mod sockets;
mod turns;

struct Peer {
    /// Serial number of the connection.
    number: u64,
    channel: Channel,
    connection: Connection,
    /// Received bytes that the connection could not take yet.
    rest: Vec<u8>,
    readable: bool,
    writable: bool,
    /// The system reported that no bytes follow those in the socket. It reports that once, possibly together
    /// with the last bytes, so from then on the socket is read to its end.
    is_at_end: bool,
    /// The end was read, or the connection failed; the peer is dropped at its next turn to send.
    closed: bool,
    /// All output is sent: until this time, input is read and dropped. (Closing a socket with unread input
    /// discards output that the other end has not read yet.)
    linger_until_ms: Option<u64>,
    /// Until this time nothing is sent and nothing read (an injected fault).
    silent_until_ms: Option<u64>,
}

impl Peer {
    /// Once all output is sent, closes the TLS session, so that the other end knows.
    fn end_channel(&mut self) {
        if self.connection.is_ending() && self.connection.output().is_empty() {
            self.channel.end();
        }
    }
}

/// A server: sockets, connections, and the subsystem behind them.
pub struct Server {
    sockets: Sockets,
    /// PCI functions; their clients are no peers.
    functions: Functions,
    limits: Limits,
    core: Core,
    clock: Stopwatch,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Generation and key of the connection of each queue, by the index of the queue.
    by_queue: Vec<(u32, usize)>,
    /// Turns of reading so far, and of sending.
    turn: u64,
    send_turn: u64,
    /// Peers that may have input.
    ready: PeerLine,
    /// Peers that may have output.
    touched: PeerLine,
    scratch: Vec<u8>,
    /// Buffer for encrypted bytes; empty without TLS.
    encrypted: Vec<u8>,
    handshakes: Option<Handshakes>,
    handle: ServerHandle,
    accepted: u64,
    events: Events,
    /// Time of the last check of timeouts; once the server is to end, also the limit for commands in
    /// progress.
    ticked_ms: u64,
    trimmed_ms: u64,
    drain_until_ms: Option<u64>,
    /// The server ends after its last connection.
    once: bool,
    /// With a drive in its loop, the thread never sleeps.
    only_polls: bool,
    is_over: bool,
}

impl Server {
    /// A server on `sockets`.
    pub fn new(mut sockets: Sockets, mut core: Core, limits: Limits) -> Server {
        core.subsystem.set_bell(sockets.bell.clone());
        // They are on this machine, so their reserves are taken before hosts of networks come.
        sockets.functions.join(&mut core);
        let handle = ServerHandle {
            bell: sockets.bell.clone(),
            drain: Arc::default(),
            at_once: Arc::default(),
            orders: Arc::new(Mutex::new(Some(Vec::new()))),
        };
        Server {
            functions: std::mem::take(&mut sockets.functions),
            sockets,
            limits,
            core,
            clock: Stopwatch::start(),
            peers: Vec::new(),
            free: Vec::new(),
            by_queue: Vec::new(),
            turn: 0,
            send_turn: 0,
            ready: PeerLine::default(),
            touched: PeerLine::default(),
            scratch: vec![0; TURN_BYTES],
            encrypted: Vec::new(),
            handshakes: None,
            handle,
            accepted: 0,
            events: Events::with_capacity(EVENTS),
            ticked_ms: 0,
            trimmed_ms: 0,
            drain_until_ms: None,
            once: false,
            only_polls: false,
            is_over: false,
        }
    }

    /// With a drive in its loop, the thread looks at sockets and doorbells without a pause, and never sleeps: a command
    /// waits for no wake-up, and the thread takes a core also when no host is there.
    #[must_use]
    pub fn only_polling(self, only_polls: bool) -> Server {
        Server { only_polls, ..self }
    }

    /// A handle for other threads.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Sleeps until there are events, at most for the given time.
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self.sockets.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
            _ => {
                self.sockets.bell.is_awake();
                Ok(())
            }
        }
    }

    /// Takes messages and commands from clients of functions; `true` if there were any.
    fn look_at_functions(&mut self) -> bool {
        if !self.functions.have_clients() || self.handle.is_draining() {
            return false;
        }
        self.read_clock();
        self.functions.look(&mut self.core)
    }

    fn read_clock(&mut self) {
        self.core.now_ns = self.clock.ns();
        self.core.now_ms = self.core.now_ns / 1_000_000;
        self.core.subsystem.note_time(self.core.now_ns);
    }

    /// Handles the last events, checks timeouts, and checks whether it is time to end; `true` if there were
    /// events.
    fn take_events(&mut self) -> bool {
        self.read_clock();
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            self.note(event);
        }
        let any = !events.is_empty();
        self.events = events;
        let draining = self.handle.is_draining();
        if !draining {
            self.read_all();
        }
        if self.core.now_ms >= self.ticked_ms + TICK.as_millis() as u64 {
            self.ticked_ms = self.core.now_ms;
            self.tick();
        }
        if draining {
            let until_ms = *self.drain_until_ms.get_or_insert(self.core.now_ms + DRAIN_MS);
            let is_done = !self.core.subsystem.poll() && !self.core.subsystem.holds_commands();
            let idle = is_done && !self.deliver() && !self.is_sending();
            self.is_over |=
                idle || self.core.now_ms >= until_ms || self.handle.at_once.load(Ordering::SeqCst);
        }
        let has_power = !self.core.subsystem.is_dark();
        let have_come = self.accepted + self.functions.accepted() > 0;
        let are_there = self.functions.have_clients() || self.peers.iter().any(Option::is_some);
        self.is_over |= self.once && has_power && have_come && !are_there;
        any
    }

    /// How long to sleep: one tick, or no time if work arrived before the bell was armed.
    fn rest(&mut self) -> Duration {
        // Whether the bell rang meanwhile does not matter: all sources are polled below.
        _ = self.sockets.bell.sleeps(0);
        let _ = self.core.subsystem.poll();
        let has_arrived = self.look_at_functions();
        let has_orders = self.handle.orders().as_ref().is_some_and(|orders| !orders.is_empty());
        let most = self.functions.rest(self.core.now_ns);
        if self.deliver() || has_arrived || has_orders || self.handle.is_draining() {
            Duration::ZERO
        } else if self.core.subsystem.holds_commands() {
            most.min(TURN)
        } else {
            most.min(TICK)
        }
    }

    fn is_sending(&mut self) -> bool {
        let mut peers = self.peers.iter_mut().flatten();
        peers.any(|peer| !peer.connection.output().is_empty() || peer.channel.has_unsent())
    }

    fn note(&mut self, event: &mio::event::Event) {
        if event.token() == BELL {
            return;
        }
        if self.functions.note(&mut self.core, event.token()) {
            return;
        }
        let listeners = self.sockets.listeners.len();
        let Token(token) = event.token();
        if token < listeners {
            self.accept(token);
            return;
        }
        let key = token - listeners;
        let Some(Some(peer)) = self.peers.get_mut(key) else { return };
        if event.is_error() {
            // A reset: no answer reaches the host any more, so its earlier input does not matter.
            peer.closed = true;
            self.touched.push(key);
        }
        if event.is_readable() || event.is_read_closed() {
            peer.readable = true;
            peer.is_at_end |= event.is_read_closed();
            self.ready.push(key);
        }
        if event.is_writable() {
            peer.writable = true;
            self.touched.push(key);
        }
    }

    /// Reads one connection for one turn; `true` if there may be more input.
    fn read(&mut self, key: usize) -> bool {
        let most_bytes = self.turn_bytes();
        let Some(Some(peer)) = self.peers.get_mut(key) else { return false };
        if peer.silent_until_ms.is_some() {
            return false;
        }
        let connection = &mut peer.connection;
        if !peer.rest.is_empty() && connection.wants_input() {
            let taken = connection.receive(&mut self.core, &peer.rest);
            peer.rest.drain(..taken);
            if peer.rest.is_empty() {
                // Frees its memory, since most connections never need it again.
                peer.rest = Vec::new();
            }
        }
        if peer.channel.is_shaking() && !connection.is_ending() {
            self.shake_hands(key);
            return false;
        }
        let mut more = false;
        if peer.readable && (connection.is_ending() || peer.rest.is_empty() && connection.wants_input()) {
            // Many bytes of a value go where they belong, all else through `scratch`.
            let room = if connection.is_ending() { None } else { connection.room() };
            let is_direct = room.is_some();
            let into = room.unwrap_or(&mut self.scratch);
            let room_bytes = into.len().min(most_bytes);
            match peer.channel.read(&mut into[..room_bytes], &mut self.encrypted) {
                Ok(0) => peer.closed = true,
                Ok(bytes) => {
                    connection.host_turn().read.note(self.turn, bytes);
                    if is_direct {
                        connection.received(&mut self.core, bytes);
                    } else {
                        let taken = connection.receive(&mut self.core, &self.scratch[..bytes]);
                        peer.rest.extend_from_slice(&self.scratch[taken..bytes]);
                    }
                    // A short read empties the socket, and later bytes are another event (epoll(7)). But the
                    // end of the connection may have arrived with these bytes, and its event has then been
                    // delivered already.
                    more = bytes == room_bytes || peer.is_at_end;
                    peer.readable = more;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => peer.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => more = true,
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    connection.complain(error.to_string());
                    connection.abandon(&mut self.core);
                }
                Err(_) => peer.closed = true,
            }
        }
        if let Some(queue) = connection.queue() {
            let index = queue.index as usize;
            if self.by_queue.len() <= index {
                self.by_queue.resize(index + 1, (0, usize::MAX));
            }
            self.by_queue[index] = (queue.generation, key);
        }
        more
    }

    fn peer_of(&mut self, queue: QueueId) -> Option<(usize, &mut Peer)> {
        let (generation, key) = *self.by_queue.get(queue.index as usize)?;
        let peer = self.peers.get_mut(key)?.as_mut()?;
        (generation == queue.generation && peer.connection.queue() == Some(queue)).then_some((key, peer))
    }

    /// Carries out the subsystem's events, gives memory to connections that wait for it, sends output, and
    /// drops connections that have ended. `true` if there was anything to do.
    fn deliver(&mut self) -> bool {
        let mut any = self.take_shaken();
        while let Some(event) = self.core.subsystem.next_event() {
            if !any {
                self.read_clock();
            }
            any = true;
            let Some(event) = self.functions.take(&mut self.core, event) else { continue };
            let event = match event {
                Event::Abort { by, queue, cid } => match self.abort(by, queue, cid) {
                    Some(by) => Event::Completed(by),
                    None => continue,
                },
                event => event,
            };
            let queue = match &event {
                Event::Abort { .. } => continue,
                Event::Completed(completion) => completion.tag.queue,
                Event::Close(queue) | Event::Complaint(queue, _) => *queue,
            };
            let now_ms = self.core.now_ms;
            // A queue that the subsystem has closed still belongs to its connection.
            let Some((key, peer)) = self.peer_of(queue) else { continue };
            match event {
                Event::Completed(mut completion) => {
                    let Some(Some(peer)) = self.peers.get_mut(key) else { continue };
                    completion.fault = peer.connection.fault_at(&completion);
                    match completion.fault {
                        Some(TransportFault::Disconnect) => peer.closed = true,
                        fault => {
                            if let Some(TransportFault::Stall { ms }) = fault {
                                peer.silent_until_ms = Some(now_ms.saturating_add(ms));
                            }
                            peer.connection.complete(&mut self.core, completion);
                        }
                    }
                }
                Event::Abort { .. } => {}
                Event::Complaint(_, line) => peer.connection.complain(line),
                Event::Close(_) => {
                    let Some(Some(peer)) = self.peers.get_mut(key) else { continue };
                    peer.connection.end(&mut self.core);
                }
            }
            self.touched.push(key);
        }
        self.functions.interrupt();
        for of in Use::ALL {
            any |= self.give_memory(of);
        }
        any | self.send_all()
    }

    /// Aborts a command that still waits; returns the completion of the Abort if it is known at once.
    fn abort(&mut self, by: Completion, queue: QueueId, cid: u16) -> Option<Completion> {
        let Some((key, _)) = self.peer_of(queue) else { return Some(by) };
        let Some(peer) = &mut self.peers[key] else { return Some(by) };
        let reach = peer.connection.abort(&mut self.core, cid);
        self.touched.push(key);
        self.core.subsystem.go_on_aborting(by, reach)
    }

    /// Gives memory to waiting connections in order; `true` if one got some. A connection whose host gets none at present
    /// is skipped.
    fn give_memory(&mut self, of: Use) -> bool {
        let (mut any, mut at) = (false, 0);
        self.core.memory(of).budget.note_returned();
        while let Some(key) = self.core.memory(of).line.get(at).copied() {
            let peer = self.peers.get_mut(key).and_then(Option::as_mut);
            match peer.map(|peer| peer.connection.retry(&mut self.core, of)) {
                Some(Err(_)) => {
                    at += 1;
                    continue;
                }
                Some(Ok(waits_again)) => {
                    any = true;
                    self.touched.push(key);
                    self.ready.push(key);
                    if waits_again {
                        self.core.memory(of).line.push_back(key);
                    }
                }
                None => {}
            }
            self.core.memory(of).line.remove(at);
        }
        any
    }

    /// Sends pending output, as much as the host's turn allows; `true` if any byte was sent.
    fn send(&mut self, key: usize) -> bool {
        let (most_bytes, turn) = (self.turn_bytes(), self.send_turn);
        let Some(Some(peer)) = self.peers.get_mut(key) else { return false };
        if peer.silent_until_ms.is_some() && !peer.closed {
            return false;
        }
        let mut any = false;
        let was_full = !peer.connection.wants_input();
        if let Some(complaint) = peer.connection.take_complaint() {
            let from = peer
                .channel
                .socket
                .peer_addr()
                .map_or_else(|_| "an unknown address".into(), |at| at.to_string());
            self.core.log.note(self.core.now_ms, &format!("{from}: {complaint}"));
        }
        peer.end_channel();
        while peer.writable && (!peer.connection.output().is_empty() || peer.channel.has_unsent()) {
            let room_bytes = peer.connection.host_turn().sent.left(turn, most_bytes);
            if room_bytes == 0 {
                self.touched.push(key);
                break;
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = peer.connection.output().slices(&mut slices, room_bytes);
            match peer.channel.write(&slices[..count], &mut self.scratch) {
                Ok(0) if count > 0 => peer.closed = true,
                Ok(bytes) => {
                    any = true;
                    peer.connection.host_turn().sent.note(turn, bytes);
                    peer.connection.sent(bytes);
                    peer.end_channel();
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => peer.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => peer.closed = true,
            }
            break;
        }
        if was_full && peer.connection.wants_input() {
            self.ready.push(key);
        }
        let said_all =
            peer.connection.is_ending() && peer.connection.output().is_empty() && !peer.channel.has_unsent();
        if said_all && !peer.closed && peer.linger_until_ms.is_none() {
            peer.linger_until_ms = Some(self.core.now_ms + LINGER_MS);
            peer.closed |= peer.channel.socket.shutdown(Shutdown::Write).is_err();
            self.ready.push(key);
        }
        if peer.closed {
            self.forget(key);
        }
        any
    }

    fn forget(&mut self, key: usize) {
        let Some(mut peer) = self.peers[key].take() else { return };
        self.core.connections -= 1;
        peer.connection.abandon(&mut self.core);
        let _ = self.sockets.poll.registry().deregister(&mut peer.channel.socket);
        self.free.push(key);
    }

    fn tick(&mut self) {
        self.core.subsystem.tick(self.core.now_ms);
        if self.core.now_ms >= self.trimmed_ms + TRIM_MS {
            self.trimmed_ms = self.core.now_ms;
            self.core.trim();
        }
        // Retries connections for which the system had no room when they arrived.
        (0..self.sockets.listeners.len()).for_each(|listener| self.accept(listener));
        for key in 0..self.peers.len() {
            if let Some(peer) = &mut self.peers[key] {
                if peer.silent_until_ms.is_some_and(|until_ms| self.core.now_ms >= until_ms) {
                    peer.silent_until_ms = None;
                    self.ready.push(key);
                    self.touched.push(key);
                }
                peer.connection.tick(&mut self.core);
                peer.closed |= peer.linger_until_ms.is_some_and(|until_ms| self.core.now_ms > until_ms);
                if peer.connection.is_ending() {
                    self.touched.push(key);
                }
            }
        }
    }
}
