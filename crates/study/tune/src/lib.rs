//! Finds the thresholds of `adaptive` by exploratory runs, which BandSlim leaves to the user (section 3.2): stores
//! of one size after the other, 4 B to 8 KB, by each method.
//!
//! Flash is off in these runs, if the engine supports that: thresholds compare transfers, and programs of
//! pages would hide the differences. Stores of one size on an idle drive all take the same time until the
//! first memtable is full, so a few hundred are enough.

pub mod calibrate;

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::ensure;
use kvdrive_engines::hash;
use kvdrive_nvme::PAGE_BYTES;

use kvdrive_config::{Config, Document, Origin};
use kvdrive_results::{Conduct, ResultCache};
use kvdrive_run::plan::Plan;
use kvdrive_text::{grouped, with_decimals};

/// Sizes at which all methods are measured: powers of two, and the sizes at which one more command is needed.
const LADDER: [u32; 34] = [
    4, 8, 16, 32, 35, 36, 48, 64, 91, 92, 128, 147, 148, 256, 512, 1024, 2048, 4096, 4100, 4104, 4112, 4128,
    4152, 4153, 4160, 4208, 4209, 4224, 4352, 4608, 5120, 6144, 7168, 8192,
];
/// The user's weights for which results are shown.
const WEIGHTS: [f64; 8] = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
/// Keys that the runs set themselves.
pub const OWN_KEYS: [&str; 4] = ["workload.name", "workload.value_size", "host.transfer", "nand.enabled"];
const METHODS: [&str; 4] = ["prp", "piggyback", "hybrid", "cxl"];
const PRP: usize = 0;
const PIGGYBACK: usize = 1;
const HYBRID: usize = 2;
const CXL: usize = 3;

/// Cost of a store of one size by one method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Mean response time, ns.
    pub response_ns: f64,
    /// Bytes over the link, as the papers count them.
    pub traffic_bytes: f64,
    /// The part of these bytes in CXL.mem flits.
    pub flit_bytes: f64,
}

/// One size with its costs by `prp`, `piggyback`, `hybrid` and `cxl`.
#[derive(Clone, Copy, Debug)]
pub struct Rung {
    /// Size of the values.
    pub bytes: u32,
    /// In the order of the methods.
    pub costs: [Cost; 4],
}

/// The result.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Values shorter than this are at most the first tolerance slower by `piggyback` than by `prp`.
    pub threshold1_bytes: u32,
    /// Tails shorter than this are at most the second tolerance slower by `hybrid` than by `prp`.
    pub threshold2_bytes: u32,
    /// Values shorter than this are not slower by `cxl` than by `prp`, for `adaptive-cxl`; `None` if the
    /// engine exposes no buffer.
    pub threshold_cxl_bytes: Option<u32>,
    /// The tolerances.
    pub tolerances: Tolerances,
    /// Profile the runs began with.
    pub profile: &'static str,
    /// Costs over all sizes.
    pub ladder: Vec<Rung>,
}

/// By how much a store in commands may be slower than by `prp`: 0.02 is 2 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Of a whole value, for the first threshold. The paper counts 64 B as almost identical.
    pub value: f64,
    /// Of a tail after whole pages, for the second one.
    pub tail: f64,
}

/// The configurations of the exploratory runs, one for each method.
///
/// # Errors
/// A configuration is invalid.
pub fn configs(document: &Document) -> anyhow::Result<Vec<Config>> {
    let probe = Probe { document, ops: 1, threads: 1 };
    METHODS.iter().map(|method| Ok(probe.document(LADDER[0], method)?.config()?)).collect()
}

/// Exploratory runs of `ops` stores each from `document` on, `threads` at once.
///
/// # Errors
/// The user has set a key that the runs set themselves; or a run failed.
pub fn tune(document: &Document, ops: u64, tolerances: Tolerances, threads: usize) -> anyhow::Result<Tuning> {
    for (key, origin) in document.origins() {
        let is_own = OWN_KEYS.contains(&key.as_str());
        ensure!(
            !is_own || origin != Origin::User,
            "{key}: the exploratory runs have their own; leave it out"
        );
    }
    let probe = Probe { document, ops, threads };
    let all: Vec<(u32, usize)> = LADDER
        .iter()
        .flat_map(|bytes| [PRP, PIGGYBACK, HYBRID, CXL].map(|method| (*bytes, method)))
        .collect();
    let costs = probe.costs(&all)?;
    let ladder = LADDER.iter().zip(costs.chunks_exact(METHODS.len()));
    let ladder: Vec<Rung> = ladder
        .map(|(bytes, costs)| Rung { bytes: *bytes, costs: std::array::from_fn(|at| costs[at]) })
        .collect();
    let threshold1_bytes = 1 + probe.largest(PAGE_BYTES, |bytes| (bytes, PIGGYBACK), tolerances.value)?;
    let threshold2_bytes =
        match probe.largest(PAGE_BYTES - 1, |tail| (PAGE_BYTES + tail, HYBRID), tolerances.tail)? {
            0 => 0,
            tail => tail + 1,
        };
    // Without a window the method falls back to PRP, and there is no threshold.
    let has_window = ladder.iter().any(|rung| rung.costs[CXL].flit_bytes > 0.0);
    let threshold_cxl_bytes = match has_window {
        false => None,
        true => match probe.largest(PAGE_BYTES, |bytes| (bytes, CXL), 0.0)? {
            0 => Some(0),
            bytes => Some(bytes + 1),
        },
    };
    let profile = document.profile_name();
    Ok(Tuning { threshold1_bytes, threshold2_bytes, threshold_cxl_bytes, tolerances, profile, ladder })
}

