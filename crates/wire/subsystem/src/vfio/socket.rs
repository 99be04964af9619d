//! The socket of one client: messages with their descriptors in, replies out. It never blocks, and it reads no byte
//! beyond the end of the present message, so that descriptors belong to the message with which they arrived.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mio::net::UnixStream;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zerocopy::{FromZeros, IntoBytes};

use super::message::Header;

/// Most bytes of a message after its header; those of a longer one are read and dropped.
pub const PAYLOAD_MAX_BYTES: usize = 64 << 10;
/// Most bytes that one call drops, since a message may claim to have 4 GiB.
const DROPPED_MAX_BYTES: usize = 4096;
/// Most descriptors of a message.
pub const DESCRIPTORS_MAX: usize = 16;
/// While this many replies are unsent, no message is read.
const REPLIES_MAX: usize = 64;

/// A message as it came.
pub struct Message {
    pub header: Header,
    pub payload: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
    /// It had more than [`PAYLOAD_MAX_BYTES`]; the payload is empty.
    pub is_too_long: bool,
}

/// The result of reading from the socket.
pub enum Received {
    Message(Message),
    /// Bytes of a message that is too long were dropped, and more of them may have arrived.
    Dropped,
    /// No whole message has arrived.
    Nothing,
}

struct Reply {
    bytes: Vec<u8>,
    sent: usize,
    descriptor: Option<File>,
}

/// See the module.
pub struct Socket {
    pub stream: UnixStream,
    header: Header,
    /// Bytes of the header that have arrived.
    header_bytes: usize,
    payload: Vec<u8>,
    /// Bytes of the payload that have arrived.
    payload_bytes: usize,
    /// Bytes of a payload that is too long, and that have not been dropped yet.
    unwanted_bytes: usize,
    descriptors: Vec<OwnedFd>,
    replies: VecDeque<Reply>,
}

impl Socket {
    pub fn new(stream: UnixStream) -> Socket {
        Socket {
            stream,
            header: Header::new_zeroed(),
            header_bytes: 0,
            payload: Vec::new(),
            payload_bytes: 0,
            unwanted_bytes: 0,
            descriptors: Vec::new(),
            replies: VecDeque::new(),
        }
    }

    /// The next message.
    ///
    /// # Errors
    /// The client has disconnected, or sent bytes that are no message.
    pub fn receive(&mut self) -> io::Result<Received> {
        if self.replies.len() >= REPLIES_MAX {
            return Ok(Received::Nothing);
        }
        while self.header_bytes < Header::BYTES {
            let at = self.header_bytes;
            let into = &mut self.header.as_mut_bytes()[at..];
            let Some(bytes) = read(&self.stream, into, &mut self.descriptors)? else {
                return Ok(Received::Nothing);
            };
            self.header_bytes += bytes;
            if self.header_bytes == Header::BYTES {
                let bytes = self.header.bytes.get() as usize;
                let bytes = bytes.checked_sub(Header::BYTES).ok_or(ErrorKind::InvalidData)?;
                let is_too_long = bytes > PAYLOAD_MAX_BYTES;
                self.unwanted_bytes = if is_too_long { bytes } else { 0 };
                self.payload = vec![0; if is_too_long { 0 } else { bytes }];
                self.payload_bytes = 0;
            }
        }
        if self.unwanted_bytes > 0 {
            let mut dropped = [0; DROPPED_MAX_BYTES];
            let most = self.unwanted_bytes.min(dropped.len());
            let Some(bytes) = read(&self.stream, &mut dropped[..most], &mut self.descriptors)? else {
                return Ok(Received::Nothing);
            };
            self.unwanted_bytes -= bytes;
            if self.unwanted_bytes > 0 {
                return Ok(Received::Dropped);
            }
        }
        while self.payload_bytes < self.payload.len() {
            let into = &mut self.payload[self.payload_bytes..];
            let Some(bytes) = read(&self.stream, into, &mut self.descriptors)? else {
                return Ok(Received::Nothing);
            };
            self.payload_bytes += bytes;
        }
        self.header_bytes = 0;
        let (payload, descriptors) =
            (std::mem::take(&mut self.payload), std::mem::take(&mut self.descriptors));
        let is_too_long = self.header.bytes.get() as usize > Header::BYTES + PAYLOAD_MAX_BYTES;
        Ok(Received::Message(Message { header: self.header, payload, descriptors, is_too_long }))
    }

