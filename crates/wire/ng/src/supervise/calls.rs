//! The answer to each system call of a supervised program.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use libc::c_long;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::ioctl::{Caller, ioctl};
use crate::kernel::{self, Answer, Call, Described, Notified};
use crate::memory::Memory;
use crate::nodes::Nodes;
use crate::stand_in;
use crate::sysfs::{self, Tree};

use super::program::Program;
use super::restarts::{Restarts, Returned};
use super::waiting::Waiting;

/// Longest path that Linux takes, with the zero at its end.
const PATH_MAX: usize = 4096;
/// A page, beyond which a path may not be readable.
const PAGE: u64 = 4096;

/// The kind of a system call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    /// path, flags
    Open,
    /// path
    #[cfg(target_arch = "x86_64")]
    Create,
    /// path, structure that begins with flags
    OpenHow,
    /// path, structure to fill, flags
    Stat,
    /// descriptor, structure to fill
    StatDescriptor,
    /// path, flags, mask, structure to fill
    StatExtended,
    /// path, mode
    Access,
    /// path, buffer, its length
    ReadLink,
}

/// Is a link at the end of the path followed?
#[derive(Clone, Copy)]
enum Links {
    Followed,
    NotFollowed,
    /// Followed unless this argument after the path, counted from 0, has this flag.
    Unless(usize, i32),
}

/// One intercepted system call.
pub(super) struct Row {
    pub number: c_long,
    kind: CallKind,
    /// Its first argument is the folder of a path that does not begin at the root.
    has_folder: bool,
    links: Links,
}

const fn row(number: c_long, kind: CallKind, has_folder: bool, links: Links) -> Row {
    Row { number, kind, has_folder, links }
}

const NO_FOLLOW: Links = Links::Unless(0, libc::O_NOFOLLOW);

/// Every intercepted call besides `ioctl`.
pub(super) const CALLS: &[Row] = &[
    row(libc::SYS_openat, CallKind::Open, true, NO_FOLLOW),
    row(libc::SYS_openat2, CallKind::OpenHow, true, Links::Followed),
    row(libc::SYS_newfstatat, CallKind::Stat, true, Links::Unless(1, libc::AT_SYMLINK_NOFOLLOW)),
    row(libc::SYS_fstat, CallKind::StatDescriptor, false, Links::Followed),
    row(libc::SYS_statx, CallKind::StatExtended, true, Links::Unless(0, libc::AT_SYMLINK_NOFOLLOW)),
    row(libc::SYS_faccessat, CallKind::Access, true, Links::Followed),
    row(libc::SYS_faccessat2, CallKind::Access, true, Links::Unless(1, libc::AT_SYMLINK_NOFOLLOW)),
    row(libc::SYS_readlinkat, CallKind::ReadLink, true, Links::NotFollowed),
    // Calls that newer machines do not have any more.
    #[cfg(target_arch = "x86_64")]
    row(libc::SYS_open, CallKind::Open, false, NO_FOLLOW),
    #[cfg(target_arch = "x86_64")]
    row(libc::SYS_creat, CallKind::Create, false, Links::Followed),
    #[cfg(target_arch = "x86_64")]
    row(libc::SYS_stat, CallKind::Stat, false, Links::Followed),
    #[cfg(target_arch = "x86_64")]
    row(libc::SYS_lstat, CallKind::Stat, false, Links::NotFollowed),
    #[cfg(target_arch = "x86_64")]
    row(libc::SYS_access, CallKind::Access, false, Links::Followed),
    #[cfg(target_arch = "x86_64")]
    row(libc::SYS_readlink, CallKind::ReadLink, false, Links::NotFollowed),
];

/// The state from which all calls are answered.
pub(crate) struct Supervisor {
    nodes: Nodes,
    tree: OnceLock<Option<Tree>>,
    /// `None`: no signal but one that ends the thread interrupts a call.
    restarts: Option<Restarts>,
}

/// The node or file that a path leads to.
enum Place {
    Node(usize),
    /// A file of the tree.
    File(String),
}

impl Supervisor {
    pub fn new(nodes: Nodes, waiting: Waiting) -> Supervisor {
        let restarts = (waiting == Waiting::Interrupted).then(Restarts::default);
        Supervisor { nodes, tree: OnceLock::new(), restarts }
    }

