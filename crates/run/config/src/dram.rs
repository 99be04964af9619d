//! Points: how much DRAM an engine with its index on flash has at full size, and which structures of a hash engine
//! count.

/// The key of the bytes.
pub const DRAM_BYTES: &str = "hash.dram_bytes";
/// The key of which structures count.
pub const DRAM_ACCOUNTING: &str = "hash.dram_accounting";
/// The keys of a [`DramPoint`].
pub const DRAM_KEYS: &[&str] = &[DRAM_ACCOUNTING, DRAM_BYTES, LSM_DRAM_BYTES];
/// The key of the bytes of engine `lsm`.
pub const LSM_DRAM_BYTES: &str = "lsm.dram_bytes";

/// A budget of DRAM at which engines are compared.
#[derive(Debug)]
pub struct DramPoint {
    /// Name on the command line.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub origin: &'static str,
    pub(super) accounting: &'static str,
    pub(super) bytes: u64,
    /// For the index of `lsm`; `None`: as its profile has it.
    pub(super) lsm_bytes: Option<u64>,
}

/// Every point, at full size.
pub static DRAM_POINTS: &[DramPoint] = &[
    DramPoint {
        name: "published",
        origin: "128 MiB for the section cache; all other structures take no budget, as in the published emulator; lsm has what its profile says",
        accounting: "published",
        bytes: 128 << 20,
        lsm_bytes: None,
    },
    DramPoint {
        name: "total-128",
        origin: "128 MiB for all structures together; the section cache gets the rest",
        accounting: "total",
        bytes: 128 << 20,
        lsm_bytes: Some(128 << 20),
    },
    DramPoint {
        name: "total-256",
        origin: "256 MiB for all structures together; the section cache gets the rest",
        accounting: "total",
        bytes: 256 << 20,
        lsm_bytes: Some(256 << 20),
    },
];
