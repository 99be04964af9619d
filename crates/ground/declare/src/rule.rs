//! What the value of a setting may be.

use serde_json::Value;

use crate::Problem;

/// Which values a key may have.
pub enum Rule {
    /// An integer between the two, inclusive.
    Integer(i64, i64),
    /// A power of two between the two, inclusive.
    PowerOfTwo(i64, i64),
    /// A multiple of the first number between the other two, inclusive.
    Multiple(i64, i64, i64),
    /// One of these integers.
    OneOf(&'static [i64]),
    /// Any finite number between the two, inclusive.
    Number(f64, f64),
    /// A finite number above zero.
    Positive,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Name of a row of a table.
    Row(fn() -> Vec<&'static str>),
    /// Any text. These words are known, for help; the crate that reads the value refuses others.
    Name(fn() -> Vec<&'static str>),
    /// A list of texts that all pass the test; the allowed texts, in words.
    Parsed(fn(&str) -> bool, &'static str),
    /// Any text.
    Text,
    /// true or false.
    Flag,
    /// A list of this many integers, each between the two bounds, inclusive.
    Integers(usize, i64, i64),
}

/// Longest time of one step: 1000 s. Far above any device, far below overflow of a sum.
const TIME_MAX_NS: i64 = 1_000_000_000_000;
/// A time in nanoseconds.
pub const TIME: Rule = Rule::Integer(0, TIME_MAX_NS);
/// Longest value that any drive takes, in bytes (256 MiB).
pub const VALUE_MAX_BYTES: i64 = 256 << 20;
/// Longest structured value, and longest value of a component that has the whole value in memory, in bytes (2 MiB).
pub const BATCH_MAX_BYTES: i64 = 2 << 20;

impl Rule {
    /// The allowed values in words.
    pub fn allowed(&self) -> String {
        use Rule::{
            Flag, Integer, Integers, Multiple, Name, Number, OneOf, Parsed, Positive, PowerOfTwo, Row, Text,
            Word,
        };
        match self {
            Integer(low, high) => format!("{low} to {high}"),
            PowerOfTwo(low, high) => format!("a power of two, {low} to {high}"),
            Multiple(of, low, high) => format!("a multiple of {of}, {low} to {high}"),
            OneOf(list) => list.iter().map(i64::to_string).collect::<Vec<_>>().join(", "),
            Number(low, high) => format!("{low:?} to {high:?}"),
            Positive => "a number above 0".into(),
            Word(list) => list.join(", "),
            Row(names) | Name(names) => names().join(", "),
            Parsed(_, words) => (*words).into(),
            Text => "text in quotes".into(),
            Flag => "true, false".into(),
            Integers(length, low, high) => format!("{length} integers, each {low} to {high}"),
        }
    }

    /// The allowed words, if only some words are allowed.
    pub fn words(&self) -> Vec<&'static str> {
        match self {
            Rule::Word(list) => list.to_vec(),
            Rule::Row(names) | Rule::Name(names) => names(),
            _ => Vec::new(),
        }
    }

    /// Is it true or false?
    pub fn is_flag(&self) -> bool {
        matches!(self, Rule::Flag)
    }

    /// Is `value` one of these?
    pub fn allows(&self, value: &Value) -> bool {
        use Rule::{
            Flag, Integer, Integers, Multiple, Name, Number, OneOf, Parsed, Positive, PowerOfTwo, Row, Text,
            Word,
        };
        let within = |value: &Value, low: i64, high: i64| value.as_i64().filter(|n| (low..=high).contains(n));
        let number = value.as_f64().filter(|x| x.is_finite());
        match self {
            Integer(low, high) => within(value, *low, *high).is_some(),
            PowerOfTwo(low, high) => within(value, *low, *high).is_some_and(|n| n.count_ones() == 1),
            Multiple(of, low, high) => within(value, *low, *high).is_some_and(|n| n % of == 0),
            OneOf(list) => value.as_i64().is_some_and(|n| list.contains(&n)),
            Number(low, high) => number.is_some_and(|x| (*low..=*high).contains(&x)),
            Positive => number.is_some_and(|x| x > 0.0),
            Word(_) | Row(_) => value.as_str().is_some_and(|word| self.words().contains(&word)),
            Parsed(passes, _) => {
                value.as_array().is_some_and(|list| list.iter().all(|text| text.as_str().is_some_and(passes)))
            }
            Text | Name(_) => value.is_string(),
            Flag => value.is_boolean(),
            Integers(length, low, high) => value.as_array().is_some_and(|list| {
                list.len() == *length && list.iter().all(|n| within(n, *low, *high).is_some())
            }),
        }
    }

    /// Whether `key` may be `value`.
    ///
    /// # Errors
    /// A wrong type or a value out of range; the message says what is allowed.
    pub fn check(&self, key: &str, value: &Value) -> Result<(), Problem> {
        match self.allows(value) {
            true => Ok(()),
            false => Err(Problem::new(key, format!("{value}; allowed: {}", self.allowed()))),
        }
    }

    /// The least that it allows: the lowest number, the first word, `false`, the empty list.
    pub fn least(&self) -> Value {
        match self {
            Rule::Integer(low, _) | Rule::PowerOfTwo(low, _) | Rule::Multiple(_, low, _) => (*low).into(),
            Rule::OneOf(list) => list[0].into(),
            Rule::Number(low, _) => (*low).into(),
            Rule::Positive => 1.0.into(),
            Rule::Word(_) | Rule::Row(_) | Rule::Name(_) => self.words()[0].into(),
            Rule::Parsed(..) => Value::Array(Vec::new()),
            Rule::Text => "".into(),
            Rule::Flag => false.into(),
            Rule::Integers(length, low, _) => vec![*low; *length].into(),
        }
    }
}
