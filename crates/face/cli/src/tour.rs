//! The tour, which runs when the program is started without a command.

use clap::Args;
use kvdrive_config::{DEFAULT_PROFILE, Document};
use kvdrive_results::ResultCache;
use kvdrive_run::plan::Plan;
use kvdrive_run::report::compare_in as comparison;
use kvdrive_text::grouped;

use crate::compare::Ran;
use crate::output;
use crate::settings::at_least_one;
use crate::watch::stop_on_interrupt;

/// Options of the tour.
#[derive(Args)]
pub struct Tour {
    /// Stores of each run of the tour
    #[arg(long = "tour-ops", default_value_t = 1_000_000, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    ops: u64,
}

impl Tour {
    /// Runs and prints it.
    pub fn run(&self) -> anyhow::Result<()> {
        let transfers: &[&[&str]] =
            &[&["host.transfer=prp"], &["host.transfer=piggyback"], &["host.transfer=adaptive"]];
        let packings: &[&[&str]] = &[
            &["packing.policy=block"],
            &["packing.policy=all"],
            &["packing.policy=selective"],
            &["packing.policy=backfill"],
        ];
        let stores = grouped(self.ops);
        output::print(&format!(
            "kvdrive {}: a key-value SSD in software\n\n\
             Workload W(M): {stores} stores of RocksDB's mixgraph sizes (mean 35 B) under unique 4 B keys, on the\n\
             profile {DEFAULT_PROFILE}: one synchronous command at a time, as in the BandSlim paper.\n\n\
             1. Getting values to the drive (flash off: only the transfer counts)\n",
            env!("CARGO_PKG_VERSION"),
        ));
        // It shows how fast the program is, so nothing of it is remembered.
        let stop = stop_on_interrupt()?;
        let show = |documents: Vec<Document>| {
            let ran = Ran::of(&Plan::sharing(documents)?, &ResultCache::none(), &stop)?;
            output::print(&comparison(&ran.reports, output::columns()));
            ran.end();
            anyhow::Ok(())
        };
        show(self.documents(transfers, "nand.enabled=false")?)?;
        output::print("\n2. Packing them into 16 KiB NAND pages (flash on, adaptive transfer)\n");
        show(self.documents(packings, "host.transfer=adaptive")?)?;
        output::print(
            "\nNext:  kvdrive run --workload w-m --packing all      one run in full\n\
             \x20      kvdrive list                                  every name, by kind\n\
             \x20      kvdrive config                                every number and its source\n",
        );
        Ok(())
    }

    fn documents(&self, choices: &[&[&str]], common: &str) -> anyhow::Result<Vec<Document>> {
        choices
            .iter()
            .map(|choice| {
                let mut document = Document::profile(DEFAULT_PROFILE)?;
                document.set(&format!("workload.ops={}", self.ops))?;
                document.set(common)?;
                for assignment in *choice {
                    document.set(assignment)?;
                }
                Ok(document)
            })
            .collect()
    }
}
