//! The JSON of runs as a contract: every field with its unit and what it is, and the JSON Schema that follows.
//!
//! A document is a table of [`Field`]s. Tests compare the documents that runs write with these tables in both directions,
//! so a field without a row, and a row without a field, fail. The number of the form ([`FORMAT`]) changes when a name, a
//! unit or a type does; a new field changes nothing for those who read the others.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::kind_of;
use crate::declared::declared;

/// Number of the form of every JSON document.
pub const FORMAT: u32 = 1;

/// The field `format` of a document: [`FORMAT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format(u32);

impl Default for Format {
    fn default() -> Format {
        Format(FORMAT)
    }
}

/// One field of a document.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Names from the outermost object on, joined by dots. `*` is any name, `[]` any element; a name that ends in `?` may
    /// be absent.
    pub path: &'static str,
    /// A unit of numbers, or `text`, `flag`, `any`, `object`, `counters`; with `?` behind it, `null` is possible.
    pub unit: &'static str,
    /// What it is.
    pub about: &'static str,
}

/// Makes a row.
pub const fn field(path: &'static str, unit: &'static str, about: &'static str) -> Field {
    Field { path, unit, about }
}

/// A kind of JSON document.
pub struct Document {
    /// Its name, in the file of its schema.
    pub name: &'static str,
    /// The commands that write it.
    pub written_by: &'static str,
    /// Its fields.
    pub fields: Vec<Field>,
    /// Whether the kinds of its numbers are those of a report; otherwise its fields say them.
    pub has_kinds: bool,
}

const LATENCY: [(&str, &str); 9] = [
    ("mean", "arithmetic mean"),
    ("stdev", "standard deviation, to three digits"),
    ("min", "smallest, to three digits"),
    ("p50", "median"),
    ("p95", "95th percentile"),
    ("p99", "99th percentile"),
    ("p999", "99.9th percentile"),
    ("p9999", "99.99th percentile"),
    ("max", "largest"),
];

/// Paths of latencies; rows for each of [`LATENCY`] are added.
const LATENCIES: [(&str, &str); 3] = [
    ("latency_ns.*", "of a kind of operation"),
    ("latency_all_ns?", "of all operations together"),
    ("transactions?.*.latency_ns", "of committed transactions, locks included"),
];

/// Fields of a report that a report of drives on a network has as well.
const SEEN: &[Field] = &[
    field("format", "count", "number of this form, 1"),
    field("seed", "count", "seed of every random stream"),
    field(
        "clock",
        "text",
        "`virtual` or `wall`: whose times `*_ns` and `*_per_s` are of what the application saw",
    ),
    field("revision", "text", "revision of the program"),
    field("notes[]", "text", "how the workload differs from its source, and how the run ended"),
    field("pairs?", "object?", "pairs of the workload; absent or `null` for the commands of hosts"),
    field(
        "pairs?.count",
        "pairs",
        "what the operations choose from: the pairs on the drive before them, or the key space; the stores of a workload that chooses none",
    ),
    field("pairs?.is_at_most?", "flag", "there may be fewer: keys are drawn from a space of this size"),
    field("pairs?.key_bytes", "B?", "length of a key; `null`: as the trace has them"),
    field("pairs?.value_bytes", "B?", "length of a value; `null`: they differ"),
    field("pairs?.stored_mean_bytes", "B?", "mean length of stored values; `null`: none was stored"),
    field("pairs?.retrieved_mean_bytes", "B?", "mean length of returned values; `null`: none was returned"),
    field("ops.store", "operations", "answered without an error"),
    field("ops.retrieve", "operations", "as above; a key that is not found is no error"),
    field("ops.delete", "operations", "as above"),
    field("ops.exist", "operations", "as above"),
    field("ops.list", "operations", "as above"),
    field("ops.seek", "operations", "as above; a scan is a seek and its nexts"),
    field("ops.next", "operations", "as above"),
    field("ops.errors", "operations", "answered with an error; they count as no other kind"),
    field("value_bytes.stored", "B", "values of stores that succeeded"),
    field("value_bytes.retrieved", "B", "values of retrieves, seeks and nexts that found a pair"),
    field("read_bytes?.*", "B", "returned values by kind of operation"),
    field("throughput_ops_per_s", "operations/s", "operations without an error, over the time of the run"),
    field("bandwidth_bytes_per_s.stored", "B/s", "`value_bytes.stored` over the time of the run"),
    field("bandwidth_bytes_per_s.retrieved", "B/s", "`value_bytes.retrieved` over the time of the run"),
    field("transactions?.*.committed", "transactions", "by kind of transaction"),
    field("transactions?.*.rolled_back", "transactions", "rolled back on purpose"),
    field("transactions?.*.per_s", "transactions/s", "committed ones"),
    field("series?.interval_ns", "ns", "length of an interval (`run.interval_ns`)"),
    field("series?.ops[]", "operations", "in each interval"),
    field("series?.transactions?[]", "transactions", "committed in each interval"),
    field("verified?", "object?", "values read back and compared (`--verify`)"),
    field("verified?.checked", "reads", "compared"),
    field("verified?.absent", "reads", "rightly found no pair"),
    field("verified?.wrong", "reads", "returned a value that was not stored"),
    field("verified?.missing", "reads", "found no pair although one was stored"),
    field("verified?.unread", "reads", "answered with an error"),
    field("verified?.unknown", "reads", "of pairs from an earlier life of the drive"),
    field(
        "verified?.unchecked",
        "reads",
        "not compared: exists, lists, and reads whose expected value is unknown",
    ),
];

