//! Latencies as cumulative distributions: a table of CSV, which a data frame or a plot takes as it is.

use std::fmt::Write;

use kvdrive_sim::Histogram;

/// Latencies of a run by kind of operation, in ns.
pub type Latencies = Vec<(&'static str, Histogram)>;

/// The table of several runs: a line for each latency that occurred, as exact as the histogram has it, with
/// the share of operations of its kind that took no longer. Runs are numbered from 1 and listed with the
/// settings by which they differ.
pub fn csv<'a>(runs: impl IntoIterator<Item = (&'a str, &'a Latencies)>) -> String {
    let mut text = "run,settings,operation,latency_ns,share\n".to_owned();
    for (number, (settings, latencies)) in (1..).zip(runs) {
        for (kind, histogram) in latencies {
            let all = histogram.values().len().max(1) as f64;
            let max_ns = histogram.summary().max;
            let mut below = 0;
            for step in histogram.values().iter_recorded() {
                below += step.count_at_value();
                // A step ends at the end of its bucket, which may be above every value in it.
                let latency_ns = step.value_iterated_to().min(max_ns);
                let share = below as f64 / all;
                let settings = settings.replace('"', "\"\"");
                let _ = writeln!(text, "{number},\"{settings}\",{kind},{latency_ns},{share}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_to_one_for_each_kind_of_each_run() {
        let mut stores = Histogram::default();
        [100, 100, 200, 400].into_iter().for_each(|ns| stores.record(ns));
        let mut retrieves = Histogram::default();
        retrieves.record(50);
        let runs: [(&str, Latencies); 2] =
            [("a=1", vec![("store", stores)]), ("trace=\"x\"", vec![("retrieve", retrieves)])];
        assert_eq!(
            csv(runs.iter().map(|(settings, latencies)| (*settings, latencies))),
            "run,settings,operation,latency_ns,share\n\
             1,\"a=1\",store,100,0.5\n1,\"a=1\",store,200,0.75\n1,\"a=1\",store,400,1\n\
             2,\"trace=\"\"x\"\"\",retrieve,50,1\n"
        );
    }

    #[test]
    fn no_latency_lies_above_the_maximum_of_the_report() {
        let mut stores = Histogram::default();
        stores.record(1_000_001);
        assert!(stores.values().max() > stores.summary().max, "its bucket ends above it");
        let latencies = vec![("store", stores)];
        let table = csv([("", &latencies)]);
        assert!(table.ends_with(",store,1000001,1\n"), "{table}");
    }
}
