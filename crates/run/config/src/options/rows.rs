//! The table of options, in the order of help. An option that sets one key is declared at the field of that key; its
//! help, the name of its value, its group and its known values follow from the declaration. Options that set several keys
//! are listed here.

use kvdrive_declare::{Rule, Setting};
use kvdrive_store::STORES;
use kvdrive_text::Unit;
use once_cell::race::OnceBox;

use super::{WORDS, is_above_zero};
use crate::{DRAM_POINTS, PROFILES, rules};

/// Sides of the wire that a store may run on.
pub(super) const HOST: &str = "host";
pub(super) const DISK: &str = "disk";

/// One option.
pub struct OptionRow {
    /// Its name, without dashes: `value-size`.
    pub name: &'static str,
    /// What help calls its value: `N`; empty: it is a switch, which takes none.
    pub value: String,
    /// Its description, in a sentence or two.
    pub help: String,
    /// May it be given several times?
    pub repeats: bool,
    /// The key that it is short for; empty: it stands for several keys, or for none.
    pub key: &'static str,
    /// The value that a switch sets.
    pub(super) means: &'static str,
    /// What it is about.
    pub group: Group,
    /// Whether short help has it.
    pub is_common: bool,
}

/// What an option is about; help has a heading for each, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The operations.
    Workload,
    /// The device: profile, engine, flash.
    Drive,
    /// The application's side: queues, transfer methods, SAKER, stores.
    Host,
    /// Clock, seed, checks.
    Run,
}

impl Group {
    /// Its heading in help.
    pub fn heading(self) -> &'static str {
        match self {
            Group::Workload => "Workload",
            Group::Drive => "Drive",
            Group::Host => "Host",
            Group::Run => "Run",
        }
    }

    fn of(name: &str, key: &str) -> Group {
        match (name, key.split_once('.').map_or("", |(section, _)| section)) {
            ("side" | "store", _) | (_, "host" | "saker" | "transfer") => Group::Host,
            ("verify" | "verify-only", _) | (_, "run") => Group::Run,
            (_, "workload") => Group::Workload,
            _ => Group::Drive,
        }
    }
}

/// The options of short help; the first of them are the first of their groups.
const COMMON: &[&str] = &[
    "workload",
    "ops",
    "num",
    "key-size",
    "value-size",
    "distribution",
    "duration",
    "profile",
    "engine",
    "packing",
    "capacity",
    "set",
    "transfer",
    "depth",
    "saker",
    "seed",
    "verify",
];

/// Options with values of their own: name, name of the value, help.
const OWN: &[(&str, &str, &str)] = &[
    (
        "profile",
        "PROFILE",
        "Profile to start from (`kvdrive list profiles`) [default: cosmos-plus; kvvirt for hash engines, saker-mid for \
         stores and blocks]",
    ),
    ("config", "FILE", "TOML file with keys that override the profile; may be repeated"),
    (
        "scale",
        "1/N",
        "The runs of the Plus paper at a part of their size, 1 or 1/2, 1/4, ... 1/256 (hash engines: 1/128): drive, \
         pairs, overwrites, operations and DRAM",
    ),
    (
        "capacity",
        "SIZE",
        "Bytes of flash of the drive, as 8GiB, rounded to whole blocks of each die (key flash.blocks_per_die) [default: the \
         profile's]",
    ),
    (
        "dram",
        "DRAM",
        "DRAM of hash engines at full size: published, total-128 or total-256 (`kvdrive list dram`)",
    ),
    (
        "side",
        "host|disk",
        "Where a key-value store runs: host, in the application's threads over a drive of blocks; disk, as the drive's \
         engine",
    ),
    ("store", "STORE", "The store (`kvdrive list stores`)"),
    (
        "set",
        "KEY=VALUE",
        "Any key of the configuration (`kvdrive config` shows them): --set flash.channels=8; may be repeated",
    ),
];

/// Switches: name, value of `workload.verify`, help.
const SWITCHES: &[(&str, &str, &str)] = &[
    (
        "verify",
        "values",
        "Compares every value that is read with what was stored; exit status 1 if one differs",
    ),
    (
        "verify-only",
        "only",
        "Stores nothing: reads and checks what an earlier run with the same options left in an image",
    ),
];
/// The key that the switches set.
const VERIFY: &str = "workload.verify";

