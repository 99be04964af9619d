//! System calls that no safe library wraps, and the only file of this crate that is not checked by the compiler.

#![allow(unsafe_code, reason = "system calls take pointers; each call says why its own are right")]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the program's thread and the one that answers it wake each other on one core, and
/// a call is received at once.
const SYNC_WAKE_UP: libc::c_ulong = 1;

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// This process.
pub(crate) fn own_id() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Gives this thread, and those that it will start, descriptors of their own: what the program closes or opens from now on
/// is not among them, and the program's are not kept open here. Only standard error is shared. Where the system refuses,
/// all stays as it was.
pub(crate) fn own_descriptors() {
    let none = c"/dev/null";
    // SAFETY: the calls take numbers, and one a string; the table of descriptors is this thread's alone when its entries
    // are closed, and this thread has opened none yet.
    unsafe {
        if libc::unshare(libc::CLONE_FILES) != 0 {
            return;
        }
        let null = libc::open(none.as_ptr(), libc::O_RDWR);
        for descriptor in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
            libc::dup2(null, descriptor);
        }
        libc::syscall(libc::SYS_close_range, libc::STDERR_FILENO + 1, u32::MAX, 0);
    }
}

/// Copies bytes of process `id` at `address`.
pub(crate) fn read_memory(id: i32, address: u64, into: &mut [u8]) -> Result<(), Errno> {
    if into.is_empty() {
        return Ok(());
    }
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: at(address)?, iov_len: into.len() };
    // SAFETY: the system writes at most the bytes of `into`, which is borrowed mutably. It looks at what `remote`
    // points to by the rules of the other address space, and answers EFAULT where there is nothing.
    let copied = unsafe { libc::process_vm_readv(id, &raw const local, 1, &raw const remote, 1, 0) };
    whole(copied, into.len())
}

/// Copies bytes to process `id` at `address`.
pub(crate) fn write_memory(id: i32, address: u64, from: &[u8]) -> Result<(), Errno> {
    if from.is_empty() {
        return Ok(());
    }
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = libc::iovec { iov_base: at(address)?, iov_len: from.len() };
    // SAFETY: the system reads `from` and does not change it. It writes where a program asked a device to write: of
    // this process, that is memory which the caller of `ioctl` gave away for this call, as with a kernel's device.
    let copied = unsafe { libc::process_vm_writev(id, &raw const local, 1, &raw const remote, 1, 0) };
    whole(copied, from.len())
}

fn at(address: u64) -> Result<*mut libc::c_void, Errno> {
    Ok(usize::try_from(address).map_err(|_| Errno::FAULT)? as *mut libc::c_void)
}

fn whole(copied: isize, bytes: usize) -> Result<(), Errno> {
    match usize::try_from(copied) {
        Ok(copied) if copied == bytes => Ok(()),
        Ok(_) => Err(Errno::FAULT),
        Err(_) => Err(last()),
    }
}

/// Has the system make sure that these bytes of this process can be written, without a change of any.
pub(crate) fn populate_for_write(address: u64, bytes: u64) -> Result<(), Errno> {
    let page = rustix::param::page_size() as u64;
    let end = address.checked_add(bytes).ok_or(Errno::FAULT)?;
    let from = address - address % page;
    let length = end.checked_next_multiple_of(page).ok_or(Errno::FAULT)? - from;
    let length = usize::try_from(length).map_err(|_| Errno::FAULT)?;
    // SAFETY: this advice brings pages in as a write would, and changes neither their bytes nor what is mapped.
    let advised = unsafe { libc::madvise(at(from)?, length, libc::MADV_POPULATE_WRITE) };
    match if advised == 0 { Ok(()) } else { Err(last()) } {
        Err(Errno::NOMEM | Errno::FAULT) => Err(Errno::FAULT),
        // EINVAL: a system before Linux 5.14, or memory of a device. Whether it can be written is found at the write.
        _ => Ok(()),
    }
}

/// The result of `stat` for a file.
pub(crate) struct Described {
    pub mode: u32,
    pub links: u64,
    pub inode: u64,
    pub device: (u32, u32),
    pub bytes: u64,
}

/// The bytes of a structure of numbers, all zero except those that `set` sets.
fn bytes_of<T>(set: impl FnOnce(&mut T)) -> Vec<u8> {
    let mut bytes = vec![0_u8; size_of::<T>() + align_of::<T>()];
    let (_, aligned, _) = {
        // SAFETY: it is called for structures of the system alone, which are of numbers, so that zeros are one.
        unsafe { bytes.align_to_mut::<T>() }
    };
    set(&mut aligned[0]);
    let at = aligned.as_ptr().addr() - bytes.as_ptr().addr();
    bytes[at..at + size_of::<T>()].to_vec()
}

/// A file as `stat` describes it.
pub(crate) fn stat_bytes(it: &Described) -> Vec<u8> {
    bytes_of::<libc::stat>(|stat| {
        stat.st_mode = it.mode;
        stat.st_nlink = it.links as _;
        stat.st_ino = it.inode;
        stat.st_rdev = libc::makedev(it.device.0, it.device.1);
        stat.st_size = it.bytes as i64;
        stat.st_blksize = 4096;
        stat.st_uid = rustix::process::geteuid().as_raw();
        stat.st_gid = rustix::process::getegid().as_raw();
    })
}