/// Fields that only the report of a drive in this program has.
const OF_DRIVE: &[Field] = &[
    field("profile", "text", "profile on which the configuration is based"),
    field("config", "any", "the whole configuration by section and key (`docs/settings.md`)"),
    field("dram_point?", "text", "name of the requested DRAM point"),
    field("time_sources", "text", "sources of the modelled times; empty: no time is modelled"),
    field("is_stopped?", "flag", "stopped from outside before its end"),
    field("not_found?.*", "operations", "found no pair, by kind of operation"),
    field("time.virtual_ns", "ns", "model time of the measured operations"),
    field("time.wall_s", "s", "time of this machine"),
    field("commands?.*.count", "commands", "completed by the drive, by opcode, if its hosts are others"),
    field("commands?.*.mean_ns", "ns", "arithmetic mean of their model time"),
    field("commands?.*.p50_ns", "ns", "median, to an eighth, as are the next two"),
    field("commands?.*.p99_ns", "ns", "99th percentile"),
    field("commands?.*.p999_ns", "ns", "99.9th percentile"),
    field("commands?.*.max_ns", "ns", "largest"),
    field(
        "cache?.hit_rate",
        "share",
        "blocks of a language model's cache that were hit before a missing one",
    ),
    field("cache?.token_hit_rate", "share", "input tokens in these blocks"),
    field("cache?.prefill_saved_rate", "share", "floating-point operations of prefilling that they save"),
    field(
        "cache?.stored_bytes_a_day",
        "B?",
        "stored in a day at the model's size and the pace of the trace; `null`: it has no times",
    ),
    field("cache?.drive_writes_a_day", "count?", "bytes stored in a day over the capacity of the drive"),
    field(
        "cache?.rated_years",
        "years?",
        "until the writing is done for which the drive is rated (section `rated`); `null`: not known",
    ),
    field(
        "cache?.admission_saved_rate",
        "share",
        "bytes that admission keeps from the drive, of those that a cache without it would store",
    ),
    field("cache?.hit_rate_by_all", "share", "`hit_rate` of a cache that stores every missing block"),
    field(
        "amplification.traffic",
        "B/B?",
        "payload bytes over the link for a byte of value stored; `null`: none was",
    ),
    field("amplification.write", "B/B?", "bytes programmed for a byte of value stored"),
    field("faults?[].rule", "text", "name of a fault rule"),
    field("faults?[].fault", "text", "its kind"),
    field("faults?[].matched", "count", "commands or flash operations that it matched until it was used up"),
    field("faults?[].struck", "count", "how often it struck"),
    field(
        "precondition?.stores",
        "operations",
        "stores of loading the drive, before the measured operations",
    ),
    field("precondition?.stored_bytes", "B", "their values"),
    field(
        "precondition?.virtual_ns",
        "ns?",
        "their model time, the drain included; `null`: loading took no time",
    ),
    field("precondition?.write_amplification", "B/B?", "bytes programmed for a byte of value stored"),
    field("precondition?.*", "counters", "counters of flash and engine (`docs/counters.md`)"),
    field("limited_by?.key", "text", "the setting that changes what limited the throughput"),
    field("limited_by?.value", "any", "its value"),
    field("limited_by?.because", "text", "the evidence"),
    field("occupied?.*.tasks", "count", "contexts or threads of the controller"),
    field("occupied?.*.occupied_fraction", "share", "of their time, with a command"),
    field("occupied?.*.spent.*", "share", "of that time, by cause"),
    field("resources.*.busy_fraction", "share", "of the time, in use"),
    field("resources.*.busiest_fraction?", "share", "the same of the busiest of its parts"),
    field("resources.*.queue_ns_mean", "ns", "mean wait of its users"),
    field("*", "counters", "counters by section (`docs/counters.md`)"),
];

