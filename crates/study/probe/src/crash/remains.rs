//! The survivors of a power cut: flash and protected image in memory, or the files of a drive on a file.
//!
//! For a drive on a file, a cut is a kill of its process: everything written to the files survives, and each
//! acknowledgement was sent after its record was written. When a machine loses its power, it may also lose
//! data that its system had not written to disk; that is not simulated here.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Context;
use kvdrive_config::Config;
use kvdrive_device::Drive;
use kvdrive_flash::power::Survivors;
use kvdrive_sim::Rng;
use tempfile::TempDir;

const IMAGE: &str = "drive.img";
/// A file is copied in pieces of this size, bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The survivors from which a drive is recovered.
pub(super) enum Remains {
    Memory(Box<Survivors>),
    Files(TempDir),
}

/// A folder for the files of a blank drive, in the folder of the image that the configuration names; that
/// image is not changed. `None`: the drive has no files.
pub(super) fn folder(config: &Config) -> anyhow::Result<Option<TempDir>> {
    if config.media.kind != "file" {
        return Ok(None);
    }
    let image = config.media.path.as_deref().context("media.path: a drive on a file has one")?;
    // Of a plain name the parent is empty, and the folder is the current one.
    let beside = image.parent().filter(|path| !path.as_os_str().is_empty());
    folder_in(beside.unwrap_or(Path::new("."))).map(Some)
}

fn folder_in(path: &Path) -> anyhow::Result<TempDir> {
    tempfile::tempdir_in(path)
        .with_context(|| format!("a folder for a drive that is cut, in {}", path.display()))
}

/// `config` for a drive whose files are in `folder`.
pub(super) fn config_in(folder: Option<&TempDir>, config: &Config) -> Config {
    let mut config = config.clone();
    if let Some(folder) = folder {
        config.media.path = Some(folder.path().join(IMAGE));
    }
    config
}

impl Remains {
    /// Takes the survivors that the drive of `config` would leave now. `torn`: programs under way leave any
    /// part of their page.
    pub(super) fn take(drive: &Drive, config: &Config, torn: bool, rng: &mut Rng) -> anyhow::Result<Remains> {
        if config.media.kind == "file" {
            return Ok(Remains::Files(copy_of(config)?));
        }
        let survivors = if torn { drive.survivors(rng) } else { drive.survivors_untorn(rng) };
        Ok(Remains::Memory(Box::new(survivors)))
    }

    pub(super) fn survivors(&self) -> Option<&Survivors> {
        match self {
            Remains::Memory(survivors) => Some(survivors),
            Remains::Files(_) => None,
        }
    }

    /// The configuration of a drive that is recovered from these survivors.
    pub(super) fn config(&self, of: &Config) -> Config {
        match self {
            Remains::Memory(_) => of.clone(),
            Remains::Files(folder) => config_in(Some(folder), of),
        }
    }
}

/// A folder with copies of a drive's files, beside the folder of the originals.
pub(super) fn copy_of(config: &Config) -> anyhow::Result<TempDir> {
    let image = config.media.path.as_deref().context("media.path: a drive on a file has one")?;
    let from = image.parent().context("media.path: its files are in a folder")?;
    let to = folder_in(from.parent().context("media.path: that folder is in another one")?)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.path().join(entry.file_name()))?;
    }
    Ok(to)
}

/// Copies a file without its holes, since most of an image is blank.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    let mut piece = vec![0; PIECE_BYTES];
    while let Some(at) = next_data(&mut from)? {
        let bytes = from.read(&mut piece)?;
        if bytes == 0 {
            break;
        }
        to.seek(SeekFrom::Start(at))?;
        to.write_all(&piece[..bytes])?;
    }
    to.set_len(from.metadata()?.len())
}

/// Seeks to the next byte of a file that is not in a hole; `None`: there is none.
#[cfg(target_os = "linux")]
fn next_data(file: &mut File) -> std::io::Result<Option<u64>> {
    let at = file.stream_position()?;
    match rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(at)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        // The file system has no holes.
        Err(rustix::io::Errno::INVAL) => Ok(Some(at)),
        Err(error) => Err(error.into()),
    }
}

/// The same on a system without a call for holes: every byte counts as data.
#[cfg(not(target_os = "linux"))]
fn next_data(file: &mut File) -> std::io::Result<Option<u64>> {
    file.stream_position().map(Some)
}
