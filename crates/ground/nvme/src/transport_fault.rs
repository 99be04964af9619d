//! Faults between a controller and its host although the command was executed: a vocabulary shared by drives,
//! transports and tests of hosts. Transports carry the faults out.

/// A fault of the answer to a command, or of the connection that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportFault {
    /// The connection ends, and the answer is not sent.
    Disconnect,
    /// A digest of the answer is wrong: that of its data if data digests were negotiated, else that of its
    /// header (NVMe/TCP transport specification, section 3.3.1.1). Without digests the fault has no effect.
    BadDigest,
    /// The connection neither sends nor receives for some time, and then continues.
    Stall {
        /// Duration, ms.
        ms: u64,
    },
    /// The answer comes later; other commands are answered meanwhile.
    Late {
        /// Delay, ms.
        ms: u64,
    },
    /// The controller has failed (CSTS.CFS, base specification, section 3.1.4.6): it answers only property
    /// commands, until its host resets it.
    Fatal,
    /// The controller is not ready (CSTS.RDY is 0): it answers commands with 0Ch, until its host enables it
    /// again.
    NotReady,
}
