//! What is wrong with a setting.

/// What is wrong with a setting, in one line that begins with its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct Problem {
    /// Key, or the name of a file or profile.
    pub key: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}

impl Problem {
    /// A line about `key`.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Problem {
        Problem { key: key.into(), problem: problem.into() }
    }
}
