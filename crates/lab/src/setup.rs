//! From a configuration to the parts of a run: what each room wants to know of it.

use std::rc::Rc;

use kvdrive_device::dispatch::Dispatch;
use kvdrive_device::{DriveConfig, MediaConfig, controller};
use kvdrive_engines::firmware::{CopyCosts, Roles};
use kvdrive_engines::packing::{PackingConfig, PackingCosts};
use kvdrive_engines::page_buffer::Eviction;
use kvdrive_engines::{hash, lsm};
use kvdrive_flash::{self as flash, ftl};
use kvdrive_host::modelled::{Driver, Host, HostCosts};
use kvdrive_link::LinkConfig;
use kvdrive_link::transfer::{self, TransferConfig};

use crate::config::{self, Config};

/// The link.
pub fn link(config: &Config) -> LinkConfig {
    LinkConfig {
        generation: config.link.generation,
        lanes: config.link.lanes,
        max_payload_bytes: config.link.max_payload_bytes,
        dma_page_ns: config.link.dma_page_ns,
        sqe_fetch_ns: config.link.sqe_fetch_ns,
        cqe_write_ns: config.link.cqe_write_ns,
        doorbell_ns: config.link.doorbell_ns,
        interrupt: config.link.interrupt == "msix",
        dma_granularity_bytes: config.controller.dma_granularity_bytes,
        free_to_host: config.link.free_to_host,
        cxl_store_ns: config.link.cxl_store_ns,
        cxl_line_ns: config.link.cxl_line_ns,
    }
}

/// What host work costs.
pub fn host_costs(config: &Config) -> HostCosts {
    HostCosts {
        submit_ns: config.host.submit_ns,
        complete_ns: config.host.complete_ns,
        dma_setup_ns: config.host.dma_setup_ns,
        pin_page_ns: config.host.pin_page_ns,
        entry_ns: config.host.entry_ns,
        cxl_setup_ns: config.host.cxl_setup_ns,
    }
}

/// The transfer method and its thresholds.
pub fn transfer(config: &Config) -> TransferConfig {
    TransferConfig {
        method: config.host.transfer.clone(),
        threshold1_bytes: config.host.threshold1_bytes,
        threshold2_bytes: config.host.threshold2_bytes,
        alpha: config.host.alpha,
        beta: config.host.beta,
    }
}

/// One driver a queue pair, each for its share of the operations under way at once.
pub fn drivers(config: &Config, host: &Rc<Host>) -> anyhow::Result<Vec<Driver>> {
    let per_queue = config.host.depth.div_ceil(config.host.queues);
    (0..config.host.queues)
        .map(|_| {
            let method = transfer::method(&transfer(config))
                .ok_or_else(|| anyhow::anyhow!("host.transfer: no method {:?}", config.host.transfer))?;
            Ok(Driver::new(host, method, config.host.queue_entries, per_queue))
        })
        .collect()
}

/// For each task that runs at once, the number of its driver.
pub fn driver_of_each_task(config: &Config) -> impl Iterator<Item = usize> + use<> {
    let queues = config.host.queues as usize;
    (0..config.host.depth as usize).map(move |task| task % queues)
}

/// The drive.
pub fn drive(config: &Config) -> DriveConfig {
    let (controller, lsm, flash) = (&config.controller, &config.lsm, &config.flash);
    DriveConfig {
        engine: config.engine.name.clone(),
        controller: controller::ControllerConfig {
            dispatch: dispatch(controller),
            max_value_bytes: controller.max_value_bytes,
            iterators: lsm.iterators,
            costs: costs(config),
        },
        flash: flash::FlashConfig {
            channels: flash.channels,
            dies_per_channel: flash.dies_per_channel,
            planes: flash.planes,
            blocks_per_die: flash.blocks_per_die,
            pages_per_block: flash.pages_per_block,
            page_bytes: flash.page_bytes,
            spare_bytes: flash.spare_bytes,
            sense_ns: flash.sense_ns,
            program_ns: flash.program_ns,
            erase_ns: flash.erase_ns,
            transfer_ns_per_kib: flash.transfer_ns_per_kib,
            timing: timing(flash),
            enabled: config.nand.enabled,
            uncharged: flash
                .uncharged
                .iter()
                .map(|text| text.parse().expect("the rule of the key has parsed it"))
                .collect(),
        },
        ftl: ftl::FtlConfig {
            over_provisioning: config.ftl.over_provisioning,
            victim: config.ftl.victim.clone(),
            gc_low_blocks: config.ftl.gc_low_blocks,
        },
        lsm: lsm_engine(config),
        hash: hash_engine(config),
        protected_bytes: config.power.protected_bytes,
        media: MediaConfig {
            kind: config.media.kind.clone(),
            path: (!config.media.path.is_empty()).then(|| config.media.path.clone().into()),
            sync: config.media.sync,
        },
        seed: config.run.seed,
    }
}

