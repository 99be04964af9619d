//! Language models: bytes of attention keys and values of a token, and the floating-point operations of
//! computing them again.
//!
//! A token takes 2 (key and value) x layers x heads x head size x 2 bytes (BF16); a model with latent
//! attention keeps one tensor, layers x (rank + rotary part) x 2 bytes. The numbers are those of the models'
//! public configuration files.
//!
//! Prefilling n tokens takes 2 n operations for each parameter that a token uses, and 4 layers x width x n²
//! of attention (scores and weighted sum, two operations each; width: query heads x head size), the quadratic
//! term of Mooncake's section 2.2 (FAST'25). Kernels that skip the masked half of the scores do half of the
//! second term.

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
    /// Parameters that one token uses, in millions, as the publisher's model card says.
    active_millions: u64,
    /// Query heads x head size.
    width: u64,
}

/// Grouped-query attention: keys and values of `heads` heads of `head_size` numbers.
const fn grouped(heads: u64, head_size: u64) -> u64 {
    2 * heads * head_size
}

/// Latent attention: one tensor of the rank and the rotary part.
const fn latent(rank: u64, rotary: u64) -> u64 {
    rank + rotary
}

/// Every model.
pub static MODELS: &[Model] = &[
    Model {
        name: "llama-3.1-8b",
        origin: "Llama 3.1 8B (config.json; Mistral 7B v0.3 has the same)",
        layers: 32,
        layer_numbers: grouped(8, 128),
        active_millions: 8_030,
        width: 4096,
    },
    Model {
        name: "llama-3.1-70b",
        origin: "Llama 3.1 70B (config.json; Qwen2.5 72B has the same)",
        layers: 80,
        layer_numbers: grouped(8, 128),
        active_millions: 70_600,
        width: 8192,
    },
    Model {
        name: "llama-3.1-405b",
        origin: "Llama 3.1 405B (copies of config.json)",
        layers: 126,
        layer_numbers: grouped(8, 128),
        active_millions: 405_900,
        width: 16_384,
    },
    Model {
        name: "qwen2.5-7b",
        origin: "Qwen2.5 7B (config.json)",
        layers: 28,
        layer_numbers: grouped(4, 128),
        active_millions: 7_610,
        width: 3584,
    },
    Model {
        name: "qwen3-8b",
        origin: "Qwen3 8B (config.json)",
        layers: 36,
        layer_numbers: grouped(8, 128),
        active_millions: 8_200,
        width: 4096,
    },
    Model {
        name: "qwen3-32b",
        origin: "Qwen3 32B (config.json; Qwen2.5 32B has the same)",
        layers: 64,
        layer_numbers: grouped(8, 128),
        active_millions: 32_800,
        width: 8192,
    },
    Model {
        name: "gpt-oss-20b",
        origin: "gpt-oss 20B (copies of config.json), every layer whole",
        layers: 24,
        layer_numbers: grouped(8, 64),
        active_millions: 3_600,
        width: 4096,
    },
    Model {
        name: "gpt-oss-120b",
        origin: "gpt-oss 120B (copies of config.json), every layer whole",
        layers: 36,
        layer_numbers: grouped(8, 64),
        active_millions: 5_100,
        width: 4096,
    },
    Model {
        name: "deepseek-v3",
        origin: "DeepSeek V3 and R1, latent attention (config.json)",
        layers: 61,
        layer_numbers: latent(512, 64),
        active_millions: 37_000,
        width: 128 * (192 + 128) / 2,
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

    /// Floating-point operations of prefilling the first `tokens` of an input, in units of 10^9. An input of n
    /// tokens, p of which are in the cache, takes `prefill_gflop(n) - prefill_gflop(p)`.
    pub fn prefill_gflop(&self, tokens: u64) -> u64 {
        let attention = 4 * u128::from(self.layers * self.width) * u128::from(tokens).pow(2);
        2 * self.active_millions * tokens / 1000 + (attention / 1_000_000_000) as u64
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

    /// Mooncake's section 2.2 has layers x (4 n² d + 22 n d²) for 80 layers of d = 8192: 22 d² layers is 118
    /// x 10^9 operations a token, where twice 70.6 x 10^9 parameters are 141. The quadratic term is the same.
    #[test]
    fn prefilling_takes_what_the_published_formula_has() {
        let model = MODELS.iter().find(|model| model.name == "llama-3.1-70b").unwrap();
        let published = |n: u64| 80 * (4 * n * n * 8192 + 22 * n * 8192 * 8192) / 1_000_000_000;
        for tokens in [512, 8192, 100_000] {
            let ratio = model.prefill_gflop(tokens) as f64 / published(tokens) as f64;
            assert!((1.0..1.2).contains(&ratio), "{tokens}: {ratio}");
        }
        assert_eq!(
            model.prefill_gflop(8192),
            2 * 70_600 * 8192 / 1000 + 4 * 80 * 8192 * 8192 * 8192 / 1_000_000_000
        );
        assert_eq!(model.prefill_gflop(0), 0);
    }
}
