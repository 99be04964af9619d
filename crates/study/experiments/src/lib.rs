//! Experiments as data: every figure that is reproduced is one TOML file of `files/`.
//!
//! A [`Figure`] has grids; a [`Grid`] is series times points, and each pair is one run; its [`Panel`]s draw
//! quantities of these runs. Settings are the `KEY=VALUE` of the command line. Values stated in the source's
//! text are [`Published`]. A new figure is one file and one row in [`FILES`]; `kvdrive figure` and `kvdrive
//! report` find it there.
//!
//! ```toml
//! id = "bandslim-8"
//! source = "BandSlim, ICPP'24, Figure 8"
//! title = "Traffic and response time by value size"
//! group = "paper"
//!
//! [[grid]]
//! name = "sizes"
//! ops = 20_000                        # for each point
//! full_ops = 1_000_000                # as published
//! set = ["workload.name=w-a", "nand.enabled=false"]
//! points = { key = "workload.value_size", values = [4, 32], label = "value size [B]" }
//! series = [{ name = "Baseline", set = ["host.transfer=prp"] }]
//! panel = [{ id = "a", title = "Traffic", y = "traffic.payload_bytes.total / ops.store", unit = "B/store", kind = "counted" }]
//! ```
//!
//! A grid with `scale = "1/64"` states everything at full size and is run at that fraction; `--scale`
//! overrides it. In a grid with `sequence = true` the points of a series follow each other on one drive,
//! which is loaded by the settings of the first point.
//!
//! A panel with `over_time = true` draws a quantity for each interval (`run.interval_ns`) of the runs of a
//! grid with one point: `y = "ops / interval_ns"`. Claims have `series.ops.change` for such runs: the mean
//! difference of an interval's operations from those of the interval before, as a share of their mean.
//!
//! A series that needs a part which this build lacks (`needs = ["transfer:cxl"]`) is left out, and the figure
//! says so.

mod available;
mod chapters;
pub mod expression;
mod figure;
mod parse;
mod place;
pub mod runs;
pub mod sweep;

use anyhow::anyhow;
use kvdrive_text::names::meant;

pub use available::missing;
pub use chapters::{CHAPTERS, Chapter};
pub use figure::{Figure, Grid, KINDS, Kind, Panel, Point, Published, Series, Statement, Style};
pub use parse::parse;
pub use parse::{assignments, check_needs, from_toml};
pub use place::{PlacedRun, RunPlace};

/// The embedded files with their names.
pub static FILES: &[(&str, &str)] = &[
    ("bandslim-3.toml", include_str!("../files/bandslim-3.toml")),
    ("bandslim-4.toml", include_str!("../files/bandslim-4.toml")),
    ("bandslim-8.toml", include_str!("../files/bandslim-8.toml")),
    ("bandslim-9.toml", include_str!("../files/bandslim-9.toml")),
    ("bandslim-10.toml", include_str!("../files/bandslim-10.toml")),
    ("bandslim-11.toml", include_str!("../files/bandslim-11.toml")),
    ("bandslim-12.toml", include_str!("../files/bandslim-12.toml")),
    ("bandslim-cxl-2.toml", include_str!("../files/bandslim-cxl-2.toml")),
    ("bandslim-cxl-5.toml", include_str!("../files/bandslim-cxl-5.toml")),
    ("beyond-transfers.toml", include_str!("../files/beyond-transfers.toml")),
    ("beyond-cxl-pages.toml", include_str!("../files/beyond-cxl-pages.toml")),
    ("beyond-blend.toml", include_str!("../files/beyond-blend.toml")),
    ("anykey-memory.toml", include_str!("../files/anykey-memory.toml")),
    ("anykey-run.toml", include_str!("../files/anykey-run.toml")),
    ("anykey-charge.toml", include_str!("../files/anykey-charge.toml")),
    ("every-drive.toml", include_str!("../files/every-drive.toml")),
    ("steady-state.toml", include_str!("../files/steady-state.toml")),
    ("beyond-build.toml", include_str!("../files/beyond-build.toml")),
    ("beyond-saker-cache.toml", include_str!("../files/beyond-saker-cache.toml")),
    ("beyond-saker-mix.toml", include_str!("../files/beyond-saker-mix.toml")),
    ("beyond-saker-traffic.toml", include_str!("../files/beyond-saker-traffic.toml")),
    ("kvcache-hits.toml", include_str!("../files/kvcache-hits.toml")),
    ("kvcache-wear.toml", include_str!("../files/kvcache-wear.toml")),
    ("kvcache-deletes.toml", include_str!("../files/kvcache-deletes.toml")),
    ("kvcache-retrieve.toml", include_str!("../files/kvcache-retrieve.toml")),
    ("kvcache-manifests.toml", include_str!("../files/kvcache-manifests.toml")),
    ("kvcache-first-token.toml", include_str!("../files/kvcache-first-token.toml")),
    ("pink-load.toml", include_str!("../files/pink-load.toml")),
    ("pink-dram.toml", include_str!("../files/pink-dram.toml")),
    ("plus-2.toml", include_str!("../files/plus-2.toml")),
    ("plus-3.toml", include_str!("../files/plus-3.toml")),
    ("plus-capacity.toml", include_str!("../files/plus-capacity.toml")),
    ("plus-dram.toml", include_str!("../files/plus-dram.toml")),
    ("plus-firmware.toml", include_str!("../files/plus-firmware.toml")),
    ("plus-fitted.toml", include_str!("../files/plus-fitted.toml")),
    ("plus-memory.toml", include_str!("../files/plus-memory.toml")),
    ("plus-published.toml", include_str!("../files/plus-published.toml")),
    ("plus2.toml", include_str!("../files/plus2.toml")),
    ("pm983.toml", include_str!("../files/pm983.toml")),
    ("saker-1.toml", include_str!("../files/saker-1.toml")),
    ("saker-4.toml", include_str!("../files/saker-4.toml")),
    ("saker-5.toml", include_str!("../files/saker-5.toml")),
    ("saker-6.toml", include_str!("../files/saker-6.toml")),
    ("saker-8.toml", include_str!("../files/saker-8.toml")),
];

/// The figures of the embedded files, in their order.
///
/// # Errors
/// One line that names the file: an embedded file is wrong (a test reads them all).
pub fn figures() -> anyhow::Result<Vec<Figure>> {
    FILES.iter().map(|(name, text)| parse(name, text)).collect()
}

/// The embedded figure of that name.
///
/// # Errors
/// There is no such figure; the message says which may have been meant, and how all are listed.
pub fn figure(id: &str) -> anyhow::Result<Figure> {
    let all = figures()?;
    let ids: Vec<&str> = all.iter().map(|figure| figure.id.as_str()).collect();
    let count = ids.len();
    let problem = format!("{id}: no such figure{}; `kvdrive figure` lists all {count}", meant(id, &ids));
    all.into_iter().find(|figure| figure.id == id).ok_or_else(|| anyhow!(problem))
}
