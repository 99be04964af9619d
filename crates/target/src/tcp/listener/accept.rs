//! How connections come: sockets that listen, hosts that are taken, and handshakes of TLS, which another
//! thread computes.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use kvdrive_auth::tls::{Known, Session};
use kvdrive_spec::discovery::DiscoveryEntry;
use mio::net::TcpListener;
use mio::{Interest, Poll, Token, Waker};

use super::super::channel::Channel;
use super::super::connection::Connection;
use super::super::handshake::{Handshakes, Shaken};
use super::{BELL, Peer, Server, TURN_BYTES};
use crate::bell::Bell;
use crate::subsystem::Address;

/// Where the thread sleeps, before there is anything to serve: drives need its bell.
pub struct Sockets {
    pub(super) poll: Poll,
    pub(super) bell: Arc<Bell>,
    pub(super) waker: Arc<Waker>,
    pub(super) listeners: Vec<Listener>,
}

pub(super) struct Listener {
    socket: TcpListener,
    /// By which PSKs hosts may come, who have to speak TLS then.
    psks: Option<Known>,
}

impl Sockets {
    /// # Errors
    /// What the system says.
    pub fn new() -> io::Result<Sockets> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), BELL)?);
        let of_bell = waker.clone();
        // A waker fails when the system has no memory for eight bytes; the thread then looks at its next tick.
        let bell = Arc::new(Bell::waking(move || _ = of_bell.wake()));
        Ok(Sockets { poll, bell, waker, listeners: Vec::new() })
    }

    /// What wakes its thread.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Listens; returns the address, with the port if the system chose it.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.listen_for(at, None)
    }

    /// Listens for hosts that speak TLS and have one of these PSKs ([`crate::subsystem::Options::psks`]).
    ///
    /// # Errors
    /// What the system says; or this program was built without TLS.
    pub fn listen_with_tls(&mut self, at: SocketAddr, psks: Known) -> io::Result<SocketAddr> {
        Session::server(&psks).map_err(|error| io::Error::new(ErrorKind::Unsupported, error))?;
        self.listen_for(at, Some(psks))
    }

    fn listen_for(&mut self, at: SocketAddr, psks: Option<Known>) -> io::Result<SocketAddr> {
        let mut socket = TcpListener::bind(at)?;
        let token = Token(self.listeners.len());
        self.poll.registry().register(&mut socket, token, Interest::READABLE)?;
        let address = socket.local_addr()?;
        self.listeners.push(Listener { socket, psks });
        Ok(address)
    }
}

impl Server {
    /// Takes the hosts that have come to a socket.
    pub(super) fn accept(&mut self, listener: usize) {
        // What is lost by an error here is one connection that its host makes again; the listener goes on.
        while let Ok((mut socket, _)) = self.sockets.listeners[listener].socket.accept() {
            // A drive without power hears nobody.
            if self.core.subsystem.is_dark() {
                continue;
            }
            let Ok(local) = socket.local_addr() else { continue };
            let psks = self.sockets.listeners[listener].psks.as_ref();
            let Ok(session) = psks.map(Session::server).transpose() else { continue };
            let is_secure = session.is_some();
            if is_secure {
                self.encrypted.resize(TURN_BYTES, 0);
            }
            // Answers are whole when they are sent: waiting for more would only delay them.
            let _ = socket.set_nodelay(true);
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
            let reached_at = Rc::new(address(local, is_secure));
            let connection = Connection::new(key, self.limits, reached_at, self.core.now_ms);
            self.peers[key] = Some(Peer {
                number: self.accepted,
                channel: Channel::new(socket, session),
                connection,
                rest: Vec::new(),
                readable: true,
                writable: true,
                closed: false,
                linger_until_ms: None,
                silent_until_ms: None,
            });
            self.ready.push(key);
        }
    }

    /// Reads what came of a handshake and has it gone on with, on another thread. Until it is back, what else comes
    /// stays in the socket.
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

    /// Takes back the sessions with which the other thread is done for now; `true` if there were some.
    pub(super) fn take_shaken(&mut self) -> bool {
        let mut any = false;
        while let Some(Shaken { whose: (key, number), session, outcome }) =
            self.handshakes.as_ref().and_then(Handshakes::next)
        {
            any = true;
            let Some(Some(peer)) = self.peers.get_mut(key) else { continue };
            if peer.number != number {
                continue;
            }
            peer.channel.take_back(session, &outcome);
            // What came behind the handshake may be in the session already, of which no event tells.
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

/// An address as discovery tells it: the one that the host used.
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
