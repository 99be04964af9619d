//! [`Numbers`]: all counters of a drive since power-on.

use std::fmt;

use kvdrive_declare::Sections;
use serde::Serialize;

/// The numbers of a drive since power-on: every counter of drive and link ([`kvdrive_declare::Counter`] says of each
/// whether it is counted or modelled, and what it is), and the time by this machine's clock.
///
/// The duration of a call on this machine is measured by its caller; the time that the modelled drive would
/// have taken is modelled, `drive.model_ns`. The model contains no host: the work of its driver takes this machine's
/// time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Numbers {
    /// Counters by section. With [`Pace::Jump`](crate::Pace::Jump), `drive.model_ns` advances only while the drive
    /// works, so with one command at a time it is the sum of their times. With [`Pace::Off`](crate::Pace::Off) it
    /// stands still after power-on, except for one nanosecond for each doorbell.
    #[serde(flatten)]
    pub counts: Sections,
    /// Does the time of the model pass? It does not with [`Pace::Off`](crate::Pace::Off).
    pub passes: bool,
    /// Sources of the profile's times that are not published: `fit`, `set`, `guess`, `user`.
    pub sources: String,
    /// Time since power-on by this machine's clock, s: measured.
    pub seconds: f64,
}

impl Numbers {
    /// The value of `nand.programs`, over its labels, or of `nand.programs.index`; `None`: this drive counts nothing
    /// of that name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.counts.get(name)
    }

    /// As [`Numbers::get`].
    ///
    /// # Panics
    /// This drive has no counter of that name.
    pub fn of(&self, name: &str) -> u64 {
        self.counts.of(name)
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "counted   {} commands, {} payload bytes ({} on the wire), {} NAND pages programmed, {} read, {} blocks erased",
            self.of("drive.commands"),
            self.of("traffic.payload_bytes"),
            self.of("traffic.wire_bytes"),
            self.of("nand.programs"),
            self.of("nand.reads"),
            self.of("nand.erases"),
        )?;
        let (model_ms, sources) = (self.of("drive.model_ns") as f64 / 1e6, &self.sources);
        match self.passes {
            true => writeln!(f, "modelled  {model_ms:.3} ms in the drive (times: {sources})")?,
            false => writeln!(f, "modelled  nothing: the drive is unpaced and its clock is held")?,
        }
        write!(f, "measured  {:.3} s since power-on", self.seconds)
    }
}
