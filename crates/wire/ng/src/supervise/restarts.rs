//! Commands of a thread, one after the other and each once, where any signal with a handler ends a call's wait (before
//! Linux 5.19, and where it is asked for).
//!
//! ```text
//!   ioctl A ─► carried out ───────────────► outcome, kept        A's call is no longer valid: nobody takes the answer
//!      └─ a signal, its handler
//!         ioctl A again ─► waits for A ─► has the same arguments, reads the same bytes? ─► answered from A's outcome
//!         ioctl B       ─► waits for A ─► is another command ─► carried out after A
//! ```
//!
//! The restart is told from another command by what can be known here: number and arguments of the call, and every byte
//! that the first one read, except where its answer was written already. A call that returned EINTR and is made again looks the same, and has the same answer. Only the
//! call before is remembered: if the handler itself sends commands, the interrupted one is carried out a second time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kvdrive_sim::wall::lock;
use rustix::io::Errno;

use super::program::{Piece, Program};
use crate::kernel::Call;

/// What an ioctl returns.
pub(super) type Returned = Result<i32, Errno>;

/// The last command of each thread, until the thread has its answer.
#[derive(Default)]
pub(super) struct Restarts {
    last: Mutex<HashMap<i32, Arc<Begun>>>,
}

/// A command that has begun.
struct Begun {
    call: Call,
    /// When its thread began; numbers of threads are used again.
    thread_began: Option<String>,
    /// Locked while the command is carried out; `None` after that: nothing was.
    outcome: Mutex<Option<Outcome>>,
}

struct Outcome {
    returned: Returned,
    read: Vec<Piece>,
    written: Vec<Piece>,
}

impl Restarts {
    /// Answers the ioctl `call`: `carry_out` is called if it is no restart, and `finish` writes and sends what was
    /// returned, and says whether the thread took it. All of that comes before anything of a later call, so that no byte
    /// is written after the answer to a restart.
    pub fn once(
        &self,
        call: &Call,
        memory: &Program<'_>,
        carry_out: impl FnOnce() -> Returned,
        finish: impl FnOnce(Returned) -> bool,
    ) {
        // A thread makes one call at a time, so the program has not seen the end of this one.
        let before = lock(&self.last).get(&call.thread).cloned();
        let thread_began = thread_began(call.thread);
        if let Some(before) = before {
            let outcome = lock(&before.outcome);
            let is_same = before.call == *call && before.thread_began == thread_began;
            if let Some(outcome) = outcome.as_ref().filter(|it| is_same && memory.has(&it.read, &it.written))
            {
                memory.adopt(&outcome.written);
                let was_taken = finish(outcome.returned);
                return self.answered(&before, was_taken);
            }
        }
        let begun = Arc::new(Begun { call: *call, thread_began, outcome: Mutex::new(None) });
        let mut outcome = lock(&begun.outcome);
        {
            let mut last = lock(&self.last);
            // Its restart may have been here before it.
            if !memory.still_waits() {
                return;
            }
            last.insert(call.thread, begun.clone());
        }
        let returned = carry_out();
        if !memory.is_gone() {
            let (read, written) = memory.pieces();
            *outcome = Some(Outcome { returned, read, written });
        }
        let was_taken = finish(returned);
        self.answered(&begun, was_taken);
    }

    /// The thread has the answer of this command; or it has not, and then commands of threads that have ended are
    /// forgotten.
    fn answered(&self, begun: &Arc<Begun>, was_taken: bool) {
        let (thread, mut last) = (begun.call.thread, lock(&self.last));
        if !was_taken {
            last.retain(|thread, begun| {
                begun.thread_began.is_some() && thread_began(*thread) == begun.thread_began
            });
        } else if last.get(&thread).is_some_and(|last| Arc::ptr_eq(last, begun)) {
            // The thread may have begun another one already.
            last.remove(&thread);
        }
    }
}

/// When a thread began, as the system's clock ticks.
fn thread_began(thread: i32) -> Option<String> {
    let about = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // The name in brackets may have blanks; the time is the 22nd field, and the 20th after the name.
    let (_, fields) = about.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}
