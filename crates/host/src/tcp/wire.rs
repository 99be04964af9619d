//! The socket of a connection. Whoever waits for bytes sends what is to be sent meanwhile: a controller that
//! does not read before it has been read from, because its own memory is full, is not waited for in vain.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kvdrive_sim::wall::Patience;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A socket, and what waits to be sent.
pub(super) struct Wire {
    pub(super) socket: TcpStream,
    /// Bytes to be sent, of which the first `sent` are.
    pub(super) outbox: Vec<u8>,
    sent: usize,
    /// How long nothing may come; none: for ever.
    silence: Option<Duration>,
    patience: Patience,
    /// How often its thread slept, waiting for bytes.
    pub(super) sleeps: u64,
}

impl Wire {
    /// Connects to the first of these addresses that answers.
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
                    socket.set_nonblocking(true)?;
                    let patience = Patience::default();
                    return Ok(Wire { socket, outbox: Vec::new(), sent: 0, silence, patience, sleeps: 0 });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends as much as goes without waiting.
    pub(super) fn push(&mut self) -> io::Result<()> {
        while self.sent < self.outbox.len() {
            match self.socket.write(&self.outbox[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Ok(())
    }

    /// Sleeps until there are bytes to read, or room for those to be sent.
    fn sleep(&mut self) -> io::Result<()> {
        self.sleeps += 1;
        let mut flags = PollFlags::IN;
        if !self.outbox.is_empty() {
            flags |= PollFlags::OUT;
        }
        let timeout = self.silence.map(|silence| Timespec {
            tv_sec: silence.as_secs() as i64,
            tv_nsec: i64::from(silence.subsec_nanos()),
        });
        match poll(&mut [PollFd::new(&self.socket, flags)], timeout.as_ref()) {
            Ok(0) => {
                let seconds = self.silence.unwrap_or_default().as_secs_f64();
                Err(io::Error::new(ErrorKind::TimedOut, format!("no answer for {seconds} s")))
            }
            Ok(_) => Ok(()),
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for Wire {
    /// Waits for bytes; the end of them is an error here, since a controller says why it goes.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.push()?;
            match self.socket.read(into) {
                Ok(0) => {
                    let what = "the other end closed the connection";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, what));
                }
                Ok(bytes) => {
                    self.patience.end();
                    return Ok(bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
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
