//! Language models and the bytes of attention keys and values that a token of each takes.
//!
//! A token takes 2 (key and value) x layers x heads x head size x 2 bytes (BF16); a model with latent attention
//! keeps one tensor, layers x (rank + rotary part) x 2 bytes. The numbers are those of the models' public
//! configuration files.

/// Bytes of one number of a tensor: BF16.
const NUMBER_BYTES: u64 = 2;

/// One language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name in `workload.cache_model`.
    pub name: &'static str,
    /// Its publisher, and the source of the numbers, in one line.
    pub origin: &'static str,
    /// Layers of attention.
    pub layers: u64,
    /// Numbers per layer and token, keys and values together.
    layer_numbers: u64,
}

/// Grouped-query attention: so many heads of such a size, keys and values.
const fn grouped(heads: u64, head_size: u64) -> u64 {
    2 * heads * head_size
}

/// Latent attention: one tensor of the rank and the rotary part.
const fn latent(rank: u64, rotary: u64) -> u64 {
    rank + rotary
}

/// Every model there is.
pub const MODELS: &[Model] = &[
    Model {
        name: "llama-3.1-8b",
        origin: "Llama 3.1 8B (config.json; Mistral 7B v0.3 has the same)",
        layers: 32,
        layer_numbers: grouped(8, 128),
    },
    Model {
        name: "llama-3.1-70b",
        origin: "Llama 3.1 70B (config.json; Qwen2.5 72B has the same)",
        layers: 80,
        layer_numbers: grouped(8, 128),
    },
    Model {
        name: "llama-3.1-405b",
        origin: "Llama 3.1 405B (copies of config.json)",
        layers: 126,
        layer_numbers: grouped(8, 128),
    },
    Model {
        name: "qwen2.5-7b",
        origin: "Qwen2.5 7B (config.json)",
        layers: 28,
        layer_numbers: grouped(4, 128),
    },
    Model { name: "qwen3-8b", origin: "Qwen3 8B (config.json)", layers: 36, layer_numbers: grouped(8, 128) },
    Model {
        name: "qwen3-32b",
        origin: "Qwen3 32B (config.json; Qwen2.5 32B has the same)",
        layers: 64,
        layer_numbers: grouped(8, 128),
    },
    Model {
        name: "gpt-oss-20b",
        origin: "gpt-oss 20B (copies of config.json), every layer whole",
        layers: 24,
        layer_numbers: grouped(8, 64),
    },
    Model {
        name: "gpt-oss-120b",
        origin: "gpt-oss 120B (copies of config.json), every layer whole",
        layers: 36,
        layer_numbers: grouped(8, 64),
    },
    Model {
        name: "deepseek-v3",
        origin: "DeepSeek V3 and R1, latent attention (config.json)",
        layers: 61,
        layer_numbers: latent(512, 64),
    },
];

impl Model {
    /// Bytes that one token takes in one layer.
    pub fn layer_token_bytes(&self) -> u64 {
        self.layer_numbers * NUMBER_BYTES
    }

    /// Bytes that one token takes.
    pub fn token_bytes(&self) -> u64 {
        self.layers * self.layer_token_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_takes_the_bytes_that_are_published() {
        let bytes = |name: &str| MODELS.iter().find(|model| model.name == name).unwrap().token_bytes();
        assert_eq!(bytes("llama-3.1-8b"), 131_072);
        assert_eq!(bytes("llama-3.1-70b"), 327_680);
        assert_eq!(bytes("llama-3.1-405b"), 516_096);
        assert_eq!(bytes("qwen2.5-7b"), 57_344);
        assert_eq!(bytes("qwen3-8b"), 147_456);
        assert_eq!(bytes("qwen3-32b"), 262_144);
        assert_eq!(bytes("gpt-oss-20b"), 49_152);
        assert_eq!(bytes("gpt-oss-120b"), 73_728);
        assert_eq!(bytes("deepseek-v3"), 70_272);
    }
}
