//! `kvdrive check` and `kvdrive dump`: an image file from end to end.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use kvdrive_config::Document;
use kvdrive_device::namespaces::Unlisted;
use kvdrive_nvme::Key;
use kvdrive_probe::image::{PairState, Tally, check_image, read_image};
use kvdrive_text::output::shown;
use kvdrive_text::{grouped, number_of};

use crate::output;
use crate::progress::CheckBar;
use crate::settings::Settings;
use crate::verdict::judge;

/// Most wrong keys that are listed; beyond that only their number is printed.
const NAMED: u64 = 20;

/// Options of `check`.
#[derive(Args)]
pub struct Check {
    /// The image (`--media file --set media.path=IMAGE`)
    image: PathBuf,
    /// Deletes pairs that are damaged or lost, after naming them all; the exit status stays 1
    #[arg(long)]
    repair: bool,
    /// Names every damaged or lost key, and not only the first
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    settings: Settings,
}

/// Options of `dump`.
#[derive(Args)]
pub struct Dump {
    /// The image (`--media file --set media.path=IMAGE`)
    image: PathBuf,
    /// Keys and sizes, without the values
    #[arg(long)]
    keys: bool,
    #[command(flatten)]
    settings: Settings,
}

/// The configuration of the drive of an image, on that file.
fn document(command: &str, settings: &Settings, image: &std::path::Path) -> anyhow::Result<Document> {
    let mut options = settings.options()?.with("media", "file");
    options.set(format!("media.path={}", image.display()));
    Ok(options.document_without_work(command, "an image is read as it is")?)
}

impl Check {
    /// Reads everything and prints the findings.
    pub fn run(&self) -> anyhow::Result<()> {
        let document = document("check", &self.settings, &self.image)?;
        let (mut named, bar) = (0, CheckBar::new());
        let tally = check_image(&document, self.repair, &|checked| bar.update(checked), &mut |key, found| {
            let what = match found {
                PairState::Whole(_) => return,
                PairState::Damaged(status) => format!("damaged: {status}"),
                PairState::Lost => "lost: listed and not found".to_owned(),
            };
            named += 1;
            // The names of deleted pairs are always printed.
            if named <= NAMED || self.all || self.repair {
                bar.beside(|| output::print(&format!("{key}  {what}")));
            }
        });
        bar.finish();
        let tally = tally?;
        if named > NAMED && !self.all && !self.repair {
            output::print(&format!("and {} more; --all names them", named - NAMED));
        }
        output::print(&summary(&shown(&self.image), &tally));
        judge(tally.is_whole(), || format!("{}: the image is not whole", shown(&self.image)))
    }
}

fn summary(image: &str, tally: &Tally) -> String {
    let Tally { whole, whole_bytes, damaged, lost, removed, gaps, first_gap, shortened, write_failure } =
        tally;
    let mut text = format!(
        "{image}: {} whole, {}; {} damaged, {} lost",
        number_of(*whole, "pair"),
        number_of(*whole_bytes, "byte"),
        grouped(*damaged),
        grouped(*lost)
    );
    if *removed > 0 {
        text += &format!(
            "; {} deleted: their keys answer like keys that were never stored",
            number_of(*removed, "damaged pair")
        );
    }
    if let Some(Unlisted { status, keys }) = first_gap {
        let which = match (keys.first, keys.last) {
            (None, None) => "unknown keys".to_owned(),
            (Some(first), None) => format!("keys from {first} on"),
            (None, Some(last)) => format!("keys up to {last}"),
            (Some(first), Some(last)) => format!("keys from {first} to {last}"),
        };
        let gaps = match gaps {
            1 => format!("one gap in its list of keys: {which}"),
            _ => format!("{gaps} gaps in its list of keys, the first: {which}"),
        };
        text += &format!("\n{gaps}, {status}; it is not known which of these keys were stored");
    }
    if let Some(shortened) = shortened {
        text += &format!("\n{image} {shortened}: the missing part is lost");
    }
    if let Some(failure) = write_failure {
        text += &format!("\n{failure}: pairs are read from the content of its files");
    }
    text
}

impl Dump {
    /// Prints every pair as a line of JSON.
    pub fn run(&self) -> anyhow::Result<()> {
        let document = document("dump", &self.settings, &self.image)?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        let mut written = Ok(());
        let tally = read_image(&document, false, &mut |key, found| {
            if written.is_ok() {
                written = writeln!(out, "{}", self.line(key, found));
            }
        })?;
        if let Err(error) = written.and_then(|()| out.flush()) {
            anyhow::ensure!(error.kind() == std::io::ErrorKind::BrokenPipe, "standard output: {error}");
            std::process::exit(output::CLOSED);
        }
        judge(tally.is_whole(), || summary(&shown(&self.image), &tally))
    }

    fn line(&self, key: &Key, found: PairState<'_>) -> serde_json::Value {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut line = match found {
            PairState::Whole(value) if self.keys => {
                serde_json::json!({"key": key.to_string(), "bytes": value.len()})
            }
            PairState::Whole(value) => {
                serde_json::json!({"key": key.to_string(), "bytes": value.len(), "value": hex(value)})
            }
            PairState::Damaged(status) => {
                serde_json::json!({"key": key.to_string(), "damaged": status.to_string()})
            }
            PairState::Lost => serde_json::json!({"key": key.to_string(), "lost": true}),
        };
        output::with_format(&mut line);
        line
    }
}
