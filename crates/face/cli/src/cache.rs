//! `kvdrive cache`: the results of earlier runs, and the option by which other commands do not use them.

use std::path::Path;

use clap::Args;
use kvdrive_results::{ResultCache, folder_of_user, program};
use kvdrive_revision::{REVISION, is_committed};
use kvdrive_text::output::shown;
use kvdrive_text::{Unit, number_of, quantity};

use crate::output;

/// Option of commands whose runs are remembered.
#[derive(Args, Clone, Default)]
pub struct Remember {
    /// Computes every run, also if its result is remembered (kvdrive cache), and remembers none
    #[arg(long)]
    no_cache: bool,
}

impl Remember {
    /// The cache of this user and this program, or none.
    pub fn cache(&self) -> ResultCache {
        match self.no_cache {
            true => ResultCache::none(),
            false => of_user().unwrap_or_else(|error| {
                output::tell(&format!("results are not remembered: {error:#}"));
                ResultCache::none()
            }),
        }
    }

    /// Says why results could not be remembered, if so.
    pub fn end(cache: &ResultCache) {
        if let Some(failure) = cache.failure() {
            output::tell(&format!("results are not remembered: {failure}"));
        }
    }
}

fn of_user() -> anyhow::Result<ResultCache> {
    let folder = folder_of_user().ok_or_else(|| anyhow::anyhow!("neither XDG_CACHE_HOME nor HOME is set"))?;
    // If the program was built again, its path may lead to another file by now.
    let running = Path::new("/proc/self/exe");
    let file = if running.exists() { running.to_owned() } else { std::env::current_exe()? };
    Ok(ResultCache::open(folder, program(REVISION, is_committed(), &file)?))
}

/// Options of `cache`.
#[derive(Args)]
pub struct Cache {
    /// Removes all remembered results
    #[arg(long)]
    clear: bool,
    /// Limit in bytes, as 64MiB; the results that were not used for longest are removed
    #[arg(long, value_name = "BYTES")]
    limit: Option<String>,
}

impl Cache {
    /// Says where results are remembered and how much they take.
    pub fn run(&self) -> anyhow::Result<()> {
        let cache = of_user()?;
        if let Some(limit) = &self.limit {
            let bytes = quantity::parse(Unit::Bytes, limit).ok();
            let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
            cache.set_limit(bytes.ok_or_else(|| {
                anyhow::anyhow!(
                    "--limit: {limit}; allowed: a size above 0, as 64MiB; --clear removes all results, and with \
                     --no-cache a command remembers none"
                )
            })?)?;
        }
        if self.clear {
            let bytes = cache.clear()?;
            output::print(&format!("removed {}\n", mebibytes(bytes)));
        }
        let usage = cache.usage()?;
        let folder = cache.path().map(shown).unwrap_or_default();
        output::print(&format!(
            "{folder}\n{}, {} of at most {}\n",
            number_of(usage.entries as u64, "result"),
            mebibytes(usage.bytes),
            mebibytes(usage.limit_bytes),
        ));
        Ok(())
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
