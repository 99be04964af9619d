//! Layout of the attention keys and values of a block of tokens in pairs: one object, one object per layer,
//! or chunks with a manifest. The cache decides which blocks there are.

use kvdrive_nvme::Key;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::eviction::BlockId;
use super::models::Model;

/// Unit to which Mooncake's backend rounds a chunk or a root up, bytes; the padding is stored.
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

/// The content of a block that a layout divides into pairs.
#[derive(Clone, Copy)]
struct Content {
    layers: u64,
    layer_bytes: u64,
    /// Largest value of a chunk or a root.
    chunk_bytes: u64,
}

/// One layout of a block.
pub struct LayoutRow {
    /// Its name in `workload.cache_objects`.
    pub name: &'static str,
    /// What it does and which systems use it, in one line.
    pub origin: &'static str,
    /// Sizes of the pairs of a block in the order in which they are stored.
    sizes: fn(Content) -> Vec<u64>,
    /// Is the pair that is stored last read first, because it names the others?
    pub has_root: bool,
}

/// Every layout.
pub static LAYOUTS: &[LayoutRow] = &[
    LayoutRow {
        name: "block",
        origin: "all layers of a block in one object (LMCache; Mooncake's bucket files)",
        sizes: |content| vec![content.layers * content.layer_bytes],
        has_root: false,
    },
    LayoutRow {
        name: "layer",
        origin: "an object for each layer of a block (LMCache, layer by layer)",
        sizes: |content| vec![content.layer_bytes; content.layers as usize],
        has_root: false,
    },
    LayoutRow {
        name: "chunk",
        origin: "chunks, then a root with their manifest, in units of 4 KiB (Mooncake's NVMe KV backend)",
        sizes: |content| chunked(content, PADDED_BYTES),
        has_root: true,
    },
    LayoutRow {
        name: "chunk-exact",
        origin: "as chunk, without padding, which a drive for values of any length does not need",
        sizes: |content| chunked(content, 1),
        has_root: true,
    },
];

/// An object that fits into the root is stored in it. The last chunk and the root are rounded up to `unit`
/// bytes.
fn chunked(content: Content, unit: u64) -> Vec<u64> {
    let Content { layers, layer_bytes, chunk_bytes } = content;
    let (bytes, head) = (layers * layer_bytes, ROOT_HEAD_BYTES + LOGICAL_KEY_BYTES);
    if bytes <= chunk_bytes - head {
        return vec![(head + bytes).next_multiple_of(unit)];
    }
    let chunks = bytes.div_ceil(chunk_bytes);
    let last = bytes - (chunks - 1) * chunk_bytes;
    let root = head + MANIFEST_HEAD_BYTES + MANIFEST_ENTRY_BYTES * chunks;
    let mut sizes = vec![chunk_bytes; chunks as usize - 1];
    sizes.extend([last, root].map(|bytes| bytes.next_multiple_of(unit)));
    sizes
}

/// How a block is divided into pairs.
#[derive(Clone, Copy)]
pub struct Shape {
    pub layout: &'static LayoutRow,
    pub model: &'static Model,
    /// Divisor of the bytes of a token; at least one byte remains for each layer.
    pub shrink: u64,
    /// Largest value of a chunk.
    pub chunk_bytes: u64,
}

impl Shape {
    /// The pairs of a block of `tokens` tokens, in the order in which they are stored.
    pub fn objects(&self, block: BlockId, tokens: u64) -> Vec<Object> {
        let layer_bytes = (self.model.layer_bytes(tokens) / self.shrink).max(1);
        let content = Content { layers: self.model.layers, layer_bytes, chunk_bytes: self.chunk_bytes };
        let key = |index| Key::new(&xxh3_128_with_seed(&block.to_be_bytes(), index).to_be_bytes());
        let objects = (self.layout.sizes)(content).into_iter().zip(0..);
        objects.map(|(bytes, index)| Object { key: key(index).expect("16 B are a key"), bytes }).collect()
    }
}

impl Shape {
    /// Bytes of the pairs of a block of `tokens` tokens at the model's size.
    pub fn model_bytes(&self, tokens: u64) -> u64 {
        let Model { layers, .. } = *self.model;
        let layer_bytes = self.model.layer_bytes(tokens);
        (self.layout.sizes)(Content { layers, layer_bytes, chunk_bytes: self.chunk_bytes }).into_iter().sum()
    }
}

impl LayoutRow {
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

    const CHUNK_BYTES: u64 = 264 << 10;

    fn shape(layout: &str, model: &str) -> Shape {
        let layout = LAYOUTS.iter().find(|row| row.name == layout).unwrap();
        let model = MODELS.iter().find(|row| row.name == model).unwrap();
        Shape { layout, model, shrink: 1, chunk_bytes: CHUNK_BYTES }
    }

    fn sizes(layout: &str, model: &str, tokens: u64) -> Vec<u64> {
        shape(layout, model).objects(7, tokens).iter().map(|object| object.bytes).collect()
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
        let chunked =
            |layer_bytes, unit| chunked(Content { layers: 1, layer_bytes, chunk_bytes: CHUNK_BYTES }, unit);
        assert_eq!(chunked(4096 - 145, PADDED_BYTES), [4096]);
        assert_eq!(chunked(4096, PADDED_BYTES), [8192]);
        assert_eq!(chunked(4096, 1), [4096 + 145]);
        assert_eq!(chunked(CHUNK_BYTES, PADDED_BYTES), [CHUNK_BYTES, 4096]);
        assert_eq!(chunked(CHUNK_BYTES, 1), [CHUNK_BYTES, 145 + 8 + 24]);
        assert_eq!(chunked(CHUNK_BYTES + 5, 1), [CHUNK_BYTES, 5, 145 + 8 + 48]);
    }

    #[test]
    fn pairs_of_blocks_have_keys_of_their_own() {
        let shape = shape("layer", "llama-3.1-8b");
        let keys = |block| shape.objects(block, 512).into_iter().map(|object| object.key);
        let all: std::collections::BTreeSet<Key> = (0..100).flat_map(keys).collect();
        assert_eq!(all.len(), 100 * 32);
    }

    #[test]
    fn the_root_is_read_first_and_stored_last() {
        let shape = shape("chunk", "llama-3.1-8b");
        let objects = shape.objects(7, 512);
        let order: Vec<Object> = shape.layout.read_order(&objects).collect();
        assert_eq!(order[0], *objects.last().unwrap());
        assert_eq!(order[1..], objects[..objects.len() - 1]);
    }
}
