//! Turns of hosts at the sockets: how much is read of all connections of a host, and sent to them, in one turn of the loop.
//!
//! A connection is read for [`TURN_BYTES`] at most. A host with hundreds of them, full of commands, would have the loop read
//! for a second before another host's only connection is next. So all connections of a host share the bytes of one; those
//! that are left come first in the next turn. Connections that have not named their host share them as one host.
//!
//! While several hosts have I/O queues, turns are short ([`SHARED_TURN_BYTES`]): a host that has one short command at a time
//! waits for the turn of each other host at every command, and copying a long turn's bytes takes longer than that command.

use std::cell::Cell;
use std::rc::Rc;

use super::Server;

/// Most bytes read from one connection in one turn, and about as many of one host; the same of bytes sent.
pub(super) const TURN_BYTES: usize = 256 << 10;
/// The same while several hosts have I/O queues: copied in about the time of a short command.
const SHARED_TURN_BYTES: usize = 32 << 10;

/// Bytes of a host in its last turn.
#[derive(Default)]
pub struct TurnBytes {
    turn: Cell<u64>,
    bytes: Cell<usize>,
}

impl TurnBytes {
    /// So many bytes of the host moved in this turn.
    pub(super) fn note(&self, turn: u64, bytes: usize) {
        let before = if self.turn.replace(turn) == turn { self.bytes.get() } else { 0 };
        self.bytes.set(before + bytes);
    }

    /// How many of a turn's `most` bytes are left in this turn.
    pub(super) fn left(&self, turn: u64, most: usize) -> usize {
        if self.turn.get() == turn { most.saturating_sub(self.bytes.get()) } else { most }
    }
}

/// What was read of a host in its last turn of reading, and sent to it in its last turn of sending.
#[derive(Default)]
pub struct HostTurn {
    pub(super) read: TurnBytes,
    pub(super) sent: TurnBytes,
}

/// Connections of a host have the same one.
pub type SharedTurn = Rc<HostTurn>;

impl Server {
    /// Most bytes of a host in a turn.
    pub(super) fn turn_bytes(&self) -> usize {
        if self.core.subsystem.has_several_hosts() { SHARED_TURN_BYTES } else { TURN_BYTES }
    }

    /// Reads the connections that have input, each host's for one turn. Those whose host's turn is over come first in the
    /// next one.
    pub(super) fn read_all(&mut self) {
        self.turn += 1;
        let most_bytes = self.turn_bytes();
        let mut ready = self.ready.take();
        let mut unfinished = Vec::new();
        for key in ready.drain(..) {
            let peer = self.peers.get(key).and_then(Option::as_ref);
            if peer.is_some_and(|peer| peer.connection.host_turn().read.left(self.turn, most_bytes) == 0) {
                self.ready.push(key);
                continue;
            }
            if self.read(key) {
                unfinished.push(key);
            }
            self.touched.push(key);
        }
        unfinished.into_iter().for_each(|key| self.ready.push(key));
        self.ready.reuse(ready);
    }

    /// Sends the output of the connections that may have some, each host's for one turn; `true` if any byte was sent.
    /// Those with more are touched again.
    pub(super) fn send_all(&mut self) -> bool {
        self.send_turn += 1;
        let mut any = false;
        let mut touched = self.touched.take();
        for key in touched.drain(..) {
            any |= self.send(key);
        }
        self.touched.reuse(touched);
        any
    }
}

/// Connections in the order in which they were put here, each once.
#[derive(Default)]
pub(super) struct PeerLine {
    keys: Vec<usize>,
    /// By key.
    is_in: Vec<bool>,
}

impl PeerLine {
    pub(super) fn push(&mut self, key: usize) {
        if self.is_in.len() <= key {
            self.is_in.resize(key + 1, false);
        }
        if !std::mem::replace(&mut self.is_in[key], true) {
            self.keys.push(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Takes all.
    fn take(&mut self) -> Vec<usize> {
        self.keys.iter().for_each(|key| self.is_in[*key] = false);
        std::mem::take(&mut self.keys)
    }

    /// Memory that was taken with keys, and is empty now, is for the next ones.
    fn reuse(&mut self, memory: Vec<usize>) {
        if self.keys.is_empty() {
            self.keys = memory;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;
    use crate::subsystem::{Options, Subsystem};
    use crate::tcp::Core;
    use crate::tcp::connection::Limits;
    use crate::tcp::listener::Sockets;

    /// Connections of one host, and bytes that each has sent.
    const CONNECTIONS: usize = 12;
    const SENT: usize = 100 << 10;

    #[test]
    fn a_turn_has_its_bytes_and_the_next_one_has_them_again() {
        let bytes = TurnBytes::default();
        assert_eq!(bytes.left(1, 100), 100);
        bytes.note(1, 60);
        bytes.note(1, 30);
        assert_eq!(bytes.left(1, 100), 10);
        bytes.note(1, 30);
        assert_eq!((bytes.left(1, 100), bytes.left(2, 100)), (0, 100));
    }

    /// A socket that is never read to its end has an event for each arrival, and one turn for all of them.
    #[test]
    fn a_connection_is_once_in_a_line() {
        let mut line = PeerLine::default();
        [3, 1, 3, 1, 1].into_iter().for_each(|key| line.push(key));
        assert_eq!(line.take(), [3, 1]);
        assert!(line.is_empty());
        line.push(3);
        assert_eq!(line.take(), [3]);
    }

    #[test]
    fn a_host_with_many_connections_is_read_as_much_as_one_with_one() {
        let mut sockets = Sockets::new().unwrap();
        let at = sockets.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let core = Core::new(Subsystem::new(Options::default()).unwrap(), 1 << 20);
        let mut server = Server::new(sockets, core, Limits::default());
        let hosts: Vec<TcpStream> = (0..CONNECTIONS)
            .map(|_| {
                let mut host = TcpStream::connect(at).unwrap();
                // Commands that are refused, after the first unit that none is.
                let mut bytes = vec![0; 128];
                (bytes[2], bytes[4]) = (128, 128);
                let mut command = [0; 72];
                (command[0], command[2], command[4]) = (4, 72, 72);
                (0..SENT / 72).for_each(|_| bytes.extend_from_slice(&command));
                host.write_all(&bytes).unwrap();
                host
            })
            .collect();
        let read = |server: &Server| -> Vec<u64> {
            server.peers.iter().flatten().map(|peer| peer.connection.received_bytes()).collect()
        };
        let mut before = 0;
        for _ in 0..1000 {
            server.wait(Duration::from_millis(1)).unwrap();
            server.take_events();
            let after = read(&server).iter().sum::<u64>();
            assert!(after - before < 2 * TURN_BYTES as u64, "{} B in one turn", after - before);
            before = after;
            server.deliver();
            let all = read(&server);
            if all.len() == CONNECTIONS && all.iter().all(|bytes| *bytes >= SENT as u64) {
                return drop(hosts);
            }
        }
        panic!("{:?} B were read", read(&server));
    }
}
