//! Configuration of a hash engine. Values and their sources are in the profiles.

use kvdrive_declare::{Section, Words};
use kvdrive_flash::Geometry;
use kvdrive_nvme::Key;
use kvdrive_sim::Ns;

use super::layout::Layout;
use super::pair::PREFIX_BYTES;
use super::scheme::SchemeRow;
use crate::firmware::CopyCosts;

/// The structures that the DRAM budget covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Accounting {
    /// The bytes of cached sections alone; everything else is free, as in the published runs.
    Published,
    /// Every structure; the section cache gets what the others leave, and each section in it takes 16 B for
    /// finding it besides its own bytes.
    Total,
}

impl Accounting {
    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        self.word()
    }
}

/// Whether sections that a command met again stay in the cache for one more round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum SecondChance {
    /// As designed for the FTL: in `plus2` they do.
    Usual,
    /// They do.
    On,
    /// They leave in the order in which they came.
    Off,
}

/// Work that a published emulator leaves out, in addition to operations that it does not charge; only to study that
/// emulator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Section)]
#[section("hash")]
pub struct Omissions {
    /// Whether a store that fills a flash page waits until the page is programmed. It need not: the write buffer is
    /// power-protected.
    pub wait_for_program: bool,
    /// Whether a command waits for the program of a page of sections that its own eviction filled. It need not: the
    /// buffer of that page is power-protected, too.
    pub wait_for_eviction: bool,
    /// Whether a section that collection has altered counts as clean, as in the published emulator: it leaves the cache
    /// without being written. The altered content is kept in memory outside the DRAM budget, and survives a power cut.
    pub gc_leaves_clean: bool,
    /// Whether a lookup reserves the flash units of all its hops when it begins, as in the published emulator. A
    /// later command then waits for a unit that is idle.
    pub reserve_ahead: bool,
    /// Time that collection spends on each page of a superblock, on a core of its own, ns. It stands for the busy
    /// waiting of the published emulator.
    #[setting(is = TIME)]
    pub gc_page_ns: Ns,
}

/// The hash engine's part of a profile: section `[hash]`.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("hash", default)]
pub struct HashConfig {
    /// Bytes of a grain; 0: as published for the FTL.
    #[setting(is = OneOf(&[0, 32, 64, 128, 256, 512, 1024]), image)]
    pub grain_bytes: u32,
    /// Bytes of a read unit. A section takes at most one unit.
    #[setting(is = PowerOfTwo(1024, 65536), image)]
    pub unit_bytes: u32,
    /// Bytes of the power-protected write buffer, which holds pairs until they are programmed.
    #[setting(is = Integer(1, 1 << 40))]
    pub write_buffer_bytes: u64,
    /// The DRAM budget, bytes; `hash.dram_accounting` determines what it covers.
    #[setting(is = Integer(0, 1 << 40))]
    pub dram_bytes: u64,
    /// `published`: the DRAM budget covers the bytes of cached sections alone, as in the published runs; `total`: it
    /// covers every structure.
    pub dram_accounting: Accounting,
    /// Fraction of the superblocks that pairs and sections never fill.
    #[setting(is = Number(0.0, 0.89))]
    pub over_provisioning: f64,
    /// Collection runs while this many superblocks or fewer are free.
    #[setting(is = Integer(3, 1 << 20))]
    pub gc_low_superblocks: u32,
    /// Commands of the host wait while this many superblocks or fewer are free; 0: as published for the FTL, but below
    /// `hash.gc_low_superblocks`.
    #[setting(is = Integer(0, 1 << 20))]
    pub gc_stall_superblocks: u32,
    /// Pages of a superblock on which collection works at once.
    #[setting(is = Integer(1, 1 << 16))]
    pub gc_workers: u32,
    /// Whether collection transfers only those read units of a page in which something is valid; otherwise the whole
    /// page crosses the channel. Only the time of the transfer changes: a real drive would also have to know where in a
    /// unit the first pair begins.
    pub gc_skips_dead_units: bool,
    /// Slots (in `plus2`: sections) in the probe sequence of a key; a store that finds no room in them is refused. An
    /// image keeps this number: with fewer probes, the drive would not find pairs that were placed further on, and
    /// would store them a second time.
    #[setting(is = Integer(1, 256), image)]
    pub max_probes: u32,
    /// Bits of a key's hash that are used; with fewer bits, more keys collide.
    #[setting(is = Integer(1, 64), image)]
    pub hash_bits: u32,
    /// Whether the medium drops pages that hold nothing valid. Reading such a page is then a broken invariant.
    pub discard_invalid: bool,
    /// Weight of a valid grain of a section, in valid grains of pairs, when the superblock to be collected is chosen;
    /// 0: as designed for the FTL.
    #[setting(is = Integer(0, 64))]
    pub section_weight: u64,
    /// `on`: a section that a command used since eviction last considered it stays in the cache for one more round;
    /// `off`: the oldest section always leaves; `usual`: as designed for the FTL.
    pub second_chance: SecondChance,
    /// Ways of a set-associative section cache: the hash of a section's number chooses a set of this many places, and
    /// the section takes one of them. If all are taken, it displaces a section of its set, even if other places are
    /// free. 0: a section may take any place. The cache has as many places as sections of mean size fit into it.
    #[setting(is = Integer(0, 256))]
    pub cache_ways: u32,
    /// Omissions as in a published emulator.
    #[setting(part)]
    pub omissions: Omissions,
    /// Times of firmware work.
    #[setting(part)]
    pub costs: HashCosts,
}

