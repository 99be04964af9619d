//! Fault injection: rules that say where something fails, which operations are struck, when, and how.
//!
//! ```text
//!   a flash operation  ─► FlashPort ──┐                                    ┌─► the operation fails, takes longer,
//!                                     ├─► Faults::strike: which rule is due ┤   or leaves an altered page
//!   a command          ─► requests ───┘   (matched, then due)              └─► the command is refused, late, or lost
//! ```
//!
//! A kind of fault is one file and one row of [`FAULTS`]: its name, the [`Moment`]s at which it can strike,
//! its own keys, and the [`Effect`] it chooses. Other modules carry the effect out: the flash port
//! ([`crate::port`]), the controller for commands, and the network transport for answers. A rule ([`Rule`]) is a kind,
//! together with the operations that it matches and the time at which it is due; this module does not know the text
//! form of rules.
//!
//! A rule injects an error that the drive, or the host, can notice. Wrong data never passes as correct: the
//! page's checksum detects a flipped bit.
//!
//! A drive without rules pays one test of a flag for each command and each flash operation.

mod bad_digest;
mod delay;
mod die_offline;
mod drop_connection;
mod erase_error;
mod fatal;
mod flip;
mod late;
mod lose;
mod not_ready;
mod power_cut;
mod program_error;
mod read_error;
mod stall;
mod status;
mod write_protect;

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::rc::Rc;

use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Ns, Rng, Sim, TaskCell};

use crate::Purpose;

/// The points of execution at which a fault can strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A command of an I/O queue was fetched and is about to be executed.
    Command,
    /// A page of flash is about to be sensed, wholly or in part.
    Read,
    /// A page is about to be programmed.
    Program,
    /// A block is about to be erased.
    Erase,
}

impl Moment {
    /// Every moment with its name in rules.
    pub const ALL: [(Moment, &'static str); 4] = [
        (Moment::Command, "command"),
        (Moment::Read, "read"),
        (Moment::Program, "program"),
        (Moment::Erase, "erase"),
    ];

    /// Its name in rules.
    pub fn name(self) -> &'static str {
        Moment::ALL[self as usize].1
    }

    /// Keys with which a rule for this moment selects its targets.
    pub fn matching_keys(self) -> &'static [&'static str] {
        match self {
            Moment::Command => &["opcode", "key", "keys", "namespace"],
            Moment::Read | Moment::Program | Moment::Erase => &["purpose", "die", "block"],
        }
    }
}

/// The effect of a fault. A kind chooses it; the port and the controller carry it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The read is answered as damaged. The page itself is unchanged.
    Unreadable,
    /// A bit of the page's data is changed on the medium.
    Flip,
    /// The page cannot be programmed, or the block cannot be erased.
    Fail,
    /// The die of the operation is lost for good.
    DieOffline,
    /// The command or operation takes longer by this many ns.
    Delay(Ns),
    /// The command is answered with this status and not executed.
    Refuse(Status),
    /// As `Refuse`, for commands that would change stored content; others do not match.
    RefuseChange(Status),
    /// The command is not executed, and stays unanswered until its host aborts it after this many ns.
    Lose(Ns),
    /// The answer of the command, or its connection, has a fault on a network.
    AtDoor(TransportFault),
    /// The power is cut. Operations in flight may be left torn, or only as before or as after the operation.
    CutPower {
        /// Whether they may be torn.
        torn: bool,
    },
}

/// Settings of a rule that only some kinds use ([`FaultKind::keys`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// `status`: the status of the answer.
    pub status: Option<Status>,
    /// `delay_ns`: the additional time.
    pub delay_ns: Option<Ns>,
    /// `timeout_ns`: the time after which a host aborts a command.
    pub timeout_ns: Option<Ns>,
    /// `torn`: may a power cut tear a page that is being programmed?
    pub torn: Option<bool>,
}

