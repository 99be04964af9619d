//! Quantities over time, from the series of a report (`run.interval_ns`).

use anyhow::{Context, anyhow, ensure};
use serde_json::Value;

use super::{CHANGE, Results, RunId};
use crate::expression::Expression;

impl Results {
    /// The value of an expression in each interval of full length of a run, and that length in ns. Names are
    /// those of the report's series, and `interval_ns`.
    ///
    /// # Errors
    /// The report has no series, or none with such a name.
    pub fn over_time(&self, run: RunId, expression: &Expression) -> anyhow::Result<(Vec<f64>, u64)> {
        let report = self.report(run);
        let series =
            report.series.as_ref().context("the report has no series; run.interval_ns asks for one")?;
        // After its requested duration a run only waits for operations in flight.
        let asked_ns = report.config.pointer("/workload/duration_ns").and_then(Value::as_u64);
        let span_ns = asked_ns.filter(|ns| *ns > 0).unwrap_or(u64::MAX).min(report.time.virtual_ns);
        let whole = span_ns / series.interval_ns.max(1);
        let at = |interval: usize, name: &str| {
            let counts = match name {
                "interval_ns" => return Ok(series.interval_ns as f64),
                "ops" => Some(&series.ops),
                "transactions" => series.transactions.as_ref(),
                _ => None,
            };
            let counts = counts.ok_or_else(|| format!("{name}: no series of that name in the report"))?;
            Ok(counts[interval] as f64)
        };
        let intervals = 0..series.ops.len().min(whole as usize);
        let values = intervals.map(|interval| expression.value(&|name| at(interval, name)));
        let values =
            values.collect::<Result<_, _>>().map_err(|problem| anyhow!("{expression}: {problem}"))?;
        Ok((values, series.interval_ns))
    }

    /// How much the operations of an interval differ from those of the interval before it, on average, as a share
    /// of the mean. A trend over many intervals, as of a cache that fills, changes it little.
    pub(super) fn change(&self, run: RunId) -> anyhow::Result<f64> {
        let ops = Expression::parse("ops").map_err(anyhow::Error::msg)?;
        let (ops, _) = self.over_time(run, &ops)?;
        ensure!(
            ops.len() > 1 && ops.iter().sum::<f64>() > 0.0,
            "{CHANGE}: fewer than two intervals, or nothing in them"
        );
        let mean = ops.iter().sum::<f64>() / ops.len() as f64;
        let changes = ops.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum::<f64>();
        Ok(changes / (ops.len() - 1) as f64 / mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_run::report::{Report, Series};

    /// The change of a run with these operations in intervals of 10 ns, which takes `ns` and was asked to take 40.
    fn change(ops: &[u64], ns: u64) -> Result<f64, String> {
        let mut report = Report {
            series: Some(Series { interval_ns: 10, ops: ops.to_vec(), transactions: None }),
            config: serde_json::json!({"workload": {"duration_ns": 40}}),
            ..Report::default()
        };
        report.time.virtual_ns = ns;
        let results = Results::new(vec![Some(report)]).unwrap();
        let of_first = Expression::parse("series.ops.change").unwrap();
        results.number(RunId(0), &of_first).map_err(|problem| problem.to_string())
    }

    #[test]
    fn the_change_of_a_series_is_that_of_whole_intervals() {
        assert_eq!(change(&[5, 5, 5, 5], 40), Ok(0.0));
        assert_eq!(change(&[4, 8, 4, 8], 40), Ok(4.0 / 6.0));
        assert_eq!(change(&[4, 8, 4, 8, 1000], 47), Ok(4.0 / 6.0), "without the time after its duration");
        assert_eq!(change(&[4, 8, 1], 25), Ok(4.0 / 6.0), "without a shorter interval at the end");
        assert_eq!(change(&[1, 2, 3, 4], 40), Ok(1.0 / 2.5), "a trend counts once an interval");
        for too_few in [&[4][..], &[], &[0, 0, 0, 0]] {
            assert!(change(too_few, 40).unwrap_err().contains("fewer than two intervals"), "{too_few:?}");
        }
    }
}
