//! Which paths and descriptors of this process belong to nodes. Descriptors are not tracked: the file of a descriptor
//! shows its node ([`kvdrive_ng::stand_in`]), and is looked up once.
//!
//! A child that no handler of `fork` has seen shares this memory and the connections in it with its parent, whose threads
//! may hold the locks. It is known by its number: it takes no lock, and its commands are refused.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use kvdrive_ng::ioctl::{Caller, ioctl};
use kvdrive_ng::memory::Own;
use kvdrive_ng::nodes::Nodes;
use kvdrive_ng::stand_in;
use kvdrive_ng::sysfs::{self, Tree};
use kvdrive_text::output::tell;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use crate::apart::{Stacks, undisturbed};

/// Files whose nodes are remembered. Beyond this number all are forgotten, and each is looked up again.
const KNOWN_MAX: usize = 1024;

/// All that is known of this process's nodes.
pub(crate) struct Library {
    nodes: Nodes,
    /// The process that has these connections.
    process: Pid,
    /// Standard error has the line about a child.
    has_told: AtomicBool,
    /// Node by device and inode of the memory file.
    known: RwLock<HashMap<(u64, u64), usize>>,
    /// The files of nodes in `/sys`, made at their first use.
    tree: OnceLock<Option<Tree>>,
    /// On which commands are carried out.
    stacks: Stacks,
}

impl Library {
    pub(crate) fn new(nodes: Nodes) -> Library {
        let has_told = AtomicBool::new(false);
        let (known, tree, stacks) = (RwLock::default(), OnceLock::new(), Stacks::default());
        Library { nodes, process: getpid(), has_told, known, tree, stacks }
    }

    /// Is this the process that the connections are of?
    fn is_its_process(&self) -> bool {
        getpid() == self.process
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
        if !sysfs::is_inside(path) || !self.is_its_process() {
            return None;
        }
        let tree =
            || Tree::new(&self.nodes).map_err(|error| tell(&format!("kvdrive-ng: /sys: {error}"))).ok();
        self.stacks.apart(|| self.tree.get_or_init(tree).as_ref().map(|tree| tree.path(path)))
    }

    /// The files of `/sys` go, if there are any.
    pub(crate) fn end(&self) {
        match self.tree.get() {
            Some(Some(tree)) if self.is_its_process() => tree.remove(),
            _ => {}
        }
    }

    /// Opens a node.
    pub(crate) fn open(&self, node: usize, flags: i32) -> Result<RawFd, Errno> {
        undisturbed(|| self.nodes.all()[node].open(flags as u32)).map(IntoRawFd::into_raw_fd)
    }

    /// The node of a descriptor.
    pub(crate) fn of(&self, descriptor: BorrowedFd<'_>) -> Option<usize> {
        let stat = rustix::fs::fstat(descriptor).ok()?;
        let is_unnamed = stat.st_nlink == 0 && stat.st_size == 0;
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if !(is_unnamed && is_file) {
            return None;
        }
        let file = (stat.st_dev, stat.st_ino);
        let look = || {
            let path = stand_in::path_of(&format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
            self.nodes.find(&path)
        };
        if !self.is_its_process() {
            return look();
        }
        undisturbed(|| {
            if let Some(node) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&file) {
                return Some(*node);
            }
            let node = look()?;
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(file, node);
            Some(node)
        })
    }

    /// Answers an ioctl of a node.
    pub(crate) fn ioctl(
        &self,
        node: usize,
        descriptor: BorrowedFd<'_>,
        number: u32,
        argument: u64,
    ) -> Result<i32, Errno> {
        if !self.is_its_process() {
            return Err(self.refused());
        }
        let node = &self.nodes.all()[node];
        let access = rustix::fs::fcntl_getfl(descriptor)? & OFlags::ACCMODE;
        let caller = Caller { privileged: node.privileged, writable: access != OFlags::RDONLY };
        self.stacks.apart(|| ioctl(node, caller, number, argument, &Own))
    }

    /// The answer to a command of a child that has no connections.
    fn refused(&self) -> Errno {
        if !self.has_told.swap(true, Ordering::Relaxed) {
            let line = "kvdrive-ng: a child of _Fork or clone cannot use its parent's connections; fork() gives it its own\n";
            // Written by one call, since a thread of the parent may hold the lock of standard error.
            let _ = rustix::io::write(std::io::stderr(), line.as_bytes());
        }
        Errno::NODEV
    }
}