    /// Answers a call that waits.
    pub fn serve(&self, listener: &OwnedFd, Notified { id, call }: &Notified) {
        let memory = Program::new(call.thread, listener, *id, self.restarts.is_some());
        let send = |answer| {
            let answer = match memory.deliver() {
                Ok(()) => answer,
                Err(errno) => Answer::Fails(errno),
            };
            // A thread that does not wait any more needs no answer.
            kernel::answer(listener, *id, answer).is_ok()
        };
        let descriptor = call.arguments[0] as i32;
        let node = (call.number == libc::SYS_ioctl).then(|| self.of(call.thread, descriptor)).flatten();
        let Some(node) = node else {
            send(self.answer(call, &memory));
            return;
        };
        let carry_out = || self.ioctl(node, call, &memory);
        let finish =
            |returned: Returned| send(returned.map_or_else(Answer::Fails, |it| Answer::Returns(it.into())));
        match &self.restarts {
            Some(restarts) => restarts.once(call, &memory, carry_out, finish),
            None => {
                finish(carry_out());
            }
        }
    }

    /// The files of the tree go.
    pub fn end(&mut self) {
        self.tree.take();
    }

    /// The answer to a call. What it writes to the program's memory is kept there.
    fn answer(&self, call: &Call, memory: &Program<'_>) -> Answer {
        if call.number == libc::SYS_mmap {
            let of_node = self.of(call.thread, call.arguments[4] as i32).is_some();
            return if of_node { Answer::Fails(Errno::NODEV) } else { Answer::Goes };
        }
        let Some(row) = CALLS.iter().find(|row| row.number == call.number) else { return Answer::Goes };
        let [a, b, c, d, e, _] = call.arguments;
        let (folder, [a, b, c, d]) =
            if row.has_folder { (a as i32, [b, c, d, e]) } else { (libc::AT_FDCWD, [a, b, c, d]) };
        if row.kind == CallKind::StatDescriptor {
            return self.stat_descriptor(call.thread, a as i32, b, memory);
        }
        let Ok(path) = path(memory, a) else { return Answer::Goes };
        // An empty path is of the descriptor itself.
        if path.is_empty() && row.has_folder {
            return match row.kind {
                CallKind::Stat => self.stat_descriptor(call.thread, folder, b, memory),
                CallKind::StatExtended => self.statx_descriptor(call.thread, folder, d, memory),
                _ => Answer::Goes,
            };
        }
        let follows = match row.links {
            Links::Followed => true,
            Links::NotFollowed => false,
            Links::Unless(argument, flag) => [b, c, d][argument] as i32 & flag == 0,
        };
        let Some(place) = self.place(call.thread, folder, &path, follows) else { return Answer::Goes };
        let done = match row.kind {
            CallKind::Open => self.open(place, b as u32),
            #[cfg(target_arch = "x86_64")]
            CallKind::Create => self.open(place, (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC) as u32),
            CallKind::OpenHow => open_flags(memory, b).and_then(|flags| self.open(place, flags)),
            CallKind::Stat => self.describe(&place).and_then(|it| fill(memory, b, &kernel::stat_bytes(&it))),
            CallKind::StatExtended => {
                self.describe(&place).and_then(|it| fill(memory, d, &kernel::statx_bytes(&it)))
            }
            CallKind::Access => self.access(&place, b as i32),
            CallKind::ReadLink => self.read_link(&place, b, c, memory),
            CallKind::StatDescriptor => unreachable!("it has no path"),
        };
        done.unwrap_or_else(Answer::Fails)
    }

    /// What an ioctl of a node returns.
    fn ioctl(&self, node: usize, call: &Call, memory: &Program<'_>) -> Returned {
        let [descriptor, request, argument, ..] = call.arguments;
        let node = &self.nodes.all()[node];
        let writable = node.privileged || is_writable(call.thread, descriptor as i32);
        let caller = Caller { privileged: node.privileged, writable };
        ioctl(node, caller, request as u32, argument, memory)
    }

    /// The node that a descriptor is of.
    fn of(&self, thread: i32, descriptor: i32) -> Option<usize> {
        self.nodes.find(&stand_in::path_of(&format!("/proc/{thread}/fd/{descriptor}"))?)
    }

