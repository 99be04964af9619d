//! The settings on which a drive's images depend. A protected image carries them, so that a drive with other
//! settings refuses the image and names the difference.
//!
//! An image that does not name a key was written before that key became one of them. It cannot be compared by that
//! key, so it is opened as it was before, and the next checkpoint names the key.

use std::fmt::Display;
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

    /// The settings of an image that differ from these, in the order of the image's keys: `lsm.layout = sound (here
    /// published)`. `None` if there is no difference.
    pub fn difference(&self, image: &ImageSettings) -> Option<String> {
        if self == image {
            return None;
        }
        let ours =
            |key: &str| self.settings().find(|(name, _)| *name == key).map_or("none", |(_, value)| value);
        let differing = image.settings().filter(|(key, theirs)| ours(key) != *theirs);
        let differences: Vec<_> =
            differing.map(|(key, theirs)| format!("{key} = {theirs} (here {})", ours(key))).collect();
        (!differences.is_empty()).then(|| differences.join(", "))
    }

    /// These settings and one more.
    pub(super) fn with(&self, key: &str, value: impl Display) -> ImageSettings {
        ImageSettings(format!("{}{key} = {value}\n", self.0).into())
    }

    /// These settings without the one of `key`, and its value.
    pub(super) fn without(&self, key: &str) -> (ImageSettings, Option<&str>) {
        let Some((_, value)) = self.settings().find(|(name, _)| *name == key) else {
            return (self.clone(), None);
        };
        let others = self.settings().filter(|(name, _)| *name != key);
        let others = others.map(|(name, value)| format!("{name} = {value}\n")).collect::<String>();
        (ImageSettings(others.into()), Some(value))
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
            Some("flash.channels = 4 (here 8), hash.unit_bytes = 1024 (here none)")
        );
    }

    #[test]
    fn a_key_that_an_earlier_image_does_not_name_is_not_compared() {
        let ours = image(&[("engine.name", "lsm"), ("ftl.over_provisioning", "0.1")]);
        let earlier = image(&[("engine.name", "lsm")]);
        assert_eq!(ours.difference(&earlier), None);
        assert_eq!(earlier.difference(&ours).as_deref(), Some("ftl.over_provisioning = 0.1 (here none)"));
    }
}
