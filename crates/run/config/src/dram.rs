//! Points: how much DRAM a hash engine has at full size, and which of its structures count.

/// The key of the bytes.
pub const DRAM_BYTES: &str = "hash.dram_bytes";
/// The key of which structures count.
pub const DRAM_ACCOUNTING: &str = "hash.dram_accounting";
/// The keys of a [`DramPoint`].
pub const DRAM_KEYS: &[&str] = &[DRAM_ACCOUNTING, DRAM_BYTES];

/// A budget of DRAM at which hash engines are compared.
#[derive(Debug)]
pub struct DramPoint {
    /// Name on the command line.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub origin: &'static str,
    pub(super) accounting: &'static str,
    pub(super) bytes: u64,
}

/// Every point, at full size.
pub static DRAM_POINTS: &[DramPoint] = &[
    DramPoint {
        name: "published",
        origin: "128 MiB for the section cache; all other structures take no budget, as in the published emulator",
        accounting: "published",
        bytes: 128 << 20,
    },
    DramPoint {
        name: "total-128",
        origin: "128 MiB for all structures together; the section cache gets the rest",
        accounting: "total",
        bytes: 128 << 20,
    },
    DramPoint {
        name: "total-256",
        origin: "256 MiB for all structures together; the section cache gets the rest",
        accounting: "total",
        bytes: 256 << 20,
    },
];
