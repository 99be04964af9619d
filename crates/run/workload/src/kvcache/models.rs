//! Language models: bytes of attention keys and values of a token, and the floating-point operations of
//! computing them again.
//!
//! A token takes 2 (key and value) x layers x heads x head size x 2 bytes (BF16); a model with latent
//! attention keeps one tensor, layers x (rank + rotary part) x 2 bytes. Layers that compress keep a part of that, layers
//! that select tokens keep their index's keys, too. Layers with a recurrent state or a sliding window keep nothing that
//! grows with the tokens: to continue behind a block, its reader needs their state at the block's end, so each block has
//! one. The numbers are those of the models' public configuration files.
//!
//! Prefilling n tokens takes 2 n operations for each parameter that a token uses, and 4 x width x n² of attention (scores
//! and weighted sum, two operations each; width: query heads x head size, over all layers), the quadratic term of
//! Mooncake's section 2.2 (FAST'25). Kernels that skip the masked half of the scores do half of the second term. Layers
//! in which a token attends to at most m others take 4 x width x n x m instead, and the scores by which these are selected
//! are in the quadratic term.

/// Bytes of one number of a tensor: BF16.
const NUMBER_BYTES: u64 = 2;

/// One language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name in `workload.cache_model`.
    pub name: &'static str,
    /// Its publisher, and the source of the numbers, in one line.
    pub origin: &'static str,
    /// Layers.
    pub layers: u64,
    /// Numbers of a token, of all layers, keys and values together.
    token_numbers: u64,
    /// Numbers of the state at the end of a block, of all layers.
    state_numbers: u64,
    /// Parameters that one token uses, in millions, as the publisher's model card says.
    active_millions: u64,
    /// Query heads x head size, over the layers in which a token attends to all before it.
    width: u64,
    /// The same over the layers in which it attends to some, and how many these are.
    some: (u64, u64),
}

/// Grouped-query attention: keys and values of `heads` heads of `head_size` numbers.
const fn grouped(heads: u64, head_size: u64) -> u64 {
    2 * heads * head_size
}

/// Latent attention: one tensor of the rank and the rotary part.
const fn latent(rank: u64, rotary: u64) -> u64 {
    rank + rotary
}

/// A model whose tokens attend to all before them.
const NONE: (u64, u64) = (0, 0);

/// Numbers of the state of Kimi's delta attention in one layer: a matrix for each head, and the last inputs of the three
/// short convolutions over 4 tokens.
const fn delta_state(heads: u64, head_size: u64) -> u64 {
    heads * head_size * head_size + 3 * 3 * heads * head_size
}

