//! What a request fails with: a code of S3, which its programs know, and one line.

use hyper::StatusCode;
use kvdrive::{Error, Status};

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code, as S3 names it.
    pub code: &'static str,
    /// The status of the answer.
    pub status: StatusCode,
    /// What is wrong, in one line.
    pub message: String,
}

impl Failure {
    /// A failure of this code.
    ///
    /// # Panics
    /// The status is none of HTTP.
    pub fn new(code: &'static str, status: u16, message: impl Into<String>) -> Failure {
        let status = StatusCode::from_u16(status).expect("a status of HTTP");
        Failure { code, status, message: message.into() }
    }

    /// There is no object of that name.
    pub fn no_key() -> Failure {
        Failure::new("NoSuchKey", 404, "there is no object of that name")
    }

    /// A request that cannot mean anything.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new("InvalidArgument", 400, message)
    }

    /// Something that S3 has and this door has not.
    pub fn absent(what: &str) -> Failure {
        Failure::new("NotImplemented", 501, format!("this server has no {what}"))
    }

    /// The body ended before all of it had come.
    pub fn incomplete(message: impl Into<String>) -> Failure {
        Failure::new("IncompleteBody", 400, message)
    }

    /// An object that was replaced or removed while it was read.
    pub fn replaced() -> Failure {
        Failure::new("OperationAborted", 409, "the object was replaced or removed while it was read")
    }
}

/// A full drive is not asked again by programs, one that is away is.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (code, status) = match (&error, error.status()) {
            (_, Some(Status::CAPACITY_EXCEEDED)) => ("InsufficientStorage", 507),
            (_, Some(Status::NAMESPACE_WRITE_PROTECTED)) => ("InsufficientStorage", 507),
            (Error::Off | Error::Network(_) | Error::NoQueue(_), _) => ("SlowDown", 503),
            (Error::ValueSize { .. }, _) => ("EntityTooLarge", 400),
            (Error::KeySize(_), _) => ("KeyTooLongError", 400),
            _ => ("InternalError", 500),
        };
        Failure::new(code, status, error.to_string())
    }
}
