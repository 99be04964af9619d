//! What applications saw of a run: how long operations took, which bytes they returned, and which were
//! refused.

use std::fmt::Display;

use kvdrive_host::Pair;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Histogram, Ns};

use super::kinds::{KINDS, LIST, NEXT, SEEK};
use super::tally::{Recent, Tally};

/// What applications saw.
#[derive(Default)]
pub(crate) struct Seen {
    /// Latencies of operations that were not refused: a refusal is fast, and would make a full drive look
    /// fast.
    pub latency: [Histogram; KINDS.len()],
    /// Operations among them that found no pair, by kind: absent keys, seeks past the last key.
    pub missed: [u64; KINDS.len()],
    pub errors: u64,
    pub first_error: Option<String>,
    pub stored_bytes: u64,
    /// Bytes of returned values, by kind of operation.
    pub read_bytes: [u64; KINDS.len()],
    /// Units by kind, if the workload consists of units.
    pub units: Vec<UnitsSeen>,
    /// The same for the present interval, if intervals are reported.
    pub recent: Option<Box<Recent>>,
}

/// Results of the units of one kind.
#[derive(Clone)]
pub(crate) struct UnitsSeen {
    /// Name of the kind.
    pub(crate) kind: &'static str,
    /// Latency of committed units, ns.
    pub(crate) latency: Histogram,
    /// Units that the workload rolls back on purpose.
    pub(crate) rolled_back: u64,
}

impl Seen {
    /// Notes that an operation was answered `span_ns` after it began. A key that is not found is an answer,
    /// not an error.
    pub(crate) fn note(&mut self, kind: usize, key: &Key, span_ns: Ns, result: Result<(), Status>) {
        match result {
            Err(status) if status != Status::KEY_NOT_FOUND => self.note_error(kind, key, &status),
            _ => {
                self.missed[kind] += u64::from(result.is_err());
                self.latency[kind].record(span_ns);
                if let Some(recent) = &mut self.recent {
                    recent.latency[kind].record(span_ns);
                }
            }
        }
    }

    /// Notes that an operation failed.
    pub(crate) fn note_error(&mut self, kind: usize, key: &Key, problem: &dyn Display) {
        self.errors += 1;
        if let Some(recent) = &mut self.recent {
            recent.errors += 1;
        }
        let what = match kind {
            LIST | SEEK => format!("{} from", KINDS[kind]),
            NEXT => "next after a seek from".to_owned(),
            _ => format!("{} of", KINDS[kind]),
        };
        self.first_error.get_or_insert_with(|| format!("{what} {key}: {problem}"));
    }

    /// Latencies by kind; only kinds that occurred.
    pub(crate) fn latencies(&self) -> Vec<(&'static str, Histogram)> {
        let pairs = KINDS.into_iter().zip(&self.latency);
        let pairs = pairs.filter(|(_, histogram)| histogram.summary().count > 0);
        pairs.map(|(kind, histogram)| (kind, histogram.clone())).collect()
    }

    /// Adds the observations of the application on another connection.
    pub(crate) fn add(&mut self, other: &Seen) {
        for (all, of) in self.latency.iter_mut().zip(&other.latency) {
            all.add(of);
        }
        for (all, of) in self.read_bytes.iter_mut().zip(&other.read_bytes) {
            *all += of;
        }
        for (all, of) in self.missed.iter_mut().zip(&other.missed) {
            *all += of;
        }
        for other in &other.units {
            match self.units.iter_mut().find(|units| units.kind == other.kind) {
                Some(units) => {
                    units.latency.add(&other.latency);
                    units.rolled_back += other.rolled_back;
                }
                None => self.units.push(other.clone()),
            }
        }
        if let Some(recent) = &other.recent {
            self.recent.get_or_insert_default().add(recent);
        }
        self.errors += other.errors;
        self.stored_bytes += other.stored_bytes;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }

    /// The counts so far, and those of the present interval, which ends here.
    pub(crate) fn tally(&mut self) -> Tally {
        let recent = self.recent.as_mut().map(std::mem::take).unwrap_or_default();
        Tally { recent, ..self.sums() }
    }

    /// As [`Seen::tally`], but the interval continues.
    pub(crate) fn sums(&self) -> Tally {
        Tally {
            stored_bytes: self.stored_bytes,
            read_bytes: self.read_bytes.iter().sum(),
            ops: self.latency.iter().map(|kind| kind.values().len()).sum(),
            transactions: self.units.iter().map(|units| units.latency.values().len()).sum(),
            recent: Box::default(),
        }
    }

    /// Notes that a seek or a next returned a pair, or that there was none left.
    pub(crate) fn note_pair(&mut self, kind: usize, pair: Option<Pair>) {
        self.missed[kind] += u64::from(pair.is_none() && kind == SEEK);
        self.read_bytes[kind] += pair.map_or(0, |pair| u64::from(pair.came_bytes));
    }

    /// Records that a unit of this kind ended `span_ns` after it began.
    pub(super) fn note_unit(&mut self, kind: &'static str, is_committed: bool, span_ns: Ns) {
        let at = self.units.iter().position(|units| units.kind == kind).unwrap_or_else(|| {
            self.units.push(UnitsSeen { kind, latency: Histogram::default(), rolled_back: 0 });
            self.units.len() - 1
        });
        if is_committed {
            self.units[at].latency.record(span_ns);
        } else {
            self.units[at].rolled_back += 1;
        }
    }
}
