//! Progress of the protected image beside an image file, stored in the head of that file: it tells files of
//! different moments apart. [`crate::power::file_log`] says when it is written, and what follows from it.

use std::fs::OpenOptions;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::extent::Extent;
use crate::power::machine_file::MachineFile;

/// Positions of the two copies of the moment in an image file.
pub(crate) const MOMENTS_AT: [u64; 2] = [1024, 3072];
const MOMENT_BYTES: usize = 32;

/// Progress of a protected image; it is compared when a drive is powered on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageMoment {
    /// The newest finished checkpoint; 0 before the first one.
    pub checkpoint: u64,
    /// Groups of records after that checkpoint.
    pub groups: u64,
    /// The checkpoint that was begun last: this one, or the next.
    pub begun: u64,
}

impl ImageMoment {
    fn record(&self) -> [u8; MOMENT_BYTES] {
        let mut record = [0; MOMENT_BYTES];
        for (at, number) in [self.begun, self.checkpoint, self.groups].into_iter().enumerate() {
            record[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let check = xxh3_64(&record[..MOMENT_BYTES - 8]);
        record[MOMENT_BYTES - 8..].copy_from_slice(&check.to_le_bytes());
        record
    }

    fn of_record(record: &[u8; MOMENT_BYTES]) -> Option<ImageMoment> {
        let [begun, checkpoint, groups] =
            [0, 8, 16].map(|at| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes")));
        let moment = ImageMoment { checkpoint, groups, begun };
        (*record == moment.record()).then_some(moment)
    }
}

/// Access to the moment in an image file.
pub struct MomentCell(MachineFile);

impl MomentCell {
    /// The moment of the image file at `path`.
    pub fn of(path: &Path) -> std::io::Result<MomentCell> {
        MachineFile::open(path, OpenOptions::new().read(true).write(true)).map(MomentCell)
    }

    /// Checks that its file is still at its path, and as long as its head says. A head that cannot be read says nothing: a read
    /// that fails is no cut, and writes check the length by themselves.
    ///
    /// # Errors
    /// As [`MachineFile::check_there`].
    pub fn check_there(&self) -> std::io::Result<()> {
        self.0.check_there(Extent::of(&self.0).map_or(0, |extent| extent.recorded()))
    }

    /// As [`MomentCell::of`], read-only.
    pub fn to_read(path: &Path) -> std::io::Result<MomentCell> {
        MachineFile::open(path, OpenOptions::new().read(true)).map(MomentCell)
    }

    /// The newest stored moment; the initial one if none was ever written. `None` if the stored moment is
    /// damaged.
    pub fn read(&self) -> std::io::Result<Option<ImageMoment>> {
        let mut newest = None;
        let mut is_written = false;
        for at in MOMENTS_AT {
            let mut record = [0; MOMENT_BYTES];
            self.0.read_at(at, &mut record)?;
            is_written |= record != [0; MOMENT_BYTES];
            newest = newest.max(ImageMoment::of_record(&record));
        }
        Ok(if is_written { newest } else { Some(ImageMoment::default()) })
    }

    /// Records that a checkpoint begins or has ended. With `sync` the record is on the machine's storage when
    /// this returns.
    pub fn write(&self, moment: &ImageMoment, sync: bool) -> std::io::Result<()> {
        MOMENTS_AT.iter().try_for_each(|at| self.0.write_at(*at, &moment.record()))?;
        if sync { self.0.sync() } else { Ok(()) }
    }

    /// Records one more written group. The record survives the end of the program.
    pub fn step(&self, moment: &ImageMoment) -> std::io::Result<()> {
        self.0.write_at(MOMENTS_AT[(moment.groups % 2) as usize], &moment.record())
    }
}
