//! [`Image`]: what is left of a stepped drive without power, as bytes that any number of drives start from.

use std::path::Path;
use std::sync::Arc;

use kvdrive_flash::power::Survivors;
use kvdrive_record::Form;

use crate::error::Error;

/// A stepped drive without power: the content of its medium, and the state that capacitors saved. Clones share it.
///
/// As bytes it is a record with its version and checksums; medium and state have their own inside.
#[derive(Clone)]
pub struct Image(Arc<Survivors>);

const FORM: Form = Form { name: "image of a stepped drive", magic: b"kvdrvSD", version: 1 };

impl Image {
    pub(crate) fn new(survivors: Survivors) -> Image {
        Image(Arc::new(survivors))
    }

    pub(crate) fn survivors(&self) -> &Survivors {
        &self.0
    }

    /// The image as bytes.
    ///
    /// # Errors
    /// [`Error::Refused`]: the medium has 4 GiB or more. Values by size ([`stepped::Value::Size`](crate::stepped::Value))
    /// take some bytes each.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let Survivors { media, protected } = &*self.0;
        if media.len().max(protected.len()) > u32::MAX as usize {
            let line = format!("image: {} bytes of flash; a record has at most 4 GiB", media.len());
            return Err(Error::Refused(line));
        }
        Ok(FORM.seal(&(media, protected)))
    }

    /// The image in `bytes`. Whether it fits a drive is found when one is opened from it.
    ///
    /// # Errors
    /// [`Error::PowerOn`]: they are no image, or are damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Image, Error> {
        let (media, protected) =
            FORM.open(bytes).map_err(|error| Error::PowerOn(format!("byte {}: {error}", error.at)))?;
        Ok(Image::new(Survivors { media, protected }))
    }

    /// Writes the image to a file.
    ///
    /// # Errors
    /// As [`Image::to_bytes`]; [`Error::Refused`]: the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        std::fs::write(path, self.to_bytes()?)
            .map_err(|error| Error::Refused(format!("{}: {error}", path.display())))
    }

    /// Reads an image from a file.
    ///
    /// # Errors
    /// [`Error::PowerOn`]: there is no such file, or it is no image.
    pub fn read(path: impl AsRef<Path>) -> Result<Image, Error> {
        let path = path.as_ref();
        let wrong = |problem: String| Error::PowerOn(format!("{}: {problem}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        Image::from_bytes(&bytes).map_err(|error| match error {
            Error::PowerOn(problem) => wrong(problem),
            other => other,
        })
    }
}
