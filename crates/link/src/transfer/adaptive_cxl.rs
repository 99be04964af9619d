//! `adaptive-cxl`: `cxl` below `alpha * t1`, `prp` from there on (BandSlim's CXL article, Adaptive-C). A choice by size; the
//! chosen method does the work. Values that go by `prp` are offered room in the window.

use kvdrive_spec::{Cqe, Sqe};

use super::cxl::Cxl;
use super::prp::Prp;
use super::{Method, Next, Progress, StoreRequest, TransferConfig};

/// Host half.
pub struct AdaptiveCxl {
    cxl_below_bytes: f64,
}

impl AdaptiveCxl {
    /// With the thresholds of `config`.
    pub fn new(config: &TransferConfig) -> AdaptiveCxl {
        AdaptiveCxl { cxl_below_bytes: config.alpha * f64::from(config.threshold1_bytes) }
    }
}

impl Method for AdaptiveCxl {
    fn pick(&self, value_bytes: u32, slots: u32) -> &dyn Method {
        if f64::from(value_bytes) < self.cxl_below_bytes { Cxl.pick(value_bytes, slots) } else { &Prp }
    }

    fn staged_bytes(&self, value_bytes: u32) -> u32 {
        self.pick(value_bytes, 1).staged_bytes(value_bytes)
    }

    fn is_inline(&self) -> bool {
        unreachable!("adaptive-cxl picks another method")
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
