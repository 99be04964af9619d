//! What can go wrong between a controller and its host although the command was carried out: a vocabulary that
//! drives, doors and those who test hosts share. Who carries it out is a transport.

/// What goes wrong with the answer to a command, or with the connection it goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportFault {
    /// The connection ends, and the answer is not sent.
    Disconnect,
    /// A digest of the answer is wrong: that of its data if data digests were negotiated, else that of its
    /// header (NVMe/TCP transport specification, section 3.3.1.1). Without digests nothing is.
    BadDigest,
    /// The connection says nothing and takes nothing for so many ms, and then goes on.
    Stall {
        /// How long.
        ms: u64,
    },
    /// The controller has failed (CSTS.CFS, base specification, section 3.1.4.6): it answers nothing but what
    /// properties are asked for, until its host resets it.
    Fatal,
    /// The controller is not ready (CSTS.RDY is 0): it answers commands with 0Ch, until its host enables it anew.
    NotReady,
}
