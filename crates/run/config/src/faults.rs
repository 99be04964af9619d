//! Fault rules as people write them: a TOML file with one table a rule.
//!
//! ```toml
//! [[rule]]
//! fault = "read-error"            # a row of kvdrive_flash::faults::FAULTS
//! purpose = ["value", "lookup"]   # what it matches; without: everything
//! die = 1
//! after = 100                     # when: 100 that match are let pass,
//! probability = "1%"              # then one in a hundred fires,
//! times = 3                       # three times at most
//!
//! [[rule]]
//! fault = "status"
//! opcode = "retrieve"
//! keys = ["user10", "user19"]     # first and last; "0x..." gives a key's bytes
//! status = "88h"
//! nth = 1                         # the first that matches, and no other
//! ```
//!
//! A fault that can strike at several moments has `at` (`command`, `read`, `program`, `erase`). `name` is
//! what reports call the rule. Every error is one line that begins with file, line and column.
//!
//! Rules are evaluated in the order of the file, those of a later `ctl inject` last. A command or operation gets all
//! delays that are due, one fault of its answer on a network (`stall`, `bad-digest`, ...) and one other fault, each
//! the first that is due; after the other fault no rule is evaluated.

use std::ops::Range;

use kvdrive_flash::faults::{self, FAULTS, FaultKind, Matches, Moment, Rule, Settings, When};
use kvdrive_flash::{Geometry, Purpose};
use kvdrive_nvme::{DRIVE_NSID, Key, Status, opcode};
use toml_edit::{Item, Table, Value};

use kvdrive_text::{Unit, quantity};

/// Keys that every rule may have.
const COMMON: [&str; 8] = ["fault", "name", "at", "nth", "after", "every", "probability", "times"];

/// The rules in `text`, for a drive of `geometry`. Messages begin with `name`.
///
/// # Errors
/// One line that begins with the place: the text is not TOML, a key is unknown, a value is not allowed, or
/// this kind of rule does not read the key.
pub fn rules(name: &str, text: &str, geometry: &Geometry) -> anyhow::Result<Vec<Rule>> {
    rules_beside(name, text, geometry, &[])
}

/// As [`rules`], for a drive that already has rules of the names `taken`.
///
/// # Errors
/// As [`rules`]; or a name is taken.
pub fn rules_beside(
    name: &str,
    text: &str,
    geometry: &Geometry,
    taken: &[String],
) -> anyhow::Result<Vec<Rule>> {
    read(text, geometry, taken).map_err(|Problem { span, what }| {
        let before = &text[..span.map_or(0, |span| span.start).min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        anyhow::anyhow!("{name}:{line}:{column}: {what}")
    })
}

/// A problem and its place in the file.
struct Problem {
    span: Option<Range<usize>>,
    what: String,
}

fn wrong<T>(span: Option<Range<usize>>, what: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { span, what: what.into() })
}

