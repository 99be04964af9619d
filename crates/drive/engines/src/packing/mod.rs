//! Packing policies: the place of the next value in the value log.
//!
//! A policy is a pure state machine. It knows the shape of the log ([`LogView`]) and its earlier placements,
//! returns a [`Placement`] and does no I/O: the value log opens the pages, moves the bytes and charges the
//! copies. Because it is pure it can be replayed: the protected image keeps its own instance of the policy
//! and repeats the placements ([`crate::value_log::ProtectedValueLog`]).
//!
//! Offsets are *linear*: a log head sees one endless stretch of bytes, cut into segments of equal length, and the value
//! log maps each to the segment it stands for. No value crosses a segment end. A value of at most one NAND page does
//! not cross a page end either, so that it is read with one flash read (the released BandSlim firmware forbids it too;
//! the papers do not say); longer values lie contiguously over consecutive pages. With
//! [`PackingConfig::slots_cross_pages`], a value that DMA delivers in slots may cross a page end: each slot is whole in
//! one page, and some values take two flash reads.
//!
//! A new policy is one file and one row in [`PACKINGS`].

mod all;
mod backfill;
mod blend;
mod block;
mod selective;
mod units;

use kvdrive_declare::{Section, image_keys};
use kvdrive_link::Arrival;

use crate::firmware::CopyCosts;
pub use all::All;
pub use backfill::Backfill;
pub use blend::Blend;
pub use block::Block;
pub use selective::Selective;
pub use units::{UNIT_BYTES, Units};

/// Unit of page-unit DMA, and the slot of the block baseline, in bytes (BandSlim, section 2).
pub const SLOT_BYTES: u32 = 4096;

/// The shape of the log that a policy fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogView {
    /// A NAND page, in bytes: a power of two and a multiple of [`SLOT_BYTES`].
    pub page_bytes: u32,
    /// A segment, in bytes: a multiple of `page_bytes`.
    pub segment_bytes: u64,
    /// Whether a value in slots may lie on both sides of a page end ([`PackingConfig::slots_cross_pages`]).
    pub slots_cross_pages: bool,
}

impl LogView {
    /// Start of the page that holds byte `at`.
    #[inline]
    pub fn page_start(&self, at: u64) -> u64 {
        at & !(u64::from(self.page_bytes) - 1)
    }

    /// First place at or after `at` where `bytes` bytes cross neither a segment end nor, if they fit into
    /// one, a page end.
    #[inline]
    pub fn uncrossed(&self, at: u64, bytes: u32) -> u64 {
        self.place_within(at, bytes, bytes <= self.page_bytes)
    }

    /// The same for a value that takes whole slots from slot boundary `at` on, as DMA delivers it: it may
    /// cross a page end if slots may.
    #[inline]
    pub fn uncrossed_slots(&self, at: u64, bytes: u32) -> u64 {
        self.place_within(at, bytes, bytes <= self.page_bytes && !self.slots_cross_pages)
    }

    #[inline]
    fn place_within(&self, at: u64, bytes: u32, in_one_page: bool) -> u64 {
        if in_one_page {
            let page = u64::from(self.page_bytes);
            let within = at & (page - 1);
            if within + u64::from(bytes) <= page { at } else { at - within + page }
        } else {
            let within = at % self.segment_bytes;
            if within + u64::from(bytes) <= self.segment_bytes {
                at
            } else {
                at - within + self.segment_bytes
            }
        }
    }
}

/// First slot boundary at or after `at`.
#[inline]
fn align_to_slot(at: u64) -> u64 {
    at.next_multiple_of(u64::from(SLOT_BYTES))
}

/// Where a value goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its first byte, in the head's linear space.
    pub at: u64,
    /// Bytes that must be copied, because DMA has delivered them elsewhere. Bytes that arrive inside commands are
    /// copied anyway and are not counted here.
    pub copied_bytes: u32,
}

/// The state of a packing policy for one log head.
///
/// The order of calls determines the state: two instances of the same row and configuration with the same
/// calls are in the same state.
pub trait Packing {
    /// Places a value of `bytes` bytes; `bytes` is at most a segment. A value of 0 bytes takes no space and
    /// changes nothing.
    fn place(&mut self, bytes: u32, arrival: Arrival, log: &LogView) -> Placement;

    /// Gives up all unused bytes before `at`: the page before it is leaving the buffer.
    fn skip_to(&mut self, at: u64);

