//! The embedded profiles, and the one that each engine was published on.

pub(crate) use kvdrive_engines::table::DEFAULTS as ENGINES;
use kvdrive_engines::table::about;

/// One embedded profile.
pub struct Profile {
    /// Name on the command line.
    pub name: &'static str,
    /// Description and origin, in one line.
    pub origin: &'static str,
    /// The device that it models, in a few words, with its year.
    pub device: &'static str,
    /// Every key of the configuration except those of `[workload]`; or `base`, the name of another profile,
    /// and only the keys that differ from it, each with its comment.
    pub(crate) text: &'static str,
}

/// Every embedded profile; the first is the default.
pub static PROFILES: &[Profile] = &[
    Profile {
        name: "cosmos-plus",
        origin: "Cosmos+ OpenSSD with BandSlim's firmware (ICPP'24), one synchronous host thread",
        device: "FPGA board of 2014",
        text: include_str!("../profiles/cosmos-plus.toml"),
    },
    Profile {
        name: "nvmevirt-970pro",
        origin: "flash and link as NVMeVirt models a Samsung 970 PRO, with the firmware of cosmos-plus",
        device: "consumer SSD of 2018",
        text: include_str!("../profiles/nvmevirt-970pro.toml"),
    },
    Profile {
        name: "gen5-cxl",
        origin: "cosmos-plus behind PCIe Gen5, as BandSlim's CXL article (IEEE Micro) estimates it",
        device: "FPGA board of 2014 behind a link of 2023",
        text: include_str!("../profiles/gen5-cxl.toml"),
    },
    Profile {
        name: "gen5-cxl-line",
        origin: "gen5-cxl with the line rate of Gen5 (7.9 times Gen2) instead of the article's 6.4",
        device: "FPGA board of 2014 behind a link of 2023",
        text: include_str!("../profiles/gen5-cxl-line.toml"),
    },
    Profile {
        name: "gen5-cxl-300ns",
        origin: "gen5-cxl with CXL.mem stores of 300 ns and no set-up of DMA before them",
        device: "FPGA board of 2014 behind a link of 2023",
        text: include_str!("../profiles/gen5-cxl-300ns.toml"),
    },
    Profile {
        name: "kvvirt",
        origin: "the 128 GB drive of the Plus paper, flash times of its emulator, everything charged",
        device: "emulated hash drive of 2024, flash of 2018",
        text: include_str!("../profiles/kvvirt.toml"),
    },
    Profile {
        name: "kvvirt-published",
        origin: "kvvirt with those omissions of the published emulator that can be modelled; the file lists them",
        device: "emulated hash drive of 2024, flash of 2018",
        text: include_str!("../profiles/kvvirt-published.toml"),
    },
    Profile {
        name: "kvvirt-fitted",
        origin: "kvvirt-published, but collection writes the sections that it alters and takes a core, for a time set by one published ratio",
        device: "emulated hash drive of 2024, flash of 2018",
        text: include_str!("../profiles/kvvirt-fitted.toml"),
    },
    Profile {
        name: "pm983",
        origin: "Samsung's 3.84 TB key-value SSD, fitted to published measurements of the real drive: 1 KiB padding, part of the index in DRAM",
        device: "data-centre key-value SSD of 2018",
        text: include_str!("../profiles/pm983.toml"),
    },
    Profile {
        name: "pink",
        origin: "the board of PinK (ATC'20) as its public submission of October 2019 describes it: 8 x 8 dies, 64 MiB of DRAM for 64 GiB",
        device: "FPGA board of 2019",
        text: include_str!("../profiles/pink.toml"),
    },
    Profile {
        name: "anykey",
        origin: "the emulated drive of AnyKey (ASPLOS'25): TLC flash, 8 x 8 dies, 64 MiB of DRAM for 64 GiB, everything charged",
        device: "emulated drive of 2025",
        text: include_str!("../profiles/anykey.toml"),
    },
    Profile {
        name: "anykey-published",
        origin: "anykey with what its artifact leaves out: the time of stores, of their pages and of channels",
        device: "emulated drive of 2025",
        text: include_str!("../profiles/anykey-published.toml"),
    },
    Profile {
        name: "saker-low",
        origin: "the emulated drive of the SAKER paper, class Low (after a Samsung 970 PRO): flat flash, a dispatcher and 4 I/O threads",
        device: "emulated drive after a consumer SSD of 2018",
        text: include_str!("../profiles/saker-low.toml"),
    },
    Profile {
        name: "saker-mid",
        origin: "the emulated drive of the SAKER paper, class Mid (after a Samsung 980 PRO): flat flash, a dispatcher and 4 I/O threads",
        device: "emulated drive after a consumer SSD of 2020",
        text: include_str!("../profiles/saker-mid.toml"),
    },
    Profile {
        name: "saker-high",
        origin: "the emulated drive of the SAKER paper, class High (after a Crucial T700): flat flash, a dispatcher and 4 I/O threads",
        device: "emulated drive after a consumer SSD of 2023",
        text: include_str!("../profiles/saker-high.toml"),
    },
    Profile {
        name: "saker-rocksdb",
        origin: "saker-mid with RocksDB's options; steps of the LSM-tree as measured in RocksDB 7.8.3 (calibrate --store rocksdb)",
        device: "emulated drive after a consumer SSD of 2020",
        text: include_str!("../profiles/saker-rocksdb.toml"),
    },
];

/// The profile of a run that names neither profile nor engine.
pub const DEFAULT_PROFILE: &str = PROFILES[0].name;

/// The default profile of an engine: the drive on which it was published. Stores have the same profile in the
/// drive and, over its blocks, on the host. An unknown engine gets [`DEFAULT_PROFILE`], and is refused by the
/// configuration later.
pub fn default_profile(engine: &str) -> &'static str {
    about(engine).map_or(DEFAULT_PROFILE, |about| about.profile)
}

/// The `[saker]` section, the same for every profile.
pub(crate) const SAKER: &str = include_str!("../profiles/saker.toml");
/// The `[workload]` section, the same for every profile.
pub(crate) const WORKLOAD: &str = kvdrive_workload::DEFAULTS;