/// Fields of a run against drives on a network.
const OF_NETWORK: &[Field] = &[
    field("target?", "object", "the drive, if there is one"),
    field("target?.*", "any", "address, names, limits and connections of the drive"),
    field("targets?[]", "any", "the same of each of several drives"),
    field("workload", "any", "section `[workload]` of the configuration"),
    field("wall_s", "s", "time of this machine"),
    field("saker?", "counters", "counters of SAKER"),
];

/// Fields of a line of `--interval`.
const OF_INTERVAL: &[Field] = &[
    field("format", "count", "number of this form, 1"),
    field("began_ns", "ns", "after the first measured operation"),
    field("ended_ns", "ns", "the same; the last interval ends with the run"),
    field("ops", "operations", "answered without an error in the interval"),
    field("errors", "operations", "answered with an error"),
    field("throughput_ops_per_s", "operations/s", "`ops` over the interval"),
    field("value_bytes.stored", "B", "values of stores"),
    field("value_bytes.retrieved", "B", "values that were returned"),
    field("bandwidth_bytes_per_s.stored", "B/s", "`value_bytes.stored` over the interval"),
    field("bandwidth_bytes_per_s.retrieved", "B/s", "`value_bytes.retrieved` over the interval"),
    field("latency_ns.*.count", "operations", "of this kind"),
    field("gc.programs", "pages", "programmed by garbage collection"),
    field("gc.reads", "pages", "read by garbage collection"),
    field("*", "counters", "growth of the counters by section (`docs/counters.md`)"),
];

fn with_latencies(fields: &[&[Field]], paths: &[(&str, &str)]) -> Vec<Field> {
    let mut all: Vec<Field> = fields.concat();
    for (path, of) in paths {
        for (name, what) in LATENCY {
            let (path, about) = (format!("{path}.{name}"), format!("latency {of}: {what}"));
            all.push(field(path.leak(), "ns", about.leak()));
        }
    }
    all
}

/// The documents of runs. Made once for a page or a schema.
pub fn documents() -> Vec<Document> {
    vec![
        Document {
            name: "report",
            written_by: "`run --json`, each element of `compare --json`, `replay --json`, Python's `Report.json`. A line of `sweep` \
                         and of `compare --records` is the same with names joined by dots and lists as texts, and the \
                         settings of the grid before it",
            fields: with_latencies(&[SEEN, OF_DRIVE], &LATENCIES),
            has_kinds: true,
        },
        Document {
            name: "connected",
            written_by: "`run --connect --json`",
            fields: with_latencies(&[SEEN, OF_NETWORK], &LATENCIES),
            has_kinds: false,
        },
        Document {
            name: "interval",
            written_by: "each line of `run --interval`",
            fields: with_latencies(&[OF_INTERVAL], &LATENCIES[..1]),
            has_kinds: true,
        },
    ]
}

/// The page of all fields, as Markdown.
pub fn page(documents: &[Document]) -> String {
    let mut page = "\
# JSON

Every field of the JSON that kvdrive writes: `kvdrive list --fields` writes this page, and `kvdrive list --schema NAME` a JSON Schema
(2020-12) of each document. All have `\"format\": 1`; the number changes when a name, a unit or a type does. New fields may come
at any time. In a path, `*` is any name, `[]` any element of a list, and a name with `?` may be absent; a unit with `?` may be `null`.
Numbers are *counted* (exact), *modelled* (times of a profile) or *measured* (of this machine). In a run in wall time, the times that
applications saw are measured.
"
    .to_owned();
    for document in documents {
        let Document { name, written_by, fields, has_kinds } = document;
        let kind = if *has_kinds { " kind |" } else { "" };
        let rule = if *has_kinds { "---|" } else { "" };
        _ = write!(
            page,
            "\n## {name}\n\n{written_by}.\n\n| field | unit |{kind} what it is |\n|---|---|{rule}---|\n"
        );
        for Field { path, unit, about } in fields {
            let kind = match (has_kinds, is_number(unit)) {
                (false, _) => String::new(),
                (true, false) => "  |".to_owned(),
                (true, true) => format!(" {} |", kind_of(&path.replace(['?', '*'], "")).name()),
            };
            _ = writeln!(page, "| `{path}` | {unit} |{kind} {about} |");
        }
    }
    page
}

/// Is a value of this unit a number?
fn is_number(unit: &str) -> bool {
    !["text", "flag", "any", "object", "counters"].contains(&unit.trim_end_matches('?'))
}

