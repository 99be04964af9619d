//! NVMe/TCP: connections as state machines over bytes, and the sockets they use.
//!
//! | module | what |
//! |---|---|
//! | [`connection`] | one connection: protocol data units in, protocol data units out |
//! | `digest` | CRC-32C of headers and data, in the two variants that hosts use |
//! | `output` | bytes to send, without copies of data |
//! | `channel` | the layer between a socket and a connection: nothing, or TLS |
//! | `handshake` | TLS handshakes, on another thread |
//! | [`listener`] | sockets: epoll, one thread |

mod channel;
pub mod connection;
mod digest;
mod handshake;
pub mod listener;
pub mod output;
