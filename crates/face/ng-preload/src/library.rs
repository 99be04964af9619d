//! Which paths and descriptors of this process belong to nodes. Descriptors are not tracked: the file of a descriptor
//! shows its node ([`kvdrive_ng::stand_in`]), and is looked up once.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::path::PathBuf;
use std::sync::{OnceLock, PoisonError, RwLock};

use kvdrive_ng::ioctl::{Caller, ioctl};
use kvdrive_ng::memory::Own;
use kvdrive_ng::nodes::Nodes;
use kvdrive_ng::stand_in;
use kvdrive_ng::sysfs::{self, Tree};
use kvdrive_text::output::tell;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Files whose nodes are remembered. Beyond this number all are forgotten, and each is looked up again.
const KNOWN_MAX: usize = 1024;

/// All that is known of this process's nodes.
pub(crate) struct Library {
    nodes: Nodes,
    /// Node by inode of the memory file.
    known: RwLock<HashMap<u64, usize>>,
    /// The files of nodes in `/sys`, made at their first use.
    tree: OnceLock<Option<Tree>>,
}

impl Library {
    pub(crate) fn new(nodes: Nodes) -> Library {
        Library { nodes, known: RwLock::default(), tree: OnceLock::new() }
    }

    /// The same nodes for a forked child, which has to connect to their drives again. Takes no lock, since the thread
    /// that holds the lock may not exist in the child.
    pub(crate) fn of_child(&self) -> Library {
        Library::new(self.nodes.of_child())
    }

    /// The nodes.
    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The real path of a file of `/sys`, if it belongs to a node.
    pub(crate) fn sysfs(&self, path: &str) -> Option<PathBuf> {
        let tree =
            || Tree::new(&self.nodes).map_err(|error| tell(&format!("kvdrive-ng: /sys: {error}"))).ok();
        sysfs::is_inside(path).then(|| self.tree.get_or_init(tree).as_ref().map(|tree| tree.path(path)))?
    }

    /// The files of `/sys` go, if there are any.
    pub(crate) fn end(&self) {
        if let Some(Some(tree)) = self.tree.get() {
            tree.remove();
        }
    }

    /// Opens a node.
    pub(crate) fn open(&self, node: usize, flags: i32) -> Result<RawFd, Errno> {
        let (opened, inode) = self.nodes.all()[node].open(flags as u32)?;
        self.remember(inode, node);
        Ok(opened.into_raw_fd())
    }

    fn remember(&self, inode: u64, node: usize) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(inode, node);
    }

    /// The node of a descriptor.
    pub(crate) fn of(&self, descriptor: BorrowedFd<'_>) -> Option<usize> {
        let stat = rustix::fs::fstat(descriptor).ok()?;
        let is_unnamed = stat.st_nlink == 0 && stat.st_size == 0;
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if !(is_unnamed && is_file) {
            return None;
        }
        if let Some(node) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&stat.st_ino) {
            return Some(*node);
        }
        let path = stand_in::path_of(&format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
        let node = self.nodes.find(&path)?;
        self.remember(stat.st_ino, node);
        Some(node)
    }

    /// Answers an ioctl of a node.
    pub(crate) fn ioctl(
        &self,
        node: usize,
        descriptor: BorrowedFd<'_>,
        number: u32,
        argument: u64,
    ) -> Result<i32, Errno> {
        let node = &self.nodes.all()[node];
        let access = rustix::fs::fcntl_getfl(descriptor)? & OFlags::ACCMODE;
        let caller = Caller { privileged: node.privileged, writable: access != OFlags::RDONLY };
        ioctl(node, caller, number, argument, &Own)
    }
}