    fn place(&self, thread: i32, folder: i32, path: &str, follows: bool) -> Option<Place> {
        if sysfs::is_inside(path) {
            let tree = self.tree.get_or_init(|| Tree::new(&self.nodes).ok());
            return tree.as_ref().map(|tree| Place::File(tree.path(path).to_string_lossy().into_owned()));
        }
        match folder {
            libc::AT_FDCWD => self.nodes.at(path, format_args!("/proc/{thread}/cwd"), follows),
            folder => self.nodes.at(path, format_args!("/proc/{thread}/fd/{folder}"), follows),
        }
        .map(Place::Node)
    }

    fn open(&self, place: Place, flags: u32) -> Result<Answer, Errno> {
        let closes = flags & libc::O_CLOEXEC as u32 != 0;
        let flags = flags | libc::O_CLOEXEC as u32;
        let file = match place {
            Place::Node(node) => self.nodes.all()[node].open(flags)?,
            Place::File(path) => rustix::fs::open(path, OFlags::from_bits_retain(flags), Mode::empty())?,
        };
        Ok(Answer::Opens(file, closes))
    }

    fn describe(&self, place: &Place) -> Result<Described, Errno> {
        match place {
            Place::Node(node) => Ok(self.described(*node)),
            Place::File(path) => {
                let it = rustix::fs::statat(CWD, path, AtFlags::empty())?;
                Ok(Described {
                    mode: it.st_mode,
                    links: 2,
                    inode: it.st_ino,
                    device: (0, 0),
                    bytes: it.st_size as u64,
                })
            }
        }
    }

    fn described(&self, node: usize) -> Described {
        let looks = self.nodes.all()[node].looks();
        Described { mode: looks.mode, links: 1, inode: 1 + node as u64, device: looks.device, bytes: 0 }
    }

    fn stat_descriptor(&self, thread: i32, descriptor: i32, into: u64, memory: &Program<'_>) -> Answer {
        let Some(node) = self.of(thread, descriptor) else { return Answer::Goes };
        fill(memory, into, &kernel::stat_bytes(&self.described(node))).unwrap_or_else(Answer::Fails)
    }

    fn statx_descriptor(&self, thread: i32, descriptor: i32, into: u64, memory: &Program<'_>) -> Answer {
        let Some(node) = self.of(thread, descriptor) else { return Answer::Goes };
        fill(memory, into, &kernel::statx_bytes(&self.described(node))).unwrap_or_else(Answer::Fails)
    }

    fn access(&self, place: &Place, mode: i32) -> Result<Answer, Errno> {
        match place {
            Place::Node(_) if mode & libc::X_OK != 0 => Err(Errno::ACCESS),
            Place::Node(_) => Ok(Answer::Returns(0)),
            Place::File(path) => {
                rustix::fs::statat(CWD, path, AtFlags::empty())?;
                Ok(Answer::Returns(0))
            }
        }
    }

    fn read_link(&self, place: &Place, into: u64, bytes: u64, memory: &Program<'_>) -> Result<Answer, Errno> {
        let Place::File(path) = place else { return Err(Errno::INVAL) };
        let link = rustix::fs::readlink(path.as_str(), Vec::new())?;
        let link = link.as_bytes();
        let link = &link[..link.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))];
        memory.write(into, link)?;
        Ok(Answer::Returns(link.len() as i64))
    }
}

fn fill(memory: &Program<'_>, into: u64, bytes: &[u8]) -> Result<Answer, Errno> {
    memory.write(into, bytes)?;
    Ok(Answer::Returns(0))
}

fn open_flags(memory: &Program<'_>, how: u64) -> Result<u32, Errno> {
    let mut flags = [0; 8];
    memory.read(how, &mut flags)?;
    Ok(u64::from_ne_bytes(flags) as u32)
}

/// The text at an address, as far as its zero.
fn path(memory: &Program<'_>, address: u64) -> Result<String, Errno> {
    let mut text = Vec::new();
    while text.len() < PATH_MAX {
        let at = address.checked_add(text.len() as u64).ok_or(Errno::FAULT)?;
        let mut piece = [0; 256];
        let piece = &mut piece[..(PAGE - at % PAGE).min(256) as usize];
        memory.read(at, piece)?;
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&piece[..end]);
            return String::from_utf8(text).map_err(|_| Errno::NOENT);
        }
        text.extend_from_slice(piece);
    }
    Err(Errno::NAMETOOLONG)
}

/// Is a descriptor of another process open for writing?
fn is_writable(thread: i32, descriptor: i32) -> bool {
    let about = std::fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}