/// One kind of fault.
pub struct FaultKind {
    /// Its name in rules and reports.
    pub name: &'static str,
    /// What it does, in a line.
    pub origin: &'static str,
    /// The moments at which it can strike; a rule without a moment gets the first.
    pub moments: &'static [Moment],
    /// The [`Settings`] it uses, by name.
    pub keys: &'static [&'static str],
    /// The required keys in the text form of a rule, one per line.
    pub example: &'static str,
    /// The effect with these settings; the error names a missing or wrong setting.
    pub effect: fn(&Settings) -> Result<Effect, String>,
}

/// Every kind of fault.
pub static FAULTS: &[FaultKind] = &[
    read_error::KIND,
    program_error::KIND,
    erase_error::KIND,
    die_offline::KIND,
    flip::KIND,
    status::KIND,
    delay::KIND,
    lose::KIND,
    power_cut::KIND,
    drop_connection::KIND,
    bad_digest::KIND,
    stall::KIND,
    late::KIND,
    fatal::KIND,
    not_ready::KIND,
    write_protect::KIND,
];

/// The kind called `name`.
pub fn kind(name: &str) -> Option<&'static FaultKind> {
    FAULTS.iter().find(|kind| kind.name == name)
}

/// Refuses rules that can never strike a drive in the program of its host: faults of answers on a network.
///
/// # Errors
/// The first such rule, and why.
pub fn check_without_door(rules: &[Rule]) -> Result<(), String> {
    match rules.iter().find(|rule| matches!(rule.effect, Effect::AtDoor(_))) {
        Some(Rule { name, kind, .. }) => Err(format!(
            "{name}: a {} never strikes here: it is a fault of answers that cross a network, as those of kvdrive serve do",
            kind.name
        )),
        None => Ok(()),
    }
}

/// What a rule matches; an empty list matches everything.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// Opcodes of commands. That of Store, or of a batch, also matches commands that do the same in another way.
    pub opcodes: Vec<u8>,
    /// Keys that commands name, first and last. Commands without a key do not match.
    pub keys: Option<RangeInclusive<Key>>,
    /// Namespaces of commands.
    pub namespaces: Vec<u32>,
    /// Purposes of flash operations.
    pub purposes: Vec<Purpose>,
    /// Dies, by number.
    pub dies: Vec<u32>,
    /// Blocks, by their number on the drive.
    pub blocks: Vec<u32>,
}

/// When a rule is due, among the times that it matches.
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    /// Number of matches that are ignored first.
    pub after: u64,
    /// After that, every n-th match is due; 1: each of them.
    pub every: u64,
    /// Probability that a due match is struck, drawn from the rule's own random stream; 1: always.
    pub probability: f64,
    /// Most times that it strikes.
    pub times: Option<u64>,
}

impl Default for When {
    fn default() -> When {
        When { after: 0, every: 1, probability: 1.0, times: None }
    }
}

/// One rule.
#[derive(Clone)]
pub struct Rule {
    /// Its name in reports, and the name of its random stream.
    pub name: String,
    /// Its kind.
    pub kind: &'static FaultKind,
    /// When it strikes: one of the kind's moments.
    pub moment: Moment,
    /// What it does.
    pub effect: Effect,
    /// What it strikes.
    pub matches: Matches,
    /// How often.
    pub when: When,
}

/// The counters of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultCount {
    /// The rule's name.
    pub name: String,
    /// Its kind's name.
    pub kind: &'static str,
    /// Commands or operations that it matched while it could still strike.
    pub matched: u64,
    /// Number of times it struck.
    pub struck: u64,
}

/// The operation or command that rules are matched against.
#[derive(Clone, Copy)]
pub enum Subject {
    /// A command: opcode, key, namespace, and whether it changes content.
    Command {
        /// Its opcode.
        opcode: u8,
        /// The opcode of the plain command that does the same: Store for a value that travels inside commands.
        plain: u8,
        /// The key it names.
        key: Option<Key>,
        /// Its namespace.
        namespace: u32,
        /// Would it change stored content?
        changes_content: bool,
    },
    /// A flash operation.
    Flash {
        /// Its purpose.
        purpose: Purpose,
        /// The die it happens on.
        die: u32,
        /// The block it happens to.
        block: u32,
    },
}