/// Time of firmware work on one core, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Section)]
#[section("hash", default)]
pub struct HashCosts {
    /// Firmware time to find a section in the directory, ns.
    #[setting(is = TIME)]
    pub probe_ns: Ns,
    /// Firmware time of one comparison in the search of a section, ns.
    #[setting(is = TIME)]
    pub comparison_ns: Ns,
    /// Firmware time to compare a key with the one found on flash, ns.
    #[setting(is = TIME)]
    pub compare_key_ns: Ns,
    /// Firmware time that each pair of another key costs a lookup that reads it, besides reading and comparing it, ns.
    #[setting(is = TIME)]
    pub collision_ns: Ns,
    /// Firmware time of garbage collection for one pair or section, lookups not included, ns.
    #[setting(is = TIME)]
    pub gc_item_ns: Ns,
    /// Firmware time of garbage collection for one pair that turns out to be dead, and for one record of an invalid
    /// pair, ns.
    #[setting(is = TIME)]
    pub dead_item_ns: Ns,
    /// Firmware time to choose and encode an altered section that is written, ns.
    #[setting(is = TIME)]
    pub evict_ns: Ns,
    /// Firmware time to bring a section that is not cached from flash into the cache, besides the read, ns.
    #[setting(is = TIME)]
    pub fetch_ns: Ns,
    /// Firmware time to move 1 KiB of a value between the memory of DMA and a flash page, ns; 0: DMA and flash share
    /// the buffer.
    #[setting(is = TIME)]
    pub staging_ns_per_kib: Ns,
    /// Copying from a command. Keys of `[controller]`.
    #[setting(skip)]
    pub copy: CopyCosts,
}

/// Superblocks open at one time: two of pairs, two of sections.
pub const OPEN_SUPERBLOCKS: u32 = 4;

/// A pair is at most this fraction of a superblock, so that little is wasted at its end.
pub const SUPERBLOCK_PAIRS: u64 = 8;
/// The header of a pair has 24 bits for the length of the value; the rest of the drive stops here.
const VALUE_MAX_BYTES: u64 = 2 << 20;
/// Before a value beside a key of 16 B. A longer key takes from the room of the largest value.
const PAIR_HEADER_BYTES: u64 = PREFIX_BYTES as u64 + Key::IDENTITY_BYTES as u64;

impl HashConfig {
    /// The configuration for one hash FTL: "as designed" settings take the values of its row.
    pub fn of(&self, scheme: &SchemeRow) -> HashConfig {
        let grain_bytes = if self.grain_bytes == 0 { scheme.grain_bytes } else { self.grain_bytes };
        let section_weight =
            if self.section_weight == 0 { scheme.section_weight } else { self.section_weight };
        let second_chance = match self.second_chance {
            SecondChance::Usual if scheme.second_chance => SecondChance::On,
            SecondChance::Usual => SecondChance::Off,
            said => said,
        };
        let below_low = self.gc_low_superblocks.saturating_sub(1);
        let gc_stall_superblocks = match self.gc_stall_superblocks {
            0 => scheme.stall_superblocks.min(below_low),
            said => said,
        };
        HashConfig { grain_bytes, gc_stall_superblocks, section_weight, second_chance, ..self.clone() }
    }

    /// If this many superblocks or fewer are free, sections are collected before pairs: two of the published
    /// four at which commands wait. A drive that keeps fewer free uses half of that number; otherwise
    /// collection of pairs would start below that mark and reach it with the first superblock it takes.
    pub fn critical_superblocks(&self) -> u32 {
        (self.gc_stall_superblocks / 2).min(2)
    }

