//! Requests to a language model in the format of Mooncake's public traces: one JSON object per line with
//! `timestamp` (ms, of any clock), `input_length` and `output_length` (tokens) and `hash_ids`, one number for each block of
//! 512 input tokens. A number identifies a block together with everything before it.
//!
//! Two traces are included in the program (FAST'25, Apache-2.0; `traces/README.md` has their origin), under
//! their names; any other name is a file, plain or compressed.

use std::path::Path;

use kvdrive_sim::Ns;

use super::eviction::BlockId;
use crate::trace::{Source, shortened};

/// Tokens of a block; the last block of a request may have fewer.
pub const BLOCK_TOKENS: u64 = 512;
/// Longest input, in tokens: beyond every model of today.
const INPUT_TOKENS_MAX: u64 = 1 << 24;

/// A trace that is included in the program.
pub struct OwnTrace {
    /// Its name in `workload.trace`.
    pub name: &'static str,
    /// What it is, in one line.
    pub origin: &'static str,
    /// Its lines, compressed by gzip.
    bytes: &'static [u8],
}

/// Every included trace.
pub static OWN_TRACES: &[OwnTrace] = &[
    OwnTrace {
        name: "conversation",
        origin: "12 031 requests, an hour of an online service (Mooncake, FAST'25)",
        bytes: include_bytes!("../../traces/conversation.jsonl.gz"),
    },
    OwnTrace {
        name: "synthetic",
        origin: "3 993 requests from public data sets, Poisson arrivals (Mooncake, FAST'25)",
        bytes: include_bytes!("../../traces/synthetic.jsonl.gz"),
    },
];

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Request {
    /// Its time in the unit of the trace, from any beginning.
    pub timestamp: u64,
    /// Its time after the first request, ns.
    #[serde(skip)]
    pub at_ns: Ns,
    /// Tokens of its input.
    #[serde(rename = "input_length")]
    pub input_tokens: u64,
    /// Tokens of its answer.
    #[serde(rename = "output_length")]
    pub output_tokens: u64,
    /// The blocks of its input in order.
    #[serde(rename = "hash_ids")]
    pub blocks: Vec<BlockId>,
}

impl Request {
    /// Tokens of the block at `index` of this request.
    pub fn block_tokens(&self, index: usize) -> u64 {
        (self.input_tokens - index as u64 * BLOCK_TOKENS).min(BLOCK_TOKENS)
    }

    /// Checks it; the error is one line.
    fn check(&self) -> Result<(), String> {
        if self.input_tokens > INPUT_TOKENS_MAX {
            return Err(format!("input_length: {} tokens; at most {INPUT_TOKENS_MAX}", self.input_tokens));
        }
        let blocks = self.input_tokens.div_ceil(BLOCK_TOKENS);
        if self.blocks.len() as u64 != blocks {
            return Err(format!(
                "hash_ids: {} blocks; an input of {} tokens has {blocks} of {BLOCK_TOKENS}",
                self.blocks.len(),
                self.input_tokens
            ));
        }
        Ok(())
    }
}

/// The request of a line; the error is in words of the format.
fn parsed(line: &[u8]) -> Result<Request, String> {
    const EXPECTED: &str =
        "expected {\"timestamp\": .., \"input_length\": .., \"output_length\": .., \"hash_ids\": [..]}";
    serde_json::from_slice(line).map_err(|error| match error.classify() {
        // The parser was given one line; its number in the file is in front.
        serde_json::error::Category::Data if line.trim_ascii_start().starts_with(b"{") => {
            error.to_string().replace(" at line 1 column ", " at column ")
        }
        _ => format!("{EXPECTED}, got {:?}", shortened(line)),
    })
}

/// A trace that is being read.
pub struct Requests {
    source: Source,
    /// The unit of the trace's times, and the first of them.
    begin: Option<(&'static TimeUnit, u64)>,
    last: u64,
}

/// A unit of times, by the first time of a trace: 10^11 ms are three years from the beginning of a trace, and a day of
/// 1973 from that of 1970.
struct TimeUnit {
    /// Whether a trace counts in it: its first time is below this.
    below: u64,
    ns: u64,
    /// What a report says, unless it is the unit of the format, from the beginning of the trace.
    name: &'static str,
}

static UNITS: &[TimeUnit] = &[
    TimeUnit { below: 100_000_000_000, ns: 1_000_000, name: "" },
    TimeUnit { below: 100_000_000_000_000, ns: 1_000_000, name: "milliseconds since 1970" },
    TimeUnit { below: 100_000_000_000_000_000, ns: 1_000, name: "microseconds since 1970" },
    TimeUnit { below: u64::MAX, ns: 1, name: "nanoseconds since 1970" },
];

impl Requests {
    /// Opens a trace by its name, or as a file.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn open(name: &str) -> Result<Requests, String> {
        let source = match OWN_TRACES.iter().find(|trace| trace.name == name) {
            Some(trace) => Source::of_bytes(trace.name, trace.bytes),
            None => Source::open(Path::new(name)),
        };
        let source = source.map_err(|problem| format!("workload.trace: {problem}"))?;
        Ok(Requests { source, begin: None, last: 0 })
    }

    /// What the times of the trace are, once it has begun, if they are not those of the format.
    pub fn unit(&self) -> Option<&'static str> {
        self.begin.map(|(unit, _)| unit.name).filter(|name| !name.is_empty())
    }

    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// One line with position and reason.
    pub fn next(&mut self) -> Result<Option<Request>, String> {
        let read = self.source.line().and_then(|line| {
            let Some(line) = line else { return Ok(None) };
            let request = parsed(&line);
            self.source.give_back(line);
            let mut request = request?;
            request.check()?;
            let now = request.timestamp;
            if now < self.last {
                return Err(format!("timestamp: {now} after {}", self.last));
            }
            self.last = now;
            let (unit, begin) = *self.begin.get_or_insert_with(|| {
                let unit = UNITS.iter().find(|unit| now < unit.below);
                (unit.unwrap_or(&UNITS[UNITS.len() - 1]), now)
            });
            request.at_ns = (now - begin).saturating_mul(unit.ns);
            Ok(Some(request))
        });
        read.map_err(|problem| format!("{}: {problem}", self.source.place()))
    }

    /// Fraction of the trace that was read, from 0 to 1; `None` for a pipe.
    pub fn read_share(&self) -> Option<f64> {
        self.source.read_share()
    }
}