struct Probe<'a> {
    document: &'a Document,
    ops: u64,
    threads: usize,
}

impl Probe<'_> {
    fn costs(&self, runs: &[(u32, usize)]) -> anyhow::Result<Vec<Cost>> {
        let documents: Vec<Document> = runs
            .iter()
            .map(|(bytes, method)| self.document(*bytes, METHODS[*method]))
            .collect::<Result<_, _>>()?;
        // The runs take milliseconds each: to remember them would take longer.
        let (cache, plan) = (ResultCache::none(), Plan::apart(documents));
        let conduct = Conduct { threads: self.threads, stop: Arc::default(), progress: &|_, _, _| () };
        let reports = cache.reports(&plan, &cache.ahead(&plan)?, &conduct)?;
        let cost = |report: kvdrive_run::report::Report| {
            let of = |class: &str| report.counts.of(&format!("traffic.payload_bytes{class}"));
            let (all, flits) = (of("") - of(".interrupt"), of(".cxl"));
            let each = |bytes: u64| bytes as f64 / self.ops as f64;
            let response_ns = report.latency_ns.get("store").map_or(0.0, |latency| latency.mean);
            ensure!(report.ops.errors == 0, "a store of an exploratory run failed");
            let (traffic_bytes, flit_bytes) = (each(all), each(flits));
            Ok(Cost { response_ns, traffic_bytes, flit_bytes })
        };
        reports.into_iter().map(|report| cost(report.expect("no run was stopped"))).collect()
    }

    fn document(&self, bytes: u32, method: &str) -> anyhow::Result<Document> {
        let mut document = self.document.clone();
        for setting in [
            "workload.name=w-a".to_owned(),
            format!("workload.value_size={bytes}"),
            format!("workload.ops={}", self.ops),
            format!("host.transfer={method}"),
        ] {
            document.set(&setting)?;
        }
        // A hash engine needs flash, but answers from its write buffer all the same.
        let needs_nand = hash::scheme(&document.config()?.engine.name).is_some();
        document.set(&format!("nand.enabled={needs_nand}"))?;
        Ok(document)
    }

    /// The largest size of `1..=most` at which the method is at most `tolerance` slower than `prp`; 0 if there is none.
    /// The search assumes that this holds up to some size and for no larger one.
    fn largest(&self, most: u32, run: impl Fn(u32) -> (u32, usize), tolerance: f64) -> anyhow::Result<u32> {
        let (mut holds, mut fails) = (0, most + 1);
        while fails - holds > 1 {
            let middle = holds + (fails - holds) / 2;
            let (bytes, method) = run(middle);
            let costs = self.costs(&[(bytes, method), (bytes, PRP)])?;
            if costs[0].response_ns <= costs[1].response_ns * (1.0 + tolerance) {
                holds = middle;
            } else {
                fails = middle;
            }
        }
        Ok(holds)
    }
}

impl Tuning {
    /// The thresholds as a file for `--config`.
    pub fn to_toml(&self) -> String {
        let by_cxl = self.threshold_cxl_bytes.map_or(String::new(), |bytes| {
            format!("# For transfer = \"adaptive-cxl\" threshold1_bytes is {bytes}.\n")
        });
        format!(
            "# Thresholds of the adaptive transfer method, found by exploratory runs (kvdrive tune, profile {}).\n\
             # Below the first, piggybacking is at most {} % slower than PRP; below the second, a tail in transfer commands\n\
             # is at most {} % slower than a page of its own.\n\
             {by_cxl}\
             [host]\n\
             transfer = \"adaptive\"\n\
             threshold1_bytes = {}\n\
             threshold2_bytes = {}\n",
            self.profile,
            percent(self.tolerances.value),
            percent(self.tolerances.tail),
            self.threshold1_bytes,
            self.threshold2_bytes
        )
    }

    /// The method that `adaptive` would use with these weights.
    fn method(&self, bytes: u32, alpha: f64, beta: f64) -> usize {
        let tail = bytes % PAGE_BYTES;
        if f64::from(bytes) < alpha * f64::from(self.threshold1_bytes) {
            PIGGYBACK
        } else if bytes > PAGE_BYTES && tail > 0 && f64::from(tail) < beta * f64::from(self.threshold2_bytes)
        {
            HYBRID
        } else {
            PRP
        }
    }

