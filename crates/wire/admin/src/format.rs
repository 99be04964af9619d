//! Format NVM: whether a command asks for something that there is. A namespace has one format, and formatting erases its
//! content.

use kvdrive_nvme::{Sqe, Status};

/// SES, bits 11:9 of dword 10: user data erase.
const ERASE_DATA: u32 = 1;

/// Checks a Format NVM.
///
/// # Errors
/// [`Status::INVALID_FORMAT`]: it names another format than the one there is; [`Status::INVALID_FIELD`]: a cryptographic
/// erase, of which there is none.
pub fn check(sqe: &Sqe) -> Result<(), Status> {
    let dw10 = sqe.cdw10.get();
    let (lower, upper, erase) = (dw10 & 0xF, dw10 >> 12 & 0b11, dw10 >> 9 & 0b111);
    if upper << 4 | lower != 0 {
        return Err(Status::INVALID_FORMAT);
    }
    if erase > ERASE_DATA { Err(Status::INVALID_FIELD) } else { Ok(()) }
}
