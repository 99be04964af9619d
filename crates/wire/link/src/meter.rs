//! Bytes over the link, counted by class at the crossing.
//!
//! Two sums are kept. *Payload* is what the papers count: 64 bytes per submission entry, 16 per completion, 4
//! per doorbell, 4096 per page, 8 per list entry, 68 per CXL flit, the bytes of a key above 16, nothing for an interrupt. *Wire* adds the overhead
//! of the link around them (transaction and data link layer), see [`crate::pcie`]. For CXL, both count the flits of the
//! stores of the host, 68 bytes per cache line as in the article: flit headers and the drive's responses are in
//! neither.

use std::cell::Cell;

use kvdrive_declare::{By, Counters};

/// What a crossing carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Doorbell writes by the host.
    Mmio,
    /// Submission entries fetched by the drive.
    Sqe,
    /// Completion entries written by the drive.
    Cqe,
    /// PRP or SGL list entries fetched by the drive.
    List,
    /// Value bytes read from host memory by the drive.
    ToDrive,
    /// Value bytes written to host memory by the drive.
    ToHost,
    /// Message-signalled interrupts.
    Interrupt,
    /// CXL.mem flits.
    Cxl,
    /// Keys of more than 16 bytes, fetched by the drive.
    Key,
}

impl Class {
    /// Every class with its name in reports.
    pub const TABLE: [(Class, &'static str); 9] = [
        (Class::Mmio, "mmio"),
        (Class::Sqe, "sqe"),
        (Class::Cqe, "cqe"),
        (Class::List, "list"),
        (Class::ToDrive, "to_drive"),
        (Class::ToHost, "to_host"),
        (Class::Interrupt, "interrupt"),
        (Class::Cxl, "cxl"),
        (Class::Key, "key"),
    ];

    /// Labels of counters that count by class.
    pub const LABELS: By = By {
        label: "class",
        places: Class::TABLE.len(),
        name_of: |index| Class::TABLE[index].1,
        is_sparse: false,
    };

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        Class::TABLE[self as usize].1
    }
}

/// Bytes by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic([u64; 9]);

impl Traffic {
    /// Bytes of one class.
    pub fn of(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// Bytes of all classes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The increase since `earlier`.
    pub fn since(&self, earlier: &Traffic) -> Traffic {
        Traffic(std::array::from_fn(|class| self.0[class] - earlier.0[class]))
    }
}

/// The counters of one link, section `traffic` of reports.
#[derive(Default, Counters)]
pub struct Meter {
    /// Bytes over the link as the papers count: 64 + 16 + 2 x 4 B per command, 4096 B per page, 68 B per flit.
    #[counter(name = "payload_bytes", by = &Class::LABELS)]
    payload: [Cell<u64>; 9],
    /// Bytes over the link with packet and link overhead; for CXL the same 68 B per flit, without flit headers and
    /// responses.
    #[counter(name = "wire_bytes", by = &Class::LABELS)]
    wire: [Cell<u64>; 9],
}

impl Meter {
    /// Counts one crossing.
    #[inline]
    pub fn count(&self, class: Class, payload_bytes: u64, wire_bytes: u64) {
        let add = |sum: &Cell<u64>, bytes| sum.set(sum.get() + bytes);
        add(&self.payload[class as usize], payload_bytes);
        add(&self.wire[class as usize], wire_bytes);
    }

    /// Payload bytes so far.
    pub fn payload(&self) -> Traffic {
        Traffic(std::array::from_fn(|class| self.payload[class].get()))
    }

    /// Wire bytes so far.
    pub fn wire(&self) -> Traffic {
        Traffic(std::array::from_fn(|class| self.wire[class].get()))
    }
}