/// The JSON Schema of a document.
///
/// # Errors
/// One of the small drives whose counters it lists cannot be made.
pub fn schema(document: &Document) -> anyhow::Result<Value> {
    let mut sections: Map<String, Value> = Map::new();
    for counter in declared()? {
        let properties = sections.entry(counter.section).or_insert_with(object);
        let number = json!({"type": ["integer", "null"]});
        let labelled = json!({"type": "object", "additionalProperties": {"type": "integer"}});
        let of = if counter.counter.by.is_some() { labelled } else { number };
        properties["properties"][counter.counter.name] = of;
    }
    let mut root = object();
    for field in &document.fields {
        let (parents, name) = field.path.rsplit_once('.').unwrap_or(("", field.path));
        let at =
            parents.split('.').filter(|part| !part.is_empty()).fold(&mut root, |at, part| place(at, part));
        if field.unit == "counters" {
            match name {
                // The sections of counters stand beside the other fields.
                "*" => {
                    of_object(at)["properties"].as_object_mut().expect("an object").extend(sections.clone())
                }
                name => *place(at, name) = json!({"type": "object"}),
            }
            continue;
        }
        let is_nullable = field.unit.ends_with('?');
        let one = match field.unit.trim_end_matches('?') {
            "text" => json!("string"),
            "flag" => json!("boolean"),
            "object" => json!("object"),
            "any" => Value::Null,
            _ => json!("number"),
        };
        let place = place(at, name);
        if one.is_null() {
            *place = json!({});
        } else {
            place["type"] = if is_nullable { json!([one, "null"]) } else { one };
        }
        place["description"] = field.about.into();
    }
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = format!("kvdrive {}", document.name).into();
    root["properties"]["format"] = json!({"const": FORMAT});
    Ok(root)
}

fn object() -> Value {
    json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false})
}

/// Makes a schema one of an object, if it is not yet; what it says besides stays.
fn of_object(at: &mut Value) -> &mut Value {
    if at.get("properties").is_none() {
        let before = std::mem::replace(at, object());
        for (name, value) in before.as_object().into_iter().flatten() {
            at[name] = value.clone();
        }
    }
    at
}

/// The schema of a part of a path, below that of the part before it.
fn place<'a>(at: &'a mut Value, part: &str) -> &'a mut Value {
    let is_list = part.ends_with("[]");
    let part = part.trim_end_matches("[]");
    let name = part.trim_end_matches('?');
    let at = of_object(at);
    let at = if name == "*" {
        let others = &mut at["additionalProperties"];
        if !others.is_object() {
            *others = json!({});
        }
        others
    } else {
        if part == name {
            let required = at["required"].as_array_mut().expect("an object has it");
            if !required.iter().any(|known| known == name) {
                required.push(name.into());
            }
        }
        let properties = at["properties"].as_object_mut().expect("an object has them");
        properties.entry(name).or_insert_with(|| json!({}))
    };
    if !is_list {
        return at;
    }
    at["type"] = "array".into();
    let items = at.as_object_mut().expect("a schema").entry("items");
    items.or_insert_with(|| json!({}))
}

/// The first place at which `value` is not as `schema` says; of the schemas of this module, which use a part of JSON
/// Schema.
pub fn violation(schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(expected) = schema.get("const") {
        return (expected != value).then(|| format!("{at}: {value} is not {expected}"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = |name: &Value| name == kind || kind == "integer" && name == "number";
    let is_of_type = match schema.get("type") {
        None => true,
        Some(Value::Array(names)) => names.iter().any(fits),
        Some(name) => fits(name),
    };
    if !is_of_type {
        return Some(format!("{at}: {value} is no {}", schema["type"]));
    }
    match value {
        Value::Array(items) => {
            let of = schema.get("items")?;
            items.iter().enumerate().find_map(|(index, item)| violation(of, item, &format!("{at}[{index}]")))
        }
        Value::Object(fields) => {
            let required = schema.get("required").and_then(Value::as_array);
            let absent = required
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .find(|name| !fields.contains_key(*name));
            if let Some(name) = absent {
                return Some(format!("{at}.{name} is missing"));
            }
            fields.iter().find_map(|(name, value)| {
                let at = format!("{at}.{name}");
                match (
                    schema.pointer(&format!("/properties/{}", name.replace('~', "~0").replace('/', "~1"))),
                    schema.get("additionalProperties"),
                ) {
                    (Some(of), _) => violation(of, value, &at),
                    (None, Some(Value::Bool(false))) => Some(format!("{at}: no such field")),
                    (None, Some(of @ Value::Object(_))) => violation(of, value, &at),
                    (None, _) => None,
                }
            })
        }
        _ => None,
    }
}
