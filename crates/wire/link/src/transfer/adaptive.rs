//! `adaptive`: piggyback below `alpha * t1`, hybrid for a short tail after whole pages, `prp` for the rest
//! (BandSlim, section 3.2). It chooses by size; the chosen method does the work.

use super::hybrid::Hybrid;
use super::piggyback::Piggyback;
use super::{Choice, Method, TransferConfig};

/// Host half.
pub struct Adaptive {
    piggyback_below_bytes: f64,
    hybrid: Hybrid,
}

impl Adaptive {
    /// Uses the thresholds of `config`.
    pub fn new(config: &TransferConfig) -> Adaptive {
        Adaptive {
            piggyback_below_bytes: config.alpha * f64::from(config.threshold1_bytes),
            hybrid: Hybrid::below(config.beta * f64::from(config.threshold2_bytes)),
        }
    }
}

impl Choice for Adaptive {
    fn pick(&self, value_bytes: u32, slots: u32) -> &dyn Method {
        if f64::from(value_bytes) < self.piggyback_below_bytes {
            &Piggyback
        } else {
            self.hybrid.pick(value_bytes, slots)
        }
    }
}
