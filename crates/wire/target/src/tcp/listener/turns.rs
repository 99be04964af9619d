//! Turns of hosts at the sockets: what is read of all connections of a host in one turn of the loop.
//!
//! A connection is read for [`TURN_BYTES`] at most. A host with hundreds of them, full of commands, would have the loop read
//! for a second before another host's only connection is next. So all connections of a host share the bytes of one; those
//! that are left come first in the next turn. Connections that have not named their host share them as one host.

use std::cell::Cell;
use std::rc::Rc;

use super::{Server, TURN_BYTES};

/// What was read of a host in its last turn.
#[derive(Default)]
pub struct HostTurn {
    turn: Cell<u64>,
    read_bytes: Cell<usize>,
}

/// Connections of a host have the same one.
pub type SharedTurn = Rc<HostTurn>;

impl HostTurn {
    /// Has the host had its part of this turn?
    fn is_over(&self, turn: u64) -> bool {
        self.turn.get() == turn && self.read_bytes.get() >= TURN_BYTES
    }

    /// So many bytes of the host were read in this turn.
    pub(super) fn note(&self, turn: u64, bytes: usize) {
        let before = if self.turn.replace(turn) == turn { self.read_bytes.get() } else { 0 };
        self.read_bytes.set(before + bytes);
    }
}

impl Server {
    /// Reads the connections that have input, each host's for one turn.
    pub(super) fn read_all(&mut self) {
        self.turn += 1;
        let mut ready = std::mem::take(&mut self.ready);
        let mut later = Vec::new();
        for key in ready.drain(..) {
            let peer = self.peers.get(key).and_then(Option::as_ref);
            if peer.is_some_and(|peer| peer.connection.host_turn().is_over(self.turn)) {
                later.push(key);
                continue;
            }
            if self.read(key) {
                self.ready.push(key);
            }
            self.touched.push(key);
        }
        if !later.is_empty() {
            later.append(&mut self.ready);
            self.ready = later;
        } else if self.ready.is_empty() {
            // An empty `ready` is kept for its memory.
            self.ready = ready;
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
