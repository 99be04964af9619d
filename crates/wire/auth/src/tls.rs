//! TLS 1.3 with a PSK and a key agreement, as state machines over bytes: received bytes go in, bytes to be
//! sent come out. It has no socket and no thread. Both ends of NVMe/TCP use it.
//!
//! ```text
//!   bytes of the network ──► receive ──► [ Session ] ──► Read: what was said
//!   bytes for the network ◄── output ◄── [         ] ◄── Write: what is to be said
//! ```
//!
//! A session begins with [`Session::shake_hands`], which computes a key agreement for some hundred
//! microseconds and belongs on a thread where that delays nothing else. The state machines are those of
//! s2n-tls, a C library, and are present only with feature `tls`; without it no session can be created
//! ([`Unavailable`]), and its users need no other code path.

use crate::TlsPsk;

/// The program was built without TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this program was built without TLS (feature tls)")]
pub struct Unavailable;

/// Was this program built with TLS?
///
/// # Errors
/// It was not.
pub fn is_built_in() -> Result<(), Unavailable> {
    if cfg!(feature = "tls") { Ok(()) } else { Err(Unavailable) }
}

/// Why a session has failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct Failure(String);

/// The PSKs of the hosts that a subsystem accepts.
///
/// A handshake tries all of them, about a microsecond each.
pub type Known = std::sync::Arc<[TlsPsk]>;

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(not(feature = "tls"))]
pub use absent::Session;
#[cfg(feature = "tls")]
mod session;
#[cfg(feature = "tls")]
pub use session::Session;
