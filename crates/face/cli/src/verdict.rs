//! The exit status of the program: 1 says that what was tested has failed, 2 that the program could not do as it was asked.
//! A job that runs it can tell a found bug from a wrong command line.
//!
//! The whole table is in `docs/commands.md`.

use kvdrive_run::Stopped;

use crate::watch::STOPPED;

/// What was tested has failed: a pair is lost, a value is wrong, operations failed, a claim regressed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Verdict(String);

/// An error that is a verdict.
pub fn verdict(what: impl Into<String>) -> anyhow::Error {
    Verdict(what.into()).into()
}

/// What ended a test that had begun, if anything did: a verdict, whatever it was.
pub fn verdict_of(failure: Option<anyhow::Error>) -> anyhow::Result<()> {
    failure.map_or(Ok(()), |failure| {
        if failure.is::<Stopped>() { Err(failure) } else { Err(verdict(format!("{failure:#}"))) }
    })
}

/// Ends with a verdict, unless all is well.
pub fn judge(is_well: bool, what: impl FnOnce() -> String) -> anyhow::Result<()> {
    if is_well { Ok(()) } else { Err(verdict(what())) }
}

/// The exit status of a command that has ended with this error.
pub fn status_of(error: &anyhow::Error) -> i32 {
    if error.is::<Stopped>() {
        STOPPED
    } else if error.is::<Verdict>() {
        1
    } else {
        2
    }
}
