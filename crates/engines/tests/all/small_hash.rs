//! Small drives for hash FTLs.

use kvdrive_engines::firmware::CopyCosts;
use kvdrive_engines::hash::{Accounting, HashConfig, HashCosts, Omissions, SchemeRow, SecondChance};
use kvdrive_flash::{FlashConfig, TimingConfig};

pub fn flash_config() -> FlashConfig {
    FlashConfig {
        channels: 2,
        dies_per_channel: 2,
        planes: 1,
        blocks_per_die: 32,
        pages_per_block: 8,
        page_bytes: 4096,
        spare_bytes: 256,
        spare_blocks: 0,
        factory_bad_blocks: 0,
        read_retries: 0,
        read_retry_ns: 0,
        sense_ns: 36_000,
        program_ns: 185_000,
        erase_ns: 1_000_000,
        transfer_ns_per_kib: 1200,
        timing: TimingConfig::default(),
        enabled: true,
        uncharged: Vec::new(),
    }
}

pub fn hash_config(scheme: &SchemeRow) -> HashConfig {
    HashConfig {
        grain_bytes: scheme.grain_bytes,
        unit_bytes: 1024,
        write_buffer_bytes: 64 << 10,
        dram_bytes: 6 << 10,
        dram_accounting: Accounting::Published,
        over_provisioning: 0.1,
        gc_low_superblocks: 6,
        gc_stall_superblocks: 3,
        gc_workers: 4,
        gc_skips_dead_units: false,
        max_probes: 64,
        hash_bits: 64,
        discard_invalid: true,
        section_weight: 0,
        second_chance: SecondChance::Usual,
        omissions: Omissions::default(),
        costs: HashCosts {
            probe_ns: 300,
            comparison_ns: 5,
            compare_key_ns: 100,
            collision_ns: 0,
            gc_item_ns: 200,
            dead_item_ns: 0,
            evict_ns: 400,
            copy: CopyCosts { setup_ns: 50, ns_per_kib: 250 },
        },
    }
}