/// The faults that strike one command or operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Struck {
    /// Delays, summed up, ns.
    pub delay_ns: Ns,
    /// The fault of the answer on a network, whatever the answer is; later rules with another one were not evaluated.
    pub at_door: Option<TransportFault>,
    /// The other effect, if any; rules after the one that chose it were not evaluated.
    pub effect: Option<Effect>,
    /// For a failing erase: its pages cannot be read any more. Otherwise they are unchanged.
    pub leaves_nothing: bool,
}

struct Active {
    rule: Rule,
    rng: Rng,
    matched: u64,
    struck: u64,
}

impl Active {
    /// Does the rule strike now? Counts the match.
    fn is_due(&mut self, moment: Moment, subject: &Subject) -> bool {
        let when = &self.rule.when;
        let used_up = when.times.is_some_and(|times| self.struck >= times);
        let fits = self.rule.effect.fits(subject) && self.rule.matches.fit(subject);
        if used_up || self.rule.moment != moment || !fits {
            return false;
        }
        self.matched += 1;
        let past = self.matched.saturating_sub(when.after);
        let due = past > 0 && past.is_multiple_of(when.every);
        let strikes = due && (when.probability >= 1.0 || self.rng.unit_f64() < when.probability);
        self.struck += u64::from(strikes);
        strikes
    }
}

impl Effect {
    /// Can this kind of fault strike the subject, whatever the rule matches?
    fn fits(&self, subject: &Subject) -> bool {
        match self {
            Effect::RefuseChange(_) => matches!(subject, Subject::Command { changes_content: true, .. }),
            _ => true,
        }
    }
}

impl Matches {
    fn fit(&self, subject: &Subject) -> bool {
        fn among<T: PartialEq>(list: &[T], item: &T) -> bool {
            list.is_empty() || list.contains(item)
        }
        match subject {
            Subject::Command { opcode, plain, key, namespace, .. } => {
                (among(&self.opcodes, opcode) || self.opcodes.contains(plain))
                    && among(&self.namespaces, namespace)
                    && self.keys.as_ref().is_none_or(|keys| key.is_some_and(|key| keys.contains(&key)))
            }
            Subject::Flash { purpose, die, block } => {
                among(&self.purposes, purpose) && among(&self.dies, die) && among(&self.blocks, block)
            }
        }
    }
}

struct FaultsState {
    sim: Sim,
    /// There are rules.
    is_armed: Cell<bool>,
    rules: TaskCell<Vec<Active>>,
    /// The power was cut and [`Faults::take_power_cut`] has not been called yet; may pages be torn?
    power_cut: Cell<Option<bool>>,
    /// A power cut halts the executor.
    halts: Cell<bool>,
    /// Commands whose answers get a fault on the network, by queue and identifier; `None` without a network.
    at_door: TaskCell<Option<Vec<(u32, u16, TransportFault)>>>,
}

/// The rules of one drive; clones refer to the same rules.
#[derive(Clone)]
pub struct Faults(Rc<FaultsState>);

impl Faults {
    /// No rules.
    pub fn new(sim: &Sim) -> Faults {
        Faults(Rc::new(FaultsState {
            sim: sim.clone(),
            is_armed: Cell::new(false),
            rules: TaskCell::default(),
            power_cut: Cell::new(None),
            halts: Cell::new(false),
            at_door: TaskCell::default(),
        }))
    }

    /// Replaces all rules; their counters start at 0. Rules with a probability draw from streams named by
    /// `seed` and the rule's name.
    pub fn set(&self, rules: &[Rule], seed: u64) {
        self.clear(None);
        self.add(rules, seed);
    }

    /// Adds rules after the present ones, which continue unchanged; otherwise as [`Faults::set`].
    pub fn add(&self, rules: &[Rule], seed: u64) {
        let active = |rule: &Rule| Active {
            rng: Rng::stream(seed, &format!("fault {}", rule.name)),
            rule: rule.clone(),
            matched: 0,
            struck: 0,
        };
        let mut all = self.0.rules.borrow_mut();
        all.extend(rules.iter().map(active));
        self.0.is_armed.set(!all.is_empty());
    }

