//! Progress on standard error: bars on a terminal; elsewhere none, or a line a minute.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use kvdrive_figures::number;
use kvdrive_probe::image::Checked;
use kvdrive_run::RunProgress;
use kvdrive_sim::wall::Stopwatch;
use kvdrive_text::grouped;

use crate::output;

/// The style of a template, in which `rate` is operations a second.
fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    // `per_sec` has decimals, many of them.
    style.with_key("rate", |state: &ProgressState, text: &mut dyn Write| {
        let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
    })
}

/// The bar of one run or one measurement, on a terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar that shows up with the first progress.
    pub fn new(label: &'static str) -> Bar {
        let style = style("{prefix} {bar:32} {percent:>3}% {rate:>14} {eta:>4} left  {wide_msg}");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        Bar(bar.with_style(style).with_prefix(label))
    }

    /// Shows the modelled figures of the run beside its bar. The rate in the bar itself is that of this machine.
    pub fn say(&self, going: RunProgress) {
        self.0.set_message(in_words(going));
    }

    /// The run has done `done` of `total` operations.
    pub fn update(&self, done: u64, total: u64) {
        // The length of a trace is known only as it is read.
        self.0.set_length(total);
        self.0.set_position(done);
        if done == total {
            self.0.finish_and_clear();
        }
    }
}

/// One bar; a line a minute when standard error is not a terminal.
pub struct LoggedBar {
    bar: ProgressBar,
    clock: Stopwatch,
    /// Minutes of which there was a line.
    logged: AtomicU64,
}

impl LoggedBar {
    /// A bar of `total` operations.
    pub fn new(label: &str, total: u64) -> LoggedBar {
        let style = style(&format!("{label} {{bar:40}} {{percent:>3}}% {{rate:>14}} {{eta:>4}} left"));
        let target = ProgressDrawTarget::stderr_with_hz(8);
        let bar = ProgressBar::with_draw_target(Some(total), target).with_style(style);
        LoggedBar { bar, clock: Stopwatch::start(), logged: AtomicU64::new(0) }
    }

    /// So many more operations are done.
    pub fn advance(&self, operations: u64) {
        self.bar.inc(operations);
        let minutes = self.clock.ns() / 60_000_000_000;
        if self.bar.is_hidden() && self.logged.fetch_max(minutes, Ordering::Relaxed) < minutes {
            output::tell(&line(minutes, self.bar.position(), self.bar.length().unwrap_or(0)));
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The bar of a check on a terminal, by the bytes of values that were read; elsewhere none.
pub struct CheckBar(ProgressBar);

impl CheckBar {
    /// A bar that shows up with the first progress.
    pub fn new() -> CheckBar {
        let style = style("checking {bar:40} {bytes} of at most {total_bytes}, {eta} left  {msg}");
        CheckBar(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8)).with_style(style))
    }

    /// Shows how far the check is.
    pub fn update(&self, checked: Checked) {
        self.0.set_length(checked.live_bytes.max(checked.bytes));
        self.0.set_position(checked.bytes);
        self.0.set_message(format!("{} pairs", grouped(checked.pairs)));
    }

    /// Prints lines that stay, above the bar.
    pub fn beside(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// How far all operations are, for a log.
fn line(minutes: u64, done: u64, total: u64) -> String {
    let share = 100.0 * done as f64 / total.max(1) as f64;
    format!("{minutes} min: {} of {} operations, {share:.0} %", grouped(done), grouped(total))
}

/// `modelled 49.1 k/s, 20.36 s; counted 284 B/op, 7.94 k pages`.
fn in_words(going: RunProgress) -> String {
    let RunProgress { ops, model_ns, programs, payload_bytes } = going;
    let seconds = model_ns.max(1) as f64 / 1e9;
    let of_one = payload_bytes as f64 / ops.max(1) as f64;
    let rate = number(ops as f64 / seconds);
    let (of_one, pages) = (number(of_one), number(programs as f64));
    format!("modelled {rate}/s, {seconds:.2} s; counted {of_one} B/op, {pages} pages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_says_how_far_all_operations_are() {
        assert_eq!(line(3, 1_500_000, 6_000_000), "3 min: 1 500 000 of 6 000 000 operations, 25 %");
        assert_eq!(line(1, 0, 0), "1 min: 0 of 0 operations, 0 %");
    }

    #[test]
    fn how_a_run_goes_fits_beside_its_bar() {
        let going = RunProgress { ops: 1000, model_ns: 20_000_000, programs: 250, payload_bytes: 4_184_000 };
        assert_eq!(in_words(going), "modelled 50 k/s, 0.02 s; counted 4.18 k B/op, 250 pages");
        let begun = RunProgress { ops: 0, model_ns: 0, programs: 0, payload_bytes: 0 };
        assert_eq!(in_words(begun), "modelled 0/s, 0.00 s; counted 0 B/op, 0 pages");
    }
}
