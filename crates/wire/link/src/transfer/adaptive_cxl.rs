//! `adaptive-cxl`: `cxl` below `alpha * t1`, `prp` from there on (BandSlim's CXL article, Adaptive-C). It
//! chooses by size; the chosen method does the work. Values by `prp` are offered room in the window.

use super::cxl::Cxl;
use super::prp::Prp;
use super::{Choice, Method, TransferConfig};

/// Host half.
pub struct AdaptiveCxl {
    cxl_below_bytes: f64,
}

impl AdaptiveCxl {
    /// Uses the thresholds of `config`.
    pub fn new(config: &TransferConfig) -> AdaptiveCxl {
        AdaptiveCxl { cxl_below_bytes: config.alpha * f64::from(config.threshold1_bytes) }
    }
}

impl Choice for AdaptiveCxl {
    fn pick(&self, value_bytes: u32, slots: u32) -> &dyn Method {
        if f64::from(value_bytes) < self.cxl_below_bytes { Cxl.pick(value_bytes, slots) } else { &Prp }
    }
}
