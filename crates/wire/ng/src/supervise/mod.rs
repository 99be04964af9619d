//! Programs that a preloaded library does not reach: static ones, Go's, those of another C library. The system asks
//! this process about some of their system calls (seccomp user notification, Linux 5.14), and it answers them.
//!
//! ```text
//!   the program            the kernel              this process
//!   openat("/dev/ng0n1") ─► filter ─► waits ─────► a thread: calls::Supervisor ─► the drive
//!                           a new descriptor  ◄──┘
//! ```
//!
//! No privilege is needed; a program that is supervised cannot get any (`no_new_privs`), as by set-user-ID files. Its
//! memory is read and written with `process_vm_readv` and its counterpart, which the system allows to a process of the
//! same user and, with Yama, to a parent. Children of the program are supervised, too. A call costs two switches of
//! threads.
//!
//! Linux's own driver waits for a command whatever signals come. Since Linux 5.19 a call that this process has received
//! waits in the same way ([`waiting`]); a signal that comes before that restarts it, or ends it with EINTR, and
//! nothing was carried out. Before 5.19 a signal with a handler ends the wait at any time, and `restarts` sees to it that
//! the command is carried out once.
//!
//! | file | what |
//! |---|---|
//! | `calls` | the answer to each system call |
//! | `filter` | which calls are intercepted |
//! | `program` | memory of the program, as long as a call waits |
//! | [`waiting`] | whether signals interrupt calls |
//! | `restarts` | commands of a thread one after the other, each once, where signals interrupt calls |
//! | [`choose`] | which programs need this |

pub(crate) mod calls;
pub mod choose;
mod filter;
mod program;
mod restarts;
pub mod waiting;

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::kernel;
use crate::nodes::Nodes;
use calls::Supervisor;
use waiting::Waiting;

/// Threads that answer: as many commands of the program can be under way at the same time.
const THREADS: usize = 32;

/// Is supervision as good as a kernel's driver here? Its calls wait as there, and a parent may look into the memory of its
/// child.
pub fn is_faithful() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    // 2: only root may; 3: nobody may.
    let may_look = !matches!(scope.trim(), "2" | "3");
    may_look && Waiting::of_system() == Waiting::Killable
}

/// Runs a program under supervision, until it and all of its children have ended.
///
/// # Errors
/// The program cannot be started, or the system has no such supervision.
pub fn run(nodes: Nodes, command: Command, waiting: Waiting) -> io::Result<ExitStatus> {
    let (mut child, listener) =
        kernel::spawn_filtered(command, filter::filter(), waiting == Waiting::Killable)?;
    let supervisor = Supervisor::new(nodes, waiting);
    let (supervisor, listener) = (Arc::new(RwLock::new(supervisor)), Arc::new(listener));
    for _ in 0..THREADS {
        let (supervisor, listener) = (supervisor.clone(), listener.clone());
        thread::Builder::new().name("supervisor".into()).spawn(move || serve(&supervisor, &listener))?;
    }
    let status = child.wait()?;
    // Children that outlive it are still served.
    loop {
        let mut polled = [PollFd::new(&*listener, PollFlags::empty())];
        match poll(&mut polled, None) {
            Ok(_) if polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    if let Ok(mut supervisor) = supervisor.write() {
        supervisor.end();
    }
    Ok(status)
}

/// Answers calls until no supervised process is left.
fn serve(supervisor: &RwLock<Supervisor>, listener: &OwnedFd) {
    loop {
        let notified = match kernel::notified(listener) {
            Ok(notified) => notified,
            // The thread that made the call has ended, or a signal came.
            Err(Errno::NOENT | Errno::INTR) if !kernel::has_ended(listener) => continue,
            Err(_) => return,
        };
        supervisor.read().unwrap_or_else(PoisonError::into_inner).serve(listener, &notified);
    }
}
