//! Layout of the attention keys and values of a block of tokens in pairs: one object, one object per layer,
//! or chunks with a manifest. The cache decides which blocks there are.

use kvdrive_spec::Key;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::eviction::BlockId;
use super::models::Model;

/// The largest value of a chunk, bytes: Mooncake's NVMe KV backend takes 264 KiB, rounded down to 4 KiB.
const CHUNK_BYTES: u64 = 270_336;
/// Unit to which a chunk or a root is rounded up, bytes; the padding is stored.
const PADDED_BYTES: u64 = 4096;
/// Header and identity of a root in front of an object's logical key, bytes.
const ROOT_HEAD_BYTES: u64 = 81;
/// The logical key, bytes: 64 hexadecimal digits of a digest, as caches name blocks. This choice is
/// kvdrive's; the backend takes any.
const LOGICAL_KEY_BYTES: u64 = 64;
/// A manifest: its head and each chunk's entry, bytes.
const MANIFEST_HEAD_BYTES: u64 = 8;
const MANIFEST_ENTRY_BYTES: u64 = 24;

/// One pair of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key, 16 B.
    pub key: Key,
    /// Length of its value in bytes.
    pub bytes: u64,
}

/// One layout of a block.
pub struct LayoutRow {
    /// Its name in `workload.cache_objects`.
    pub name: &'static str,
    /// What it does and which systems use it, in one line.
    pub origin: &'static str,
    /// Sizes of the pairs of a block in the order in which they are stored, for `(layers, bytes of a layer)`.
    sizes: fn(u64, u64) -> Vec<u64>,
    /// Is the pair that is stored last read first, because it names the others?
    pub has_root: bool,
}

/// Every layout.
pub const LAYOUTS: &[LayoutRow] = &[
    LayoutRow {
        name: "block",
        origin: "all layers of a block in one object (LMCache; Mooncake's bucket files)",
        sizes: |layers, layer_bytes| vec![layers * layer_bytes],
        has_root: false,
    },
    LayoutRow {
        name: "layer",
        origin: "an object for each layer of a block (LMCache, layer by layer)",
        sizes: |layers, layer_bytes| vec![layer_bytes; layers as usize],
        has_root: false,
    },
    LayoutRow {
        name: "chunk",
        origin: "chunks of 264 KiB, then a root with their manifest (Mooncake's NVMe KV backend)",
        sizes: chunked,
        has_root: true,
    },
];

fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(PADDED_BYTES)
}

/// An object that fits into the root is stored in it.
fn chunked(layers: u64, layer_bytes: u64) -> Vec<u64> {
    let (bytes, head) = (layers * layer_bytes, ROOT_HEAD_BYTES + LOGICAL_KEY_BYTES);
    if bytes <= CHUNK_BYTES - head {
        return vec![padded(head + bytes)];
    }
    let chunks = bytes.div_ceil(CHUNK_BYTES);
    let last = bytes - (chunks - 1) * CHUNK_BYTES;
    let mut sizes = vec![CHUNK_BYTES; chunks as usize - 1];
    sizes.extend([padded(last), padded(head + MANIFEST_HEAD_BYTES + MANIFEST_ENTRY_BYTES * chunks)]);
    sizes
}

impl LayoutRow {
    /// The pairs of a block of `tokens` tokens of `model`, in the order in which they are stored. Sizes are those
    /// of a model with `shrink` times fewer bytes a token, at least one byte a layer.
    pub fn objects(&self, block: BlockId, tokens: u64, model: &Model, shrink: u64) -> Vec<Object> {
        let layer_bytes = (tokens * model.layer_token_bytes() / shrink).max(1);
        let sizes = (self.sizes)(model.layers, layer_bytes);
        let key = |index| Key::new(&xxh3_128_with_seed(&block.to_be_bytes(), index).to_be_bytes());
        let objects = sizes.into_iter().zip(0..);
        objects.map(|(bytes, index)| Object { key: key(index).expect("16 B are a key"), bytes }).collect()
    }

    /// The order in which a reader requests the pairs of a block.
    pub fn read_order(&self, objects: &[Object]) -> impl Iterator<Item = Object> {
        let roots = if self.has_root { objects.len() - 1..objects.len() } else { 0..0 };
        let (root, others) =
            (objects[roots.clone()].to_vec(), objects[..objects.len() - roots.len()].to_vec());
        root.into_iter().chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::MODELS;
    use super::*;

    fn sizes(layout: &str, model: &str, tokens: u64) -> Vec<u64> {
        let layout = LAYOUTS.iter().find(|row| row.name == layout).unwrap();
        let model = MODELS.iter().find(|row| row.name == model).unwrap();
        layout.objects(7, tokens, model, 1).iter().map(|object| object.bytes).collect()
    }

    #[test]
    fn a_block_has_the_chunks_that_mooncake_makes_of_it() {
        for (model, chunks) in [("llama-3.1-8b", 249), ("llama-3.1-70b", 621), ("deepseek-v3", 134)] {
            assert_eq!(sizes("chunk", model, 512).len(), chunks + 1, "{model}");
        }
        assert_eq!(sizes("block", "llama-3.1-8b", 512), [64 << 20]);
        assert_eq!(sizes("layer", "llama-3.1-8b", 512), [2 << 20; 32]);
    }

    #[test]
    fn a_small_object_lies_in_its_root() {
        assert_eq!(chunked(1, 4096 - 145), [4096]);
        assert_eq!(chunked(1, 4096), [8192]);
        assert_eq!(chunked(1, CHUNK_BYTES), [CHUNK_BYTES, 4096]);
    }

    #[test]
    fn pairs_of_blocks_have_keys_of_their_own() {
        let keys = |block| LAYOUTS[1].objects(block, 512, &MODELS[0], 1).into_iter().map(|object| object.key);
        let all: std::collections::BTreeSet<Key> = (0..100).flat_map(keys).collect();
        assert_eq!(all.len(), 100 * 32);
    }

    #[test]
    fn the_root_is_read_first_and_stored_last() {
        let objects = LAYOUTS[2].objects(7, 512, &MODELS[0], 1);
        let order: Vec<Object> = LAYOUTS[2].read_order(&objects).collect();
        assert_eq!(order[0], *objects.last().unwrap());
        assert_eq!(order[1..], objects[..objects.len() - 1]);
    }
}
