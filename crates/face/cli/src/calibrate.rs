//! `kvdrive calibrate`: the time on this machine of steps that the model charges.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kvdrive_declare::{of_word, words};
use kvdrive_text::output::{check_apart, check_writable};
use kvdrive_tune::calibrate::{LsmStore, WorkingSet, calibrate};

use crate::output;
use crate::progress::Bar;
use crate::settings::{at_least_one, count};
use crate::watch::{STOPPED, stop_on_interrupt};

/// Options of `calibrate`.
#[derive(Args)]
pub struct Calibrate {
    /// Pairs in a store and in the cache: as many as in the experiment for which the costs are used
    #[arg(long, default_value = "1M", value_name = "N", value_parser = some_pairs, allow_negative_numbers = true)]
    pairs: u64,
    /// Bytes of each value
    #[arg(long, default_value_t = 16, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=4000))]
    value_size: u32,
    /// How often each kind of call is measured; the median counts
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    repetitions: u64,
    /// The store on which the steps of an LSM-tree are measured: kvdrive's own, or RocksDB in a program that was built
    /// with `--features rocksdb`
    #[arg(long, default_value = "lsmtree", value_name = "STORE", value_parser = lsm_store())]
    store: LsmStore,
    /// Writes the costs as TOML for --config
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Writes the costs as JSON to a file, or to standard output (-) instead of the table
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

fn lsm_store() -> impl TypedValueParser<Value = LsmStore> {
    PossibleValuesParser::new(words::<LsmStore>())
        .map(|word| of_word(&word).expect("it is one of the possible values"))
}

/// Fewer pairs than this fit into the machine's caches, and their costs hold for no experiment.
const LEAST_PAIRS: u64 = 1000;

fn some_pairs(text: &str) -> Result<u64, String> {
    match count(text)? {
        few if few < LEAST_PAIRS => Err(format!("{few} is less than {LEAST_PAIRS}")),
        pairs => Ok(pairs),
    }
}

impl Calibrate {
    /// Measures, prints and writes.
    pub fn run(&self) -> anyhow::Result<()> {
        output::check_json(self.json.as_ref())?;
        check_apart(&[("--out", self.out.as_deref()), ("--json", output::json_file(self.json.as_ref()))])?;
        self.out.iter().try_for_each(|path| check_writable(path))?;
        let set = WorkingSet {
            pairs: self.pairs,
            value_bytes: self.value_size,
            repetitions: u32::try_from(self.repetitions).unwrap_or(u32::MAX),
        };
        let bar = Bar::new("calibrate");
        let stop = stop_on_interrupt()?;
        let calibration = calibrate(&set, self.store, &|done, total| bar.update(done, total), &stop)
            .map_err(|problem| anyhow::anyhow!("--store {problem}"))?;
        if self.json.as_deref() != Some("-") {
            output::print(&calibration.to_string());
        }
        if let Some(path) = &self.json {
            output::write_json(path, &calibration)?;
        }
        if calibration.is_stopped {
            output::tell(
                "kvdrive: stopped; these are the steps measured so far, and no file for --config is written",
            );
            std::process::exit(STOPPED);
        }
        self.out.as_ref().map_or(Ok(()), |path| output::write(path, &calibration.to_toml()))
    }
}
