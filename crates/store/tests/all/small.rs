//! Small stores, so that a short test fills, cleans, merges, splits and checkpoints them.

use kvdrive_store::hashlog::WriteMode;
use kvdrive_store::{STORES, StoreOptions, StoreRow};

/// A store of the table with options and pages for it.
pub struct Small {
    pub row: &'static StoreRow,
    pub label: &'static str,
    pub options: StoreOptions,
    pub page_bytes: u32,
    pub pages: u64,
}

/// Every store in every variant. A row that is not known here comes with its defaults.
pub fn all() -> Vec<Small> {
    STORES.iter().flat_map(variants).collect()
}

fn variants(row: &'static StoreRow) -> Vec<Small> {
    let mut options = StoreOptions::default();
    let small = |label, options: &StoreOptions, page_bytes, pages| Small {
        row,
        label,
        options: options.clone(),
        page_bytes,
        pages,
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
        "btree" => {
            options.btree.buffer_bytes = 16 * 512;
            options.btree.checkpoint_bytes = 6000;
            vec![small("small buffer", &options, 512, 20 * 8)]
        }
        _ => vec![small("default", &options, 4096, 1 << 16)],
    }
}
