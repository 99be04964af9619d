//! Why a drive does not come up.

use std::path::PathBuf;

use super::ImageError;
use super::file_log::{FileError, LogError};
use super::machine_file::WriteFailure;
use crate::media;

/// Why a drive does not come up.
#[derive(Debug, thiserror::Error)]
pub enum PowerOnError {
    /// A name or number of the configuration.
    #[error("{0}")]
    Config(String),
    /// What an engine finds on its pages.
    #[error("what is on its pages: {0}")]
    Pages(String),
    /// The medium's image.
    #[error(transparent)]
    Media(#[from] media::ImageError),
    /// The protected image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// What the files of the protected image hold.
    #[error(transparent)]
    Log(#[from] LogError),
    /// One of its files cannot be written, or the image file beside it not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A new drive that cannot be kept.
    #[error("{}", .0.cause())]
    Unwritable(WriteFailure),
    /// A medium that was written to, and no protected image.
    #[error("{0}: a drive is on it, whose power-protected memory is missing: {0}.protected-0 or -1, whole")]
    Unprotected(PathBuf),
    /// A protected image, and no medium that it could belong to.
    #[error("{0}: is missing or empty, while {0}.protected-0 or -1 holds a drive that was on it")]
    Imageless(PathBuf),
}
