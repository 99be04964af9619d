//! [`Numbers`]: what a drive has done so far, by kind of number.

use std::fmt;

use kvdrive_link::Traffic;
use kvdrive_run::wall::DriveSnapshot;

/// What a drive has done since power-on, by kind of number.
///
/// The duration of a call on this machine is measured by its caller; the time that the modelled drive would
/// have taken is modelled. The two are never in one field.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Numbers {
    /// Exact.
    pub counted: Counted,
    /// In the time of the modelled drive.
    pub modelled: Modelled,
    /// By this machine's clock.
    pub measured: Measured,
}

/// Numbers that are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// Commands handled by the drive.
    pub commands: u64,
    /// Bytes over the link as the papers count them: entries, doorbells, pages.
    pub payload_bytes: u64,
    /// Bytes over the link including packets and the overhead of lower layers.
    pub wire_bytes: u64,
    /// NAND pages programmed, by purpose.
    pub programs: Vec<(&'static str, u64)>,
    /// NAND pages read, by purpose.
    pub reads: Vec<(&'static str, u64)>,
    /// NAND blocks erased.
    pub erases: u64,
    /// NAND pages opened for values; `None`: the engine's pages do not hold values alone.
    pub value_pages: Option<u64>,
    /// Bytes that firmware copied within its memory.
    pub copied_bytes: u64,
}

impl Counted {
    /// NAND pages programmed.
    pub fn pages_programmed(&self) -> u64 {
        self.programs.iter().map(|(_, pages)| pages).sum()
    }

    /// NAND pages read.
    pub fn pages_read(&self) -> u64 {
        self.reads.iter().map(|(_, pages)| pages).sum()
    }
}

/// Times of the modelled drive. It has no host in it: what its driver does takes this machine's time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Modelled {
    /// Time that has passed in the drive, ns. With [`Pace::Jump`](crate::Pace::Jump) it passes only while the drive has
    /// something to do: with one command at a time it is what they took, all together. With
    /// [`Pace::Off`](crate::Pace::Off) it stands still behind power-on, but for the nanosecond that tells one doorbell
    /// from the next.
    pub time_ns: u64,
    /// Does time pass? It does not with [`Pace::Off`](crate::Pace::Off).
    pub passes: bool,
    /// What power-on took of it, ns.
    pub recovery_ns: u64,
    /// Sources of the profile's times that are not published: `fit`, `set`, `guess`, `user`.
    pub sources: String,
}

/// Times by this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Measured {
    /// Since power-on, s.
    pub seconds: f64,
}

impl Numbers {
    pub(crate) fn of(snapshot: &DriveSnapshot, sources: String, passes: bool, seconds: f64) -> Numbers {
        let DriveSnapshot { at, payload, wire, counters, recovery_ns, .. } = snapshot;
        Numbers {
            counted: Counted {
                commands: counters.commands,
                payload_bytes: Traffic::total(payload),
                wire_bytes: Traffic::total(wire),
                programs: counters.programs().collect(),
                reads: counters.reads().collect(),
                erases: counters.erases,
                value_pages: counters.engine.value_pages_opened,
                copied_bytes: counters.engine.memcpy_bytes,
            },
            modelled: Modelled { time_ns: *at, passes, recovery_ns: *recovery_ns, sources },
            measured: Measured { seconds },
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Numbers { counted, modelled, measured } = self;
        writeln!(
            f,
            "counted   {} commands, {} payload bytes ({} on the wire), {} NAND pages programmed, {} read, {} blocks erased",
            counted.commands,
            counted.payload_bytes,
            counted.wire_bytes,
            counted.pages_programmed(),
            counted.pages_read(),
            counted.erases,
        )?;
        let sources = &modelled.sources;
        match modelled.passes {
            true => writeln!(
                f,
                "modelled  {:.3} ms in the drive (times: {sources})",
                modelled.time_ns as f64 / 1e6
            )?,
            false => writeln!(f, "modelled  nothing: the drive is unpaced and its clock is held")?,
        }
        write!(f, "measured  {:.3} s since power-on", measured.seconds)
    }
}
