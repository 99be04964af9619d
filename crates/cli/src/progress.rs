//! Progress bars on standard error; none when it is not a terminal.

use std::fmt::Write;

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// The style of a template, in which `rate` is operations a second.
pub fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    // `per_sec` has decimals, many of them.
    style.with_key("rate", |state: &ProgressState, text: &mut dyn Write| {
        let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
    })
}

/// One bar a run.
pub struct Bars {
    bars: Vec<ProgressBar>,
    all: MultiProgress,
}

impl Bars {
    /// A bar for each label; it shows up when its run begins.
    pub fn new(labels: &[String]) -> Bars {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let width = labels.iter().map(String::len).max().unwrap_or(0);
        let style = style("{prefix} {bar:32} {percent:>3}% {rate:>14} {eta:>4} left");
        let bars = labels
            .iter()
            .map(|label| {
                ProgressBar::no_length().with_style(style.clone()).with_prefix(format!("{label:width$}"))
            })
            .collect();
        Bars { bars, all }
    }

    /// Run `index` has done `done` of `total` operations.
    pub fn update(&self, index: usize, done: u64, total: u64) {
        let bar = &self.bars[index];
        if bar.length().is_none() {
            self.all.add(bar.clone());
        }
        // Of a trace it is found out as it is read.
        bar.set_length(total);
        bar.set_position(done);
        if done == total {
            bar.finish_and_clear();
        }
    }
}
