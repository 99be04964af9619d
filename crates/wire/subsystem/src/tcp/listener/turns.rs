//! Turns of hosts at the sockets: how much is read of all connections of a host, and sent to them, in one turn of the loop.
//!
//! A connection is read for [`TURN_BYTES`] at most. If a host had hundreds of connections full of commands, the loop
//! would read for a second before the only connection of another host is next. So all connections of a host share the
//! bytes of one turn; those that were not read come first in the next turn. Connections that have not named their host
//! share them as one host.
//!
//! While several hosts have I/O queues, turns are short ([`SHARED_TURN_BYTES`]): a host with one short command at a
//! time waits for a turn of each other host at every command, and copying the bytes of a long turn takes longer than
//! the command.

use super::Server;
use crate::shared::TURN_BYTES;

/// The same while several hosts have I/O queues: copied in about the time of a short command.
const SHARED_TURN_BYTES: usize = 32 << 10;

impl Server {
    /// Most bytes of a host in a turn.
    pub(super) fn turn_bytes(&self) -> usize {
        if self.core.subsystem.has_several_hosts() { SHARED_TURN_BYTES } else { TURN_BYTES }
    }

    /// Reads the connections that have input, for one turn of each host. Connections that are not reached come first in
    /// the next turn.
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;
    use crate::shared::Core;
    use crate::subsystem::{Options, Subsystem};
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
