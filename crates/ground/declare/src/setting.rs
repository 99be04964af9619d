//! The declaration of a setting, and the conditions under which a run reads it.

use serde_json::Value;

use crate::{Rule, Unit, Values};

/// One setting.
pub struct Setting {
    /// Its key, section included: `flash.channels`.
    pub key: &'static str,
    /// Which values are allowed.
    pub rule: Rule,
    /// Unit of its values.
    pub unit: Unit,
    /// Help text: one or more sentences.
    pub help: &'static str,
    /// Default where nothing sets a value; `None`: the least value that the rule allows.
    pub least: Option<fn() -> Value>,
    /// The option of the command that sets it, without dashes.
    pub option: Option<&'static str>,
    /// Must two drives agree in it to read each other's images?
    pub in_image: bool,
    /// Is it divided when a study runs at a part of its full size?
    pub shrinks: bool,
    /// A run reads it only if all of these conditions hold.
    pub when: &'static [When],
}

/// A condition under which a run reads a setting.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// The setting of this key has such a value.
    Is(&'static str, Is),
    /// One of these holds.
    Any(&'static [When]),
}

/// What the value of another setting must be.
#[derive(Clone, Copy, Debug)]
pub enum Is {
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A word for which this function of word and key returns `true`.
    Row(fn(&str, &str) -> bool),
    /// `true`, or a number above 0.
    On,
    /// `false`, or 0.
    Off,
}

impl When {
    /// The other setting is one of these words.
    pub const fn one_of(key: &'static str, words: &'static [&'static str]) -> When {
        When::Is(key, Is::OneOf(words))
    }

    /// The other setting names a row of a table. `looks_at(row, key)` returns whether that row reads the setting `key`;
    /// it must return `true` for unknown rows, since a program may bring a row of its own.
    pub const fn row(key: &'static str, looks_at: fn(&str, &str) -> bool) -> When {
        When::Is(key, Is::Row(looks_at))
    }

    /// The other setting is `true`, or a number above 0.
    pub const fn on(key: &'static str) -> When {
        When::Is(key, Is::On)
    }

    /// The other setting is `false`, or 0.
    pub const fn off(key: &'static str) -> When {
        When::Is(key, Is::Off)
    }

    /// Why a run with these values does not read the setting `key`; `None` if the condition holds. `rules` finds the
    /// rule of another setting.
    pub fn fails(
        &self,
        key: &str,
        values: &Values<'_>,
        rules: &dyn Fn(&str) -> Option<&'static Rule>,
    ) -> Option<String> {
        if self.holds(key, values) {
            return None;
        }
        let (states, lookers) = (self.states(values).join(" and "), self.lookers(key, rules).join(" or "));
        Some(match lookers.as_str() {
            "" => format!("{states} does not look at it"),
            lookers => format!("{states} does not look at it; {lookers} does"),
        })
    }

    fn holds(&self, key: &str, values: &Values<'_>) -> bool {
        match self {
            When::Is(other, is) => values.get(other).is_some_and(|value| is.holds(key, value)),
            When::Any(conditions) => conditions.iter().any(|condition| condition.holds(key, values)),
        }
    }

    /// The present values of the other settings: `flash.timing=dies`.
    fn states(&self, values: &Values<'_>) -> Vec<String> {
        match self {
            When::Is(other, _) => {
                vec![format!("{other}={}", values.get(other).map_or_else(String::new, text_of))]
            }
            When::Any(conditions) => {
                conditions.iter().flat_map(|condition| condition.states(values)).collect()
            }
        }
    }

    /// The values that they must have.
    fn lookers(&self, key: &str, rules: &dyn Fn(&str) -> Option<&'static Rule>) -> Vec<String> {
        let (other, is) = match self {
            When::Is(other, is) => (other, is),
            When::Any(conditions) => {
                return conditions.iter().flat_map(|condition| condition.lookers(key, rules)).collect();
            }
        };
        let rule = rules(other);
        let values = match (is, rule) {
            (Is::OneOf(words), _) => words.iter().map(|word| (*word).to_owned()).collect(),
            (Is::Row(_), Some(rule)) => {
                let words = rule.words().into_iter().filter(|word| is.holds(key, &Value::from(*word)));
                words.map(str::to_owned).collect()
            }
            (Is::On, Some(Rule::Flag)) => vec!["true".to_owned()],
            (Is::Off, Some(Rule::Flag)) => vec!["false".to_owned()],
            (Is::On, _) => return vec![format!("{other} above 0")],
            (Is::Off, _) => vec!["0".to_owned()],
            (Is::Row(_), None) => Vec::new(),
        };
        if values.is_empty() { Vec::new() } else { vec![format!("{other}={}", values.join(" or "))] }
    }

    /// The condition in words, for a reference: `flash.timing=dies`.
    pub fn in_words(&self, key: &str, rules: &dyn Fn(&str) -> Option<&'static Rule>) -> String {
        self.lookers(key, rules).join(" or ")
    }

    /// The keys of the other settings.
    pub fn keys(&self) -> Vec<&'static str> {
        match self {
            When::Is(key, _) => vec![key],
            When::Any(conditions) => conditions.iter().flat_map(When::keys).collect(),
        }
    }
}

impl Is {
    fn holds(&self, key: &str, value: &Value) -> bool {
        let is_on = || value.as_bool() == Some(true) || value.as_f64().is_some_and(|number| number > 0.0);
        match self {
            Is::OneOf(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Is::Row(looks_at) => value.as_str().is_some_and(|word| looks_at(word, key)),
            Is::On => is_on(),
            Is::Off => !is_on(),
        }
    }
}

/// A value as users write it.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A line of a section.
pub enum Entry {
    /// A setting.
    Setting(Setting),
    /// The settings of a nested struct; these conditions apply to all of them in addition to their own.
    Part(&'static [Entry], &'static [When]),
}

/// The settings of a section and of its parts, in order, with all conditions of each.
pub fn settings(entries: &'static [Entry]) -> Vec<(&'static Setting, Vec<&'static When>)> {
    let mut found = Vec::new();
    collect(entries, &mut Vec::new(), &mut found);
    found
}

fn collect(
    entries: &'static [Entry],
    above: &mut Vec<&'static When>,
    found: &mut Vec<(&'static Setting, Vec<&'static When>)>,
) {
    for entry in entries {
        match entry {
            Entry::Setting(setting) => {
                found.push((setting, above.iter().copied().chain(setting.when).collect()));
            }
            Entry::Part(entries, when) => {
                let depth = above.len();
                above.extend(*when);
                collect(entries, above, found);
                above.truncate(depth);
            }
        }
    }
}
