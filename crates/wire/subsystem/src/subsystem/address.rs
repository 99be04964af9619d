//! The address of a subsystem: on a network, in the form of the discovery log, or the path of a socket.

use std::fmt;

/// An address of this subsystem, as the discovery log reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// TRTYPE.
    pub transport: u8,
    /// ADRFAM.
    pub family: u8,
    /// TRADDR.
    pub address: String,
    /// TRSVCID.
    pub service: String,
    /// Hosts have to use TLS at this address.
    pub is_secure: bool,
}

/// As an operator writes it: `127.0.0.1:4420`, or the path of a socket.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.service[..] {
            "" => f.write_str(&self.address),
            service => write!(f, "{}:{service}", self.address),
        }
    }
}
