//! [`Sockets`]: listening sockets, and the place where the thread sleeps.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use kvdrive_auth::tls::{Known, Session};
use kvdrive_sim::wall::Bell;
use mio::net::TcpListener;
use mio::{Interest, Poll, Token, Waker};

use crate::vfio::functions::Functions;

/// The token of the waker.
pub(super) const BELL: Token = Token(usize::MAX);

/// The place where the thread sleeps. It exists before the server, because drives need its bell.
pub struct Sockets {
    pub(super) poll: Poll,
    pub(super) bell: Arc<Bell>,
    pub(super) waker: Arc<Waker>,
    pub(super) listeners: Vec<Listener>,
    pub(super) functions: Functions,
}

pub(super) struct Listener {
    pub(super) socket: TcpListener,
    /// PSKs of the hosts, which have to use TLS on this socket; `None`: no TLS.
    pub(super) psks: Option<Known>,
}

impl Sockets {
    /// # Errors
    /// The error of the system.
    pub fn new() -> io::Result<Sockets> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), BELL)?);
        let of_bell = waker.clone();
        // A waker fails when the system has no memory for eight bytes; the thread then sees the work at its
        // next tick.
        let bell = Arc::new(Bell::waking(move || _ = of_bell.wake()));
        Ok(Sockets { poll, bell, waker, listeners: Vec::new(), functions: Functions::default() })
    }

    /// The bell that wakes its thread.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Listens; returns the address, with the port that the system chose if none was given.
    ///
    /// # Errors
    /// The error of the system.
    pub fn listen(&mut self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.listen_for(at, None)
    }

    /// Listens for hosts that use TLS with one of these PSKs ([`crate::subsystem::Options::psks`]).
    ///
    /// # Errors
    /// The error of the system; or this program was built without TLS.
    pub fn listen_with_tls(&mut self, at: SocketAddr, psks: Known) -> io::Result<SocketAddr> {
        Session::server(&psks).map_err(|error| io::Error::new(ErrorKind::Unsupported, error))?;
        self.listen_for(at, Some(psks))
    }

    /// Makes a PCI function for the client of the vfio-user socket at `path`.
    ///
    /// # Errors
    /// Another server answers at this socket; the error of the system.
    pub fn listen_vfio_user(&mut self, path: &Path) -> io::Result<()> {
        self.functions.listen(self.poll.registry(), path)
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
