//! `piggyback-pipelined`: the commands of `piggyback`, with one doorbell for all commands of a value. There
//! are two variants: every command completes, and the host acknowledges all with one doorbell; or
//! (`piggyback-pipelined-1`) all but the last are *quiet*, and the value has one completion. Not published;
//! BandSlim names pipelined submission as open.
//!
//! ```text
//!   bytes over the link for v, n = 1 + ceil((v - 35) / 56) commands for v > 35, else 1:
//!     all complete  80 n + 8          last completes  64 n + 24
//! ```
//!
//! All commands of a value carry the same identifier: to the host they are one command. (NVMe requires
//! identifiers of outstanding commands to be unique; only the quiet variant conforms, since a command without
//! a completion needs no identifier.) A value with more commands than the host may have in the queue is sent
//! in rounds, each with its own doorbells.

use kvdrive_nvme::{Cqe, Sqe};

use super::piggyback::{first, further};
use super::{Choice, Method, Next, Progress, StoreRequest};

/// Host half. The device half is that of `piggyback`.
pub struct PiggybackPipelined {
    quiet: bool,
}

impl PiggybackPipelined {
    /// Every command gets a completion.
    pub fn all_complete() -> PiggybackPipelined {
        PiggybackPipelined { quiet: false }
    }

    /// Only the last command gets a completion.
    pub fn last_completes() -> PiggybackPipelined {
        PiggybackPipelined { quiet: true }
    }

    /// Fills the queue with the remaining *transfer* commands.
    fn fill(
        &self,
        store: &StoreRequest<'_>,
        progress: &mut Progress,
        outbox: &mut Vec<Sqe>,
        begun: u32,
    ) -> Next {
        let mut commands = begun;
        while commands < store.slots && progress.sent_bytes < store.value.bytes() {
            outbox.push(further(store, progress));
            commands += 1;
        }
        if !self.quiet {
            return Next::SubmitForAll(commands);
        }
        let round = outbox.len() - commands as usize;
        if let Some((_, quiet)) = outbox[round..].split_last_mut() {
            quiet.iter_mut().for_each(Sqe::set_quiet);
        }
        Next::Submit
    }
}

impl Choice for PiggybackPipelined {
    fn pick(&self, _: u32, _: u32) -> &dyn Method {
        self
    }
}

impl Method for PiggybackPipelined {
    fn staged_bytes(&self, _: u32) -> u32 {
        0
    }

    fn is_inline(&self) -> bool {
        true
    }

    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next {
        outbox.push(first(store, progress));
        self.fill(store, progress, outbox, 1)
    }

    fn on_completion(
        &self,
        store: &StoreRequest<'_>,
        progress: &mut Progress,
        cqe: &Cqe,
        outbox: &mut Vec<Sqe>,
    ) -> Next {
        if !cqe.status().is_success() || progress.sent_bytes == store.value.bytes() {
            return Next::Done(cqe.status());
        }
        self.fill(store, progress, outbox, 0)
    }
}
