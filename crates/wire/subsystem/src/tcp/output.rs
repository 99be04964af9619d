//! Bytes to send: headers one after the other, data as the buffers that hold them.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::buffer::Buffer;

/// Chunks that were sent are kept for later output: chunks up to this size, and no more than this many.
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
    /// Bytes of the chunks that are not data; the part of the first one that is already sent counts, too.
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

    /// Fills `slices` with the next bytes to send, `most_bytes` at most; returns how many slices are used.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>], most_bytes: usize) -> usize {
        let (mut count, mut left) = (0, most_bytes);
        let mut skip = self.sent;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            let bytes = &chunk.bytes()[skip..];
            let bytes = &bytes[..bytes.len().min(left)];
            *slice = IoSlice::new(bytes);
            (skip, left) = (0, left - bytes.len());
            count += 1;
            if left == 0 {
                break;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Output is sent in turns of a number of bytes, which begin and end within chunks.
    #[test]
    fn turns_of_any_length_send_each_byte_once() {
        for most_bytes in [1, 7, 100, 1000] {
            let mut output = Output::default();
            let said: Vec<u8> = (0..=250).collect();
            said.chunks(50).for_each(|bytes| output.chunks.push_back(Chunk::Bytes(bytes.to_vec())));
            (output.bytes, output.head_bytes) = (said.len(), said.len());
            let mut sent = Vec::new();
            while !output.is_empty() {
                let mut slices = [IoSlice::new(&[]); 3];
                let count = output.slices(&mut slices, most_bytes);
                let turn: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                assert!((1..=most_bytes).contains(&turn.len()), "{} B in a turn of {most_bytes}", turn.len());
                sent.extend_from_slice(&turn);
                output.advance(turn.len());
            }
            assert_eq!(sent, said);
        }
    }
}
