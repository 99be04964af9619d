//! Errors of powering a drive on.

use std::path::PathBuf;

use super::ImageError;
use super::file_log::{FileError, LogError};
use super::machine_file::WriteFailure;
use crate::media::{self, file::extent::Shortened};

/// Why a drive cannot be powered on.
#[derive(Debug, thiserror::Error)]
pub enum PowerOnError {
    /// A name or number of the configuration is invalid.
    #[error("{0}")]
    Config(String),
    /// An engine cannot use the content of its pages.
    #[error("the content of its pages: {0}")]
    Pages(String),
    /// The medium's image is invalid.
    #[error(transparent)]
    Media(#[from] media::MediumError),
    /// An engine needs data from the end of a file that was cut off. The path and the lengths show the cause.
    #[error("{path}: {shortened}; engine {engine} needs the missing part ({cause}): put back the whole file")]
    CutOff {
        /// The image file.
        path: PathBuf,
        /// Its length, and its former length.
        shortened: Shortened,
        /// The engine's name.
        engine: String,
        /// The error of the engine.
        cause: Box<PowerOnError>,
    },
    /// The protected image is invalid.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The files of the protected image are invalid.
    #[error(transparent)]
    Log(#[from] LogError),
    /// One of its files cannot be written, or the image file beside it cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A new drive whose files cannot be written.
    #[error("{}", .0.cause())]
    Unwritable(WriteFailure),
    /// The medium was written to, and its protected image is missing.
    #[error("{0}: its drive's power-protected memory is missing: put {0}.protected-0 or -1 back, whole")]
    Unprotected(PathBuf),
    /// There is a protected image, and no medium to which it could belong.
    #[error(
        "{0}: is missing or empty, but {0}.protected-0 or -1 belongs to a drive on it: put {0} back, whole"
    )]
    Imageless(PathBuf),
}
