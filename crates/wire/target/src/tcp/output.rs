//! Bytes to send: headers one after the other, data as the buffers that hold them.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::buffer::Buffer;

/// Memory of sent chunks that is kept for later ones: of this size at most, and so many.
const KEPT_BYTES: usize = 4 << 10;
const KEPT_CHUNKS: usize = 16;

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
    /// Bytes of the first chunk that are sent.
    sent: usize,
    bytes: usize,
    /// Bytes of chunks that are no data, those included that are sent of the first one.
    head_bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Output {
    /// Bytes left to send.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes left to send that are no data, as far as they hold memory.
    pub fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// Is there nothing to send?
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends `bytes`.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.head_bytes += bytes.len();
        if let Some(Chunk::Bytes(last)) = self.chunks.back_mut() {
            last.extend_from_slice(bytes);
            return;
        }
        let mut chunk = self.spare.pop().unwrap_or_default();
        chunk.extend_from_slice(bytes);
        self.chunks.push_back(Chunk::Bytes(chunk));
    }

    /// Appends the first `bytes` bytes of `data`.
    pub(super) fn put_data(&mut self, data: Buffer, bytes: usize) {
        if bytes > 0 {
            self.bytes += bytes;
            self.chunks.push_back(Chunk::Data(data, bytes));
        }
    }

    /// Fills `slices` with the next bytes to send; returns how many slices are used.
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

    /// Notes that `bytes` bytes are sent.
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
                self.head_bytes -= chunk.len();
                if chunk.capacity() <= KEPT_BYTES && self.spare.len() < KEPT_CHUNKS {
                    chunk.clear();
                    self.spare.push(chunk);
                }
            }
        }
    }

    /// All bytes to send in one piece, for callers without a socket.
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

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.advance(self.bytes);
    }
}
