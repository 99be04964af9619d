//! TLS 1.3 with a PSK and a key agreement, as states over bytes: what came from the other end goes in, what it is
//! to be sent comes out. No socket, no thread. Both ends of NVMe/TCP are here.
//!
//! ```text
//!   bytes of the network ──► receive ──► [ Session ] ──► Read: what was said
//!   bytes for the network ◄── output ◄── [         ] ◄── Write: what is to be said
//! ```
//!
//! A session begins with [`Session::shake_hands`], which computes a key agreement for some hundred microseconds and
//! belongs on a thread where that delays nobody. The states are s2n-tls's, which is C, and here with feature `tls`
//! alone; without it nobody gets a session ([`Unavailable`]), and what uses them need not know.

use crate::TlsPsk;

/// The program was built without TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this kvdrive was built without TLS; `cargo build --release -p kvdrive-cli --features tls` builds it in"
)]
pub struct Unavailable;

/// Was this program built with TLS?
///
/// # Errors
/// It was not.
pub fn is_built_in() -> Result<(), Unavailable> {
    if cfg!(feature = "tls") { Ok(()) } else { Err(Unavailable) }
}

/// Why a session cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct Failure(String);

/// What TLS is given by a subsystem: the PSKs by which hosts may come.
///
/// A handshake looks at all of them, about a microsecond each.
pub type Known = std::sync::Arc<[TlsPsk]>;

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(not(feature = "tls"))]
pub use absent::Session;
#[cfg(feature = "tls")]
mod session;
#[cfg(feature = "tls")]
pub use session::Session;
