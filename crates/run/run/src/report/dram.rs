//! DRAM of a drive compared with the accounting of the Plus paper.
//!
//! The paper counts for a drive of 4 TB with 16 K superblocks of 256 MB (section IV-A); its drive of 128 GB
//! has as many. A structure is scaled to 4 TB by capacity, or by superblocks if it has one part for each; the
//! directory is computed as the table of a drive of 4 TB, since addresses are longer there. Invalid records
//! are two structures: a buffer for each superblock, and lists of the pages to which full buffers were
//! written, of which a larger drive has more.

use kvdrive_declare::{Count, Form};
use kvdrive_engines::hash;
use kvdrive_engines::hash::layout::Layout;
use kvdrive_flash::Geometry;

use super::Report;
use super::table::{Table, bytes};
use super::text::Text;
use kvdrive_config::Config;
use kvdrive_text::with_decimals;

/// Capacity of the paper's drive: 4 TiB.
const PAPER_BYTES: u64 = 4 << 40;
/// Superblocks of the paper's drive.
const PAPER_SUPERBLOCKS: u64 = 16 << 10;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The quantity to which the size of a structure is proportional.
#[derive(Clone, Copy, PartialEq)]
enum Grows {
    Capacity,
    Sections,
    Superblocks,
    Not,
}

/// A structure by its name in reports, with the size that the paper gives at 4 TB.
struct Structure {
    name: &'static str,
    grows: Grows,
    /// For each engine of the paper: bytes, or `None` if the paper leaves the structure out.
    paper: &'static [(&'static str, Option<u64>)],
}

const STRUCTURES: &[Structure] = &[
    Structure { name: "directory", grows: Grows::Sections, paper: &[("original", None), ("plus", None)] },
    Structure {
        // One bit for each grain of 512 B; one byte for each page of 4 KiB.
        name: "validity",
        grows: Grows::Capacity,
        paper: &[("original", Some(GIB)), ("plus", Some(GIB))],
    },
    Structure {
        // One page of 4 KiB for each superblock.
        name: "invalid_records",
        grows: Grows::Superblocks,
        paper: &[("plus", Some(64 * MIB))],
    },
    Structure {
        // Locations of flushed pages: 8 K x 8 K x 4 B.
        name: "invalid_page_lists",
        grows: Grows::Capacity,
        paper: &[("plus", Some(256 * MIB))],
    },
    Structure {
        name: "superblocks",
        grows: Grows::Superblocks,
        paper: &[("original", None), ("plus", None)],
    },
    Structure { name: "write_buffer", grows: Grows::Not, paper: &[] },
    Structure { name: "pages_on_their_way", grows: Grows::Not, paper: &[] },
];

impl Report {
    fn number(&self, section: &str, key: &str) -> u64 {
        self.config.get(section).and_then(|section| section.get(key)).and_then(|n| n.as_u64()).unwrap_or(0)
    }

    /// Bytes of the directory of a drive of 4 TB made of the same blocks.
    fn paper_directory_bytes(&self) -> Option<u64> {
        let config = Config::of_values(&self.config).ok()?;
        let drive = config.drive();
        let (scheme, hash) = hash::of_config(&drive.of_engine()).ok()?;
        let geometry = drive.flash.geometry();
        let times = u32::try_from(PAPER_BYTES / geometry.data_bytes()).ok()?.max(1);
        let blocks_per_die = geometry.blocks_per_die.checked_mul(times)?;
        let layout = Layout::new(Geometry { blocks_per_die, ..geometry }, hash.grain_bytes, hash.unit_bytes);
        let format = (scheme.format)(&layout);
        Some(format.sections() * format.directory_bytes())
    }
}

impl Text<'_> {
    /// Every structure scaled to 4 TB, beside the numbers of the paper; empty for an engine that reports no DRAM.
    pub(super) fn dram_table(&self) -> String {
        let dram = self.counts.section("dram");
        if dram.is_empty() {
            return String::new();
        }
        let engine = self.setting("engine", "name");
        let superblocks = self.number("flash", "blocks_per_die").max(1);
        let keys = ["channels", "dies_per_channel", "blocks_per_die", "pages_per_block", "page_bytes"];
        let capacity_bytes = keys.iter().map(|key| self.number("flash", key)).product::<u64>().max(1);
        let mut table = Table::new("DRAM", &["this drive", "at 4 TB", "the paper"], "counted");
        let (mut here, mut at_paper, mut paper) = (0, 0, 0);
        for Count { counter, value: now, .. } in dram.iter() {
            let name = counter.name;
            let structure = STRUCTURES.iter().find(|structure| structure.name == name);
            let scaled = structure.and_then(|structure| match structure.grows {
                Grows::Capacity => Some((u128::from(*now) * u128::from(PAPER_BYTES / capacity_bytes)) as u64),
                Grows::Sections => self.paper_directory_bytes(),
                Grows::Superblocks => Some(now * PAPER_SUPERBLOCKS / superblocks),
                Grows::Not => Some(*now),
            });
            let counted = structure.and_then(|s| s.paper.iter().find(|(known, _)| *known == engine));
            let theirs = match counted {
                Some((_, Some(theirs))) => binary(*theirs),
                Some((_, None)) => "left out".into(),
                None => String::new(),
            };
            paper += counted.and_then(|(_, theirs)| *theirs).unwrap_or(0);
            at_paper += scaled.unwrap_or(0);
            here += if counter.form == Form::Maximum { 0 } else { *now };
            table.row(name, &[binary(*now), scaled.map_or(String::new(), binary), theirs]);
        }
        let theirs = if paper == 0 { String::new() } else { binary(paper) };
        table.row("total", &[binary(here), binary(at_paper), theirs]);
        let mut text = table.finish(self.room);
        let budget = self.number("hash", "dram_bytes");
        if self.setting("hash", "dram_accounting") == "total" && here > budget {
            text.truncate(text.trim_end().len());
            let over = binary(here - budget);
            text.push_str(&format!(
                "\n  {over} more than hash.dram_bytes: fixed structures do not fit, and there is no section cache\n\n"
            ));
        }
        if paper > 0 {
            text.truncate(text.trim_end().len());
            text.push_str(
                "\n  at 4 TB without section cache. The paper says 1 320 MB for plus, and 8 GB for original's bitmap\n  \
                 with grains of 64 B; it leaves the directory of sections out.\n\n",
            );
        }
        text
    }
}

/// Bytes as the paper counts them: `1 344.0 MiB`.
fn binary(count: u64) -> String {
    match count {
        n if n >= 10 * GIB => with_decimals(n as f64 / GIB as f64, 2) + " GiB",
        n if n >= MIB => with_decimals(n as f64 / MIB as f64, 1) + " MiB",
        n if n >= 1024 => with_decimals(n as f64 / 1024.0, 1) + " KiB",
        n => bytes(n as f64),
    }
}
