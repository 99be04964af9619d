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
//! | file | what |
//! |---|---|
//! | `calls` | the answer to each system call |
//! | `filter` | which calls are intercepted |
//! | [`choose`] | which programs need this |

pub(crate) mod calls;
pub mod choose;
mod filter;

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, RwLock};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::kernel::{self, Answer, Notified};
use crate::nodes::Nodes;
use calls::Supervisor;

/// Threads that answer: as many commands of the program can be under way at the same time.
const THREADS: usize = 32;

/// Runs a program under supervision, until it and all of its children have ended.
///
/// # Errors
/// The program cannot be started, or the system has no such supervision.
pub fn run(nodes: Nodes, command: Command) -> io::Result<ExitStatus> {
    let (mut child, listener) = kernel::spawn_filtered(command, filter::filter())?;
    let (supervisor, listener) = (Arc::new(RwLock::new(Supervisor::new(nodes))), Arc::new(listener));
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
        let Notified { id, call } = match kernel::notified(listener) {
            Ok(notified) => notified,
            // The thread that made the call has ended, or a signal came.
            Err(Errno::NOENT | Errno::INTR) if !kernel::has_ended(listener) => continue,
            Err(_) => return,
        };
        let answer = match supervisor.read() {
            Ok(supervisor) => supervisor.answer(&call),
            Err(_) => Answer::Goes,
        };
        // A thread that was killed meanwhile needs no answer.
        let _ = kernel::answer(listener, id, answer);
    }
}
