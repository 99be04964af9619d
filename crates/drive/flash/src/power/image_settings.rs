//! The settings on which a drive's images depend. A protected image carries them, so that a drive with other
//! settings refuses the image and names the difference.
//!
//! An image that does not name a key was written before that key became one of them, and has the value that drives had at
//! that time ([`BEFORE`]): a drive with this value opens it, and the next checkpoint names the key.

use std::fmt::Display;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};

/// What drives did before a key became one of these settings, by that key; `None`: what they were configured to do, which
/// images did not name. A key that was named from the first image of 0.2.0 on has no row. A new key needs one, or the images
/// of earlier versions are refused.
const BEFORE: &[(&str, Option<&str>)] = &[("ftl.over_provisioning", None)];

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
        self.difference_since(image, BEFORE)
    }

    /// As [`ImageSettings::difference`]; `before` has the values of keys that the image does not name.
    fn difference_since(&self, image: &ImageSettings, before: &[(&str, Option<&str>)]) -> Option<String> {
        if self == image {
            return None;
        }
        let here = |value: Option<&str>| format!("(here {})", value.unwrap_or("none"));
        let mut differences = Vec::new();
        for (key, theirs) in image.settings() {
            let ours = self.value(key);
            if ours != Some(theirs) {
                differences.push(format!("{key} = {theirs} {}", here(ours)));
            }
        }
        // A drive of another engine has other keys altogether; that one difference says it.
        let unnamed = self.settings().filter(|(key, _)| differences.is_empty() && image.value(key).is_none());
        let unnamed: Vec<_> = unnamed
            .filter_map(|(key, ours)| match before.iter().find(|(name, _)| *name == key) {
                Some((_, None)) => None,
                Some((_, Some(theirs))) if *theirs == ours => None,
                Some((_, Some(theirs))) => {
                    Some(format!("{key} = {theirs}, as before there was a choice {}", here(Some(ours))))
                }
                None => Some(format!("{key} is not named {}", here(Some(ours)))),
            })
            .collect();
        differences.extend(unnamed);
        (!differences.is_empty()).then(|| differences.join(", "))
    }

    /// These settings and one more.
    pub(super) fn with(&self, key: &str, value: impl Display) -> ImageSettings {
        ImageSettings(format!("{}{key} = {value}\n", self.0).into())
    }

    /// These settings without the one of `key`, and its value.
    pub(super) fn without(&self, key: &str) -> (ImageSettings, Option<&str>) {
        let Some(value) = self.value(key) else {
            return (self.clone(), None);
        };
        let others = self.settings().filter(|(name, _)| *name != key);
        let others = others.map(|(name, value)| format!("{name} = {value}\n")).collect::<String>();
        (ImageSettings(others.into()), Some(value))
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.settings().find(|(name, _)| *name == key).map(|(_, value)| value)
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
    fn a_key_that_an_earlier_image_does_not_name_has_the_value_of_its_time() {
        let before = [("lsm.order", Some("byte")), ("ftl.over_provisioning", None)];
        let earlier = image(&[("engine.name", "lsm")]);
        let ours =
            |order| image(&[("engine.name", "lsm"), ("lsm.order", order), ("ftl.over_provisioning", "0.1")]);
        assert_eq!(ours("byte").difference_since(&earlier, &before), None);
        assert_eq!(
            ours("length").difference_since(&earlier, &before).as_deref(),
            Some("lsm.order = byte, as before there was a choice (here length)")
        );
        assert_eq!(
            ours("byte").difference(&earlier).as_deref(),
            Some("lsm.order is not named (here byte)"),
            "a new key without a row"
        );
        let other = earlier.difference(&image(&[("engine.name", "lsm"), ("ftl.over_provisioning", "0.1")]));
        assert_eq!(other.as_deref(), Some("ftl.over_provisioning = 0.1 (here none)"));
    }
}
