//! The kind of each number in a report, by its name in [`record`](super::record).

use kvdrive_declare::Kind;

use crate::declared;

/// Parts of a report whose numbers are shares of the model's time.
const SHARES_OF_TIME: &[&str] = &["resources", "occupied"];

/// The kind of a number: as its counter declares, or, for figures that are computed from counters and times,
/// by its unit. In a run in wall time, some times that are modelled here are of the machine's clock.
pub fn kind_of(name: &str) -> Kind {
    let name = name.strip_prefix("precondition.").unwrap_or(name);
    let (section, rest) = name.split_once('.').unwrap_or((name, ""));
    let counter = rest.split('.').next().unwrap_or(rest);
    if let Some(declared) = declared::find(section, counter) {
        return declared.counter.kind;
    }
    let is_time = |part: &str| {
        ["_ns", "_ns_mean", "_per_s", "_fraction"].iter().any(|end| part.ends_with(end)) || part == "per_s"
    };
    match name {
        "time.wall_s" => Kind::Measured,
        _ if name.ends_with(".tasks") || name.ends_with(".count") => Kind::Counted,
        _ if SHARES_OF_TIME.contains(&section) || name.split('.').any(is_time) => Kind::Modelled,
        _ => Kind::Counted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_kind_of_its_counter_or_of_its_unit() {
        for (name, kind) in [
            ("ops.store", Kind::Counted),
            ("nand.programs.total", Kind::Counted),
            ("drive.model_ns", Kind::Modelled),
            ("engine.memcpy_ns", Kind::Modelled),
            ("precondition.engine.memcpy_ns", Kind::Modelled),
            ("precondition.virtual_ns", Kind::Modelled),
            ("precondition.stored_bytes", Kind::Counted),
            ("amplification.write", Kind::Counted),
            ("throughput_ops_per_s", Kind::Modelled),
            ("latency_ns.store.p99", Kind::Modelled),
            ("commands.store.count", Kind::Counted),
            ("commands.store.p99_ns", Kind::Modelled),
            ("transactions.payment.per_s", Kind::Modelled),
            ("resources.link.busy_fraction", Kind::Modelled),
            ("occupied.contexts.tasks", Kind::Counted),
            ("occupied.contexts.spent.core", Kind::Modelled),
            ("time.virtual_ns", Kind::Modelled),
            ("time.wall_s", Kind::Measured),
        ] {
            assert_eq!(kind_of(name), kind, "{name}");
        }
    }
}
