//! The typed configuration: one struct a section of the document. Plain data; sources and defaults stand in
//! `profiles/`.

use kvdrive_flash::media::kind;
use serde::{Deserialize, Serialize};

use crate::workload::WorkloadParams;

/// Everything a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// PCIe.
    pub link: Link,
    /// The machine that asks.
    pub host: Host,
    /// Index and value placement.
    pub engine: Engine,
    /// Firmware and its cores.
    pub controller: Controller,
    /// Power-protected NAND page buffer.
    pub buffer: Buffer,
    /// Where values land in a page.
    pub packing: Packing,
    /// The index.
    pub lsm: Lsm,
    /// NAND.
    pub flash: Flash,
    /// Flash translation.
    pub ftl: Ftl,
    /// Garbage collection of the value log.
    pub gc: Gc,
    /// Engines that are hash FTLs.
    pub hash: Hash,
    /// What survives a power cut.
    pub power: Power,
    /// Where pages are kept.
    pub media: Media,
    /// Whether flash operations happen.
    pub nand: Nand,
    /// The run itself.
    pub run: Run,
    /// What is asked of the drive.
    pub workload: WorkloadParams,
}

/// `[link]`: PCIe as bytes and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// PCIe generation.
    pub generation: u32,
    /// Lanes.
    pub lanes: u32,
    /// Largest TLP payload in bytes.
    pub max_payload_bytes: u32,
    /// Time of a DMA page, or of any part of one, beyond its line time.
    pub dma_page_ns: u64,
    /// Fetch of one submission entry, besides line time.
    pub sqe_fetch_ns: u64,
    /// Write of one completion entry, besides line time.
    pub cqe_write_ns: u64,
    /// Way of a doorbell, besides line time.
    pub doorbell_ns: u64,
    /// `none` or `msix`.
    pub interrupt: String,
    /// Whether data to the host takes no time.
    pub free_to_host: bool,
    /// Store by CXL.mem and its flush, line time included: this,
    pub cxl_store_ns: u64,
    /// and this for each cache line.
    pub cxl_line_ns: u64,
}

/// `[host]`: the machine that asks, and its driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Cores.
    pub cores: u32,
    /// Work before a command is rung.
    pub submit_ns: u64,
    /// Work behind a completion.
    pub complete_ns: u64,
    /// Setting the DMA transfer of a store up; a retrieve pays none.
    pub dma_setup_ns: u64,
    /// Pinning a page of a store and naming it to the drive.
    pub pin_page_ns: u64,
    /// Each further entry or completion of one doorbell.
    pub entry_ns: u64,
    /// Work before a store by CXL.mem.
    pub cxl_setup_ns: u64,
    /// Work between two operations.
    pub think_ns: u64,
    /// Queue pairs.
    pub queues: u32,
    /// Entries of a queue.
    pub queue_entries: u32,
    /// Operations under way at once, over all queues.
    pub depth: u32,
    /// Transfer method.
    pub transfer: String,
    /// Below `alpha` times this a value is piggybacked.
    pub threshold1_bytes: u32,
    /// Below `beta` times this a tail is piggybacked behind its pages.
    pub threshold2_bytes: u32,
    /// User's factor on the first threshold.
    pub alpha: f64,
    /// User's factor on the second threshold.
    pub beta: f64,
}

/// `[engine]`: index and value placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Name in the device's table of engines.
    pub name: String,
}

/// `[controller]`: firmware cores and what their work costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// `context` or `round-robin`.
    pub dispatch: String,
    /// Commands worked on at once, under `context`.
    pub contexts: u32,
    /// Firmware cores.
    pub cores: u32,
    /// `any` or `own`.
    pub roles: String,
    /// Under `round-robin`: threads that run commands.
    pub io_threads: u32,
    /// Under `round-robin`: dealing a command to one of them.
    pub deal_ns: u64,
    /// Decoding a store or write.
    pub decode_store_ns: u64,
    /// Decoding a transfer.
    pub decode_transfer_ns: u64,
    /// Decoding any other command.
    pub decode_other_ns: u64,
    /// Inserting into the memtable; hash engines have none.
    pub index_insert_ns: u64,
    /// Probing the memtable or one table; hash engines have none.
    pub index_probe_ns: u64,
    /// Copying 1 KiB.
    pub memcpy_ns_per_kib: u64,
    /// Beginning a copy.
    pub memcpy_setup_ns: u64,
    /// Taking a request out of a batch and checking it.
    pub unpack_ns: u64,
    /// Posting a completion.
    pub complete_ns: u64,
    /// Longest value in bytes.
    pub max_value_bytes: u32,
    /// What DMA lengths are rounded up to, in bytes.
    pub dma_granularity_bytes: u32,
}

/// `[buffer]`: the NAND page buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// NAND pages.
    pub entries: u32,
    /// `wait` or `overlap`.
    pub eviction: String,
}

/// `[packing]`: where values land in a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packing {
    /// Packing policy.
    pub policy: String,
    /// Entries of the DMA log table.
    pub dlt_entries: u32,
}

