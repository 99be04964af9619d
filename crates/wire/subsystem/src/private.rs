//! UNIX sockets that only the user of this program can open.
//!
//! A socket has the rights that the umask leaves when it is made, so a later change of its rights comes too late for a
//! client that connects in between. It is therefore made under a umask, and each client's user is checked as well.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};

/// Only the owner may connect.
const NOT_OTHERS: Mode = Mode::from_raw_mode(0o177);

/// The umask is one of the whole program.
static UMASK: Mutex<()> = Mutex::new(());

/// Makes a socket at `path` with `bind`.
///
/// # Errors
/// Another server answers there; the error of the system.
pub fn bind<L>(path: &Path, bind: impl FnOnce(&Path) -> io::Result<L>) -> io::Result<L> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(ErrorKind::AddrInUse, "another server answers there"));
    }
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        // Left by a server that was killed.
        std::fs::remove_file(path)?;
    }
    let _one = UMASK.lock();
    let before = umask(NOT_OTHERS);
    let socket = bind(path);
    umask(before);
    socket
}

/// May the client of this connection use what only its owner may use? The owner may, and root.
pub fn is_owner(stream: &impl AsFd) -> bool {
    user_of(stream).is_ok_and(|user| is_allowed(user, geteuid().as_raw()))
}

/// The user of the other end. A client in another namespace of processes, as in another container, has the number 0 here,
/// which rustix's structure of credentials does not allow.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "a system call that no safe library of ours wraps for every client")]
fn user_of(stream: &impl AsFd) -> io::Result<u32> {
    use std::os::fd::AsRawFd;
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let descriptor = stream.as_fd().as_raw_fd();
    let into = (&raw mut found).cast();
    // SAFETY: the descriptor is open while it is borrowed; the system writes at most `bytes` bytes into a structure of numbers.
    let result =
        unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut bytes) };
    match result {
        0 if bytes as usize == size_of::<libc::ucred>() => Ok(found.uid),
        0 => Err(ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The user of the other end, as BSDs and macOS tell it.
#[cfg(not(target_os = "linux"))]
#[allow(unsafe_code, reason = "a system call that no safe library of ours wraps")]
fn user_of(stream: &impl AsFd) -> io::Result<u32> {
    use std::os::fd::AsRawFd;
    let (mut user, mut group) = (0, 0);
    // SAFETY: the descriptor is open while it is borrowed, and both results are of this frame.
    let result = unsafe { libc::getpeereid(stream.as_fd().as_raw_fd(), &raw mut user, &raw mut group) };
    if result == 0 { Ok(user) } else { Err(io::Error::last_os_error()) }
}

fn is_allowed(user: u32, owner: u32) -> bool {
    user == owner || user == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn no_other_user_can_connect_at_any_moment() {
        let folder = std::env::temp_dir().join(format!("kvdrive-private-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, is_over) = (folder.join("socket"), AtomicBool::new(false));
        umask(Mode::empty());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(file) = std::fs::metadata(&path) {
                        assert_eq!(file.permissions().mode() & 0o777, 0o600);
                    }
                }
            });
            for _ in 0..500 {
                drop(bind(&path, |path| UnixListener::bind(path)).unwrap());
                std::fs::remove_file(&path).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_client_is_known_by_its_user() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert!(is_owner(&one));
        assert_eq!(
            [(7, 7), (0, 7), (8, 7), (7, 0)].map(|(user, owner)| is_allowed(user, owner)),
            [true, true, false, false]
        );
    }
}
