//! Options of `btree`.

use kvdrive_declare::Section;

/// Options of `btree`.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("btree")]
pub struct BtreeOptions {
    /// Bytes of nodes that are kept in memory, changed ones included.
    #[setting(is = Integer(0, 1 << 40), shrinks)]
    pub buffer_bytes: u64,
    /// Bytes of pairs that are put or deleted between two checkpoints.
    #[setting(is = Integer(1, 1 << 40), shrinks)]
    pub checkpoint_bytes: u64,
}

impl Default for BtreeOptions {
    fn default() -> Self {
        BtreeOptions { buffer_bytes: 64 << 20, checkpoint_bytes: 64 << 20 }
    }
}

/// Nodes that one change may need in memory, with a margin.
pub const LEAST_NODES: u64 = 16;
/// Least number of pages of a tree: root slots, shadow copies, and pairs.
const LEAST_PAGES: u64 = 128;

impl BtreeOptions {
    /// Checks the options for this number of pages. Errors: a line that begins with the key of an option.
    pub fn check(&self, page_bytes: u32, pages: u64) -> Result<(), String> {
        let least = LEAST_NODES * u64::from(page_bytes);
        if self.buffer_bytes < least {
            return Err(format!(
                "buffer_bytes: {} is less than {LEAST_NODES} nodes, {least}",
                self.buffer_bytes
            ));
        }
        if self.checkpoint_bytes == 0 {
            return Err("checkpoint_bytes: there is nothing to write every 0 bytes".into());
        }
        if pages < LEAST_PAGES {
            return Err(format!(
                "buffer_bytes: {pages} pages are too few for a tree, which needs {LEAST_PAGES}"
            ));
        }
        if pages > u32::MAX.into() {
            return Err(format!("buffer_bytes: {pages} pages are more than this store can number"));
        }
        Ok(())
    }
}
