//! How far a store is, on the host's side.

use kvdrive_nvme::window::Grant;
use kvdrive_nvme::{Cqe, Status};

use super::window::{HostWindow, WindowClaim};

/// Progress of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Value bytes handed to the drive by commands submitted so far.
    pub sent_bytes: u32,
    /// The drive's grant in the window for this value. If the store is dropped before its end, the grant and
    /// the claim must be returned ([`Progress::end_dropped`]).
    pub granted: Option<Grant>,
    /// The store's claim on the window.
    pub claim: Option<WindowClaim>,
    /// Number of times a window was requested or had been replaced.
    pub stale_windows: u32,
}

impl Progress {
    /// Ends a dropped store that has completed, or that will never be sent (`None`): its claim on the window and its
    /// grant are released.
    pub fn end_dropped(&mut self, window: &HostWindow, cqe: Option<&Cqe>) {
        match (self.granted.take(), cqe) {
            (Some(grant), Some(cqe)) => window.end_grant(grant, cqe, self.sent_bytes),
            (Some(grant), None) => window.withdraw(grant),
            (None, _) => {}
        }
        let Some(claim) = self.claim.take() else { return };
        window.end(claim);
        if let Some(cqe) = cqe
            && matches!(cqe.status(), Status::SUCCESS | Status::STALE_WINDOW)
        {
            window.adopt(cqe);
        }
    }
}
