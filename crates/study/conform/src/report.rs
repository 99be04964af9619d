//! Verdicts as lines for people and as JSON for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::ask::Exchange;
use crate::clauses::Clause;

/// Exchanges that a line of a failed clause shows; JSON has all.
const SHOWN: usize = 3;

/// What a clause came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target does what the clause asks.
    Pass,
    /// It does not.
    Fail,
    /// It does not offer this, and need not; or it cannot be tried.
    NotOffered,
}

impl Verdict {
    /// The word in lines and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::NotOffered => "not offered",
        }
    }
}

/// A clause with its verdict.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The clause.
    pub clause: &'static Clause,
    /// Its verdict.
    pub verdict: Verdict,
    /// What was found, if the verdict does not say it all.
    pub told: String,
    /// Commands and their answers, in order.
    pub exchanges: Vec<Exchange>,
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .chunks(4)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        .collect::<Vec<_>>()
        .join(" ")
}

impl Exchange {
    /// The lines of this exchange.
    fn lines(&self) -> String {
        let queue = if self.is_admin { "admin" } else { "I/O" };
        let mut text = format!("    sent     {queue:<6} {}\n", hex(&self.sqe));
        if !self.sent.is_empty() {
            _ = writeln!(text, "    with     {}", hex(&self.sent));
        }
        match self.status {
            Some(status) => _ = writeln!(text, "    came     {status}, DW0 {:08x}", self.dw0),
            None => text += "    came     nothing\n",
        }
        if !self.received.is_empty() {
            _ = writeln!(text, "    with     {}", hex(&self.received));
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "queue": if self.is_admin { "admin" } else { "io" },
            "sqe": hex(&self.sqe).replace(' ', ""),
            "sent": hex(&self.sent).replace(' ', ""),
            "status": self.status.map(kvdrive_nvme::Status::raw),
            "dw0": self.dw0,
            "received": hex(&self.received).replace(' ', ""),
        })
    }
}

impl Judged {
    /// The line of the clause; a failed one is followed by what was sent and what came back.
    pub fn text(&self) -> String {
        let Clause { id, section, asks, who, .. } = self.clause;
        let mut text = format!("{:<12} {section:<9} {id:<26} {asks}", self.verdict.name());
        if !self.told.is_empty() {
            text += &format!("\n             {}", self.told);
        }
        if !who.is_empty() && (self.verdict == Verdict::Fail || !self.told.is_empty()) {
            text += &format!("\n             {who}");
        }
        if self.verdict == Verdict::Fail {
            text.push('\n');
            let from = self.exchanges.len().saturating_sub(SHOWN);
            if from > 0 {
                _ = writeln!(text, "    ({from} commands before these; --json has all)");
            }
            self.exchanges[from..].iter().for_each(|exchange| text += &exchange.lines());
        }
        text.trim_end().to_owned()
    }

    fn json(&self) -> Value {
        let Clause { id, section, group, asks, who, .. } = self.clause;
        json!({
            "id": id,
            "section": section,
            "group": group.name(),
            "asks": asks,
            "verdict": self.verdict.name(),
            "told": self.told,
            "who": who,
            "exchanges": self.exchanges.iter().map(Exchange::json).collect::<Vec<_>>(),
        })
    }
}

/// All verdicts.
#[derive(Clone, Debug)]
pub struct Report {
    /// The target in a line.
    pub target: String,
    /// In the order of the table.
    pub judged: Vec<Judged>,
    /// Keys that were stored and could not be removed.
    pub left: Vec<Vec<u8>>,
}

impl Report {
    /// Clauses with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.judged.iter().filter(|judged| judged.verdict == verdict).count()
    }

    /// Identifiers of the clauses that failed.
    pub fn failed(&self) -> Vec<&'static str> {
        let failed = self.judged.iter().filter(|judged| judged.verdict == Verdict::Fail);
        failed.map(|judged| judged.clause.id).collect()
    }

    /// The last line.
    pub fn summary(&self) -> String {
        let [pass, fail, none] = [Verdict::Pass, Verdict::Fail, Verdict::NotOffered].map(|it| self.count(it));
        let mut text = format!("{}: {pass} pass, {fail} fail, {none} not offered", self.target);
        if !self.left.is_empty() {
            let keys: Vec<String> = self.left.iter().map(|key| hex(key).replace(' ', "")).collect();
            text += &format!("\nnot removed: {}", keys.join(", "));
        }
        text
    }

    /// The report for programs.
    pub fn json(&self) -> Value {
        json!({
            "format": 1,
            "target": self.target,
            "specification": "NVM Express Key Value Command Set 1.0d",
            "pass": self.count(Verdict::Pass),
            "fail": self.count(Verdict::Fail),
            "not_offered": self.count(Verdict::NotOffered),
            "not_removed": self.left.iter().map(|key| hex(key).replace(' ', "")).collect::<Vec<_>>(),
            "clauses": self.judged.iter().map(Judged::json).collect::<Vec<_>>(),
        })
    }
}
