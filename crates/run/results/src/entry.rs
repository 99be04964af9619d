//! The bytes of an entry: four lines of text.
//!
//! ```text
//! kvdrive results 1
//! <xxh3-128 of the lines below, hexadecimal>
//! {"program": ..., "runs": [{"profile": ..., "config": {...}}, ...]}
//! [<report>, ...]
//! ```

use kvdrive_config::Document;
use kvdrive_run::report::{Report, Time};
use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_128;

use crate::key::EntryKey;

const HEAD: &str = "kvdrive results 1\n";

/// The entry of a session. `None` if its reports would not be read back unchanged, for example with fault
/// rules or a number that JSON cannot express.
pub(crate) fn encode(key: &EntryKey, reports: &[&Report], documents: &[Document]) -> Option<Vec<u8>> {
    let body = format!("{}\n{}\n", key.text, serde_json::to_string(reports).ok()?);
    let bytes = format!("{HEAD}{:032x}\n{body}", xxh3_128(body.as_bytes())).into_bytes();
    decode(&bytes, key, documents).filter(|again| again.iter().eq(reports.iter().copied()))?;
    Some(bytes)
}

/// The reports of an entry; `None` if it is damaged or of another key.
pub(crate) fn decode(bytes: &[u8], key: &EntryKey, documents: &[Document]) -> Option<Vec<Report>> {
    let reports = body(bytes)?.strip_prefix(key.text.as_str())?.strip_prefix('\n')?;
    let mut reports: Vec<Report> = serde_json::from_str(reports).ok()?;
    if reports.len() != documents.len() {
        return None;
    }
    // Documents of equal values may differ in which values were set, and reports repeat those.
    for (report, document) in reports.iter_mut().zip(documents) {
        report.describe(document);
    }
    Some(reports)
}

/// The fields of a report that entries of every version of the program have.
#[derive(Deserialize)]
struct Timed {
    time: Time,
}

/// Seconds that the runs of an entry took, for an entry of any program.
pub(crate) fn seconds(bytes: &[u8]) -> Option<f64> {
    let (_, reports) = body(bytes)?.split_once('\n')?;
    let reports: Vec<Timed> = serde_json::from_str(reports).ok()?;
    Some(reports.iter().map(|report| report.time.wall_s).sum())
}

fn body(bytes: &[u8]) -> Option<&str> {
    let (digest, body) = std::str::from_utf8(bytes).ok()?.strip_prefix(HEAD)?.split_once('\n')?;
    (digest == format!("{:032x}", xxh3_128(body.as_bytes()))).then_some(body)
}
