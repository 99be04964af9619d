//! What every protected image says of its drive: identity, settings, and the features that hosts have set in its
//! namespace and that outlive power.

use std::cell::Cell;
use std::rc::Rc;

use borsh::io::{Error, ErrorKind, Read, Result, Write};
use borsh::{BorshDeserialize, BorshSerialize};

use super::ImageSettings;
use crate::identity::Identity;

/// The line of an image's settings that has feature 20h; an image without it has the default. So an image of a drive
/// whose hosts never set the feature is the same as before there was one, and a program that does not know the feature
/// refuses the image by this name.
const KEY_VALUE: &str = "feature.key_value";

/// Features of a namespace that outlive power. Clones share the values, so an image that an engine makes has the present
/// ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFeatures {
    key_value: Rc<Cell<u32>>,
}

impl NamespaceFeatures {
    /// Feature 20h, Key Value Configuration; bit 0, EDNEK: deleting a missing key is an error.
    pub fn key_value(&self) -> u32 {
        self.key_value.get()
    }

    /// Sets it. It outlives power from the next protected image on.
    pub fn set_key_value(&self, value: u32) {
        self.key_value.set(value);
    }
}

/// The drive to which a protected image belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its identity.
    pub identity: Identity,
    /// Its settings.
    pub settings: ImageSettings,
    /// Features of its namespace.
    pub features: NamespaceFeatures,
}

impl BorshSerialize for Owner {
    fn serialize<W: Write>(&self, writer: &mut W) -> Result<()> {
        self.identity.serialize(writer)?;
        match self.features.key_value() {
            0 => self.settings.serialize(writer),
            value => self.settings.with(KEY_VALUE, value).serialize(writer),
        }
    }
}

impl BorshDeserialize for Owner {
    fn deserialize_reader<R: Read>(reader: &mut R) -> Result<Owner> {
        let identity = Identity::deserialize_reader(reader)?;
        let all = ImageSettings::deserialize_reader(reader)?;
        let (settings, value) = all.without(KEY_VALUE);
        let features = NamespaceFeatures::default();
        if let Some(value) = value {
            let number = value.parse().ok().filter(|number| *number != 0);
            let number = number.ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidData,
                    format!("{KEY_VALUE} = {value} is no value of that feature"),
                )
            })?;
            features.set_key_value(number);
        }
        Ok(Owner { identity, settings, features })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{open, seal};
    use super::*;

    #[test]
    fn a_feature_is_in_the_image_unless_it_has_its_default() {
        let settings = ImageSettings::new([("engine.name", "lsm".to_owned())]);
        let owner =
            Owner { identity: Identity::of_seed(1), settings, features: NamespaceFeatures::default() };
        let before = seal(&owner, &7u8);
        owner.clone().features.set_key_value(1);
        let image = seal(&owner, &7u8);
        assert!(image.windows(21).any(|bytes| bytes == b"feature.key_value = 1"), "by its name");
        let (read, state) = open::<u8>(&image).unwrap();
        assert_eq!((&read, state, read.features.key_value()), (&owner, 7, 1));
        assert_eq!(read.settings.difference(&owner.settings), None, "it is no setting of the drive");
        owner.features.set_key_value(0);
        assert_eq!(seal(&owner, &7u8), before);
    }
}
