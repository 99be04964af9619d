//! Small stores, so that a short test fills, cleans, merges, splits and checkpoints them.

use kvdrive_store::hashlog::WriteMode;
use kvdrive_store::{STORES, StoreOptions, StoreRow};

/// A store of the table with options and pages for it.
#[derive(Clone)]
pub struct Small {
    pub row: &'static StoreRow,
    pub label: &'static str,
    pub options: StoreOptions,
    pub page_bytes: u32,
    pub pages: u64,
    /// A full store takes puts again after pairs were deleted. One that merges does not always: a merge of
    /// many deletes with the pairs that they delete may need more room than there is.
    pub has_room_at_once: bool,
}

/// Every store in every variant. A row without variants here has its defaults.
pub fn all() -> Vec<Small> {
    STORES.iter().flat_map(variants).collect()
}

/// Options with which every store takes the longest values there are on 256 MiB.
pub fn for_long_values() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.lsmtree.write_buffer_size = 4 << 20;
    options.lsmtree.max_bytes_for_level_base = 8 << 20;
    options.lsmtree.target_file_size_base = 2 << 20;
    options
}

fn variants(row: &'static StoreRow) -> Vec<Small> {
    let mut options = StoreOptions::default();
    let small = |label, options: &StoreOptions, page_bytes, pages| Small {
        row,
        label,
        options: options.clone(),
        page_bytes,
        pages,
        has_room_at_once: !row.reclaims.contains(&"merges"),
    };
    match row.name {
        "hashlog" => {
            options.hashlog.block_bytes = 512;
            options.hashlog.segment_bytes = 8 * 512;
            let wait = small("wait", &options, 512, 20 * 8);
            options.hashlog.block_bytes = 2 * 512;
            options.hashlog.write = WriteMode::Overlap;
            options.hashlog.blocks_under_way = 3;
            vec![wait, small("overlap", &options, 512, 20 * 8)]
        }
        "lsmtree" => {
            let lsmtree = &mut options.lsmtree;
            lsmtree.write_buffer_size = 2048;
            lsmtree.level0_file_num_compaction_trigger = 2;
            lsmtree.level0_slowdown_writes_trigger = 4;
            lsmtree.level0_stop_writes_trigger = 6;
            lsmtree.max_bytes_for_level_base = 8192;
            lsmtree.max_bytes_for_level_multiplier = 4;
            lsmtree.target_file_size_base = 4096;
            lsmtree.block_size = 512;
            let bare = small("bare", &options, 512, 960);
            options.lsmtree.bloom_bits = 10;
            options.lsmtree.row_cache_bytes = 4000;
            options.lsmtree.block_cache_bytes = 4 * 512;
            options.lsmtree.block_size = 1024;
            options.lsmtree.max_write_buffer_number = 3;
            let caches = small("filter and cache", &options, 512, 1000);
            options.lsmtree.wal = false;
            vec![bare, caches, small("no log", &options, 512, 1000)]
        }
        "btree" => {
            options.btree.buffer_bytes = 16 * 512;
            options.btree.checkpoint_bytes = 6000;
            vec![small("small buffer", &options, 512, 20 * 8)]
        }
        _ => vec![small("default", &options, 4096, 1 << 10)],
    }
}