    /// Bytes of the write buffer for values whose rest the host has yet to send. A filled page may keep its own bytes
    /// for ever, and the remaining bytes must hold the largest pair, otherwise nothing could proceed.
    pub fn unfinished_bytes(&self, layout: &Layout) -> u64 {
        self.write_buffer_bytes.saturating_sub(layout.page_bytes().into()) / 2
    }

    /// Largest value, bytes.
    pub fn largest_value_bytes(&self, layout: &Layout) -> u32 {
        let superblock = u64::from(layout.superblock_pages) * u64::from(layout.page_bytes());
        let most = (superblock / SUPERBLOCK_PAIRS).min(self.unfinished_bytes(layout));
        let grain_bytes = u64::from(layout.grain_bytes);
        let pair_bytes = most / grain_bytes * grain_bytes;
        pair_bytes.saturating_sub(PAIR_HEADER_BYTES).min(VALUE_MAX_BYTES) as u32
    }

    /// Largest pair, bytes.
    pub fn largest_pair_bytes(&self, layout: &Layout) -> u64 {
        u64::from(self.largest_value_bytes(layout)) + PAIR_HEADER_BYTES
    }

    /// Most flash pages that a pair touches.
    pub fn largest_pair_pages(&self, layout: &Layout) -> u64 {
        self.largest_pair_bytes(layout).div_ceil(layout.page_bytes().into()) + 1
    }

    /// Checks the keys; an error has the key and the reason.
    pub fn check(&self, geometry: &Geometry) -> Result<(), (&'static str, String)> {
        let fail = |key, what: String| Err((key, what));
        if !self.grain_bytes.is_power_of_two() || !(32..=4096).contains(&self.grain_bytes) {
            return fail(
                "grain_bytes",
                format!("is {}, must be a power of two, 32 to 4096", self.grain_bytes),
            );
        }
        let grains = self.unit_bytes / self.grain_bytes;
        let whole = self.unit_bytes.is_multiple_of(self.grain_bytes);
        if !whole || !(1024..=65536).contains(&self.unit_bytes) || !(1..256).contains(&grains) {
            let what = format!("is {}, must be 1024 to 65536 and 1 to 255 grains", self.unit_bytes);
            return fail("unit_bytes", what);
        }
        if !geometry.page_bytes.is_multiple_of(self.unit_bytes) {
            let what = format!("is {}, must divide a flash page, {}", self.unit_bytes, geometry.page_bytes);
            return fail("unit_bytes", what);
        }
        let superblock = u64::from(geometry.units()) * u64::from(geometry.pages_per_block);
        if superblock * u64::from(geometry.page_bytes / self.grain_bytes) > 1 << 24 {
            return fail("grain_bytes", "gives a superblock more than 2^24 grains".into());
        }
        if !(1..=64).contains(&self.hash_bits) {
            return fail("hash_bits", format!("is {}, must be 1 to 64", self.hash_bits));
        }
        let least = 2 * u64::from(geometry.page_bytes);
        if self.write_buffer_bytes < least {
            let what = format!("is {}, must be at least two flash pages, {least}", self.write_buffer_bytes);
            return fail("write_buffer_bytes", what);
        }
        if !(0.0..0.9).contains(&self.over_provisioning) {
            return fail("over_provisioning", format!("is {}, must be 0 to 0.9", self.over_provisioning));
        }
        if self.gc_stall_superblocks < 2 || self.gc_low_superblocks <= self.gc_stall_superblocks {
            let what = format!(
                "is {}, must be 2 or more and below gc_low_superblocks, {}",
                self.gc_stall_superblocks, self.gc_low_superblocks
            );
            return fail("gc_stall_superblocks", what);
        }
        let needed = self.gc_low_superblocks + OPEN_SUPERBLOCKS + 2;
        if geometry.blocks_per_unit() <= needed {
            let what = format!(
                "is {}; the drive has {} superblocks, must have more than {needed}",
                self.gc_low_superblocks,
                geometry.blocks_per_unit()
            );
            return fail("gc_low_superblocks", what);
        }
        if !(1..=256).contains(&self.max_probes) {
            return fail("max_probes", format!("is {}, must be 1 to 256", self.max_probes));
        }
        if self.gc_workers == 0 {
            return fail("gc_workers", "is 0, must be at least 1".into());
        }
        Ok(())
    }
}