/// A file as `statx` describes it.
pub(crate) fn statx_bytes(it: &Described) -> Vec<u8> {
    bytes_of::<libc::statx>(|stat| {
        stat.stx_mask = libc::STATX_BASIC_STATS;
        stat.stx_mode = it.mode as u16;
        stat.stx_nlink = it.links as u32;
        stat.stx_ino = it.inode;
        (stat.stx_rdev_major, stat.stx_rdev_minor) = it.device;
        stat.stx_size = it.bytes;
        stat.stx_blksize = 4096;
        stat.stx_uid = rustix::process::geteuid().as_raw();
        stat.stx_gid = rustix::process::getegid().as_raw();
    })
}

/// Can a call wait for its answer so that only a signal which ends the thread interrupts it (Linux 5.19)?
pub(crate) fn waits_killable() -> bool {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let none = std::ptr::null::<libc::sock_fprog>();
    // SAFETY: there is no filter at that address, so that none is installed.
    let asked = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, none) };
    // The system looks at the flags before it looks for the filter; EINVAL: it does not know one of them.
    asked < 0 && last() == Errno::FAULT
}

/// Starts a program some of whose system calls wait for this process, and the descriptor that they come by. `killable`:
/// they wait as [`waits_killable`] describes.
pub(crate) fn spawn_filtered(
    mut command: Command,
    filter: Vec<libc::sock_filter>,
    killable: bool,
) -> std::io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    let filtered = move || {
        let listener = install(&filter, killable)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let passed = [listener.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&passed));
        rustix::net::sendmsg(&theirs, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::empty())?;
        Ok(())
    };
    // SAFETY: between `fork` and `exec` the child only makes system calls, and allocates nothing.
    let child = unsafe { command.pre_exec(filtered) }.spawn()?;
    // Both ends of the socket that the child has are closed with this one, and by `exec`.
    drop(command);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(&ours, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    // Signals that a terminal sends to all of its processes are for the program; this process ends after it.
    // SAFETY: to ignore a signal needs no function.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
    }
    Ok((child, passed.ok_or(Errno::PROTO)?))
}

/// Puts this thread under a filter, for good.
fn install(filter: &[libc::sock_filter], killable: bool) -> Result<OwnedFd, Errno> {
    let length = u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
    let wait = if killable { libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV } else { 0 };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | wait;
    // SAFETY: the first two calls take numbers only; in the third, the system copies the program, which lives as long as
    // the call. If its supervisor had ended, a program would get ENOSYS for every file it opens, so the system ends it
    // with a signal.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        {
            return Err(last());
        }
        let call = libc::SYS_seccomp;
        let listener = libc::syscall(call, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program);
        if listener < 0 {
            return Err(last());
        }
        // From Linux 6.6 on. Systems before that refuse it, and all stays as it was.
        libc::ioctl(listener as i32, libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP);
        Ok(OwnedFd::from_raw_fd(listener as i32))
    }
}

/// A system call of a supervised program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    /// The thread that made it.
    pub thread: i32,
    /// Number of the system call.
    pub number: libc::c_long,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// The answer to a system call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The system carries it out, as without supervision.
    Goes,
    /// It returns this.
    Returns(i64),
    /// It returns a new descriptor of this file, with or without `O_CLOEXEC`.
    Opens(OwnedFd, bool),
    /// It fails.
    Fails(Errno),
}

/// A call that waits for an answer.
pub(crate) struct Notified {
    pub id: u64,
    pub call: Call,
}

/// Waits for a call.
pub(crate) fn notified(listener: &OwnedFd) -> Result<Notified, Errno> {
    // SAFETY: a structure of numbers, which has to be zero before the system fills it.
    let mut it: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the system fills the structure that it is given.
    if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut it) } != 0 {
        return Err(last());
    }
    let call = Call { thread: it.pid as i32, number: it.data.nr.into(), arguments: it.data.args };
    Ok(Notified { id: it.id, call })
}

/// Does the thread still wait for the answer to this call? A signal ends the wait: a killed thread's number may be another
/// process by then, and a thread that goes on uses its memory for something else.
pub(crate) fn still_waits(listener: &OwnedFd, id: u64) -> bool {
    // SAFETY: the system reads the number that it is given.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Is no supervised process left?
pub(crate) fn has_ended(listener: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(listener, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

/// Answers a call.
pub(crate) fn answer(listener: &OwnedFd, id: u64, answer: Answer) -> Result<(), Errno> {
    let (value, errno, flags) = match answer {
        Answer::Opens(file, closes) => {
            let added = libc::seccomp_notif_addfd {
                id,
                flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
                srcfd: file.as_raw_fd() as u32,
                newfd: 0,
                newfd_flags: if closes { libc::O_CLOEXEC as u32 } else { 0 },
            };
            // SAFETY: the system reads the structure that it is given; the file is open until it has.
            let sent = unsafe {
                libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const added)
            };
            if sent >= 0 {
                return Ok(());
            }
            (0, last().raw_os_error(), 0)
        }
        Answer::Goes => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Answer::Returns(value) => (value, 0, 0),
        Answer::Fails(errno) => (0, errno.raw_os_error(), 0),
    };
    let response = libc::seccomp_notif_resp { id, val: value, error: -errno, flags };
    // SAFETY: the system reads the structure that it is given.
    let sent =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) };
    if sent == 0 { Ok(()) } else { Err(last()) }
}