    /// Removes the rules called `name`, or all if there is no name; returns the number of removed rules.
    pub fn clear(&self, name: Option<&str>) -> usize {
        let mut all = self.0.rules.borrow_mut();
        let before = all.len();
        all.retain(|active| name.is_some_and(|name| active.rule.name != name));
        self.0.is_armed.set(!all.is_empty());
        before - all.len()
    }

    /// Every rule's counters, in the order in which the rules were set.
    pub fn counts(&self) -> Vec<FaultCount> {
        let rules = self.0.rules.borrow();
        let count = |active: &Active| FaultCount {
            name: active.rule.name.clone(),
            kind: active.rule.kind.name,
            matched: active.matched,
            struck: active.struck,
        };
        rules.iter().map(count).collect()
    }

    /// From now on a power cut halts the executor at once: for drives that are not stepped event by event.
    pub fn halt_at_power_cut(&self) {
        self.0.halts.set(true);
    }

    /// Announces that a network transport will call [`Faults::take_at_door`].
    pub fn has_door(&self) {
        self.0.at_door.borrow_mut().get_or_insert_default();
    }

    /// Notes the fault for the answer to this command of a queue.
    pub fn note_at_door(&self, queue: u32, cid: u16, fault: TransportFault) {
        if let Some(noted) = &mut *self.0.at_door.borrow_mut() {
            noted.push((queue, cid, fault));
        }
    }

    /// Removes and returns the fault for the answer to this command of a queue.
    #[inline]
    pub fn take_at_door(&self, queue: u32, cid: u16) -> Option<TransportFault> {
        let mut noted = self.0.at_door.borrow_mut();
        let noted = noted.as_mut().filter(|noted| !noted.is_empty())?;
        let at = noted.iter().position(|(of, which, _)| (*of, *which) == (queue, cid))?;
        Some(noted.swap_remove(at).2)
    }

    /// Cuts the power, as a rule would.
    pub fn cut_power(&self, torn: bool) {
        self.0.power_cut.set(Some(torn));
        if self.0.halts.get() {
            self.0.sim.halt();
        }
    }

    /// Was the power cut since the last call? If so, whether operations in flight may be torn.
    pub fn take_power_cut(&self) -> Option<bool> {
        self.0.power_cut.take()
    }

