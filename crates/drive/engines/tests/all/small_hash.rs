//! Small drives for hash FTLs.

use kvdrive_engines::firmware::CopyCosts;
use kvdrive_engines::hash::{HashConfig, HashCosts, SchemeRow};
use kvdrive_flash::FlashConfig;

pub fn flash_config() -> FlashConfig {
    FlashConfig {
        channels: 2,
        dies_per_channel: 2,
        blocks_per_die: 32,
        pages_per_block: 8,
        spare_bytes: 256,
        sense_ns: 36_000,
        program_ns: 185_000,
        erase_ns: 1_000_000,
        transfer_ns_per_kib: 1200,
        ..FlashConfig::default()
    }
}

pub fn hash_config(scheme: &SchemeRow) -> HashConfig {
    HashConfig {
        grain_bytes: scheme.grain_bytes,
        unit_bytes: 1024,
        write_buffer_bytes: 64 << 10,
        dram_bytes: 6 << 10,
        over_provisioning: 0.1,
        gc_low_superblocks: 6,
        gc_stall_superblocks: 3,
        gc_workers: 4,
        max_probes: 64,
        hash_bits: 64,
        discard_invalid: true,
        costs: HashCosts {
            probe_ns: 300,
            comparison_ns: 5,
            compare_key_ns: 100,
            gc_item_ns: 200,
            evict_ns: 400,
            copy: CopyCosts { setup_ns: 50, ns_per_kib: 250 },
            ..HashCosts::default()
        },
        ..HashConfig::default()
    }
}
