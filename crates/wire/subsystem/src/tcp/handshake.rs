//! TLS handshakes, on a thread of their own, because each computes a key agreement that would delay commands.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use kvdrive_auth::TlsPsk;
use kvdrive_auth::tls::{Failure, Session};
use kvdrive_sim::wall::Bell;

/// Owner of a session: the index of a peer, and its serial number.
pub(super) type SessionOwner = (usize, u64);

/// A session that is returned, with the result.
pub(super) struct Shaken {
    pub(super) owner: SessionOwner,
    pub(super) session: Session,
    pub(super) outcome: Result<Option<TlsPsk>, Failure>,
}

/// The handshake thread. It ends with the server. A connection has one session, so at most one item waits for
/// each connection.
pub(super) struct Handshakes {
    work: Sender<(SessionOwner, Session)>,
    shaken: Receiver<Shaken>,
}

impl Handshakes {
    pub(super) fn start(bell: Arc<Bell>) -> io::Result<Handshakes> {
        let (work, to_do) = mpsc::channel::<(SessionOwner, Session)>();
        let (done, shaken) = mpsc::channel();
        thread::Builder::new().name("handshakes".into()).spawn(move || {
            for (owner, mut session) in to_do {
                let outcome = session.shake_hands();
                if done.send(Shaken { owner, session, outcome }).is_err() {
                    return;
                }
                bell.ring();
            }
        })?;
        Ok(Handshakes { work, shaken })
    }

    /// Hands a session to the thread.
    pub(super) fn go_on(&self, owner: SessionOwner, session: Session) {
        // If the thread has ended, it has panicked; connections that wait for it then end by their time
        // limit.
        let _ = self.work.send((owner, session));
    }

    /// A session that is returned, if there is one.
    pub(super) fn next(&self) -> Option<Shaken> {
        self.shaken.try_recv().ok()
    }
}
