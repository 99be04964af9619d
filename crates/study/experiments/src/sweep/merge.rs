//! The lines of several files of a sweep as one file.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail, ensure};
use serde_json::{Map, Value};

use super::file::Finished;
use super::row::Row;

/// The only number of a line that may differ between two computations of a row: time of this machine's clock.
pub const MEASURED: &str = "time.wall_s";

/// The lines of `files` (name and content) in the order of `rows`, without [`MEASURED`]: the same bytes, no
/// matter how the rows were distributed over files and machines.
///
/// # Errors
/// One line: a line is no row of this sweep, a row is missing, or a row has two lines that differ in more
/// than [`MEASURED`], as those of two revisions of the program do.
pub fn merge(files: &[(String, Vec<u8>)], rows: &[Row]) -> anyhow::Result<String> {
    let mut lines: BTreeMap<String, (Map<String, Value>, &str)> = BTreeMap::new();
    for (name, content) in files {
        let finished = Finished::read(content, rows).map_err(|problem| anyhow!("{name}: {problem}"))?;
        ensure!(!finished.cut_off, "{name}: the last line was cut off; that call has not ended");
        for line in content.split_inclusive(|byte| *byte == b'\n') {
            let Value::Object(mut line) = serde_json::from_slice(line)? else { bail!("{name}: no row") };
            line.shift_remove(MEASURED);
            let hash = line["config_hash"].as_str().expect("it was read before").to_owned();
            match lines.get(&hash) {
                Some((known, other)) if *known != line => {
                    bail!("{name}: row {hash} has other numbers than in {other}")
                }
                Some(_) => {}
                None => _ = lines.insert(hash, (line, name)),
            }
        }
    }
    let missing: Vec<&Row> = rows.iter().filter(|row| !lines.contains_key(&row.config_hash)).collect();
    if let Some(first) = missing.first() {
        let first = Value::from(first.settings.clone());
        bail!("{} of {} rows are missing, the first is {first}", missing.len(), rows.len());
    }
    let in_order = rows.iter().filter_map(|row| lines.remove(&row.config_hash));
    Ok(in_order.map(|(line, _)| Value::Object(line).to_string() + "\n").collect())
}