/// Every model.
pub static MODELS: &[Model] = &[
    Model {
        name: "llama-3.1-8b",
        origin: "Llama 3.1 8B (config.json; Mistral 7B v0.3 has the same)",
        layers: 32,
        token_numbers: 32 * grouped(8, 128),
        state_numbers: 0,
        active_millions: 8_030,
        width: 32 * 4096,
        some: NONE,
    },
    Model {
        name: "llama-3.1-70b",
        origin: "Llama 3.1 70B (config.json; Qwen2.5 72B has the same)",
        layers: 80,
        token_numbers: 80 * grouped(8, 128),
        state_numbers: 0,
        active_millions: 70_600,
        width: 80 * 8192,
        some: NONE,
    },
    Model {
        name: "llama-3.1-405b",
        origin: "Llama 3.1 405B (copies of config.json)",
        layers: 126,
        token_numbers: 126 * grouped(8, 128),
        state_numbers: 0,
        active_millions: 405_900,
        width: 126 * 16_384,
        some: NONE,
    },
    Model {
        name: "qwen2.5-7b",
        origin: "Qwen2.5 7B (config.json)",
        layers: 28,
        token_numbers: 28 * grouped(4, 128),
        state_numbers: 0,
        active_millions: 7_610,
        width: 28 * 3584,
        some: NONE,
    },
    Model {
        name: "qwen3-8b",
        origin: "Qwen3 8B (config.json)",
        layers: 36,
        token_numbers: 36 * grouped(8, 128),
        state_numbers: 0,
        active_millions: 8_200,
        width: 36 * 4096,
        some: NONE,
    },
    Model {
        name: "qwen3-32b",
        origin: "Qwen3 32B (config.json; Qwen2.5 32B has the same)",
        layers: 64,
        token_numbers: 64 * grouped(8, 128),
        state_numbers: 0,
        active_millions: 32_800,
        width: 64 * 8192,
        some: NONE,
    },
    Model {
        name: "gpt-oss-20b",
        origin: "gpt-oss 20B (copies of config.json), every layer whole",
        layers: 24,
        token_numbers: 24 * grouped(8, 64),
        state_numbers: 0,
        active_millions: 3_600,
        width: 24 * 4096,
        some: NONE,
    },
    Model {
        name: "gpt-oss-120b",
        origin: "gpt-oss 120B (copies of config.json), every layer whole",
        layers: 36,
        token_numbers: 36 * grouped(8, 64),
        state_numbers: 0,
        active_millions: 5_100,
        width: 36 * 4096,
        some: NONE,
    },
    Model {
        name: "deepseek-v3",
        origin: "DeepSeek V3 and R1, latent attention (config.json)",
        layers: 61,
        token_numbers: 61 * latent(512, 64),
        state_numbers: 0,
        active_millions: 37_000,
        width: 61 * 128 * (192 + 128) / 2,
        some: NONE,
    },
    Model {
        name: "glm-5",
        origin: "GLM-5, latent attention with the index's keys (config class of transformers; 40 G active by secondary texts)",
        layers: 78,
        token_numbers: 78 * (latent(512, 64) + 128),
        state_numbers: 0,
        active_millions: 40_000,
        // The scores of 32 index heads of 128 are half of an attention.
        width: 78 * 32 * 128 / 2,
        some: (78 * 64 * 256, 2048),
    },
    Model {
        name: "kimi-k2.6",
        origin: "Kimi K2.6, latent attention in K2's form (a page of MaxText; ranks and 32 G active are K2's)",
        layers: 61,
        token_numbers: 61 * latent(512, 64),
        state_numbers: 0,
        active_millions: 32_000,
        width: 61 * 64 * (192 + 128) / 2,
        some: NONE,
    },
    Model {
        name: "kimi-k3",
        origin: "Kimi K3, 24 latent layers, 69 with a state (copy of config.json; active parameters computed from it)",
        layers: 93,
        token_numbers: 24 * latent(512, 64),
        state_numbers: 69 * delta_state(96, 128),
        active_millions: 103_000,
        width: 24 * 96 * (192 + 128) / 2,
        some: NONE,
    },
    Model {
        name: "deepseek-v4-flash",
        origin: "DeepSeek V4 Flash, compressed 1:4 and 1:128, window of 128 (config class of transformers; layers by a simulator's test)",
        layers: 43,
        // Entries of 512 for every 4th token with an index key of 128, in 21 layers, and for every 128th in 20.
        token_numbers: 21 * (512 + 128) / 4 + 20 * 512 / 128,
        // The window is in every layer.
        state_numbers: 43 * 128 * 512,
        active_millions: 13_000,
        // The scores of 64 index heads of 128 over every 4th token; attention to every 128th.
        width: 21 * (64 * 128 / 2) / 4 + 20 * (64 * 512) / 128,
        // 512 selected entries and the window in 21 layers, the window in 22.
        some: ((21 * (512 + 128) / 128 + 22) * 64 * 512, 128),
    },
];

impl Model {
    /// Bytes that one token takes.
    pub fn token_bytes(&self) -> u64 {
        self.token_numbers * NUMBER_BYTES
    }

    /// Bytes of the state at the end of a block, which a reader of the block needs to continue behind it.
    pub fn state_bytes(&self) -> u64 {
        self.state_numbers * NUMBER_BYTES
    }

    /// Bytes that a block of `tokens` tokens has in one layer, on average.
    pub fn layer_bytes(&self, tokens: u64) -> u64 {
        (tokens * self.token_bytes() + self.state_bytes()).div_ceil(self.layers)
    }

    /// Floating-point operations of prefilling the first `tokens` of an input, in units of 10^9. An input of n
    /// tokens, p of which are in the cache, takes `prefill_gflop(n) - prefill_gflop(p)`.
    pub fn prefill_gflop(&self, tokens: u64) -> u64 {
        let (width, most) = self.some;
        let some = 4 * u128::from(width) * u128::from(tokens) * u128::from(tokens.min(most));
        let attention = 4 * u128::from(self.width) * u128::from(tokens).pow(2) + some;
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
        assert_eq!(bytes("glm-5"), 109_824);
        assert_eq!(bytes("kimi-k2.6"), 70_272);
        assert_eq!(bytes("kimi-k3"), 27_648);
        assert_eq!(bytes("deepseek-v4-flash"), 6_880);
    }

    /// A state does not grow with the tokens, and selected tokens do not grow with their square.
    #[test]
    fn states_and_windows_are_of_a_block_and_not_of_a_token() {
        let model = |name: &str| MODELS.iter().find(|model| model.name == name).unwrap();
        let (k3, v4, glm) = (model("kimi-k3"), model("deepseek-v4-flash"), model("glm-5"));
        assert_eq!((k3.state_bytes(), v4.state_bytes(), glm.state_bytes()), (232_316_928, 5_636_096, 0));
        assert_eq!(v4.layer_bytes(512), (512 * 6_880 + 5_636_096) / 43);
        assert!(k3.layers * k3.layer_bytes(512) - (512 * 27_648 + 232_316_928) < k3.layers, "rounded up");
        let attention =
            |model: &Model, tokens| model.prefill_gflop(tokens) - 2 * model.active_millions * tokens / 1000;
        let growth = |model: &Model| attention(model, 64_000) as f64 / attention(model, 32_000) as f64;
        assert!(
            (3.9..4.1).contains(&growth(k3))
                && (2.1..3.5).contains(&growth(glm))
                && (2.5..4.0).contains(&growth(v4))
        );
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
