//! Observing and changing a drive in wall time while it is served.
//!
//! A change is text, so that a recording can contain it. The first line names the change; the rest is its
//! argument:
//!
//! ```text
//!   faults add              faults clear              power cut torn
//!   [[rule]] ...            NAME of a rule, or none   (or: power cut whole)
//! ```

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::rc::Rc;
use std::str::FromStr;

use kvdrive_device::Drive;
use kvdrive_flash::Geometry;
use kvdrive_flash::faults::FaultCount;
use kvdrive_link::Link;
use kvdrive_link::shared::{Controlled, Outcome};
use kvdrive_nvme::Cqe;
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_sim::{Buckets, Ns, Sim, TaskCell};

use crate::snapshot::DriveSnapshot;
use kvdrive_config::faults::rules_beside;

const ADD: &str = "faults add";
const CLEAR: &str = "faults clear";
const CUT_TORN: &str = "power cut torn";
const CUT_WHOLE: &str = "power cut whole";

/// A change of a drive that is served. Its text is the argument of
/// [`Control::change`](kvdrive_link::shared::Control::change).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds rules: the content of a file of fault rules ([`kvdrive_config::faults`]). The answer has their
    /// names, one on each line.
    AddFaults(String),
    /// Removes the rule with this name, or all rules. The answer says how many were removed.
    ClearFaults(Option<String>),
    /// Cuts the power. The survivors are returned when the drive ends.
    CutPower {
        /// May pages be torn that are being programmed?
        torn: bool,
    },
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Change::AddFaults(rules) => write!(f, "{ADD}\n{rules}"),
            Change::ClearFaults(name) => write!(f, "{CLEAR}\n{}", name.as_deref().unwrap_or_default()),
            Change::CutPower { torn } => f.write_str(if *torn { CUT_TORN } else { CUT_WHOLE }),
        }
    }
}

impl From<Change> for String {
    fn from(change: Change) -> String {
        change.to_string()
    }
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        let (what, rest) = text.split_once('\n').unwrap_or((text, ""));
        match (what, rest) {
            (ADD, rules) => Ok(Change::AddFaults(rules.to_owned())),
            (CLEAR, name) => Ok(Change::ClearFaults((!name.is_empty()).then(|| name.to_owned()))),
            (CUT_TORN | CUT_WHOLE, "") => Ok(Change::CutPower { torn: what == CUT_TORN }),
            _ => Err(format!("{what:?}: no such change; there are {ADD}, {CLEAR}, {CUT_TORN}, {CUT_WHOLE}")),
        }
    }
}

/// A drive in wall time, as [`Control`](kvdrive_link::shared::Control) accesses it.
pub struct Running {
    pub(super) sim: Sim,
    pub(super) link: Rc<Link>,
    pub(super) drive: Rc<Drive>,
    pub(super) geometry: Geometry,
    /// Seed of the random choices of rules.
    pub(super) seed: u64,
    /// Model time of commands by opcode, from where they took effect to their completion.
    pub(super) latencies: Rc<TaskCell<BTreeMap<u8, Buckets>>>,
    /// Lateness of its events: wall time minus model time.
    pub(super) lateness: TaskCell<Buckets>,
}

impl Running {
    /// The present counters, model time, traffic, resources and fault rules.
    pub fn snapshot(&self) -> DriveSnapshot {
        DriveSnapshot::of(&self.sim, &self.link, &self.drive, &[])
    }

    /// Model time of commands of I/O queues, by opcode.
    pub fn latencies(&self) -> BTreeMap<u8, Buckets> {
        self.latencies.borrow().clone()
    }

    /// Lateness of its events relative to the model, ns, measured; empty if the drive is not paced.
    pub fn lateness(&self) -> Buckets {
        self.lateness.borrow().clone()
    }

    /// Every fault rule with how often it matched and struck, in the order in which rules are evaluated.
    pub fn faults(&self) -> Vec<FaultCount> {
        self.drive.faults().counts()
    }

    /// The drive, for reading only.
    pub fn drive(&self) -> &Drive {
        &self.drive
    }

    fn add_faults(&self, text: &str) -> Outcome {
        let faults = self.drive.faults();
        let taken: Vec<String> = faults.counts().into_iter().map(|count| count.name).collect();
        let rules = rules_beside("rules", text, &self.geometry, &taken).map_err(|error| error.to_string())?;
        faults.add(&rules, self.seed);
        Ok(rules.into_iter().map(|rule| rule.name + "\n").collect())
    }

    fn clear_faults(&self, name: Option<&str>) -> Outcome {
        match (self.drive.faults().clear(name), name) {
            (0, Some(name)) => Err(format!("{name:?}: no such rule")),
            (cleared, _) => Ok(cleared.to_string()),
        }
    }
}

impl Controlled for Running {
    fn change(&self, change: &str) -> Outcome {
        match change.parse()? {
            Change::AddFaults(rules) => self.add_faults(&rules),
            Change::ClearFaults(name) => self.clear_faults(name.as_deref()),
            Change::CutPower { torn } => {
                self.drive.faults().cut_power(torn);
                Ok(String::new())
            }
        }
    }

    fn needs_time(&self) -> bool {
        self.drive.faults().is_armed()
    }

    fn shares_settling(&self) -> bool {
        self.drive.settles_to_files()
    }

    fn settle(&self) -> bool {
        self.drive.settle()
    }

    fn note_latency(&self, opcode: u8, span: Ns) {
        self.latencies.borrow_mut().entry(opcode).or_default().record(span);
    }

    fn note_lateness(&self, late_ns: Ns) {
        self.lateness.borrow_mut().record(late_ns);
    }

    fn at_door(&self, session: u32, cid: u16) -> Option<TransportFault> {
        self.drive.faults().take_at_door(session, cid)
    }

    fn revoke(&self, session: u32, cqe: &mut Cqe) {
        self.drive.revoke(session, cqe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_what_its_text_says() {
        for change in [
            Change::AddFaults("[[rule]]\nfault = \"lose\"\n".into()),
            Change::ClearFaults(None),
            Change::ClearFaults(Some("read-error 1".into())),
            Change::CutPower { torn: true },
            Change::CutPower { torn: false },
        ] {
            assert_eq!(change.to_string().parse(), Ok(change));
        }
        for wrong in ["", "faults", "power cut", "power cut torn\nnow"] {
            let error = wrong.parse::<Change>().unwrap_err();
            assert!(error.contains("there are faults add, "), "{error}");
        }
    }
}