    /// Sends a reply, or keeps it until there is room for it.
    pub fn send(&mut self, bytes: Vec<u8>, descriptor: Option<File>) {
        self.replies.push_back(Reply { bytes, sent: 0, descriptor });
    }

    /// Sends the bytes that were kept.
    ///
    /// # Errors
    /// The client has gone.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(reply) = self.replies.front_mut() {
            match send(&self.stream, &reply.bytes[reply.sent..], reply.descriptor.as_ref()) {
                Ok(bytes) => {
                    // The descriptor was sent with the first byte.
                    reply.descriptor = None;
                    reply.sent += bytes;
                    if reply.sent == reply.bytes.len() {
                        self.replies.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads some bytes, with descriptors that came with them; `None`: there are none now.
fn read(stream: &UnixStream, into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<Option<usize>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    loop {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(stream.as_fd(), &mut [IoSliceMut::new(into)], &mut control, flags) {
            Ok(received) => {
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = message {
                        descriptors.extend(rights);
                    }
                }
                if received.bytes == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                let are_cut = received.flags.contains(ReturnFlags::CTRUNC);
                if are_cut || descriptors.len() > DESCRIPTORS_MAX {
                    return Err(ErrorKind::InvalidData.into());
                }
                return Ok(Some(received.bytes));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn send(stream: &UnixStream, bytes: &[u8], descriptor: Option<&File>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptor: Option<[BorrowedFd<'_>; 1]> = descriptor.map(|file| [file.as_fd()]);
    if let Some(descriptor) = &descriptor {
        let fits = control.push(SendAncillaryMessage::ScmRights(descriptor));
        assert!(fits, "there is space for one descriptor");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(stream.as_fd(), &[IoSlice::new(bytes)], &mut control, flags)?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The other end of a socket, and the socket after it has received this header and bytes after it.
    fn received(bytes: u32, follow: usize) -> (std::os::unix::net::UnixStream, Socket) {
        let (mut client, server) = std::os::unix::net::UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut header = Header::new_zeroed();
        header.bytes.set(bytes);
        client.write_all(&[header.as_bytes(), &vec![0xE7; follow]].concat()).unwrap();
        (client, Socket::new(UnixStream::from_std(server)))
    }

    #[test]
    fn a_length_of_4_gib_takes_no_memory_and_each_call_drops_a_bounded_part() {
        for bytes in [u32::MAX, u32::MAX - 1, 0x7FFF_FFFF, (Header::BYTES + PAYLOAD_MAX_BYTES) as u32 + 1] {
            let follow = 10 * DROPPED_MAX_BYTES;
            let (client, mut socket) = received(bytes, follow);
            for call in 1..=10 {
                assert!(matches!(socket.receive(), Ok(Received::Dropped)), "{bytes} B, call {call}");
                let left = bytes as usize - Header::BYTES - call * DROPPED_MAX_BYTES;
                assert_eq!((socket.unwanted_bytes, socket.payload.capacity()), (left, 0), "{bytes} B");
            }
            assert!(matches!(socket.receive(), Ok(Received::Nothing)), "{bytes} B");
            drop(client);
            let end = socket.receive().err().map(|error| error.kind());
            assert_eq!(end, Some(ErrorKind::UnexpectedEof), "{bytes} B");
        }
    }

    #[test]
    fn a_length_below_the_headers_is_no_message() {
        for bytes in [0, 1, 15] {
            let (_client, mut socket) = received(bytes, 0);
            assert_eq!(socket.receive().err().map(|error| error.kind()), Some(ErrorKind::InvalidData));
        }
    }
}
