//! What a key of a configuration may be. Each room has a table of its keys ([`Rules`]) beside the struct that
//! holds their values; crate `lab` puts the tables together, reads documents and writes the messages.
//!
//! A rule looks at one value alone. Conditions between keys are the `check` functions of the rooms' structs.

/// What one key may be.
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
    /// A list of texts that all pass the test; what is allowed, in words.
    Parsed(fn(&str) -> bool, &'static str),
    /// Any text.
    Text,
    /// true or false.
    Flag,
    /// So many integers, each between the two, inclusive.
    Integers(usize, i64, i64),
}

/// Keys of one section, or of a part of one, as users write them (`flash.channels`), in the order of the
/// section, and what each may be.
pub type Rules = &'static [(&'static str, Rule)];

/// Longest time of one step: 1000 s. Far above any device, far below overflow of a sum.
const TIME_MAX_NS: i64 = 1_000_000_000_000;
/// A time in nanoseconds.
pub const TIME: Rule = Rule::Integer(0, TIME_MAX_NS);
/// Longest value that any drive takes, in bytes (2 MiB).
pub const VALUE_MAX_BYTES: i64 = 2 << 20;

impl Rule {
    /// What the key may be, in words.
    pub fn allowed(&self) -> String {
        use Rule::{
            Flag, Integer, Integers, Multiple, Number, OneOf, Parsed, Positive, PowerOfTwo, Row, Text, Word,
        };
        match self {
            Integer(low, high) => format!("{low} to {high}"),
            PowerOfTwo(low, high) => format!("a power of two, {low} to {high}"),
            Multiple(of, low, high) => format!("a multiple of {of}, {low} to {high}"),
            OneOf(list) => list.iter().map(i64::to_string).collect::<Vec<_>>().join(", "),
            Number(low, high) => format!("{low:?} to {high:?}"),
            Positive => "a number above 0".into(),
            Word(list) => list.join(", "),
            Row(names) => names().join(", "),
            Parsed(_, words) => (*words).into(),
            Text => "text in quotes".into(),
            Flag => "true, false".into(),
            Integers(length, low, high) => format!("{length} integers, each {low} to {high}"),
        }
    }
}
