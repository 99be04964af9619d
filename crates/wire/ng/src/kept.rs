//! A connection in a process whose program may close any descriptor, as daemons close all they find, and open files of its
//! own under their numbers.
//!
//! The descriptor's file is looked at before each use and before it is closed: device and inode say whether it is still the
//! connection's. If it is not, the connection is given up, and nothing is closed.

use std::net::TcpStream;
use std::ops::{Deref, DerefMut};

use kvdrive_host::tcp::{Initiator, Queue};

const THERE: &str = "a connection is there until it is dropped";

/// What has a socket.
pub(crate) trait Connected {
    /// The socket.
    fn socket(&mut self) -> &TcpStream;
}

impl Connected for Queue {
    fn socket(&mut self) -> &TcpStream {
        Queue::socket(self)
    }
}

impl Connected for Initiator {
    fn socket(&mut self) -> &TcpStream {
        self.admin().socket()
    }
}

/// A connection and the file of its socket.
pub(crate) struct Kept<T: Connected> {
    /// There until this is dropped.
    it: Option<T>,
    file: Option<(u64, u64)>,
}

/// Device and inode of a socket's file; `None`: the descriptor is closed.
fn file(socket: &TcpStream) -> Option<(u64, u64)> {
    rustix::fs::fstat(socket).ok().map(|file| (file.st_dev, file.st_ino))
}

impl<T: Connected> Kept<T> {
    /// A connection that was made just now.
    pub fn new(mut it: T) -> Kept<T> {
        let file = file(it.socket());
        Kept { it: Some(it), file }
    }

    /// Is the descriptor still that of its socket?
    pub fn is_ours(&mut self) -> bool {
        let file_now = file(self.socket());
        file_now.is_some() && file_now == self.file
    }
}

impl<T: Connected> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.it.as_ref().expect(THERE)
    }
}

impl<T: Connected> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.it.as_mut().expect(THERE)
    }
}

impl<T: Connected> Drop for Kept<T> {
    fn drop(&mut self) {
        // Dropping a connection closes its descriptor. If that is the program's, the connection stays in memory.
        if !self.is_ours() {
            std::mem::forget(self.it.take());
        }
    }
}