    /// Mean cost over the sizes of up to one page (`alpha` decides), or over the longer ones (`beta`
    /// decides).
    fn mean(&self, longer: bool, alpha: f64, beta: f64) -> Cost {
        let rungs = self.ladder.iter().filter(|rung| (rung.bytes > PAGE_BYTES) == longer);
        let costs: Vec<Cost> = rungs.map(|rung| rung.costs[self.method(rung.bytes, alpha, beta)]).collect();
        let mean = |of: fn(&Cost) -> f64| costs.iter().map(of).sum::<f64>() / costs.len() as f64;
        Cost {
            response_ns: mean(|cost| cost.response_ns),
            traffic_bytes: mean(|cost| cost.traffic_bytes),
            flit_bytes: mean(|cost| cost.flit_bytes),
        }
    }

    /// Thresholds, costs by size, and traffic against response time over the user's weights, for a terminal.
    pub fn to_text(&self) -> String {
        let has_cxl = self.threshold_cxl_bytes.is_some();
        let by_cxl = self.threshold_cxl_bytes.map_or(String::new(), |bytes| {
            format!("threshold1_bytes {bytes:>6}   of adaptive-cxl: below it cxl is not slower than prp\n")
        });
        let heading = if has_cxl { format!("{:>16}", "cxl us / B") } else { String::new() };
        let mut text = format!(
            "threshold1_bytes {:>6}   below it piggyback is at most {} % slower than prp; by powers of two, as in the paper: {}\n\
             threshold2_bytes {:>6}   below it a tail by hybrid is at most {} % slower than by prp\n\
             {by_cxl}\n\
             {:>9}{:>16}{:>18}{:>16}{heading}\n",
            self.threshold1_bytes,
            percent(self.tolerances.value),
            self.threshold1_bytes.next_power_of_two(),
            self.threshold2_bytes,
            percent(self.tolerances.tail),
            "value B",
            "prp us / B",
            "piggyback us / B",
            "hybrid us / B"
        );
        for Rung { bytes, costs } in &self.ladder {
            let cell = |cost: &Cost| {
                let (us, bytes) = (cost.response_ns / 1e3, cost.traffic_bytes);
                format!("{us:.2} / {}", with_decimals(bytes, 0))
            };
            let [prp, piggyback, hybrid, cxl] = costs.each_ref().map(cell);
            let cxl = if has_cxl { format!("{cxl:>16}") } else { String::new() };
            let bytes = grouped(u64::from(*bytes));
            let _ = writeln!(text, "{bytes:>9}{prp:>16}{piggyback:>18}{hybrid:>16}{cxl}");
        }
        for (longer, weight, sizes) in [(false, "alpha", "4 B to 4 KB"), (true, "beta", "4 KB to 8 KB")] {
            let points: Vec<(f64, Cost)> = WEIGHTS
                .map(|w| (w, if longer { self.mean(true, 1.0, w) } else { self.mean(false, w, 1.0) }))
                .to_vec();
            let _ = write!(
                text,
                "\nResponse over traffic, mean of the sizes {sizes}, by {weight}:\n{}",
                scatter(&points)
            );
        }
        text
    }
}

/// A fraction in per cent, without the digits that binary fractions add.
fn percent(fraction: f64) -> f64 {
    (fraction * 1e6).round() / 1e4
}

/// Rows and columns of a plot.
const HEIGHT: usize = 12;
const WIDTH: usize = 70;

/// Response time upwards, traffic to the right; a letter for each weight, and the first one of several that
/// coincide.
fn scatter(points: &[(f64, Cost)]) -> String {
    let range = |of: fn(&Cost) -> f64| {
        let values = points.iter().map(|(_, cost)| of(cost));
        let (low, high) =
            values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        (low, (high - low).max(1e-9))
    };
    let ((low_x, wide), (low_y, high)) = (range(|cost| cost.traffic_bytes), range(|cost| cost.response_ns));
    let mut canvas = vec![vec![' '; WIDTH + 1]; HEIGHT + 1];
    let mut legend = String::new();
    for (letter, (weight, cost)) in ('a'..).zip(points) {
        let column = ((cost.traffic_bytes - low_x) / wide * WIDTH as f64) as usize;
        let row = HEIGHT - ((cost.response_ns - low_y) / high * HEIGHT as f64) as usize;
        let place = &mut canvas[row][column];
        if *place == ' ' {
            *place = letter;
        }
        let (us, bytes) = (cost.response_ns / 1e3, with_decimals(cost.traffic_bytes, 0));
        let _ = writeln!(legend, "  {letter} = {weight:<4}  {us:>9.2} us  {bytes:>7} B");
    }
    let mut text = String::new();
    for (row, line) in canvas.iter().enumerate() {
        let label = match row {
            0 => format!("{:.1} us", (low_y + high) / 1e3),
            HEIGHT => format!("{:.1} us", low_y / 1e3),
            _ => String::new(),
        };
        let line: String = line.iter().collect();
        let _ = writeln!(text, "{label:>10} |{}", line.trim_end());
    }
    let (left, right) = (with_decimals(low_x, 0) + " B", with_decimals(low_x + wide, 0) + " B");
    let _ = writeln!(
        text,
        "{:>10} +{}\n{:>12}{left}{right:>width$}",
        "",
        "-".repeat(WIDTH),
        "",
        width = WIDTH - left.len()
    );
    text + &legend
}
