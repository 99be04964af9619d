//! The settings on which a drive's images depend. A protected image carries them, so that a drive with other
//! settings refuses the image and names the difference.

use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};

/// Keys of the configuration, with their values, that two drives must have in common to understand each
/// other's images. Clones share the text.
///
/// A text: a line `key = value` for each, in the order of the declarations. Two sets of settings are the same in any
/// order.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ImageSettings(Rc<str>);

impl ImageSettings {
    /// A make of these keys and values.
    pub fn new<'a>(settings: impl IntoIterator<Item = (&'a str, String)>) -> ImageSettings {
        ImageSettings(
            settings.into_iter().map(|(key, value)| format!("{key} = {value}\n")).collect::<String>().into(),
        )
    }

    /// The settings of another drive that differ, one per line: `lsm.layout = "sound" (here "published")`, in
    /// the order of the other's keys. `None` if there is no difference.
    pub fn difference(&self, other: &ImageSettings) -> Option<String> {
        if self == other {
            return None;
        }
        let value = |settings: &'_ ImageSettings, key: &str| -> Option<String> {
            settings.settings().find(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
        };
        let changed = other.settings().filter_map(|(key, theirs)| match value(self, key) {
            Some(ours) if ours == theirs => None,
            Some(ours) => Some(format!("{key} = {theirs} (here {ours})")),
            None => Some(format!("{key} = {theirs} (here none)")),
        });
        let missing = self.settings().filter(|(key, _)| value(other, key).is_none());
        let missing = missing.map(|(key, ours)| format!("no {key} (here {ours})"));
        let differences: Vec<_> = changed.chain(missing).collect();
        (!differences.is_empty()).then(|| differences.join(", "))
    }

    fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.split_once(" = "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(settings: &[(&str, &str)]) -> ImageSettings {
        ImageSettings::new(settings.iter().map(|(key, value)| (*key, (*value).to_owned())))
    }

    #[test]
    fn differing_settings_are_named_with_both_values() {
        let ours = image(&[("engine.name", "lsm"), ("flash.channels", "8"), ("lsm.layout", "sound")]);
        let theirs = image(&[("engine.name", "lsm"), ("flash.channels", "4"), ("hash.unit_bytes", "1024")]);
        assert_eq!(ours.difference(&ours), None);
        assert_eq!(
            ours.difference(&theirs).as_deref(),
            Some(
                "flash.channels = 4 (here 8), hash.unit_bytes = 1024 (here none), no lsm.layout (here sound)"
            )
        );
    }
}
