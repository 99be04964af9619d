//! [`Input`]: bytes that have come over a wire and were not taken. A reader asks for as many as it needs, and takes
//! them when they are there as a whole: if it may not wait any more, nothing is lost, and it asks again later.

use std::io::{self, Read};

/// Most bytes of one read from the wire.
const READ_BYTES: usize = 64 << 10;

/// A wire, and the bytes that have come.
pub(super) struct Input<W> {
    pub(super) wire: W,
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

impl<W: Read> Input<W> {
    pub(super) fn new(wire: W) -> Input<W> {
        Input { wire, bytes: vec![0; READ_BYTES].into(), from: 0, to: 0 }
    }

    /// The bytes that have come.
    pub(super) fn come(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// The next `count` bytes, which stay; reads until they have come. At most [`READ_BYTES`].
    ///
    /// # Errors
    /// As [`Read::read`] of the wire; [`io::ErrorKind::WouldBlock`]: they have not come, and it may not wait.
    pub(super) fn need(&mut self, count: usize) -> io::Result<&[u8]> {
        if self.bytes.len() - self.from < count {
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        while self.to - self.from < count {
            self.to += self.wire.read(&mut self.bytes[self.to..])?;
        }
        Ok(&self.bytes[self.from..self.from + count])
    }

    /// Takes bytes that have come.
    pub(super) fn take(&mut self, count: usize) {
        assert!(count <= self.to - self.from, "{count} bytes have not come");
        self.from += count;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
    }

    /// Takes the next bytes, as many as fit `into` and come with one read: those that are here already, or from the wire past
    /// the buffer.
    ///
    /// # Errors
    /// As [`Input::need`].
    pub(super) fn take_into(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let here = self.come().len().min(into.len());
        if here > 0 {
            into[..here].copy_from_slice(&self.come()[..here]);
            self.take(here);
            return Ok(here);
        }
        if into.len() >= READ_BYTES {
            return self.wire.read(into);
        }
        self.need(1)?;
        let here = self.come().len().min(into.len());
        into[..here].copy_from_slice(&self.come()[..here]);
        self.take(here);
        Ok(here)
    }
}

/// Data of a unit, of which a part may have come.
#[derive(Clone, Copy)]
pub(super) struct Arriving {
    pub(super) cid: u16,
    /// Their place in the data of the command, and how far they have come.
    pub(super) from: usize,
    pub(super) at: usize,
    pub(super) end: usize,
    /// No response follows.
    pub(super) is_success: bool,
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// Pieces that come one with each read, and then nothing for now.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let piece = self.0.remove(0);
            into[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn bytes_that_were_not_taken_stay_until_the_rest_has_come() {
        let mut input = Input::new(Pieces(vec![b"ab", b"c"]));
        assert_eq!(input.need(4).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(input.come(), b"abc");
        input.wire.0.push(b"defgh");
        assert_eq!(input.need(4).unwrap(), b"abcd");
        input.take(4);
        let mut into = [0; 3];
        assert_eq!((input.take_into(&mut into).unwrap(), &into), (3, b"efg"));
        assert_eq!((input.take_into(&mut into).unwrap(), into[0]), (1, b'h'));
        assert_eq!(input.take_into(&mut into).unwrap_err().kind(), ErrorKind::WouldBlock);
        input.wire.0.push(b"i");
        assert_eq!((input.take_into(&mut into).unwrap(), into[0]), (1, b'i'));
    }

    #[test]
    fn there_is_room_for_a_unit_that_begins_at_the_end() {
        let all: &'static [u8] = &[7; READ_BYTES];
        let mut input = Input::new(Pieces(vec![all, b"xyz"]));
        input.need(1).unwrap();
        input.take(READ_BYTES - 2);
        assert_eq!(input.need(5).unwrap(), [7, 7, b'x', b'y', b'z']);
    }
}
