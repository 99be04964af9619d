//! Progress bars on standard error; none when it is not a terminal.

use std::fmt::Write;

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use kvdrive_figures::number;
use kvdrive_run::Going;

/// The style of a template, in which `rate` is operations a second.
pub fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    // `per_sec` has decimals, many of them.
    style.with_key("rate", |state: &ProgressState, text: &mut dyn Write| {
        let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
    })
}

/// A bar for each run.
pub struct Bars {
    bars: Vec<ProgressBar>,
    all: MultiProgress,
}

impl Bars {
    /// A bar for each label; it shows up when its run begins.
    pub fn new(labels: &[String]) -> Bars {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let width = labels.iter().map(String::len).max().unwrap_or(0);
        let style = style("{prefix} {bar:32} {percent:>3}% {rate:>14} {eta:>4} left  {wide_msg}");
        let bars = labels
            .iter()
            .map(|label| {
                ProgressBar::no_length().with_style(style.clone()).with_prefix(format!("{label:width$}"))
            })
            .collect();
        Bars { bars, all }
    }

    /// Shows the modelled figures of run `index` beside its bar. The rate in the bar itself is that of this machine.
    pub fn say(&self, index: usize, going: Going) {
        self.bars[index].set_message(in_words(going));
    }

    /// Run `index` has done `done` of `total` operations.
    pub fn update(&self, index: usize, done: u64, total: u64) {
        let bar = &self.bars[index];
        if bar.length().is_none() {
            self.all.add(bar.clone());
        }
        // The length of a trace is known only as it is read.
        bar.set_length(total);
        bar.set_position(done);
        if done == total {
            bar.finish_and_clear();
        }
    }
}

/// `modelled 49.1 k/s, 20.36 s; counted 284 B/op, 7.94 k pages`.
fn in_words(going: Going) -> String {
    let Going { ops, model_ns, programs, payload_bytes } = going;
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
    fn how_a_run_goes_fits_beside_its_bar() {
        let going = Going { ops: 1000, model_ns: 20_000_000, programs: 250, payload_bytes: 4_184_000 };
        assert_eq!(in_words(going), "modelled 50 k/s, 0.02 s; counted 4.18 k B/op, 250 pages");
        let begun = Going { ops: 0, model_ns: 0, programs: 0, payload_bytes: 0 };
        assert_eq!(in_words(begun), "modelled 0/s, 0.00 s; counted 0 B/op, 0 pages");
    }
}
