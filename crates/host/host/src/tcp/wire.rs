//! The socket of a connection. A thread that waits for bytes also sends its output and reads that of the controller. So
//! there is no deadlock with a controller whose memory is full and which does not read until its own output is read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use kvdrive_auth::TlsPsk;
use kvdrive_auth::tls::Session;
use kvdrive_sim::wall::Patience;

use crate::driver::sleep_for_any;

/// Most encrypted bytes of one read from the socket.
const ENCRYPTED_BYTES: usize = 64 << 10;

/// A socket, and the bytes to be sent.
pub(super) struct Wire {
    pub(super) socket: TcpStream,
    tls: Option<Box<Secure>>,
    /// Bytes to be sent, of which the first `sent` are; with TLS, the session encrypts them first.
    pub(super) outbox: Vec<u8>,
    sent: usize,
    /// How long the controller may be silent; `None`: without a limit.
    pub(super) silence: Option<Duration>,
    /// May a read wait for bytes?
    pub(super) may_wait: bool,
    patience: Patience,
    /// How often a thread slept to wait for bytes.
    pub(super) sleeps: u64,
}

/// The host's end of TLS on a socket.
struct Secure {
    session: Session,
    /// Encrypted bytes to be sent.
    output: Vec<u8>,
    /// Receives encrypted bytes.
    scratch: Vec<u8>,
}

impl Wire {
    /// Connects to the first of these addresses that accepts.
    pub(super) fn connect(at: &[SocketAddr], silence: Option<Duration>) -> io::Result<Wire> {
        let mut last = io::Error::new(ErrorKind::InvalidInput, "there is no such address");
        for address in at {
            let connected = match silence {
                Some(silence) => TcpStream::connect_timeout(address, silence),
                None => TcpStream::connect(address),
            };
            match connected {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    return Wire::on(socket, silence);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A wire on a socket that is connected.
    pub(super) fn on(socket: TcpStream, silence: Option<Duration>) -> io::Result<Wire> {
        socket.set_nonblocking(true)?;
        let (tls, outbox, patience) = (None, Vec::new(), Patience::default());
        Ok(Wire { socket, tls, outbox, sent: 0, silence, may_wait: true, patience, sleeps: 0 })
    }

    /// Does the TLS handshake; everything after it is encrypted.
    pub(super) fn shake_hands(&mut self, psk: &TlsPsk) -> io::Result<()> {
        let session =
            Session::client(psk).map_err(|absent| io::Error::new(ErrorKind::Unsupported, absent))?;
        let mut tls = Secure { session, output: Vec::new(), scratch: vec![0; ENCRYPTED_BYTES] };
        loop {
            let shaken = tls.session.shake_hands();
            tls.session.take_output(&mut self.outbox);
            match shaken {
                Ok(Some(_)) => break,
                Ok(None) => {
                    let bytes = self.read(&mut tls.scratch)?;
                    tls.session.receive(&tls.scratch[..bytes]);
                }
                Err(failure) => {
                    // The alert tells the controller the reason, if it still reads.
                    let _ = self.push();
                    return Err(io::Error::new(ErrorKind::InvalidData, failure));
                }
            }
        }
        // The handshake's last message goes with the first unit.
        tls.output.append(&mut self.outbox);
        self.tls = Some(Box::new(tls));
        Ok(())
    }

    /// Sends as much as the socket takes without waiting.
    pub(super) fn push(&mut self) -> io::Result<()> {
        let outbox = match self.tls.as_deref_mut() {
            None => &mut self.outbox,
            Some(Secure { session, output, .. }) => {
                if !self.outbox.is_empty() {
                    session.write_all(&self.outbox)?;
                    session.take_output(output);
                    self.outbox.clear();
                }
                output
            }
        };
        while self.sent < outbox.len() {
            match self.socket.write(&outbox[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        outbox.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads bytes that are available.
    fn take(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(Secure { session, scratch, .. }) = self.tls.as_deref_mut() else {
            return self.socket.read(into);
        };
        loop {
            match session.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.socket.read(scratch)? {
                    0 => return Ok(0),
                    bytes => session.receive(&scratch[..bytes]),
                },
                other => return other,
            }
        }
    }

    /// Number of bytes to be sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.outbox.len() + self.tls.as_ref().map_or(0, |tls| tls.output.len()) - self.sent
    }

    /// Sleeps until there are bytes to read, or room for bytes to be sent.
    fn sleep(&mut self) -> io::Result<()> {
        self.sleeps += 1;
        let socket = (self.socket.as_fd(), self.unsent_bytes() > 0);
        if sleep_for_any(&[socket], self.silence)? {
            return Ok(());
        }
        let seconds = self.silence.unwrap_or_default().as_secs_f64();
        Err(io::Error::new(ErrorKind::TimedOut, format!("no answer for {seconds} s")))
    }
}

impl Read for Wire {
    /// Waits for bytes; the end of the stream is an error, since a controller announces that it ends a
    /// connection.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.push()?;
            match self.take(into) {
                Ok(0) => {
                    let what = "the other end closed the connection";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
                }
                Ok(bytes) => {
                    self.patience.end();
                    return Ok(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.may_wait {
                        self.patience.end();
                        return Err(error);
                    }
                    if self.patience.look_again() {
                        std::hint::spin_loop();
                    } else {
                        self.sleep()?;
                        self.patience.end();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
