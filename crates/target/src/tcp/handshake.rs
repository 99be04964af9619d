//! Handshakes of TLS, on a thread of their own: each agrees on a key, which would delay the commands of others.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use kvdrive_auth::TlsPsk;
use kvdrive_auth::tls::{Failure, Session};

use crate::bell::Bell;

/// Whose session it is: the index of a peer, and its number among all that ever came.
pub(super) type Whose = (usize, u64);

/// A session that is back, and what became of it.
pub(super) struct Shaken {
    pub(super) whose: Whose,
    pub(super) session: Session,
    pub(super) outcome: Result<Option<TlsPsk>, Failure>,
}

/// The thread. It ends with the server. A connection has one session, so what waits is as much as is connected.
pub(super) struct Handshakes {
    work: Sender<(Whose, Session)>,
    shaken: Receiver<Shaken>,
}

impl Handshakes {
    pub(super) fn start(bell: Arc<Bell>) -> io::Result<Handshakes> {
        let (work, to_do) = mpsc::channel::<(Whose, Session)>();
        let (done, shaken) = mpsc::channel();
        thread::Builder::new().name("handshakes".into()).spawn(move || {
            for (whose, mut session) in to_do {
                let outcome = session.shake_hands();
                if done.send(Shaken { whose, session, outcome }).is_err() {
                    return;
                }
                bell.ring();
            }
        })?;
        Ok(Handshakes { work, shaken })
    }

    /// Has the thread go on with this one.
    pub(super) fn go_on(&self, whose: Whose, session: Session) {
        // A thread that has ended has panicked; its connections are ended by their time.
        let _ = self.work.send((whose, session));
    }

    /// One that is back.
    pub(super) fn next(&self) -> Option<Shaken> {
        self.shaken.try_recv().ok()
    }
}