    /// Every later value is placed at or after this offset, which never decreases.
    fn oldest_open(&self) -> u64;

    /// No value placed so far has a byte at or after this offset. It never decreases.
    fn frontier(&self) -> u64;

    /// How often a full DMA log table made the write pointer jump.
    fn table_full_jumps(&self) -> u64 {
        0
    }

    /// The state as bytes, for the protected image.
    fn save(&self) -> Vec<u8>;

    /// Restores the state from the bytes of [`Packing::save`]. `false`, without change, if they are not
    /// valid.
    fn restore(&mut self, saved: &[u8]) -> bool;
}

/// Which policy, and its parameters: section `[packing]`.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section("packing", default)]
pub struct PackingConfig {
    /// Packing policy: where values are placed in NAND pages (`kvdrive list packings`).
    #[setting(is = Row(|| PACKINGS.iter().map(|row| row.name).collect()), option = "packing", image)]
    pub policy: String,
    /// Entries of the DMA log table of `backfill`. BandSlim has as many as buffer entries: 512.
    #[setting(is = Integer(1, 1 << 20), image, when = &[When::row("packing.policy", |name, _| looks_at(name, |row| row.has_dlt))])]
    pub dlt_entries: u32,
    /// Whether a value of several slots may begin in one NAND page and end in the next. Without this, a value of three
    /// slots leaves the last slot of a page of four empty. The papers do not say which is meant; only with `true` does
    /// the number of pages rise at every boundary of 4 KiB, as in BandSlim's figure 4.
    #[setting(image, when = &[When::row("packing.policy", |name, _| looks_at(name, |row| row.has_slots))])]
    pub slots_cross_pages: bool,
    /// Costs for a policy that weighs them. They follow from the times of other sections.
    #[setting(skip)]
    pub costs: PackingCosts,
    /// A policy that is in no table, instead of `policy`.
    #[setting(skip)]
    pub own: Option<OwnPacking>,
}

/// A row that [`PACKINGS`] does not have, of a program that brings its own.
#[derive(Clone, Copy)]
pub struct OwnPacking(&'static PackingRow);

impl OwnPacking {
    /// The row.
    pub fn row(self) -> &'static PackingRow {
        self.0
    }
}

impl From<&'static PackingRow> for OwnPacking {
    fn from(row: &'static PackingRow) -> OwnPacking {
        OwnPacking(row)
    }
}

impl PartialEq for OwnPacking {
    fn eq(&self, other: &OwnPacking) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for OwnPacking {}

impl std::fmt::Debug for OwnPacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnPacking({})", self.0.name)
    }
}

/// Times for the decisions of a policy, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackingCosts {
    /// Copying.
    pub copy: CopyCosts,
    /// Cost of one more NAND page of values for the store that opens it.
    pub page_ns: u64,
}

/// Does `has` hold for the policy of this name? `true` for policies that are not in the table.
fn looks_at(name: &str, has: impl Fn(&PackingRow) -> bool) -> bool {
    PACKINGS.iter().find(|row| row.name == name).is_none_or(has)
}

impl PackingConfig {
    /// The policy in its first state.
    ///
    /// # Errors
    /// One line that names the key when there is no such policy or a parameter is out of range.
    pub fn build(&self) -> Result<Box<dyn Packing>, String> {
        if self.dlt_entries == 0 {
            return Err("packing.dlt_entries: 0; allowed: 1 or more".to_string());
        }
        match self.row() {
            Some(row) => Ok((row.build)(self)),
            None => {
                let names: Vec<&str> = PACKINGS.iter().map(|row| row.name).collect();
                Err(format!("packing.policy: {:?}; allowed: {}", self.policy, names.join(", ")))
            }
        }
    }
}

impl PackingConfig {
    /// The row of the policy, if there is such a policy.
    pub fn row(&self) -> Option<&'static PackingRow> {
        let own = self.own.map(OwnPacking::row);
        own.or_else(|| PACKINGS.iter().find(|row| row.name == self.policy))
    }

    fn weighs_costs(&self) -> bool {
        self.row().is_some_and(|row| row.weighs_costs)
    }

    /// Maximum length of a saved state, bytes; 0 if there is no such policy.
    pub fn state_bytes(&self) -> u64 {
        self.row().map_or(0, |row| (row.state_bytes)(self))
    }

    /// Settings that decide where values go: two configurations that agree in them can read each other's
    /// images ([`kvdrive_flash::power::ImageSettings`]).
    pub fn image_settings(&self) -> Vec<(&'static str, String)> {
        let policy = self.row().map_or(self.policy.as_str(), |row| row.name);
        let mut settings = image_keys(&PackingConfig { policy: policy.to_owned(), ..self.clone() });
        if self.weighs_costs() {
            let PackingCosts { copy, page_ns } = self.costs;
            settings.push(("controller.memcpy_setup_ns", copy.setup_ns.to_string()));
            settings.push(("controller.memcpy_ns_per_kib", copy.ns_per_kib.to_string()));
            // Of the times of flash and of `buffer.eviction`.
            settings.push(("time of a page", format!("{page_ns} ns")));
        }
        settings
    }
}

