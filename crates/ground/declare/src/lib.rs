//! How a setting and a counter are declared: once, at the field of the struct that has it.
//!
//! # Settings
//!
//! ```
//! use kvdrive_declare::{Section, Setting, default_of, settings};
//!
//! #[derive(Section)]
//! #[section("flash")]
//! struct FlashConfig {
//!     /// Channels (buses) that move data at the same time.
//!     #[setting(is = Integer(1, 256), image)]
//!     channels: u32,
//!     /// Time to erase a block.
//!     #[setting(is = TIME, when = &[When::one_of("flash.timing", &["dies"])])]
//!     erase_ns: u64,
//! }
//!
//! let keys: Vec<_> = settings(FlashConfig::ENTRIES).iter().map(|(setting, _)| setting.key).collect();
//! assert_eq!(keys, ["flash.channels", "flash.erase_ns"]);
//! assert_eq!(default_of::<FlashConfig>().channels, 1);
//! ```
//!
//! | property | what it says |
//! |---|---|
//! | the comment | the help text: of the reference page, of the option, of messages |
//! | `is = RULE` | which values are allowed ([`Rule`]); left out where the type determines it: `bool`, an enum that derives [`Words`](trait@Words) |
//! | `key = "NAME"` | its name in the section if the field has another one; with a dot, its whole key |
//! | `unit = UNIT` | its [`Unit`], where the end of the key does not say it |
//! | `default = VALUE` | the value of [`default_of`], instead of the least that its rule allows |
//! | `option = "NAME"` | the option of the command that sets it |
//! | `when = &[..]` | a run reads it only if all of these conditions hold ([`When`]) |
//! | `image` | two drives must agree in it to read each other's images |
//! | `shrinks` | it is divided when a study runs at a part of its full size |
//! | `part` | the field is a nested struct whose settings come here; `when` is for all of them |
//! | `skip` | not a setting; the field gets its `Default` |
//!
//! `#[section("NAME", default)]` makes [`default_of`] the `Default` of the struct.
//!
//! The declarations of all fields are the constant [`Section::ENTRIES`]. Everything else follows from that table and
//! from [`Section::take`] and [`Section::give`], which carry values between a struct and its keys. A rule looks at one
//! value alone; conditions between keys are the `check` functions of the structs. Values with their sources are in
//! profiles, not here.
//!
//! # Counters
//!
//! ```
//! use kvdrive_declare::{Counters, Sections};
//!
//! #[derive(Counters)]
//! struct Copied {
//!     /// Bytes that firmware copied.
//!     memcpy_bytes: u64,
//!     /// What that took.
//!     #[counter(modelled)]
//!     memcpy_ns: u64,
//!     /// Places that are left.
//!     #[counter(state)]
//!     free_places: u64,
//! }
//!
//! let of = |memcpy_bytes| Sections::default().with("engine", Copied { memcpy_bytes, memcpy_ns: 9, free_places: 2 }.counts());
//! let run = of(30).since(&of(10));
//! assert_eq!((run.of("engine.memcpy_bytes"), run.of("engine.free_places")), (20, 2));
//! assert_eq!(serde_json::to_string(&run).unwrap(), r#"{"engine":{"memcpy_bytes":20,"memcpy_ns":0,"free_places":2}}"#);
//! ```
//!
//! | property | what it says |
//! |---|---|
//! | the comment | the help text |
//! | `name = "NAME"` | its name, if the field has another one |
//! | `unit = UNIT` | its [`Unit`], where the end of the name does not say it |
//! | `modelled`, `measured` | its [`Kind`] if it is not counted |
//! | `state`, `maximum` | its [`Form`] if it is no sum |
//! | `by = BY` | the field is an array, whose values have the labels of this [`By`] |
//! | `skip` | not a counter |
//!
//! `#[counters(state, unit = Bytes)]` says it for all fields of a struct, `#[counters(prefix = "buffer_")]` begins
//! their names. The section of a counter is named where the counts of several parts are put together. Section and name
//! together are the counter's name in reports, lines of intervals, Prometheus, `Numbers`, the page and `top`.

mod counter;
mod problem;
mod rule;
mod section;
mod setting;
mod value;

// The derives name this crate by its name, here as well.
extern crate self as kvdrive_declare;

pub use counter::{By, Count, Counter, Counters, Counts, Form, Kind, Reading, Sections};
pub use kvdrive_derive::{Counters, Section, Words};
pub use kvdrive_text::Unit;
pub use problem::Problem;
pub use rule::{BATCH_MAX_BYTES, Rule, TIME, VALUE_MAX_BYTES};
pub use section::{Section, default_of, image_keys, read};
pub use serde_json::Value;
pub use setting::{Entry, Is, Setting, When, settings};
pub use value::{Field, GivenValues, Natural, Values, Words, of_word, words};

/// What the expressions in `#[setting(..)]` may name without importing it.
pub mod words_of_declarations {
    pub use crate::Rule::*;
    pub use crate::{
        BATCH_MAX_BYTES, Entry, Field, Natural, Rule, Section, Setting, TIME, Unit, VALUE_MAX_BYTES, When,
    };
}
