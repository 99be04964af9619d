//! The tables of fields of the JSON documents that only the command writes; those of runs are in crate `run`.

use kvdrive_run::report::fields::{Document, Field, documents, field};

/// Fields of `ctl status --json`.
const STATUS: &[Field] = &[
    field("format", "count", "number of this form, 1"),
    field("nqn", "text", "name of the subsystem"),
    field("nsid", "count", "namespace that this is of"),
    field("pid", "count", "process of the server"),
    field("listening[]", "text", "where it listens"),
    field("ctl", "text", "the command that reaches this drive"),
    field(
        "counts.*",
        "any",
        "sections `server`, `process` and `hosts` since the server began (`docs/counters.md`)",
    ),
    field("latencies.*.count", "commands", "by opcode as hosts sent them: counted"),
    field(
        "latencies.*.sum_ns",
        "ns",
        "from the last byte of a command to its answer in the server: measured",
    ),
    field("latencies.*.p50_ns", "ns", "median, at most an eighth too large: measured"),
    field("latencies.*.p99_ns", "ns", "99th percentile: measured"),
    field("latencies.*.p999_ns", "ns", "99.9th percentile: measured"),
    field("latencies.*.by_power_of_two[]", "commands", "place n counts times from 2^n ns up to 2^(n + 1)"),
    field("drive", "object?", "the drive since it was powered on; `null` without power"),
    field("drive.counts.*", "counters", "counters of the drive by section (`docs/counters.md`)"),
    field("drive.read_only", "text?", "why it is read-only, if it is"),
    field("drive.latencies.*.count", "commands", "by opcode, carried out by the drive: counted"),
    field("drive.latencies.*.sum_ns", "ns", "their model time: modelled"),
    field("drive.latencies.*.p50_ns", "ns", "median, at most an eighth too large: modelled"),
    field("drive.latencies.*.p99_ns", "ns", "99th percentile: modelled"),
    field("drive.latencies.*.p999_ns", "ns", "99.9th percentile: modelled"),
    field(
        "drive.latencies.*.by_power_of_two[]",
        "commands",
        "place n counts times from 2^n ns up to 2^(n + 1)",
    ),
    field(
        "drive.lateness",
        "any",
        "how late events were carried out, with the same names: measured; `null` where the drive is not paced",
    ),
    field("drive.resources[].name", "text", "firmware cores, link, channels, dies"),
    field("drive.resources[].busy_ns", "ns", "time its servers were held: modelled"),
    field("drive.resources[].queue_ns", "ns", "time its users waited: modelled"),
    field("drive.resources[].uses", "count", "how often it was used"),
    field("drive.resources[].servers", "count", "users that it serves at once"),
    field("drive.faults[].name", "text", "a fault rule"),
    field("drive.faults[].kind", "text", "its kind"),
    field(
        "drive.faults[].matched",
        "count",
        "commands or operations that it matched while it was not used up",
    ),
    field("drive.faults[].struck", "count", "how often it struck"),
];

/// Fields of `explain --json`.
const EXPLAIN: &[Field] = &[
    field("format", "count", "number of this form, 1"),
    field("command", "text", "the command that is explained"),
    field("values", "count", "values that it carries"),
    field("value_bytes", "B?", "length of each; `null`: it has none"),
    field("status", "text", "its answer"),
    field("latency_ns", "ns", "from the call of the application to its answer: modelled"),
    field("payload_bytes", "B", "over the link, as papers count them: counted"),
    field("steps[].part", "text", "`request for a window`, `command`, `after the answer`"),
    field("steps[].at_ns", "ns", "its beginning: modelled"),
    field("steps[].takes_ns", "ns", "its duration: modelled"),
    field("steps[].room", "text", "where it happens"),
    field("steps[].step", "text", "what happens"),
    field("steps[].bytes", "B", "that it moves: counted"),
    field("steps[].purpose", "text?", "purpose of a flash operation"),
    field("occupied[].name", "text", "contexts or threads of the controller"),
    field("occupied[].tasks", "count", "their number"),
    field("occupied[].occupied_ns", "ns", "time with a command: modelled"),
    field("occupied[].spent_ns.*", "ns", "the same by cause: modelled"),
    field("kinds.*", "any", "which of these are counted and which modelled"),
    field("time_sources", "text", "sources of the modelled times"),
    field("profile", "text", "profile of the drive"),
    field("revision", "text", "revision of the program"),
    field("config", "any", "the whole configuration by section and key (`docs/settings.md`)"),
];

