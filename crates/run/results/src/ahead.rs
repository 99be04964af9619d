//! The order of runs: which of them are remembered, in which order the others run, and how long these will take.
//!
//! The estimate for a session is the time in an earlier entry of it, of any revision of the program. Without
//! such an entry, it is the number of its operations times the usual time of one operation.

use std::collections::BTreeMap;

use kvdrive_run::operations_of_session;
use kvdrive_run::plan::Plan;

use crate::key::EntryKey;
use crate::{ResultCache, entry};

/// Seconds per operation if no earlier entry exists: `claims bandslim` took 687 s of processor time for its
/// 360 M operations, beside other work.
const OPERATION_S: f64 = 2e-6;

/// More operations than any run has. Workloads that end by themselves ask for more than this.
const LONGER_THAN_ANY: u64 = 1 << 40;

/// Sessions in the order in which they run, and their estimated times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunOrder {
    /// Sessions to run, longest first, so that no thread is left with a long one at the end; then the
    /// remembered ones.
    pub sessions: Vec<Vec<usize>>,
    /// Estimated seconds of each session to run.
    seconds: Vec<f64>,
}

impl ResultCache {
    /// The order and the estimates for the runs of `plan`.
    ///
    /// # Errors
    /// [`Plan::check`] refuses a run, or its workload cannot be built.
    pub fn ahead(&self, plan: &Plan) -> anyhow::Result<RunOrder> {
        plan.check()?;
        let mut latest: BTreeMap<String, _> = BTreeMap::new();
        for (name, used) in self.folder.iter().flat_map(|folder| folder.names()) {
            let of_runs = latest.entry(EntryKey::runs_of(&name).to_owned()).or_insert((used, name.clone()));
            *of_runs = (used, name).max(of_runs.clone());
        }
        let (mut to_run, mut remembered) = (Vec::new(), Vec::new());
        for session in plan.sessions() {
            let runs = plan.of(session);
            let known = self.folder.as_ref().zip(self.key(&runs)?);
            if known.as_ref().is_some_and(|(folder, key)| folder.has(key.name())) {
                remembered.push(session.clone());
                continue;
            }
            let before = known.and_then(|(folder, key)| {
                let (_, name) = latest.get(EntryKey::runs_of(key.name()))?;
                entry::seconds(&folder.read(name)?)
            });
            let seconds = match before {
                Some(seconds) => seconds,
                None => match operations_of_session(&runs)? {
                    // A trace that is read to its end, and whose length is unknown.
                    LONGER_THAN_ANY.. => f64::INFINITY,
                    operations => operations as f64 * OPERATION_S,
                },
            };
            to_run.push((seconds, session.clone()));
        }
        to_run.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let (seconds, mut sessions): (Vec<f64>, Vec<_>) = to_run.into_iter().unzip();
        sessions.extend(remembered);
        Ok(RunOrder { sessions, seconds })
    }
}

impl RunOrder {
    /// The sessions that are to be run.
    pub fn to_run(&self) -> &[Vec<usize>] {
        &self.sessions[..self.seconds.len()]
    }

    /// How many runs are remembered, and how long the others take on `threads` threads, in words: on idle cores, and beside
    /// what else this machine does now.
    pub fn in_words(&self, threads: usize) -> String {
        self.in_words_if(threads, slower(threads))
    }

    /// The same if each run takes `slower` times as long as on an idle core.
    fn in_words_if(&self, threads: usize, slower: f64) -> String {
        let (new, old) = self.sessions.split_at(self.seconds.len());
        let runs = |sessions: &[Vec<usize>]| sessions.iter().map(Vec::len).sum::<usize>();
        let named = |runs: usize| format!("{runs} run{}", if runs == 1 { "" } else { "s" });
        let remembered = match runs(old) {
            0 => String::new(),
            old => format!(" and {old} remembered"),
        };
        match runs(new) {
            0 => format!("{}, remembered", named(runs(old))),
            new => {
                let seconds = self.seconds_on(threads);
                let (idle, beside) = (about(seconds), about(seconds * slower));
                let beside = match idle == beside {
                    true => String::new(),
                    false => format!(" on idle cores, {beside} beside what else runs now"),
                };
                format!("{}{remembered}: {idle}{beside}", named(new))
            }
        }
    }

    /// Seconds from the beginning of the first run to the end of the last one, on `threads` threads.
    pub fn seconds_on(&self, threads: usize) -> f64 {
        let mut ends = vec![0.0_f64; threads.max(1)];
        for seconds in &self.seconds {
            let free = ends.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there is a thread");
            *free += seconds;
        }
        ends.into_iter().fold(0.0, f64::max)
    }
}

/// How many times as long runs on `threads` threads take, because other programs run now; 1 on idle cores, and where the
/// system does not say.
fn slower(threads: usize) -> f64 {
    let said = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    said.split(' ').next().and_then(|load| load.parse().ok()).map_or(1.0, |load| share(load, threads, cores))
}

/// What threads wait for cores if `load` others want them, too, as a factor of their time without those.
fn share(load: f64, threads: usize, cores: usize) -> f64 {
    let per_core = |threads: f64| (threads / cores as f64).max(1.0);
    per_core(threads as f64 + load) / per_core(threads as f64)
}

/// A time with the precision of an estimate: `about 40 s`, `about 7 min`.
fn about(seconds: f64) -> String {
    match seconds {
        s if s.is_infinite() => "until the traces end".to_owned(),
        s if s < 10.0 => "less than 10 s".to_owned(),
        s if s < 95.0 => format!("about {:.0} s", (s / 10.0).ceil() * 10.0),
        s => format!("about {:.0} min", (s / 60.0).ceil()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_says_what_other_work_makes_of_it() {
        let ahead = RunOrder { sessions: vec![vec![0], vec![1, 2], vec![3]], seconds: vec![40.0, 40.0] };
        assert_eq!(ahead.in_words_if(2, 1.0), "3 runs and 1 remembered: about 40 s");
        let beside =
            "3 runs and 1 remembered: about 40 s on idle cores, about 6 min beside what else runs now";
        assert_eq!(ahead.in_words_if(2, 8.0), beside);
        let few = RunOrder { sessions: vec![vec![0]], seconds: vec![0.2] };
        assert_eq!(few.in_words_if(2, 8.0), "1 run: less than 10 s");
    }

    #[test]
    fn other_programs_make_runs_slower_as_far_as_they_take_cores() {
        let factors = [(0.0, 2, 2), (1.0, 1, 2), (2.0, 2, 2), (6.0, 2, 2), (6.0, 1, 8), (3.0, 4, 1)];
        let factors = factors.map(|(load, threads, cores)| share(load, threads, cores));
        assert_eq!(factors, [1.0, 1.0, 2.0, 4.0, 1.0, 1.75]);
    }
}
