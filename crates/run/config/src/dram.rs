//! Points: how much DRAM an engine with its index on flash has at full size, and which structures of a hash engine
//! count.

/// The key of the bytes.
pub const DRAM_BYTES: &str = "hash.dram_bytes";
/// The key of which structures count.
pub const DRAM_ACCOUNTING: &str = "hash.dram_accounting";
/// The keys of a [`DramPoint`].
pub const DRAM_KEYS: &[&str] = &[DRAM_ACCOUNTING, DRAM_BYTES, "lsm.dram_bytes", "anykey.dram_bytes"];
/// The keys of the bytes of engines whose index is an LSM-tree.
pub const INDEX_DRAM_BYTES: &[&str] = &["lsm.dram_bytes", "anykey.dram_bytes"];

/// A budget of DRAM at which engines are compared.
#[derive(Debug)]
pub struct DramPoint {
    /// Name on the command line.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub origin: &'static str,
    pub(super) accounting: &'static str,
    pub(super) bytes: u64,
    /// For the index of `lsm` or `anykey`; `None`: as its profile has it.
    pub(super) index_bytes: Option<u64>,
}

/// Every point, at full size.
pub static DRAM_POINTS: &[DramPoint] = &[
    DramPoint {
        name: "published",
        origin: "128 MiB for the section cache; all other structures take no budget, as in the published emulator; lsm and anykey have what their profiles say",
        accounting: "published",
        bytes: 128 << 20,
        index_bytes: None,
    },
    DramPoint {
        name: "total-128",
        origin: "128 MiB for all structures together; the section cache gets the rest",
        accounting: "total",
        bytes: 128 << 20,
        index_bytes: Some(128 << 20),
    },
    DramPoint {
        name: "total-256",
        origin: "256 MiB for all structures together; the section cache gets the rest",
        accounting: "total",
        bytes: 256 << 20,
        index_bytes: Some(256 << 20),
    },
];
