//! `adaptive`: piggyback below `alpha * t1`, hybrid for a short tail behind whole pages, `prp` for the rest
//! (BandSlim, section 3.2). A choice by size; the chosen method does the work.

use kvdrive_spec::{Cqe, Sqe};

use super::hybrid::Hybrid;
use super::piggyback::Piggyback;
use super::{Method, Next, Progress, StoreRequest, TransferConfig};

/// Host half.
pub struct Adaptive {
    piggyback_below_bytes: f64,
    piggyback: Piggyback,
    hybrid: Hybrid,
}

impl Adaptive {
    /// With the thresholds of `config`.
    pub fn new(config: &TransferConfig) -> Adaptive {
        Adaptive {
            piggyback_below_bytes: config.alpha * f64::from(config.threshold1_bytes),
            piggyback: Piggyback,
            hybrid: Hybrid::below(config.beta * f64::from(config.threshold2_bytes)),
        }
    }
}

impl Method for Adaptive {
    fn pick(&self, value_bytes: u32, slots: u32) -> &dyn Method {
        if f64::from(value_bytes) < self.piggyback_below_bytes {
            &self.piggyback
        } else {
            self.hybrid.pick(value_bytes, slots)
        }
    }

    fn staged_bytes(&self, value_bytes: u32) -> u32 {
        self.pick(value_bytes, 1).staged_bytes(value_bytes)
    }

    fn is_inline(&self) -> bool {
        unreachable!("adaptive picks another method")
    }

    fn begin(&self, store: &StoreRequest<'_>, progress: &mut Progress, outbox: &mut Vec<Sqe>) -> Next {
        self.pick(store.value.bytes(), store.slots).begin(store, progress, outbox)
    }

    fn on_completion(
        &self,
        store: &StoreRequest<'_>,
        progress: &mut Progress,
        cqe: &Cqe,
        outbox: &mut Vec<Sqe>,
    ) -> Next {
        self.pick(store.value.bytes(), store.slots).on_completion(store, progress, cqe, outbox)
    }
}