fn read(text: &str, geometry: &Geometry, taken: &[String]) -> Result<Vec<Rule>, Problem> {
    let document = toml_edit::Document::parse(text)
        .map_err(|error| Problem { span: error.span(), what: error.message().replace('\n', "; ") })?;
    let root = document.as_table();
    if let Some((key, _)) = root.iter().find(|(key, _)| *key != "rule") {
        return wrong(key_span(root, key), format!("{key}: unknown; the file has [[rule]] tables only"));
    }
    let Some(item) = root.get("rule") else { return Ok(Vec::new()) };
    let Some(tables) = item.as_array_of_tables() else {
        return wrong(item.span(), "rule: expected [[rule]] tables");
    };
    let mut rules: Vec<Rule> = Vec::new();
    for table in tables {
        let reader = RuleReader { table, geometry };
        let has =
            |name: &str| taken.iter().chain(rules.iter().map(|rule| &rule.name)).any(|other| other == name);
        let rule = reader.rule(rules.len() + 1, &has)?;
        if has(&rule.name) {
            let span = table.get("name").map_or(table.span(), Item::span);
            return wrong(span, format!("name: there is another rule {:?}", rule.name));
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn key_span(table: &Table, key: &str) -> Option<Range<usize>> {
    table.get_key_value(key).and_then(|(key, item)| key.span().or(item.span()))
}

/// One table.
struct RuleReader<'a> {
    table: &'a Table,
    geometry: &'a Geometry,
}

impl RuleReader<'_> {
    /// Rule number `number` of the file. A rule without a name gets the name of its kind with that number, or
    /// with the next one that is free.
    fn rule(&self, number: usize, is_taken: &dyn Fn(&str) -> bool) -> Result<Rule, Problem> {
        let Some(fault) = self.text("fault")? else {
            return wrong(self.table.span(), format!("fault: missing; there are {}", names(FAULTS)));
        };
        let Some(kind) = faults::kind(&fault) else {
            return wrong(self.span("fault"), format!("fault: no {fault:?}; there are {}", names(FAULTS)));
        };
        let moment = self.moment(kind)?;
        self.refuse_unlooked_at(kind, moment)?;
        let settings = Settings {
            status: self.status()?,
            delay_ns: self.duration("delay_ns")?,
            timeout_ns: self.duration("timeout_ns")?,
            torn: self.flag("torn")?,
        };
        let effect = (kind.effect)(&settings).or_else(|what| {
            let key = what.split(':').next().unwrap_or_default();
            wrong(self.span(key).or(self.table.span()), what)
        })?;
        Ok(Rule {
            name: self.text("name")?.unwrap_or_else(|| {
                let mut names = (number..).map(|number| format!("{} {number}", kind.name));
                names.find(|name| !is_taken(name)).expect("there are more numbers than rules")
            }),
            kind,
            moment,
            effect,
            matches: self.matches()?,
            when: self.when()?,
        })
    }

    fn moment(&self, kind: &FaultKind) -> Result<Moment, Problem> {
        let Some(name) = self.text("at")? else { return Ok(kind.moments[0]) };
        match kind.moments.iter().find(|moment| moment.name() == name) {
            Some(moment) => Ok(*moment),
            None => {
                let moments: Vec<_> = kind.moments.iter().map(|moment| moment.name()).collect();
                let what = format!("at: no {name:?}; {} strikes at {}", kind.name, moments.join(", "));
                wrong(self.span("at"), what)
            }
        }
    }

    /// Refuses a key that would change nothing, since it is a mistake in the file.
    fn refuse_unlooked_at(&self, kind: &FaultKind, moment: Moment) -> Result<(), Problem> {
        let known = [&COMMON[..], moment.matching_keys(), kind.keys].concat();
        match self.table.iter().find(|(key, _)| !known.contains(key)) {
            None => Ok(()),
            Some((key, _)) => {
                let what = format!(
                    "{key}: a {} at a {} does not look at it; it has {}",
                    kind.name,
                    moment.name(),
                    known.join(", ")
                );
                wrong(key_span(self.table, key), what)
            }
        }
    }

    fn matches(&self) -> Result<Matches, Problem> {
        let opcode_of = |text: &str| {
            let all = || opcode::IO_TABLE.iter().chain(&opcode::ADVERTISED_TABLE);
            let by_name = all().find(|row| row.1 == text).map(|row| row.0);
            let names = || all().map(|row| row.1).collect::<Vec<_>>().join(", ");
            by_name
                .or_else(|| hexadecimal(text).and_then(|number| u8::try_from(number).ok()))
                .ok_or_else(|| format!("no {text:?}; there are {}", names()))
        };
        let purpose_of = |text: &str| {
            let found = Purpose::ALL.iter().find(|(_, name)| *name == text).map(|(purpose, _)| *purpose);
            let names = || Purpose::ALL.map(|(_, name)| name).join(", ");
            found.ok_or_else(|| format!("no {text:?}; there are {}", names()))
        };
        let namespaces = self.numbers("namespace", 1, u32::MAX)?;
        if let Some(other) = namespaces.iter().find(|nsid| **nsid != DRIVE_NSID) {
            let what = format!(
                "namespace: {other} never matches: rules are of one drive, in which every command names {DRIVE_NSID}; for \
                 another namespace of a server: kvdrive ctl --nsid {other} inject, without this key"
            );
            return wrong(self.span("namespace"), what);
        }
        Ok(Matches {
            opcodes: self.names("opcode", opcode_of)?,
            keys: self.keys()?,
            namespaces,
            purposes: self.names("purpose", purpose_of)?,
            dies: self.numbers("die", 0, self.geometry.dies() - 1)?,
            blocks: self.numbers("block", 0, self.geometry.media_blocks() - 1)?,
        })
    }

    fn keys(&self) -> Result<Option<std::ops::RangeInclusive<Key>>, Problem> {
        let one = self.names("key", key_of)?;
        let Some(item) = self.table.get("keys") else {
            return match one[..] {
                [] => Ok(None),
                [key] => Ok(Some(key..=key)),
                _ => wrong(self.span("key"), "key: expected one key; keys = [FIRST, LAST] is a range"),
            };
        };
        match self.names("keys", key_of)?[..] {
            _ if !one.is_empty() => wrong(item.span(), "keys: the rule has key, too; leave one of them out"),
            [first, last] if first <= last => Ok(Some(first..=last)),
            _ => wrong(item.span(), "keys: expected [FIRST, LAST], in order"),
        }
    }

    fn when(&self) -> Result<When, Problem> {
        let all = When::default();
        let when = When {
            after: self.count("after", 0)?.unwrap_or(all.after),
            every: self.count("every", 1)?.unwrap_or(all.every),
            probability: self.probability()?.unwrap_or(all.probability),
            times: self.count("times", 1)?,
        };
        let Some(nth) = self.count("nth", 1)? else { return Ok(when) };
        if when != all {
            let what = "nth: is one time; leave out after, every, probability and times";
            return wrong(self.span("nth"), what);
        }
        Ok(When { after: nth - 1, times: Some(1), ..all })
    }

    fn probability(&self) -> Result<Option<f64>, Problem> {
        let Some(value) = self.value("probability")? else { return Ok(None) };
        let part = match value {
            Value::Float(part) => Some(*part.value()),
            Value::Integer(part) => Some(*part.value() as f64),
            Value::String(text) => {
                let percent = text.value().strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
                percent.map(|percent| percent / 100.0)
            }
            _ => None,
        };
        // A rule of probability 0 would never strike.
        match part.filter(|part| *part > 0.0 && *part <= 1.0) {
            Some(part) => Ok(Some(part)),
            None => wrong(value.span(), "probability: expected a number above 0, to 1, or \"1%\""),
        }
    }

    fn status(&self) -> Result<Option<Status>, Problem> {
        let Some(text) = self.text("status")? else { return Ok(None) };
        let by_name = Status::table().iter().find(|row| row.name == text).map(|row| row.status);
        let by_number = || {
            let raw = hexadecimal(&text).filter(|raw| *raw < 0x800)?;
            Some(Status::new((raw >> 8) as u8, raw as u8))
        };
        match by_name.or_else(by_number) {
            Some(status) => Ok(Some(status)),
            None => wrong(self.span("status"), format!("status: {text:?}; expected \"88h\", or its name")),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, Problem> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        match value.as_bool() {
            Some(flag) => Ok(Some(flag)),
            None => wrong(value.span(), format!("{key}: expected true or false")),
        }
    }

    fn duration(&self, key: &str) -> Result<Option<u64>, Problem> {
        /// Longest delay, ns: one day, so that sums of delays stay within range.
        const LONGEST_NS: i64 = 86_400_000_000_000;
        let Some(value) = self.value(key)? else { return Ok(None) };
        let span_ns = match value {
            Value::Integer(span_ns) => Ok(*span_ns.value()),
            Value::String(text) => quantity::parse(Unit::of(key), text.value()),
            _ => Err("expected a time as \"5ms\"".to_owned()),
        };
        match span_ns {
            Ok(span_ns) if (0..=LONGEST_NS).contains(&span_ns) => Ok(Some(span_ns as u64)),
            Ok(_) => wrong(value.span(), format!("{key}: expected 0 to a day")),
            Err(what) => wrong(value.span(), format!("{key}: {what}")),
        }
    }

    fn count(&self, key: &str, least: u64) -> Result<Option<u64>, Problem> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        match value.as_integer().and_then(|count| u64::try_from(count).ok()) {
            Some(count) if count >= least => Ok(Some(count)),
            _ => wrong(value.span(), format!("{key}: expected a whole number from {least} on")),
        }
    }

    /// One number or several.
    fn numbers(&self, key: &str, least: u32, most: u32) -> Result<Vec<u32>, Problem> {
        self.each(key, |value| {
            let number = value.as_integer().and_then(|number| u32::try_from(number).ok());
            let allowed = number.filter(|number| (least..=most).contains(number));
            allowed.ok_or_else(|| format!("expected a whole number, {least} to {most}"))
        })
    }

    /// One text or several.
    fn names<T>(&self, key: &str, take: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, Problem> {
        self.each(key, |value| take(value.as_str().ok_or("expected text in quotes")?))
    }

    fn each<T>(&self, key: &str, take: impl Fn(&Value) -> Result<T, String>) -> Result<Vec<T>, Problem> {
        let Some(value) = self.value(key)? else { return Ok(Vec::new()) };
        let values: Vec<&Value> =
            value.as_array().map_or_else(|| vec![value], |array| array.iter().collect());
        if values.is_empty() {
            return wrong(value.span(), format!("{key}: an empty list matches nothing"));
        }
        let take = |value: &Value| take(value).or_else(|what| wrong(value.span(), format!("{key}: {what}")));
        values.into_iter().map(take).collect()
    }

    fn text(&self, key: &str) -> Result<Option<String>, Problem> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        match value.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => wrong(value.span(), format!("{key}: expected text in quotes")),
        }
    }

    fn value(&self, key: &str) -> Result<Option<&Value>, Problem> {
        let Some(item) = self.table.get(key) else { return Ok(None) };
        match item.as_value() {
            Some(value) => Ok(Some(value)),
            None => wrong(item.span(), format!("{key}: expected a value, not a table")),
        }
    }

    fn span(&self, key: &str) -> Option<Range<usize>> {
        self.table.get(key).and_then(Item::span)
    }
}

fn names(kinds: &[FaultKind]) -> String {
    kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// A status or opcode in hexadecimal, as in `88h`.
fn hexadecimal(text: &str) -> Option<u32> {
    text.strip_suffix('h').and_then(|digits| u32::from_str_radix(digits, 16).ok())
}

/// A key as its text, or its bytes in hexadecimal after `0x`.
fn key_of(text: &str) -> Result<Key, String> {
    let bytes = match text.strip_prefix("0x") {
        None => text.as_bytes().to_vec(),
        Some(digits) => (0..digits.len())
            .step_by(2)
            .map(|at| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect::<Option<Vec<u8>>>()
            .ok_or_else(|| format!("{text:?}: expected two hexadecimal digits a byte after 0x"))?,
    };
    Key::new(&bytes)
        .ok_or_else(|| format!("{text:?}: a key has 1 to {} bytes, after the first 16 zeros", Key::MAX_LEN))
}