/// Makes the table.
static MAKE: fn() -> Vec<OptionRow> = || {
    let own = OWN.iter().map(|(name, value, help)| OptionRow {
        name,
        value: (*value).to_owned(),
        help: (*help).to_owned(),
        repeats: ["config", "set"].contains(name),
        key: "",
        means: "",
        group: Group::of(name, ""),
        is_common: COMMON.contains(name),
    });
    let switches = SWITCHES.iter().map(|(name, means, help)| OptionRow {
        name,
        value: String::new(),
        help: (*help).to_owned(),
        repeats: false,
        key: VERIFY,
        means,
        group: Group::of(name, VERIFY),
        is_common: COMMON.contains(name),
    });
    let declared = rules::all().filter_map(|setting| {
        let name = setting.option?;
        let help = setting.help.trim_end_matches('.').replace("[`", "`").replace("`]", "`");
        // The help of a key says what its 0 means. The option refuses 0: a word stands for it, or leaving the option out.
        let word = WORDS.iter().find(|(option, ..)| *option == name).map(|(_, word, _)| word);
        let help = match (help.split_once("; 0: ").filter(|_| is_above_zero(name)), word) {
            (Some((what, _)), Some(word)) => format!("{what}, or {word}"),
            (Some((what, without)), None) => format!("{what} [default: {without}]"),
            (None, _) => help,
        };
        Some(OptionRow {
            name,
            value: value_name(setting),
            help,
            repeats: false,
            key: setting.key,
            means: "",
            group: Group::of(name, setting.key),
            is_common: COMMON.contains(&name),
        })
    });
    let mut rows: Vec<OptionRow> = own.chain(declared).chain(switches).collect();
    let place = |row: &OptionRow| COMMON.iter().position(|name| *name == row.name).unwrap_or(COMMON.len());
    rows.sort_by_key(|row| (row.group, place(row)));
    rows
};

impl OptionRow {
    /// The values that it is known to take, for shells to complete; empty: any number or text.
    pub fn known_values(&self) -> Vec<&'static str> {
        match self.name {
            "profile" => PROFILES.iter().map(|profile| profile.name).collect(),
            "dram" => DRAM_POINTS.iter().map(|point| point.name).collect(),
            "side" => vec![HOST, DISK],
            "store" => STORES.iter().map(|store| store.name).collect(),
            "scale" => vec!["1", "1/2", "1/4", "1/8", "1/16", "1/32", "1/64", "1/128", "1/256"],
            "set" => assignments().iter().map(String::as_str).collect(),
            _ => {
                match rules::setting(self.key).filter(|_| self.means.is_empty()).map(|setting| &setting.rule)
                {
                    Some(Rule::Flag) => vec!["on", "off"],
                    Some(Rule::Word(words)) => words.to_vec(),
                    Some(Rule::Row(names) | Rule::Name(names)) => names(),
                    _ => Vec::new(),
                }
            }
        }
    }
}

/// `KEY=` of every key.
fn assignments() -> &'static [String] {
    static KEYS: OnceBox<Vec<String>> = OnceBox::new();
    KEYS.get_or_init(|| Box::new(rules::all().map(|setting| format!("{}=", setting.key)).collect()))
}

/// Every option.
pub fn option_rows() -> &'static [OptionRow] {
    static ROWS: OnceBox<Vec<OptionRow>> = OnceBox::new();
    ROWS.get_or_init(|| Box::new(MAKE()))
}

/// The option of that name.
pub(super) fn row(name: &str) -> Option<&'static OptionRow> {
    option_rows().iter().find(|row| row.name == name)
}

fn value_name(setting: &Setting) -> String {
    match (&setting.rule, setting.unit) {
        (Rule::Flag, _) => "on|off".to_owned(),
        (Rule::Word(words), _) => words.join("|"),
        (Rule::Row(_) | Rule::Name(_) | Rule::Text, _) => {
            setting.option.unwrap_or_default().replace('-', "_").to_uppercase()
        }
        (_, Unit::Ns) => "TIME".to_owned(),
        (_, Unit::Bytes) => "BYTES".to_owned(),
        (_, Unit::PerSecond) => "N/s".to_owned(),
        _ => "N".to_owned(),
    }
}
