//! Sessions in a program built without TLS: none can exist.

use std::io::{self, Read, Write};

use super::{Failure, Known, Unavailable};
use crate::TlsPsk;

/// One end of a TLS connection; no value of this type exists.
pub struct Session(Never);

enum Never {}

#[allow(missing_docs, clippy::missing_errors_doc, reason = "they are those of the real one")]
impl Session {
    pub fn server(_: &Known) -> Result<Session, Unavailable> {
        Err(Unavailable)
    }

    pub fn client(_: &TlsPsk) -> Result<Session, Unavailable> {
        Err(Unavailable)
    }

    pub fn shake_hands(&mut self) -> Result<Option<TlsPsk>, Failure> {
        match self.0 {}
    }

    pub fn receive(&mut self, _: &[u8]) {
        match self.0 {}
    }

    pub fn take_output(&mut self, _: &mut Vec<u8>) {
        match self.0 {}
    }

    pub fn close(&mut self) {
        match self.0 {}
    }
}

impl Read for Session {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

impl Write for Session {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}