    /// Are there rules?
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.0.is_armed.get()
    }

    /// The faults that strike `subject` at `moment`. Rules are evaluated in their order. Delays add up; the first fault
    /// of the answer counts, and says nothing of the execution, so evaluation continues; the first other effect ends it.
    pub fn strike(&self, moment: Moment, subject: Subject) -> Struck {
        let mut struck = Struck::default();
        if !self.is_armed() {
            return struck;
        }
        let purpose = match subject {
            Subject::Flash { purpose, .. } => purpose.name(),
            Subject::Command { opcode, .. } => kvdrive_nvme::opcode::name(opcode).unwrap_or(""),
        };
        for active in self.0.rules.borrow_mut().iter_mut() {
            let is_taken = matches!(active.rule.effect, Effect::AtDoor(_)) && struck.at_door.is_some();
            if is_taken || !active.is_due(moment, &subject) {
                continue;
            }
            self.0.sim.trace().note(self.0.sim.now(), 0, "fault", active.rule.kind.name, 0, purpose);
            match active.rule.effect {
                Effect::Delay(span_ns) => struck.delay_ns = struck.delay_ns.saturating_add(span_ns),
                Effect::CutPower { torn } => self.cut_power(torn),
                Effect::AtDoor(fault) => struck.at_door = Some(fault),
                effect => {
                    struck.effect = Some(effect);
                    struck.leaves_nothing = moment == Moment::Erase && active.rng.one_in(2);
                    break;
                }
            }
        }
        struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(when: When, count: u64) -> Vec<u64> {
        let faults = Faults::new(&Sim::new());
        let rule = Rule {
            name: "a rule".into(),
            kind: kind("read-error").expect("it is in the table"),
            moment: Moment::Read,
            effect: Effect::Unreadable,
            matches: Matches { dies: vec![1], ..Matches::default() },
            when,
        };
        faults.set(&[rule], 1);
        let mut fired = Vec::new();
        for number in 1..=count {
            // An operation that the rule does not match does not count.
            for die in [0, 1] {
                let subject = Subject::Flash { purpose: Purpose::Value, die, block: 0 };
                let struck = faults.strike(Moment::Read, subject).effect.is_some();
                assert!(!struck || die == 1);
                if struck {
                    fired.push(number);
                }
            }
            let subject = Subject::Flash { purpose: Purpose::Value, die: 1, block: 0 };
            assert_eq!(faults.strike(Moment::Program, subject), Struck::default(), "another moment");
        }
        assert_eq!(faults.counts()[0].struck, fired.len() as u64);
        fired
    }

    #[test]
    fn rules_are_due_as_they_say() {
        let all = When::default();
        assert_eq!(strikes(all.clone(), 4), [1, 2, 3, 4]);
        assert_eq!(strikes(When { after: 2, ..all.clone() }, 5), [3, 4, 5]);
        assert_eq!(strikes(When { after: 1, every: 3, ..all.clone() }, 10), [4, 7, 10]);
        assert_eq!(strikes(When { times: Some(2), every: 2, ..all.clone() }, 10), [2, 4]);
        let half = strikes(When { probability: 0.5, ..all }, 1000);
        assert!((400..600).contains(&half.len()), "{} of 1000", half.len());
    }

    fn rule(kind_of: &str, effect: Effect) -> Rule {
        let kind = kind(kind_of).expect("it is in the table");
        let (matches, when) = (Matches::default(), When::default());
        Rule { name: kind_of.into(), kind, moment: kind.moments[0], effect, matches, when }
    }

    /// A stalled answer says nothing of the command; a refusal ends the evaluation.
    #[test]
    fn a_fault_of_the_answer_leaves_later_rules_in_force() {
        let faults = Faults::new(&Sim::new());
        let stall = TransportFault::Stall { ms: 1 };
        let refusal = Effect::RefuseChange(Status::NAMESPACE_WRITE_PROTECTED);
        let rules = [
            rule("stall", Effect::AtDoor(stall)),
            rule("bad-digest", Effect::AtDoor(TransportFault::BadDigest)),
            rule("delay", Effect::Delay(7)),
            rule("write-protect", refusal),
            rule("lose", Effect::Lose(1)),
        ];
        faults.set(&rules, 1);
        let mut subject =
            Subject::Command { opcode: 1, plain: 1, key: None, namespace: 1, changes_content: true };
        let both = Struck { delay_ns: 7, at_door: Some(stall), effect: Some(refusal), leaves_nothing: false };
        assert_eq!(faults.strike(Moment::Command, subject), both);
        let fired = || faults.counts().iter().map(|count| count.struck).collect::<Vec<_>>();
        assert_eq!(fired(), [1, 0, 1, 1, 0]);
        if let Subject::Command { changes_content, .. } = &mut subject {
            *changes_content = false;
        }
        assert_eq!(faults.strike(Moment::Command, subject).effect, Some(Effect::Lose(1)));
        assert_eq!(fired(), [2, 0, 2, 1, 1]);
    }

    #[test]
    fn every_kind_has_a_moment_and_a_name_of_its_own() {
        for (row, kind) in FAULTS.iter().enumerate() {
            assert!(!kind.moments.is_empty(), "{}", kind.name);
            assert!(FAULTS[..row].iter().all(|other| other.name != kind.name), "{} twice", kind.name);
        }
        for (row, (moment, name)) in Moment::ALL.iter().enumerate() {
            assert_eq!((*moment as usize, moment.name()), (row, *name));
        }
    }
}
