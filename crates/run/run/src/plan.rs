//! Runs to be done: which there are, which are the same, and which follow each other on one drive. Options with lists,
//! sweeps, figures and claims all end as a [`Plan`]. It carries nothing out and remembers nothing: crate `results` does
//! both, for every plan in the same way.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use kvdrive_config::{Config, Document};
use kvdrive_text::output::spelled_out;
use kvdrive_workload::is_preconditioned;

/// Runs, in sessions: the runs of a session follow each other on one drive.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    documents: Vec<Document>,
    /// Numbers of runs.
    sessions: Vec<Vec<usize>>,
    /// Sessions by the identities of their runs.
    known: BTreeMap<String, Vec<usize>>,
}

impl Plan {
    /// Each run on a drive of its own.
    pub fn apart(documents: Vec<Document>) -> Plan {
        let sessions = (0..documents.len()).map(|run| vec![run]).collect();
        Plan { documents, sessions, known: BTreeMap::new() }
    }

    /// Runs that may share a drive do: those whose drives are preconditioned alike run in sequence on one drive, in their
    /// order; every other one has its own.
    ///
    /// # Errors
    /// A document is no valid configuration.
    pub fn sharing(documents: Vec<Document>) -> anyhow::Result<Plan> {
        let mut sessions: Vec<(Option<Config>, Vec<usize>)> = Vec::new();
        for (run, document) in documents.iter().enumerate() {
            let config = document.config()?;
            let drive = is_preconditioned(&config.workload).then(|| without_measured(config));
            match sessions.iter_mut().find(|(known, _)| drive.is_some() && *known == drive) {
                Some((_, session)) => session.push(run),
                None => sessions.push((drive, vec![run])),
            }
        }
        let sessions = sessions.into_iter().map(|(_, session)| session).collect();
        Ok(Plan { documents, sessions, known: BTreeMap::new() })
    }

    /// Adds runs that follow each other on one drive, unless the same session was added before. Returns their numbers,
    /// and whether they are new.
    ///
    /// # Errors
    /// A document is no valid configuration.
    pub fn add(&mut self, session: Vec<Document>) -> anyhow::Result<(Vec<usize>, bool)> {
        let mut identity = String::new();
        for document in &session {
            document.config()?;
            identity += &document.identity();
            identity.push('\n');
        }
        if let Some(known) = self.known.get(&identity) {
            return Ok((known.clone(), false));
        }
        let first = self.documents.len();
        let runs: Vec<usize> = (first..first + session.len()).collect();
        self.known.insert(identity, runs.clone());
        self.documents.extend(session);
        self.sessions.push(runs.clone());
        Ok((runs, true))
    }

    /// The configuration of every run.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// The numbers of the runs of each session.
    pub fn sessions(&self) -> &[Vec<usize>] {
        &self.sessions
    }

    /// The configurations of some runs.
    pub fn of(&self, session: &[usize]) -> Vec<Document> {
        session.iter().map(|run| self.documents[*run].clone()).collect()
    }

    /// Refuses runs that cannot be done side by side: with a clock that only `kvdrive run` has, with more pairs than their
    /// drive has room for, or with one image file for several drives, each of which would start from the state that
    /// another one left.
    ///
    /// # Errors
    /// One line that names the key.
    pub fn check(&self) -> anyhow::Result<()> {
        let mut images: BTreeMap<PathBuf, (PathBuf, u64)> = BTreeMap::new();
        for session in &self.sessions {
            for run in session {
                let config = self.documents[*run].config()?;
                in_model_time(&config)?;
                config.check_scans()?;
            }
            // A drive is loaded by its first run.
            let config = self.documents[session[0]].config()?;
            config.check_room()?;
            if let (true, Some(path)) = (config.media.has_file(), &config.media.path) {
                images.entry(spelled_out(path)).or_insert((path.clone(), 0)).1 += 1;
            }
        }
        match images.into_values().find(|(_, drives)| *drives > 1) {
            Some((path, drives)) => {
                bail!("media.kind: {drives} drives on one image file, {}; take ram or tags", path.display())
            }
            None => Ok(()),
        }
    }
}

/// Refuses a clock that only `kvdrive run` has.
///
/// # Errors
/// The configuration has such a clock.
pub fn in_model_time(config: &Config) -> anyhow::Result<()> {
    ensure!(config.run.clock != "wall", "run.clock: \"wall\" is for kvdrive run alone");
    Ok(())
}

/// Drive, host and load alone; settings of the measured part are set to equal values.
fn without_measured(mut config: Config) -> Config {
    let workload = &mut config.workload;
    workload.name.clear();
    workload.distribution.clear();
    workload.arrivals.clear();
    (workload.rate_per_s, workload.duration_ns) = (0, 0);
    (workload.ops, workload.scramble, workload.zipf_theta, workload.scan_length_max) = (0, false, 0.0, 0);
    workload.replayed_by = 1;
    config
}
