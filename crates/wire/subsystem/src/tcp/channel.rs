//! The layer between a socket and a connection: nothing, or TLS.
//!
//! ```text
//!   socket ──► [ Channel ] ──► bytes of the protocol ──► Connection
//!                  │ ▲  the handshake: on a thread of its own (`handshake`)
//! ```

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use kvdrive_auth::TlsPsk;
use kvdrive_auth::tls::{Failure, Session};
use mio::net::TcpStream;

/// Most bytes that are encrypted before they are sent.
const ENCRYPTED_BYTES: usize = 64 << 10;
/// Type of the first record of TLS: a handshake message.
const HANDSHAKE: u8 = 0x16;

pub(super) struct Channel {
    pub(super) socket: TcpStream,
    tls: Option<Box<Tls>>,
}

struct Tls {
    /// `None` while the handshake thread has it.
    session: Option<Session>,
    stage: Stage,
    /// Encrypted bytes to send, and how many of them are sent.
    output: Vec<u8>,
    sent: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No byte has arrived.
    New,
    Shaking,
    Open,
    /// The session has failed or was closed.
    Over,
}

impl Channel {
    /// A channel with a session that is to begin, or without TLS.
    pub(super) fn new(socket: TcpStream, session: Option<Session>) -> Channel {
        let begin = |session| {
            Box::new(Tls { session: Some(session), stage: Stage::New, output: Vec::new(), sent: 0 })
        };
        Channel { socket, tls: session.map(begin) }
    }

    /// Is a handshake still to be done before anything is read?
    pub(super) fn is_shaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| matches!(tls.stage, Stage::New | Stage::Shaking))
    }

    /// Reads the next part of a handshake, through `scratch`; returns the session if that gave it work.
    /// `None`: the handshake thread has the session, or nothing arrived.
    pub(super) fn read_handshake(&mut self, scratch: &mut [u8]) -> io::Result<Option<Session>> {
        let Some(tls) = &mut self.tls else { return Ok(None) };
        let Some(session) = &mut tls.session else { return Ok(None) };
        let bytes = self.socket.read(scratch)?;
        if bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if tls.stage == Stage::New && scratch[0] != HANDSHAKE {
            tls.stage = Stage::Over;
            let what = format!("TLS is required here, and the connection begins with {:02X}h", scratch[0]);
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        tls.stage = Stage::Shaking;
        session.receive(&scratch[..bytes]);
        Ok(tls.session.take())
    }

    /// Takes a session back from the handshake thread, with the result of the handshake.
    pub(super) fn take_back(&mut self, mut session: Session, shaken: &Result<Option<TlsPsk>, Failure>) {
        let Some(tls) = &mut self.tls else { return };
        session.take_output(&mut tls.output);
        tls.session = Some(session);
        match shaken {
            Ok(None) => {}
            Ok(Some(_)) => tls.stage = Stage::Open,
            Err(_) => tls.stage = Stage::Over,
        }
    }

    /// Reads bytes from the host, through `scratch`. If it returns less than there is room for, the socket is
    /// empty.
    pub(super) fn read(&mut self, into: &mut [u8], scratch: &mut [u8]) -> io::Result<usize> {
        let Some(Tls { session: Some(session), stage: Stage::Open, output, .. }) = self.tls.as_deref_mut()
        else {
            return self.socket.read(into);
        };
        let mut filled = 0;
        while filled < into.len() {
            match session.read(&mut into[filled..]) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.socket.read(scratch) {
                    Ok(0) => break,
                    Ok(bytes) => session.receive(&scratch[..bytes]),
                    Err(_) if filled > 0 => break,
                    Err(error) => return Err(error),
                },
                Err(error) => {
                    session.take_output(output);
                    return Err(io::Error::new(ErrorKind::InvalidData, format!("TLS: {error}")));
                }
            }
        }
        Ok(filled)
    }

    /// Sends the bytes that were left unsent, then the front of `slices`, through `scratch`; returns how many bytes of
    /// `slices` are taken.
    pub(super) fn write(&mut self, slices: &[IoSlice<'_>], scratch: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.write_vectored(slices) };
        tls.flush(&mut self.socket)?;
        let (mut bytes, room) = (0, scratch.len().min(ENCRYPTED_BYTES));
        // Adjacent pieces share one record, as far as they fit.
        for slice in slices {
            let part = slice.len().min(room - bytes);
            scratch[bytes..bytes + part].copy_from_slice(&slice[..part]);
            bytes += part;
        }
        if let (Some(session), true) = (&mut tls.session, bytes > 0) {
            session.write_all(&scratch[..bytes])?;
            session.take_output(&mut tls.output);
        }
        match tls.flush(&mut self.socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && bytes > 0 => Ok(bytes),
            Err(error) => Err(error),
            Ok(()) => Ok(bytes),
        }
    }

    /// Are bytes taken that are not sent?
    pub(super) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.sent < tls.output.len())
    }

    /// Closes the session: tells the other end that no more bytes follow.
    pub(super) fn end(&mut self) {
        if let Some(Tls { session: Some(session), stage, output, .. }) = self.tls.as_deref_mut()
            && *stage == Stage::Open
        {
            *stage = Stage::Over;
            session.close();
            session.take_output(output);
        }
    }
}

impl Tls {
    fn flush(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.sent < self.output.len() {
            match socket.write(&self.output[self.sent..])? {
                0 => return Err(ErrorKind::WriteZero.into()),
                bytes => self.sent += bytes,
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }
}
