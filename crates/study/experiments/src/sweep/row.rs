//! One combination of a sweep, and what identifies it.

use std::sync::Arc;

use kvdrive_config::{Assigned, Document};
use serde_json::{Map, Value};

/// One combination of a sweep.
#[derive(Clone, Debug)]
pub struct Row {
    /// Settings of the grid, as in the line.
    pub settings: Map<String, Value>,
    /// The whole configuration.
    pub document: Document,
    /// Digest of profile and configuration, 16 hexadecimal digits: it identifies a line.
    pub config_hash: String,
    /// `KEY=VALUE` of all rows.
    pub(super) set: Arc<[String]>,
}

/// The document of a row before the settings of the grid, and the keys that were set in it.
pub(super) fn document(profile: &str, set: &[&str]) -> anyhow::Result<(Document, Assigned)> {
    let mut document = Document::profile(profile)?;
    let named = set.iter().map(|line| (format!("set {line:?}"), (*line).to_owned()));
    let assigned = Assigned::lay_over(&mut document, named)?;
    Ok((document, assigned))
}

pub(super) fn config_hash(document: &Document) -> anyhow::Result<String> {
    document.config()?;
    Ok(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(document.identity().as_bytes())))
}