/// One packing policy.
pub struct PackingRow {
    /// Name in configurations and reports.
    pub name: &'static str,
    /// What it is and where it comes from.
    pub origin: &'static str,
    /// [`PackingConfig::costs`] decide where values go.
    pub weighs_costs: bool,
    /// It keeps a DMA log table, of [`PackingConfig::dlt_entries`].
    pub has_dlt: bool,
    /// DMA'd values stay in the slots into which DMA put them.
    pub has_slots: bool,
    /// The policy of moved values. They are copied anyway, so most rows pack them as densely as can be.
    pub build_for_moved: fn() -> Box<dyn Packing>,
    /// Bytes of [`Packing::save`], at most.
    pub state_bytes: fn(&PackingConfig) -> u64,
    /// The policy in its first state.
    pub build: fn(&PackingConfig) -> Box<dyn Packing>,
}

/// Every packing policy.
pub static PACKINGS: &[PackingRow] = &[
    PackingRow {
        name: "block",
        origin: "every value takes whole 4 KiB slots: the NVMe KV baseline of the BandSlim paper",
        weighs_costs: false,
        has_dlt: false,
        has_slots: true,
        build_for_moved: || Box::new(All::default()),
        state_bytes: |_| 8,
        build: |_| Box::new(Block::default()),
    },
    PackingRow {
        name: "all",
        origin: "values back to back, DMA'd ones copied down to the write pointer (BandSlim, section 3.3)",
        weighs_costs: false,
        has_dlt: false,
        has_slots: false,
        build_for_moved: || Box::new(All::default()),
        state_bytes: |_| 8,
        build: |_| Box::new(All::default()),
    },
    PackingRow {
        name: "selective",
        origin: "DMA'd values stay on their 4 KiB boundary, small ones follow (BandSlim, section 3.3)",
        weighs_costs: false,
        has_dlt: false,
        has_slots: true,
        build_for_moved: || Box::new(All::default()),
        state_bytes: |_| 8,
        build: |_| Box::new(Selective::default()),
    },
    PackingRow {
        name: "backfill",
        origin: "selective, and small values fill the gaps by a DMA log table (BandSlim, section 3.3)",
        weighs_costs: false,
        has_dlt: true,
        has_slots: true,
        build_for_moved: || Box::new(All::default()),
        state_bytes: |config| Backfill::state_bytes(config.dlt_entries),
        build: |config| Box::new(Backfill::new(config.dlt_entries)),
    },
    PackingRow {
        name: "blend",
        origin: "for each DMA'd value, the cheaper of all and backfill (ours; left open by BandSlim, section 4.3)",
        weighs_costs: true,
        has_dlt: true,
        has_slots: true,
        build_for_moved: || Box::new(All::default()),
        state_bytes: |config| Blend::state_bytes(config.dlt_entries),
        build: |config| Box::new(Blend::new(config.costs, config.dlt_entries)),
    },
    PackingRow {
        name: "units",
        origin: "every value takes whole units of 512 B (PinK, USENIX ATC'20)",
        weighs_costs: false,
        has_dlt: false,
        has_slots: false,
        build_for_moved: || Box::new(Units::default()),
        state_bytes: |_| 8,
        build: |_| Box::new(Units::default()),
    },
];

/// No log gets this far, so a larger offset in a saved state is damage. Keeps all sums below 64 bits.
const LINEAR_END: u64 = 1 << 60;

/// State of the policies that have one write pointer and nothing else: eight bytes.
fn restore_pointer(pointer: &mut u64, saved: &[u8]) -> bool {
    match <[u8; 8]>::try_from(saved).map(u64::from_le_bytes) {
        Ok(saved) if saved <= LINEAR_END => {
            *pointer = saved;
            true
        }
        _ => false,
    }
}
