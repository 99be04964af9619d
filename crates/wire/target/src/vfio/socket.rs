//! The socket of one client: messages with their descriptors in, replies out. It never blocks, and it reads no byte
//! beyond the message that it is at, so that descriptors belong to the message that they came with.

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

/// Most bytes of a message after its header; the rest of a longer one is read and dropped.
pub const PAYLOAD_MAX_BYTES: usize = 64 << 10;
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
    /// Bytes of a payload that is too long.
    dropped_bytes: usize,
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
            dropped_bytes: 0,
            descriptors: Vec::new(),
            replies: VecDeque::new(),
        }
    }

    /// The next message; `None`: there is none now.
    ///
    /// # Errors
    /// The client has disconnected, or sent bytes that are no message.
    pub fn receive(&mut self) -> io::Result<Option<Message>> {
        if self.replies.len() >= REPLIES_MAX {
            return Ok(None);
        }
        while self.header_bytes < Header::BYTES {
            let at = self.header_bytes;
            let into = &mut self.header.as_mut_bytes()[at..];
            let Some(bytes) = read(&self.stream, into, &mut self.descriptors)? else { return Ok(None) };
            self.header_bytes += bytes;
            if self.header_bytes == Header::BYTES {
                let bytes = self.header.bytes.get() as usize;
                let bytes = bytes.checked_sub(Header::BYTES).ok_or(ErrorKind::InvalidData)?;
                let is_too_long = bytes > PAYLOAD_MAX_BYTES;
                self.dropped_bytes = if is_too_long { bytes } else { 0 };
                self.payload = vec![0; if is_too_long { 0 } else { bytes }];
                self.payload_bytes = 0;
            }
        }
        let mut unread = [0; 4096];
        while self.dropped_bytes > 0 {
            let most = self.dropped_bytes.min(unread.len());
            let Some(bytes) = read(&self.stream, &mut unread[..most], &mut self.descriptors)? else {
                return Ok(None);
            };
            self.dropped_bytes -= bytes;
        }
        while self.payload_bytes < self.payload.len() {
            let into = &mut self.payload[self.payload_bytes..];
            let Some(bytes) = read(&self.stream, into, &mut self.descriptors)? else { return Ok(None) };
            self.payload_bytes += bytes;
        }
        self.header_bytes = 0;
        let (payload, descriptors) =
            (std::mem::take(&mut self.payload), std::mem::take(&mut self.descriptors));
        let is_too_long = self.header.bytes.get() as usize > Header::BYTES + PAYLOAD_MAX_BYTES;
        Ok(Some(Message { header: self.header, payload, descriptors, is_too_long }))
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