/// A line of `sweep`.
const SWEEP: &[Field] = &[
    field("format", "count", "number of this form, 1"),
    field(
        "config_hash",
        "text",
        "digest of profile and configuration, 16 hexadecimal digits: it identifies the line",
    ),
    field("profile", "text", "profile on which the configuration is based"),
    field("revision", "text", "revision of the program"),
    field(
        "*",
        "any",
        "settings of the grid by key, and the fields of a report, each as one column: names with dots are those of the \
         report's objects, and a list is one text",
    ),
];

/// A line of `dump`.
const PAIR: &[Field] = &[
    field("format", "count", "number of this form, 1"),
    field("key", "text", "the key, as text, or in hexadecimal behind `0x`"),
    field("bytes?", "B", "length of the value, if it can be read"),
    field("value?", "text", "the value in hexadecimal, unless `--keys` leaves it out"),
    field("damaged?", "text", "the status that a host gets for it"),
    field("lost?", "flag", "the value is not there"),
];

/// Fields of `conform --json`.
const CONFORM: &[Field] = &[
    field("format", "count", "number of this form, 1"),
    field("target", "text", "what was checked"),
    field("specification", "text", "against which text"),
    field("pass", "clauses", "that hold"),
    field("fail", "clauses", "that do not"),
    field("not_offered", "clauses", "of what the target does not have"),
    field("not_removed[]", "text", "keys in hexadecimal that were stored and could not be removed"),
    field("clauses[].id", "text", "name of the clause, as `--only` takes it"),
    field("clauses[].section", "text", "of the specification"),
    field("clauses[].group", "text", "what it is about"),
    field("clauses[].asks", "text", "what has to hold"),
    field("clauses[].verdict", "text", "`pass`, `fail`, `not offered`"),
    field("clauses[].told", "text", "what was found; empty: nothing to tell"),
    field("clauses[].who", "text", "whom a deviation concerns; empty: nobody in particular"),
    field("clauses[].exchanges[].queue", "text", "`admin` or `io`"),
    field("clauses[].exchanges[].sqe", "text", "the command, 64 B in hexadecimal"),
    field("clauses[].exchanges[].sent", "text", "its data in hexadecimal"),
    field("clauses[].exchanges[].status", "count?", "status of the answer, with its type; `null`: none came"),
    field("clauses[].exchanges[].dw0", "count", "dword 0 of the answer"),
    field("clauses[].exchanges[].received", "text", "data of the answer in hexadecimal"),
];

/// Fields of `storm --json`.
const STORM: &[Field] = &[
    field("format", "count", "number of this form, 1"),
    field("seed", "count", "seed of the first case"),
    field("cases", "cases", "that ran: counted"),
    field("power_cuts", "count", "in all cases, those during recoveries included: counted"),
    field("keys_compared", "keys", "in recovered drives: counted"),
    field("wall_s", "s", "of all cases: measured"),
    field("is_stopped", "flag", "stopped from outside before its end"),
    field("failed", "object?", "the case that failed, the last one; `null`: none did"),
    field("failed.seed", "count", "its seed"),
    field("failed.told", "text", "what was wrong"),
    field("failed.again", "text", "the command that runs it again"),
    field("failed.shrunk", "text", "the command of the smallest case found that fails alike"),
    field("failed.faults", "text", "the file of fault rules that this command reads; empty: none"),
];

/// Every document.
pub fn all() -> Vec<Document> {
    let own = |name, written_by, fields: &[Field]| Document {
        name,
        written_by,
        fields: fields.to_vec(),
        has_kinds: false,
    };
    let mut all = documents();
    all.push(own("status", "`ctl status --json`", STATUS));
    all.push(own("explain", "`explain --json`", EXPLAIN));
    all.push(own("sweep", "a line of `sweep`", SWEEP));
    all.push(own("pair", "a line of `dump`", PAIR));
    all.push(own("conform", "`conform --json`", CONFORM));
    all.push(own("storm", "`storm --json`", STORM));
    all
}
