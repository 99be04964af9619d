//! The file of a node's descriptor: an empty, sealed memory file whose name is the node's path. `dup`, `fcntl`,
//! `close`, `fork`, passing through a socket, and `exec` work on it as on any descriptor and need not be intercepted,
//! because `/proc` shows the node of a descriptor.
//!
//! Its position is the largest there is. From there the system itself refuses every `read` and `write` with EINVAL, as
//! it does for a device that has neither, and no such call has to be intercepted.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, SeekFrom};
use rustix::io::Errno;

use crate::nodes::{Kind, Node};

/// Beginning of the file's name.
const MARK: &str = "kvdrive-ng:";
/// Major numbers, as Linux deals them out first.
const GENERIC_MAJOR: u32 = 244;
const CONTROLLER_MAJOR: u32 = 245;
const BLOCK_MAJOR: u32 = 259;

/// Fields of a node that `stat` returns.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Type and rights.
    pub mode: u32,
    /// Major and minor number.
    pub device: (u32, u32),
}

impl Node {
    /// A descriptor of this node, opened with `flags`.
    ///
    /// # Errors
    /// What `open` says of a device.
    pub fn open(&self, flags: u32) -> Result<OwnedFd, Errno> {
        let flags = OFlags::from_bits_retain(flags);
        if flags.contains(OFlags::DIRECTORY) {
            return Err(Errno::NOTDIR);
        }
        if flags.contains(OFlags::CREATE | OFlags::EXCL) {
            return Err(Errno::EXIST);
        }
        let name = format!("{MARK}{}", self.path);
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
        // Opened a second time: a memory file is open for reading and writing, and the program may ask for less.
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let access = flags & (OFlags::ACCMODE | OFlags::CLOEXEC | OFlags::NONBLOCK);
        let file = rustix::fs::open(again, access, Mode::empty())?;
        rustix::fs::seek(&file, SeekFrom::Start(i64::MAX as u64))?;
        Ok(file)
    }

    /// The result of `stat`.
    pub fn looks(&self) -> Looks {
        let (x, y) = self.instance;
        let (kind, major, minor) = match self.kind {
            Kind::Generic => (libc::S_IFCHR, GENERIC_MAJOR, x << 8 | y),
            Kind::Controller => (libc::S_IFCHR, CONTROLLER_MAJOR, x),
            Kind::Block => (libc::S_IFBLK, BLOCK_MAJOR, x << 8 | y),
        };
        Looks { mode: kind | 0o600, device: (major, minor) }
    }
}

/// The path of the node that `link`, an entry of some `/proc/ID/fd`, leads to.
pub fn path_of(link: &str) -> Option<String> {
    let link = rustix::fs::readlink(link, Vec::new()).ok()?;
    let name = link.to_str().ok()?.strip_prefix("/memfd:")?.strip_prefix(MARK)?;
    Some(name.strip_suffix(" (deleted)")?.to_owned())
}
