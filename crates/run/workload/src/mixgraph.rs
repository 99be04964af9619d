//! `mixgraph`: gets, puts and seeks by RocksDB's model of production traces, with its parameters under its
//! flag names.
//!
//! As in RocksDB, one uniform draw `r` below `num` determines everything about a query: `r` mod 1000 its
//! kind, `r / num` the size of a put and the length of a scan, and the key by one of three models: uniform
//! (the draw itself), a power law, or ranges of keys weighted by a two-term exponential with either of the
//! two inside a range. Departures: a different generator of random numbers, so other keys from the same
//! distribution; no query rate; a scan's nexts are separate commands.

use super::{KeyFormat, Op, Pareto, ParetoSizes, ValueSpec, Workload, WorkloadParams};
use kvdrive_nvme::Key;
use kvdrive_sim::Rng;

/// Kinds of query are decided in thousandths.
const KIND_PARTS: u64 = 1000;

struct Mixgraph {
    format: KeyFormat,
    num: u64,
    model: KeyModel,
    sizes: ParetoSizes,
    scans: Pareto,
    max_scan_len: u32,
    /// Parts below which a query is a get, and below which it is a put; a seek is above them.
    get_end: u64,
    put_end: u64,
    preload: u64,
    stored: u64,
    draws: Rng,
}

enum KeyModel {
    Uniform,
    Power(PowerLaw),
    Ranges(KeyRanges, Option<PowerLaw>),
}

/// Keys by a power law: the draw gives a popularity rank, and the rank gives a position.
#[derive(Clone, Copy)]
struct PowerLaw {
    a: f64,
    b: f64,
}

impl PowerLaw {
    fn new(params: &WorkloadParams) -> Option<PowerLaw> {
        let (a, b) = (params.key_dist_a, params.key_dist_b);
        (a != 0.0 && b != 0.0).then_some(PowerLaw { a, b })
    }

    /// The key, below `keys`, for draw `r` of `keys`.
    fn key(self, r: u64, keys: u64) -> u64 {
        let u = r as f64 / keys as f64;
        let rank = libm::pow(u / self.a, 1.0 / self.b).ceil() as u64;
        scatter(rank) % keys
    }
}

