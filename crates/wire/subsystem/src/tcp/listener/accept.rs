//! New connections: accepted hosts, and TLS handshakes, which another thread computes.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use kvdrive_auth::tls::Session;
use kvdrive_nvme::discovery::DiscoveryEntry;
use mio::net::TcpStream;
use mio::{Interest, Token};
use rustix::net::sockopt;

use super::super::channel::Channel;
use super::super::connection::Connection;
use super::super::handshake::{Handshakes, Shaken};
use super::{Peer, Server};
use crate::shared::TURN_BYTES;
use crate::subsystem::Address;

/// TCP keep-alive: probes a host that was silent for this long,
const ALIVE_IDLE: Duration = Duration::from_secs(60);
/// repeats the probe at this interval,
const ALIVE_BETWEEN: Duration = Duration::from_secs(10);
/// and fails the connection after this many probes without an answer.
const ALIVE_PROBES: u32 = 6;

impl Server {
    /// Accepts the connections that wait at a socket.
    pub(super) fn accept(&mut self, listener: usize) {
        // An error concerns one connection, which its host repeats, or means that the process has no
        // descriptor left: the next tick tries again.
        while let Ok((mut socket, from)) = self.sockets.listeners[listener].socket.accept() {
            // A drive without power answers no connection.
            if self.core.subsystem.is_dark() {
                continue;
            }
            if self.core.connections >= self.limits.connections_max && !self.make_room() {
                let most = self.limits.connections_max;
                let line = format!("{from}: refused: there are {most} connections, which is the limit");
                self.core.log.note(self.core.now_ms, &line);
                continue;
            }
            let Ok(local) = socket.local_addr() else { continue };
            let psks = self.sockets.listeners[listener].psks.as_ref();
            let Ok(session) = psks.map(Session::server).transpose() else { continue };
            let is_secure = session.is_some();
            if is_secure {
                self.encrypted.resize(TURN_BYTES, 0);
            }
            // Answers are sent whole: waiting for more bytes (Nagle) would only delay them.
            let _ = socket.set_nodelay(true);
            // A host that has lost its power must not keep its connection for ever. A system without these
            // options does keep it.
            let _ = keep_alive(&socket);
            let key = self.free.pop().unwrap_or_else(|| {
                self.peers.push(None);
                self.peers.len() - 1
            });
            let token = Token(self.sockets.listeners.len() + key);
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.sockets.poll.registry().register(&mut socket, token, interest).is_err() {
                self.free.push(key);
                continue;
            }
            self.accepted += 1;
            self.core.connections += 1;
            let reached_at = Rc::new(address(local, is_secure));
            let mut connection = Connection::new(key, self.limits, reached_at, &self.core);
            connection.come_from(from.ip());
            self.peers[key] = Some(Peer {
                number: self.accepted,
                channel: Channel::new(socket, session),
                connection,
                rest: Vec::new(),
                readable: true,
                writable: true,
                is_at_end: false,
                closed: false,
                linger_until_ms: None,
                silent_until_ms: None,
            });
            self.ready.push(key);
        }
    }

    /// Ends the oldest connection that has not become a queue; `false` if all of them are queues.
    fn make_room(&mut self) -> bool {
        let peers = self.peers.iter().enumerate().filter_map(|(key, peer)| Some((key, peer.as_ref()?)));
        let unused = peers.filter(|(_, peer)| peer.connection.queue().is_none());
        let Some((key, _)) = unused.min_by_key(|(_, peer)| peer.number) else { return false };
        self.forget(key);
        true
    }

    /// Reads the next part of a handshake and hands the session to the handshake thread. Until the session is
    /// back, later bytes stay in the socket.
    pub(super) fn shake_hands(&mut self, key: usize) {
        let Some(Some(peer)) = self.peers.get_mut(key) else { return };
        match peer.channel.read_handshake(&mut self.encrypted) {
            Ok(None) => {}
            Ok(Some(session)) => {
                if self.handshakes.is_none() {
                    self.handshakes = Handshakes::start(self.sockets.bell.clone()).ok();
                }
                match &self.handshakes {
                    Some(handshakes) => handshakes.go_on((key, peer.number), session),
                    None => peer.closed = true,
                }
            }
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                peer.connection.complain(error.to_string());
                peer.connection.abandon(&mut self.core);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => peer.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => self.ready.push(key),
            Err(_) => peer.closed = true,
        }
    }

    /// Takes sessions back from the handshake thread; `true` if there were some.
    pub(super) fn take_shaken(&mut self) -> bool {
        let mut any = false;
        while let Some(Shaken { owner: (key, number), session, outcome }) =
            self.handshakes.as_ref().and_then(Handshakes::next)
        {
            any = true;
            let Some(Some(peer)) = self.peers.get_mut(key) else { continue };
            if peer.number != number {
                continue;
            }
            peer.channel.take_back(session, &outcome);
            // The session may hold bytes that followed the handshake already, and no event reports those.
            peer.readable = true;
            match outcome {
                Ok(None) => {}
                Ok(Some(psk)) => peer.connection.secured_by(psk),
                Err(failure) => {
                    peer.connection.complain(failure.to_string());
                    peer.connection.abandon(&mut self.core);
                }
            }
            self.ready.push(key);
            self.touched.push(key);
        }
        any
    }
}

/// Enables TCP keep-alive on a socket.
fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, ALIVE_BETWEEN)?;
    Ok(sockopt::set_tcp_keepcnt(socket, ALIVE_PROBES)?)
}

/// The address of a socket as discovery reports it: the one that the host used.
fn address(local: SocketAddr, is_secure: bool) -> Address {
    let ip = local.ip().to_canonical();
    let family = match ip {
        IpAddr::V4(_) => DiscoveryEntry::IPV4,
        IpAddr::V6(_) => DiscoveryEntry::IPV6,
    };
    Address {
        transport: DiscoveryEntry::TCP,
        family,
        address: ip.to_string(),
        service: local.port().to_string(),
        is_secure,
    }
}