/// `[lsm]`: the index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lsm {
    /// `published` or `sound`.
    pub layout: String,
    /// Entries of the memtable.
    pub memtable_entries: u32,
    /// Bloom filter bits a key.
    pub bloom_bits_per_key: u32,
    /// Bloom filter probes.
    pub bloom_hashes: u32,
    /// `tiered` or `leveled`.
    pub compaction: String,
    /// Tables of each level.
    pub rings: [u32; 4],
    /// Writing one entry into a table.
    pub table_entry_ns: u64,
    /// Iterators open at once.
    pub iterators: u32,
}

/// `[flash]`: geometry and times of the NAND.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Channels.
    pub channels: u32,
    /// Dies of a channel.
    pub dies_per_channel: u32,
    /// Planes of a die.
    pub planes: u32,
    /// Blocks of a die, over all planes.
    pub blocks_per_die: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Spare bytes of a page.
    pub spare_bytes: u32,
    /// Name in the device's table of timings.
    pub timing: String,
    /// Cell array to register.
    pub sense_ns: u64,
    /// Register to cell array.
    pub program_ns: u64,
    /// Erasing a block.
    pub erase_ns: u64,
    /// Channel time for 1 KiB.
    pub transfer_ns_per_kib: u64,
    /// Operations that take no time.
    pub uncharged: Vec<String>,
    /// What timing `flat` looks at.
    pub flat: FlatFlash,
}

/// `[flash.flat]`: flash as two latencies and two bandwidths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlatFlash {
    /// What a read takes besides its bytes.
    pub read_latency_ns: u64,
    /// What all reads together move, MiB a second.
    pub read_mib_s: u32,
    /// What a program takes besides its bytes.
    pub write_latency_ns: u64,
    /// What all programs together move, MiB a second.
    pub write_mib_s: u32,
}

impl Flash {
    /// Pages of the whole drive.
    pub fn pages(&self) -> u64 {
        [self.channels, self.dies_per_channel, self.blocks_per_die, self.pages_per_block]
            .into_iter()
            .map(u64::from)
            .product()
    }
}

/// `[ftl]`: flash translation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ftl {
    /// Share of the blocks that is not address space.
    pub over_provisioning: f64,
    /// `greedy` or `cost-benefit`.
    pub victim: String,
    /// Collection runs while a die has fewer free blocks.
    pub gc_low_blocks: u32,
}

/// `[gc]`: garbage collection of the value log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gc {
    /// Whether it runs.
    pub enabled: bool,
    /// NAND pages of a segment.
    pub segment_pages: u32,
    /// Collection runs while fewer segments are free.
    pub free_segments_low: u32,
    /// Stores wait while no more are free.
    pub free_segments_reserved: u32,
}

/// `[hash]`: engines that are hash FTLs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hash {
    /// Bytes of a grain; 0: as published.
    pub grain_bytes: u32,
    /// Bytes of a read unit.
    pub unit_bytes: u32,
    /// Power-protected buffer of pairs, bytes.
    pub write_buffer_bytes: u64,
    /// DRAM budget, bytes.
    pub dram_bytes: u64,
    /// `published` or `total`.
    pub dram_accounting: String,
    /// Share of the superblocks that stays free.
    pub over_provisioning: f64,
    /// Collection runs while so many superblocks are free, or fewer.
    pub gc_low_superblocks: u32,
    /// Commands wait while no more are free.
    pub gc_stall_superblocks: u32,
    /// Pages of a victim worked on at once.
    pub gc_workers: u32,
    /// Slots of a probe sequence.
    pub max_probes: u32,
    /// Bits of the hash that count.
    pub hash_bits: u32,
    /// Whether media may forget dead pages.
    pub discard_invalid: bool,
    /// Whether a store that fills a page waits for its program.
    pub wait_for_program: bool,
    /// Finding a section.
    pub probe_ns: u64,
    /// One comparison within a section.
    pub comparison_ns: u64,
    /// Comparing a key with one from flash.
    pub compare_key_ns: u64,
    /// What else a pair of another key costs.
    pub collision_ns: u64,
    /// Collecting one pair or section.
    pub gc_item_ns: u64,
    /// Writing one altered section.
    pub evict_ns: u64,
}

/// `[power]`: what survives a power cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Protected bytes.
    pub protected_bytes: u64,
}

/// `[media]`: where pages are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Media {
    /// `tags`, `ram` or `file`.
    pub kind: String,
    /// Path of the image, for `file`.
    pub path: String,
    /// Does a store survive the death of the host too, not only of the process?
    pub sync: bool,
}

impl Media {
    /// Is the drive in a file of the machine's?
    pub fn has_file(&self) -> bool {
        kind(&self.kind).is_some_and(|kind| kind.has_file)
    }
}

/// `[nand]`: whether flash operations happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nand {
    /// Whether they do.
    pub enabled: bool,
}

/// `[run]`: the run itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Seed of every random stream.
    pub seed: u64,
    /// `virtual` or `wall`.
    pub clock: String,
}
