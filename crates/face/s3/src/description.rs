//! What is said of an object besides its bytes, as a pair of the drive.

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_record::Form;

use crate::failure::Failure;

/// The pair that says what an object is.
const DESCRIPTION: Form = Form { name: "description of an object", magic: b"kvObjct", version: 1 };

/// What is said of an object besides its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Description {
    /// Its entity tag, without quotes; empty: none.
    pub etag: String,
    /// When it was stored, in seconds since 1970.
    pub modified_s: u64,
    /// Headers that its program gave and that are returned with it.
    pub headers: Vec<(String, String)>,
}

impl Description {
    /// Of the value of a pair.
    ///
    /// # Errors
    /// It is damaged, or of a version that this program does not read.
    pub fn read(bytes: &[u8]) -> Result<Description, Failure> {
        DESCRIPTION.open(bytes).map_err(|error| Failure::new("InternalError", 500, error.to_string()))
    }

    /// As the value of a pair.
    pub fn to_bytes(&self) -> Vec<u8> {
        DESCRIPTION.seal(self)
    }
}
