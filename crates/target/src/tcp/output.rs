//! What is to be sent: headers one behind the other, data as the buffers they are in.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::buffer::Buffer;

enum Chunk {
    Bytes(Vec<u8>),
    Data(Buffer, usize),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Bytes(bytes) => bytes,
            Chunk::Data(buffer, bytes) => &buffer[..*bytes],
        }
    }
}

/// Bytes on their way to a socket.
#[derive(Default)]
pub struct Output {
    chunks: VecDeque<Chunk>,
    /// Of the first chunk, so many bytes are sent.
    sent: usize,
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Output {
    /// Bytes to send.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Is there nothing to send?
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Puts `bytes` behind what is there.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        if let Some(Chunk::Bytes(last)) = self.chunks.back_mut() {
            last.extend_from_slice(bytes);
            return;
        }
        let mut chunk = self.spare.pop().unwrap_or_default();
        chunk.extend_from_slice(bytes);
        self.chunks.push_back(Chunk::Bytes(chunk));
    }

    /// Puts the first `bytes` bytes of `data` behind what is there.
    pub(super) fn put_data(&mut self, data: Buffer, bytes: usize) {
        if bytes > 0 {
            self.bytes += bytes;
            self.chunks.push_back(Chunk::Data(data, bytes));
        }
    }

    /// Fills `slices` with what is to be sent next; returns how many of them.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        let mut skip = self.sent;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(&chunk.bytes()[skip..]);
            skip = 0;
            count += 1;
        }
        count
    }

    /// So many bytes are sent.
    pub fn advance(&mut self, mut bytes: usize) {
        self.bytes -= bytes;
        while let Some(first) = self.chunks.front() {
            let left = first.bytes().len() - self.sent;
            if bytes < left {
                self.sent += bytes;
                return;
            }
            bytes -= left;
            self.sent = 0;
            if let Some(Chunk::Bytes(mut chunk)) = self.chunks.pop_front() {
                chunk.clear();
                self.spare.push(chunk);
            }
        }
    }

    /// Everything that is to be sent, as one piece, for those who have no socket.
    pub fn take_all(&mut self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.bytes);
        let mut skip = self.sent;
        for chunk in &self.chunks {
            all.extend_from_slice(&chunk.bytes()[skip..]);
            skip = 0;
        }
        self.advance(all.len());
        all
    }

    /// Forgets all of it.
    pub(super) fn clear(&mut self) {
        self.advance(self.bytes);
    }
}
