//! A language model's cache on a drive: its hits, what its stores amount to in a day, and how long the drive lasts.
//!
//! The trace gives the pace. With `workload.cache_shrink` values and drive are both smaller than those they stand for, by the
//! same factor, so the days until the drive is worn out are those of the large one.

use kvdrive_config::{Config, RatedSection};
use kvdrive_declare::Sections;

use super::CacheRates;
use super::table::{bytes, percent, ratio};

const MS_A_DAY: f64 = 86_400_000.0;
const DAYS_A_YEAR: f64 = 365.0;

/// Written in a day, in bytes of the run.
struct Daily {
    /// By the host.
    stored: f64,
    /// On flash.
    programmed: f64,
}

impl CacheRates {
    /// By the counters of a run of workload `kvcache` in which `stored` bytes of values were stored; `None` for another
    /// workload.
    pub(crate) fn of(config: &Config, counts: &Sections, stored: u64) -> Option<CacheRates> {
        let workload = counts.section("workload");
        workload.get("blocks_asked").filter(|asked| *asked > 0)?;
        let of = |name: &str| workload.of(name) as f64;
        let days = Some(of("trace_ms") / MS_A_DAY).filter(|days| *days > 0.0);
        let flash = &config.flash;
        let of_drive = |path: &str| counts.get(path).unwrap_or(0) as f64;
        let programmed = of_drive("nand.programs") * f64::from(flash.page_bytes);
        let capacity = of_drive("drive.capacity_bytes");
        let daily = days.map(|days| Daily { stored: stored as f64 / days, programmed: programmed / days });
        let flash_bytes =
            [flash.channels, flash.dies_per_channel, flash.blocks_per_die, flash.pages_per_block];
        let flash_bytes = flash_bytes.into_iter().chain([flash.page_bytes]).map(f64::from).product();
        Some(CacheRates {
            hit_rate: ratio(of("blocks_prefix_hits"), of("blocks_asked")),
            token_hit_rate: ratio(of("tokens_prefix_hits"), of("tokens_asked")),
            prefill_saved_rate: ratio(of("prefill_saved_gflop"), of("prefill_gflop")),
            stored_bytes_a_day: days.map(|days| of("model_bytes_stored") / days),
            drive_writes_a_day: daily.as_ref().map(|daily| ratio(daily.stored, capacity)),
            rated_years: daily.and_then(|daily| daily.years(&config.rated, capacity, flash_bytes)),
            admission_saved_rate: match of("model_bytes_stored_by_all") {
                0.0 => 0.0,
                all => 1.0 - of("model_bytes_stored") / all,
            },
            hit_rate_by_all: ratio(of("blocks_prefix_hits_by_all"), of("blocks_asked")),
        })
    }

    /// As lines of a report; `admission` and `shrink` are those of the run.
    pub(super) fn in_words(&self, admission: &str, shrink: &str) -> Vec<String> {
        let mut lines = vec![format!(
            "cache: {} of blocks and {} of tokens hit, which saves {} of the prefill's operations",
            percent(self.hit_rate),
            percent(self.token_hit_rate),
            percent(self.prefill_saved_rate)
        )];
        if let (Some(stored), Some(writes)) = (self.stored_bytes_a_day, self.drive_writes_a_day) {
            let times = if shrink == "1" { String::new() } else { format!(" {shrink} times as large") };
            let years =
                self.rated_years.map_or("not known".to_owned(), |years| format!("{years:.2} as rated"));
            let stored = bytes(stored);
            lines
                .push(format!("cache: {stored} a day, {writes:.2} writes of a drive{times}; years: {years}"));
        }
        if admission != "all" {
            lines.push(format!(
                "cache: admission {admission} keeps {} of the bytes from the drive; with every block {} hit",
                percent(self.admission_saved_rate),
                percent(self.hit_rate_by_all)
            ));
        }
        lines
    }
}

impl Daily {
    /// Years until the first of the ratings is used up; `None`: none is known, or nothing is written.
    fn years(&self, rated: &RatedSection, capacity: f64, flash_bytes: f64) -> Option<f64> {
        let ends = |writes: f64, bytes: f64, daily: f64| {
            (writes > 0.0 && daily > 0.0).then(|| writes * bytes / daily / DAYS_A_YEAR)
        };
        let by_host = ends(rated.drive_writes, capacity, self.stored);
        let by_flash = ends(f64::from(rated.erase_cycles), flash_bytes, self.programmed);
        by_host.into_iter().chain(by_flash).min_by(f64::total_cmp)
    }
}
