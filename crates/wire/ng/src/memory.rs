//! Memory that a program points at. For any pointers, the result is bytes or EFAULT.

use rustix::io::Errno;

use crate::kernel;

/// The memory of one program.
pub trait Memory {
    /// Copies bytes from there.
    ///
    /// # Errors
    /// EFAULT: not all of them can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Copies bytes to there.
    ///
    /// # Errors
    /// EFAULT: not all of them can be written; those before the first that cannot may be.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno>;

    /// Looks whether that many bytes can be written there, and changes none.
    ///
    /// # Errors
    /// EFAULT: they cannot.
    fn expect(&self, address: u64, bytes: u64) -> Result<(), Errno>;
}

/// The memory of this program. The system copies, so a wild pointer is an answer of the system's and no signal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own;

impl Memory for Own {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        kernel::read_memory(kernel::own_id(), address, into)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        kernel::write_memory(kernel::own_id(), address, from)
    }

    fn expect(&self, address: u64, bytes: u64) -> Result<(), Errno> {
        kernel::populate_for_write(address, bytes)
    }
}