/// A fixed scattering of popularity ranks over the key space (RocksDB seeds a Mersenne twister with the
/// rank): SplitMix64.
fn scatter(rank: u64) -> u64 {
    let mut x = rank.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Equal ranges of the key space with integer weights, in shuffled order.
struct KeyRanges {
    /// Cumulative weights; the last is the total.
    ends: Vec<u64>,
    range_keys: u64,
}

impl KeyRanges {
    fn new(params: &WorkloadParams, seed: u64) -> Result<Option<KeyRanges>, String> {
        let (a, b) = (params.keyrange_dist_a, params.keyrange_dist_b);
        let (c, d) = (params.keyrange_dist_c, params.keyrange_dist_d);
        if [a, b, c, d] == [0.0; 4] {
            return Ok(None);
        }
        let ranges = u64::from(params.keyrange_num.max(1));
        if ranges > params.num {
            return Err(format!(
                "workload.keyrange_num: {ranges} ranges of {} keys; at most one a key",
                params.num
            ));
        }
        let density = |x: u64| {
            let share = a * libm::exp(b * x as f64) + c * libm::exp(d * x as f64);
            if share < 1e-16 { 0.0 } else { share }
        };
        // Weights are integers, scaled so that the last range with a share gets about one.
        let rarest = (1..=ranges).rev().map(density).find(|&share| share > 0.0);
        let Some(rarest) = rarest else {
            return Err(
                "workload.keyrange_dist_a: no range has a share; the sums of the four keyrange_dist are 0"
                    .into(),
            );
        };
        let scale = (1.0 / rarest).floor() + 1.0;
        let mut weights: Vec<u64> = (1..=ranges).map(|x| (scale * density(x)) as u64).collect();
        let mut rng = Rng::stream(seed, "workload.ranges");
        for i in (1..weights.len()).rev() {
            weights.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let mut total = 0u64;
        let ends: Vec<u64> = weights
            .into_iter()
            .map(|weight| {
                total = total.saturating_add(weight);
                total
            })
            .collect();
        if total == 0 {
            return Err("workload.keyrange_dist_a: shares above 1 leave no range a weight".into());
        }
        Ok(Some(KeyRanges { ends, range_keys: params.num / ranges }))
    }

    /// The key for draw `r`: `r` mod the total weight gives the range, and `r` again the position in it.
    fn key(&self, r: u64, power: Option<PowerLaw>) -> u64 {
        let total = self.ends[self.ends.len() - 1];
        let weight = r % total;
        let range = self.ends.partition_point(|&end| end <= weight) as u64;
        let place = r % self.range_keys;
        let offset = power.map_or(place, |power| power.key(place, self.range_keys));
        range * self.range_keys + offset
    }
}

pub(super) fn build(params: &WorkloadParams, seed: u64) -> Result<Box<dyn Workload>, String> {
    let format = KeyFormat::new(params.key_size, params.num)?;
    let sizes = ParetoSizes::new(
        Pareto { theta: params.value_theta, k: params.value_k, sigma: params.value_sigma },
        params.num,
        params.mix_max_value_size,
        params.value_floor_bytes,
    )?;
    let weights = [params.mix_get_ratio, params.mix_put_ratio, params.mix_seek_ratio];
    let sum: f64 = weights.iter().sum();
    if sum <= 0.0 {
        return Err("workload.mix_get_ratio: the sum of the three mix ratios is 0".into());
    }
    let parts = |weight: f64| (weight / sum * KIND_PARTS as f64).round() as u64;
    let get_end = parts(weights[0]);
    let put_end = parts(weights[0] + weights[1]);
    let power = PowerLaw::new(params);
    let model = match (KeyRanges::new(params, seed)?, power) {
        (Some(ranges), power) => KeyModel::Ranges(ranges, power),
        (None, Some(power)) => KeyModel::Power(power),
        (None, None) => KeyModel::Uniform,
    };
    // If there are only stores, no pair needs to be loaded.
    let preload = if get_end == 0 && put_end == KIND_PARTS { 0 } else { params.num };
    Ok(Box::new(Mixgraph {
        format,
        num: params.num,
        model,
        sizes,
        scans: Pareto { theta: params.iter_theta, k: params.iter_k, sigma: params.iter_sigma },
        max_scan_len: params.mix_max_scan_len.max(1),
        get_end,
        put_end,
        preload,
        stored: preload,
        draws: Rng::stream(seed, "workload.draws"),
    }))
}

impl Mixgraph {
    fn scan_len(&self, r: u64) -> u32 {
        let raw = self.scans.ceil(r as f64 / self.num as f64).unwrap_or(0);
        (raw.max(0) % i64::from(self.max_scan_len)) as u32
    }
}

impl Workload for Mixgraph {
    fn next(&mut self) -> Op {
        let r = self.draws.below(self.num);
        let key = self.format.key(match &self.model {
            KeyModel::Uniform => r,
            KeyModel::Power(power) => power.key(r, self.num),
            KeyModel::Ranges(ranges, power) => ranges.key(r, *power),
        });
        let kind = r % KIND_PARTS;
        if kind < self.get_end {
            return Op::Retrieve { key };
        }
        if kind >= self.put_end {
            return Op::Seek { key, nexts: self.scan_len(r) };
        }
        let version = self.stored;
        self.stored += 1;
        Op::Store { key, value: ValueSpec { bytes: self.sizes.size_bytes(r), version } }
    }

    fn preload(&self) -> u64 {
        self.preload
    }

    /// The whole key space; the size of each pair is that of its own draw.
    fn preload_pair(&self, index: u64) -> (Key, ValueSpec) {
        assert!(index < self.preload, "pair {index} of {}", self.preload);
        (self.format.key(index), ValueSpec { bytes: self.sizes.size_bytes(index), version: index })
    }
}
