//! Settings that are given by name, beside profile and files: `--seed 2`, `--set run.seed=2`, a line of a
//! sweep. Each must have an effect, so two different values for one key are refused, and so is a setting that
//! no run reads.

use kvdrive_declare::Problem as ConfigError;

use crate::document::{Document, PRESET, key_set_by};
use crate::sections::Config;

/// One setting.
#[derive(Clone, Debug)]
struct NamedSetting {
    /// The option or line that set it, for messages.
    name: String,
    key: String,
    /// The value in the document's form: 4 KiB and 4096 are the same.
    value: String,
}

/// Settings that override those of a document.
#[derive(Clone, Debug, Default)]
pub struct Assigned {
    asked: Vec<NamedSetting>,
}

impl Assigned {
    /// Sets `settings` in `document`, each with the name it was given by and KEY=VALUE. A preset is applied
    /// before all others, wherever it stands.
    ///
    /// # Errors
    /// A setting is wrong, or two contradict each other.
    pub fn lay_over(
        document: &mut Document,
        settings: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Assigned, ConfigError> {
        let mut settings: Vec<_> = settings.into_iter().collect();
        settings.sort_by_key(|(_, assignment)| key_of(assignment) != PRESET);
        let mut assigned = Assigned::default();
        for (name, assignment) in settings {
            document.set(&assignment)?;
            let key = key_set_by(key_of(&assignment)).to_owned();
            // A preset is no key of the document, so its name is compared.
            let value = document.plain(&key).unwrap_or_else(|| assignment.clone());
            if let Some(first) = assigned.asked.iter().find(|first| first.key == key && first.value != value)
            {
                let problem =
                    format!("{} sets {key} too, to another value; leave one of them out", first.name);
                return Err(ConfigError::new(name, problem));
            }
            assigned.asked.push(NamedSetting { name, key, value });
        }
        Ok(assigned)
    }

    /// Refuses a setting that none of the runs reads.
    ///
    /// # Errors
    /// The setting, and why the first run does not read it.
    pub fn check_looked_at<'a>(
        &self,
        runs: impl IntoIterator<Item = &'a Config> + Clone,
    ) -> Result<(), ConfigError> {
        for NamedSetting { name, key, .. } in &self.asked {
            let reasons: Vec<_> = runs.clone().into_iter().map(|run| run.ignores(key)).collect();
            if let Some(Some(why)) = reasons.first().filter(|_| reasons.iter().all(Option::is_some)) {
                return Err(ConfigError::new(name, why));
            }
        }
        Ok(())
    }
}

/// The text before the first `=`.
pub(super) fn key_of(assignment: &str) -> &str {
    assignment.split_once('=').map_or(assignment, |(key, _)| key).trim()
}