fn dispatch(controller: &config::Controller) -> Dispatch {
    let roles = match controller.roles.as_str() {
        "own" => Roles::Own,
        _ => Roles::Any(controller.cores),
    };
    match controller.dispatch.as_str() {
        "round-robin" => {
            Dispatch::RoundRobin { io_threads: controller.io_threads, deal_ns: controller.deal_ns }
        }
        _ => Dispatch::Context { contexts: controller.contexts, roles },
    }
}

fn timing(flash: &config::Flash) -> flash::TimingConfig {
    flash::TimingConfig {
        name: flash.timing.clone(),
        flat: flash::timing::flat::FlatConfig {
            read_latency_ns: flash.flat.read_latency_ns,
            read_mib_s: flash.flat.read_mib_s,
            write_latency_ns: flash.flat.write_latency_ns,
            write_mib_s: flash.flat.write_mib_s,
        },
    }
}

fn costs(config: &Config) -> controller::Costs {
    let controller = &config.controller;
    controller::Costs {
        decode_store_ns: controller.decode_store_ns,
        decode_transfer_ns: controller.decode_transfer_ns,
        decode_other_ns: controller.decode_other_ns,
        copy: copy_costs(config),
        unpack_ns: controller.unpack_ns,
        complete_ns: controller.complete_ns,
    }
}

fn copy_costs(config: &Config) -> CopyCosts {
    let controller = &config.controller;
    CopyCosts { setup_ns: controller.memcpy_setup_ns, ns_per_kib: controller.memcpy_ns_per_kib }
}

fn hash_engine(config: &Config) -> hash::HashConfig {
    let hash = &config.hash;
    hash::HashConfig {
        grain_bytes: hash.grain_bytes,
        unit_bytes: hash.unit_bytes,
        write_buffer_bytes: hash.write_buffer_bytes,
        dram_bytes: hash.dram_bytes,
        dram_accounting: match hash.dram_accounting.as_str() {
            "total" => hash::Accounting::Total,
            _ => hash::Accounting::Published,
        },
        over_provisioning: hash.over_provisioning,
        gc_low_superblocks: hash.gc_low_superblocks,
        gc_stall_superblocks: hash.gc_stall_superblocks,
        gc_workers: hash.gc_workers,
        max_probes: hash.max_probes,
        hash_bits: hash.hash_bits,
        discard_invalid: hash.discard_invalid,
        wait_for_program: hash.wait_for_program,
        costs: hash::HashCosts {
            probe_ns: hash.probe_ns,
            comparison_ns: hash.comparison_ns,
            compare_key_ns: hash.compare_key_ns,
            collision_ns: hash.collision_ns,
            gc_item_ns: hash.gc_item_ns,
            evict_ns: hash.evict_ns,
            copy: copy_costs(config),
        },
    }
}

/// With `wait` a store that opens a page waits for a program; otherwise programs run side by side, and what a
/// page costs is its share of what they share.
fn packing_costs(config: &Config) -> PackingCosts {
    let flash = &config.flash;
    let (alone_ns, share_ns) = match flash.timing.as_str() {
        "flat" => {
            let line_ns = timing(flash).flat.write_line_ns(flash.page_bytes);
            (flash.flat.write_latency_ns + line_ns, line_ns)
        }
        _ => {
            let moved_bytes = u64::from(flash.page_bytes + flash.spare_bytes);
            let transfer_ns = moved_bytes * flash.transfer_ns_per_kib / 1024;
            let (channels, dies) =
                (u64::from(flash.channels), u64::from(flash.channels * flash.dies_per_channel));
            (flash.program_ns + transfer_ns, (flash.program_ns / dies).max(transfer_ns / channels))
        }
    };
    PackingCosts {
        copy: copy_costs(config),
        page_ns: if config.buffer.eviction == "overlap" { share_ns } else { alone_ns },
    }
}

fn lsm_engine(config: &Config) -> lsm::LsmConfig {
    lsm::LsmConfig {
        buffer_entries: config.buffer.entries,
        eviction: match config.buffer.eviction.as_str() {
            "overlap" => Eviction::Overlap,
            _ => Eviction::Wait,
        },
        packing: PackingConfig {
            policy: config.packing.policy.clone(),
            dlt_entries: config.packing.dlt_entries,
            costs: packing_costs(config),
        },
        index: lsm::IndexConfig {
            layout: config.lsm.layout.clone(),
            memtable_entries: config.lsm.memtable_entries,
            bloom_bits_per_key: config.lsm.bloom_bits_per_key,
            bloom_hashes: config.lsm.bloom_hashes,
            compaction: config.lsm.compaction.clone(),
            rings: config.lsm.rings.to_vec(),
            memtable_insert_ns: config.controller.index_insert_ns,
            index_probe_ns: config.controller.index_probe_ns,
            table_entry_ns: config.lsm.table_entry_ns,
        },
        gc: lsm::GcConfig {
            enabled: config.gc.enabled,
            segment_pages: config.gc.segment_pages,
            free_segments_low: config.gc.free_segments_low,
            free_segments_reserved: config.gc.free_segments_reserved,
        },
    }
}
