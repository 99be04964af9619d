//! Everything that the reports of a session depend on.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use kvdrive_config::Document;
use serde::Serialize;
use serde_json::Value;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The key of an entry. Its text is in the entry, so that equal digests of two keys return no wrong result.
pub(crate) struct EntryKey {
    /// JSON of program and runs, one line.
    pub text: String,
    name: String,
}

#[derive(Serialize)]
struct Parts<'a> {
    program: &'a str,
    runs: &'a [RunParts],
}

#[derive(Serialize)]
struct RunParts {
    profile: &'static str,
    config: Value,
    /// Digest of the trace file that the run reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

impl EntryKey {
    /// The key of runs that follow each other on one drive; `None` if their reports depend on more than a key
    /// can express.
    ///
    /// # Errors
    /// A document is no valid configuration, or its trace cannot be read.
    pub fn of(program: &str, documents: &[Document]) -> anyhow::Result<Option<EntryKey>> {
        let mut runs = Vec::with_capacity(documents.len());
        for document in documents {
            let config = document.config()?;
            let brings_code = config.workload.own.is_some() || config.engines.lsm.packing.own.is_some();
            if brings_code || config.media.has_file() || config.run.clock != "virtual" {
                return Ok(None);
            }
            let path = Path::new(&config.workload.trace);
            let trace = match std::fs::metadata(path) {
                Ok(found) if found.is_file() => {
                    Some(digest(path).with_context(|| config.workload.trace.clone())?)
                }
                Ok(_) => return Ok(None),
                // There is no trace, or one that is part of the program.
                Err(_) => None,
            };
            runs.push(RunParts { profile: document.profile_name(), config: document.values(), trace });
        }
        let digest = |text: &str| format!("{:016x}", xxh3_64(text.as_bytes()));
        let name = format!("{}-{}", digest(&serde_json::to_string(&runs)?), digest(program));
        Ok(Some(EntryKey { text: serde_json::to_string(&Parts { program, runs: &runs })?, name }))
    }

    /// Name of the entry's file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The common beginning of the names of all entries of the same runs, of any program.
    pub fn runs_of(name: &str) -> &str {
        name.split_once('-').map_or(name, |(runs, _)| runs)
    }
}

/// The identity of a program in keys. A committed revision identifies the source of a program. If the
/// revision is not committed (`is_committed` is false), the digest of the program's file is added: a source
/// may be edited between the moment when its digest is taken and the moment when it is compiled.
///
/// # Errors
/// The file cannot be read.
pub fn program(revision: &str, is_committed: bool, file: &Path) -> io::Result<String> {
    match is_committed {
        true => Ok(revision.to_owned()),
        false => Ok(format!("{revision} {}", digest(file)?)),
    }
}

/// Digest of a file's content.
fn digest(path: &Path) -> io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, Xxh3::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(format!("{:032x}", hasher.digest128())),
            bytes => hasher.write(&buffer[..bytes]),
        }
    }
}
