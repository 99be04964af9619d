//! The names of the rows of a comparison: the settings in which its reports differ.

use crate::report::Report;
use kvdrive_config::{DRAM_KEYS, NO_STORE};
use kvdrive_store::store_row;
use serde_json::Value;

/// Most settings named in the table; if reports differ in more, the profile, the settings in [`ASKED_FOR`] and
/// those that the user set are named instead.
const SETTINGS: usize = 5;
/// Replaces the keys of a DRAM point if every report has one: its name instead of the bytes.
const DRAM_POINT: &str = "hash.dram";
/// Replaces the key that enables SAKER, and its batch size.
const SAKER: &str = "saker";
/// Replaces the key of the read cache on the host, that of SAKER or of a store.
const CACHE: &str = "cache";
/// Settings that have options of the command line.
const ASKED_FOR: &[&str] = &[
    "workload.name",
    "workload.distribution",
    "engine.name",
    DRAM_POINT,
    "hash.dram_accounting",
    "hash.dram_bytes",
    "media.kind",
    "packing.policy",
    "host.transfer",
    SAKER,
    CACHE,
    "workload.value_size",
];

/// The settings in which reports differ, and the values of each report.
pub(super) fn labels(reports: &[Report]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut flat: Vec<Vec<(String, String)>> = reports
        .iter()
        .map(|report| {
            let mut leaves = Vec::new();
            flatten(&report.config, "", &mut leaves);
            leaves
        })
        .collect();
    let points: Option<Vec<&String>> = reports.iter().map(|report| report.dram_point.as_ref()).collect();
    for (leaves, point) in flat.iter_mut().zip(points.into_iter().flatten()) {
        let at = leaves.iter().position(|(key, _)| DRAM_KEYS.contains(&key.as_str()));
        leaves.retain(|(key, _)| !DRAM_KEYS.contains(&key.as_str()));
        leaves.insert(at.unwrap_or(0), (DRAM_POINT.into(), point.clone()));
    }
    flat.iter_mut().for_each(place_cache);
    flat.iter_mut().for_each(place_store);
    flat.iter_mut().for_each(place_saker);
    let value = |report: usize, key: &str| {
        flat[report].iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    };
    // Some reports have keys that do not apply to the others.
    let widest = flat.iter().max_by_key(|leaves| leaves.len()).expect("there is a report");
    let differing: Vec<&str> = widest
        .iter()
        .map(|(key, _)| key.as_str())
        .filter(|key| (1..reports.len()).any(|other| value(other, key) != value(0, key)))
        .collect();
    let is_summed_up = differing.is_empty() || differing.len() > SETTINGS;
    let is_asked = |key: &str| ASKED_FOR.contains(&key) || reports.iter().any(|report| has_set(report, key));
    let differing: Vec<&str> = differing.into_iter().filter(|key| !is_summed_up || is_asked(key)).collect();
    // What follows from the profile or from the workload of a row says nothing more, unless it was asked for.
    let of_workload: Vec<&str> =
        (0..reports.len()).map(|report| value(report, "workload.name").unwrap_or("")).collect();
    let of_profile: Vec<&str> = reports.iter().map(|report| report.profile.as_str()).collect();
    let follows = |key: &str, from: &[&str]| {
        (1..reports.len())
            .all(|row| (0..row).all(|other| from[row] != from[other] || value(row, key) == value(other, key)))
    };
    let names_workload = differing.contains(&"workload.name");
    let is_derived = |key: &str| {
        let is_of_workload = names_workload && key.starts_with("workload.") && key != "workload.name";
        !reports.iter().any(|report| has_set(report, key))
            && (is_summed_up && follows(key, &of_profile) || is_of_workload && follows(key, &of_workload))
    };
    let differing: Vec<&str> = differing.into_iter().filter(|key| !is_derived(key)).collect();
    let rows = (0..reports.len())
        .map(|report| {
            let profile = is_summed_up.then(|| reports[report].profile.clone());
            let values = differing.iter().map(|key| value(report, key).unwrap_or("").to_string());
            profile.into_iter().chain(values).collect()
        })
        .collect();
    // `packing.policy` is known by its section; other settings are known by their names, if these are different.
    let short = |key: &str| match key.split_once('.') {
        Some((section, "policy" | "kind" | "enabled" | "name")) => section.to_string(),
        Some((_, leaf)) => leaf.to_string(),
        None => key.to_string(),
    };
    let name = |key: &&str| match differing.iter().filter(|other| short(other) == short(key)).count() {
        1 => short(key),
        _ => key.to_string(),
    };
    (is_summed_up.then(|| "profile".into()).into_iter().chain(differing.iter().map(name)).collect(), rows)
}

/// Did the user set this key for the run of a report?
pub fn has_set(report: &Report, key: &str) -> bool {
    report.set.iter().any(|set| set.split_once('=').is_some_and(|(set, _)| set == key))
}

/// Replaces the key of the cache's bytes by the name of the layer that has the cache.
fn place_cache(leaves: &mut Vec<(String, String)>) {
    let value = |key: &str| leaves.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
    let of_store = value("host.store").and_then(store_row).map(|row| row.read_cache);
    let of_saker = || (value("saker.enabled") == Some("true")).then_some("saker.cache_bytes");
    let key = of_store.unwrap_or_else(of_saker);
    let bytes = key.and_then(value).and_then(|bytes| bytes.parse().ok()).unwrap_or(0_u64);
    let shown = match bytes {
        0 => "none".to_owned(),
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes => format!("{bytes} B"),
    };
    let at = leaves.iter().position(|(known, _)| known == "saker.batch").unwrap_or(leaves.len());
    leaves.insert(at, (CACHE.into(), shown));
    leaves.retain(|(known, _)| key != Some(known));
}

/// Settings of SAKER are dropped if it is off; if it is on, the batch size represents it.
fn place_saker(leaves: &mut Vec<(String, String)>) {
    let value = |key: &str| leaves.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone());
    let Some(at) = leaves.iter().position(|(key, _)| key == "saker.enabled") else { return };
    let batch = match (value("saker.enabled").as_deref(), value("saker.batch").as_deref()) {
        (Some("true"), Some("0")) => "adaptive".to_owned(),
        (Some("true"), Some(requests)) => format!("batch {requests}"),
        _ => {
            leaves.retain(|(key, _)| !key.starts_with("saker."));
            "off".to_owned()
        }
    };
    leaves.retain(|(key, _)| !["saker.enabled", "saker.batch"].contains(&key.as_str()));
    leaves.insert(at.min(leaves.len()), (SAKER.into(), batch));
}

/// The name of a store on the host takes the place of the engine, since the drive below it has blocks.
fn place_store(leaves: &mut Vec<(String, String)>) {
    let Some(at) = leaves.iter().position(|(key, _)| key == "host.store") else { return };
    let (_, store) = leaves.remove(at);
    if store != NO_STORE
        && let Some((_, engine)) = leaves.iter_mut().find(|(key, _)| key == "engine.name")
    {
        *engine = format!("{store} on host");
    }
}

fn flatten(value: &Value, path: &str, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(value, &key, leaves);
            }
        }
        Value::String(text) => leaves.push((path.into(), text.clone())),
        other => leaves.push((path.into(), other.to_string())),
    }
}
