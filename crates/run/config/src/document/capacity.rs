//! The size of a drive in bytes. `flash.capacity` is no setting itself: it sets `flash.blocks_per_die`, as a preset sets
//! keys of the workload, and follows when another key of the flash's division is set later.
//!
//! A drive can be as large as whole blocks on every die allow, so a capacity is rounded. Which sizes an engine and its
//! flash translation can work with is not listed anywhere: a refused capacity is answered by a search with the checks that
//! every configuration has to pass.

use kvdrive_declare::{Problem as ConfigError, Rule};
use kvdrive_text::{Unit, number_of, quantity};
use toml_edit::Value;

use super::Document;
use crate::rules;
use crate::sections::Config;

/// A size in powers of two, as capacities are given: `5.5 GiB`. A unit is chosen in which it is exact with a few decimals, so
/// that it can be given back; otherwise the decimals are few enough that the blocks are the same.
pub fn binary(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let in_units = |least: u64| UNITS.into_iter().filter(move |(_, log2)| bytes >> log2 >= least);
    let is_exact =
        |(_, log2): &(&str, u32)| u128::from(bytes) * 10_000 % (1 << log2) == 0 && bytes >> log2 < 10_000;
    let Some((unit, log2)) = in_units(1).find(is_exact).or_else(|| in_units(10).next()) else {
        return format!("{bytes} B");
    };
    let number = format!("{:.4}", bytes as f64 / (1u64 << log2) as f64);
    format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// A size that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    bytes: u64,
    /// As it was given.
    text: String,
}

/// A size with its unit. Unlike other numbers of bytes it need not be a whole one, since it is rounded in any case.
fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || "._".contains(c))).unwrap_or(text.len());
    let Some(number) = text[..end].replace('_', "").parse::<f64>().ok() else {
        return Err(format!("expected a size, got {text:?}"));
    };
    let factor = quantity::parse(Unit::Bytes, &format!("1{}", &text[end..]))?;
    Ok((number * factor as f64).round() as u64)
}

/// The name of the size in documents.
pub(crate) const CAPACITY: &str = "flash.capacity";
/// The key that it sets.
const BLOCKS: &str = "flash.blocks_per_die";
/// The other keys of the size of a drive.
const DIVISION: &[&str] = &[
    "flash.channels",
    "flash.dies_per_channel",
    "flash.planes",
    "flash.pages_per_block",
    "flash.page_bytes",
];

/// The key whose value a setting determines.
pub(crate) fn key_set_by(key: &str) -> &str {
    if key == CAPACITY { BLOCKS } else { key }
}

impl Document {
    /// Sets the capacity of the drive, bytes of flash, rounded to whole blocks of every die.
    ///
    /// # Errors
    /// The value is no number of bytes. Whether there can be such a drive is known when the document is whole
    /// ([`Document::config`]).
    pub(super) fn assign_capacity(&mut self, given: &Value) -> Result<(), ConfigError> {
        let text = given.as_str().map_or_else(|| rules::shown(given), str::to_owned);
        let bytes = size(&text).and_then(|bytes| if bytes > 0 { Ok(bytes) } else { Err(text.clone()) });
        let problem = |problem| ConfigError::new(CAPACITY, format!("{problem}; allowed: a size, as 8GiB"));
        self.capacity = Some(Asked { bytes: bytes.map_err(problem)?, text });
        self.follow_capacity()
    }

    /// To be called after `key` was set: blocks of a die that are given explicitly replace a capacity, and other keys of
    /// the division change what it means.
    pub(super) fn resized_by(&mut self, key: &str) -> Result<(), ConfigError> {
        if key == BLOCKS {
            self.capacity = None;
        }
        let divides = DIVISION.contains(&key);
        self.says_size |= divides || [BLOCKS, "media.kind"].contains(&key);
        if divides { self.follow_capacity() } else { Ok(()) }
    }

    /// What was set so far are defaults: neither size nor medium was given by a user.
    pub(crate) fn forget_given_size(&mut self) {
        self.says_size = false;
    }

    fn follow_capacity(&mut self) -> Result<(), ConfigError> {
        let Some(asked) = self.capacity.clone() else { return Ok(()) };
        let (least, most) = blocks_allowed(self.integer("flash.planes"));
        let blocks = self.blocks_for(asked.bytes, u64::saturating_add).clamp(least, most);
        self.assign(BLOCKS, &Value::from(blocks as i64))?;
        self.capacity = Some(asked);
        Ok(())
    }

    /// Blocks of a die with which a drive has about `asked` bytes: a multiple of its planes. `up` adds half a step, or
    /// nothing.
    fn blocks_for(&self, asked: u64, up: fn(u64, u64) -> u64) -> u64 {
        let step = DIVISION.iter().fold(1, |product: u64, key| product.saturating_mul(self.integer(key)));
        up(asked, step / 2) / step * self.integer("flash.planes")
    }

    /// What a user should know about the capacity that was set: the size that there can be, if it is another one.
    pub fn rounded_capacity(&self) -> Option<String> {
        let Asked { bytes, text } = self.capacity.as_ref()?;
        let config = self.config().ok()?;
        let has = capacity_bytes(&config);
        let blocks = number_of(config.flash.blocks_per_die.into(), "block");
        (has != *bytes).then(|| format!("capacity {}: {blocks} a die, nearest to {text}", binary(has)))
    }

    /// Gives a drive in memory at most `room` bytes of flash, or the least that its engine works with, unless the user set
    /// its size or its medium. Returns a line that says so if the drive became smaller: with `words` for `room`, and
    /// `instead` for what a user can do.
    ///
    /// # Errors
    /// As [`Document::config`].
    pub fn fit_to_memory(
        &mut self,
        room: u64,
        words: &str,
        instead: &str,
    ) -> Result<Option<String>, ConfigError> {
        let config = self.config()?;
        let has = capacity_bytes(&config);
        if config.media.has_file() || has <= room || self.says_size {
            return Ok(None);
        }
        let (lowest, _) = blocks_allowed(config.flash.planes.into());
        let blocks = self.blocks_for(room, |asked, _| asked).max(lowest);
        self.assign(BLOCKS, &Value::from(blocks as i64))?;
        let mut words = words.to_owned();
        if let (Err(_), Some((least, _))) = (self.config(), sizes(&config)) {
            self.assign(BLOCKS, &Value::from(least as i64))?;
            words = format!("the least with engine.name = \"{}\", above {words}", config.engine.name);
        }
        let (now, profile) = (binary(capacity_bytes(&self.config()?)), binary(has));
        Ok(Some(format!("capacity {now}: {words}; the profile has {profile}: {instead}")))
    }
}

/// Bytes of the drive's flash; unlike those of its geometry, also of a drive that cannot be.
fn capacity_bytes(config: &Config) -> u64 {
    let blocks_of_units = u64::from(config.flash.blocks_per_die / config.flash.planes.max(1));
    step_bytes(config).saturating_mul(blocks_of_units)
}

/// By how much a drive grows with a block on every plane.
fn step_bytes(config: &Config) -> u64 {
    let flash = &config.flash;
    let parts =
        [flash.channels, flash.dies_per_channel, flash.planes, flash.pages_per_block, flash.page_bytes];
    parts.iter().fold(1, |product: u64, part| product.saturating_mul(u64::from(*part)))
}

/// The least and the most blocks of a die that a document may have.
fn blocks_allowed(planes: u64) -> (u64, u64) {
    let Some(Rule::Integer(least, most)) = rules::rule(BLOCKS) else {
        unreachable!("{BLOCKS} is an integer (tested)")
    };
    ((*least as u64).next_multiple_of(planes), *most as u64 / planes * planes)
}

/// The least and the most blocks of a die with which there can be the drive of `config`; `None`: with none.
fn sizes(config: &Config) -> Option<(u64, u64)> {
    let planes = u64::from(config.flash.planes);
    let (lowest, highest) = blocks_allowed(planes);
    let works = |units: u64| {
        let mut config = config.clone();
        config.flash.blocks_per_die = (units * planes) as u32;
        rules::check_conditions(&config).is_ok()
    };
    let (lowest, highest) = (lowest / planes, highest / planes);
    let doubled =
        || std::iter::successors(Some(lowest), |units| units.checked_mul(2)).take_while(|u| *u <= highest);
    let one = doubled().find(|units| works(*units))?;
    let least = border((one / 2).max(lowest - 1), one, &works);
    let last = doubled().skip_while(|units| *units < one).take_while(|units| works(*units)).last()?;
    let beyond = (2 * last).min(highest + 1);
    // The first size that is too large is the border of those that are.
    let most = border(last, beyond, &|units| units > highest || !works(units)) - 1;
    Some((least * planes, most * planes))
}

/// The first number above `below`, up to `holding`, for which `holds`, which it does for `holding`.
fn border(below: u64, holding: u64, holds: &dyn Fn(u64) -> bool) -> u64 {
    let (mut below, mut holding) = (below, holding);
    while holding - below > 1 {
        let middle = below + (holding - below) / 2;
        if holds(middle) { holding = middle } else { below = middle }
    }
    holding
}

/// Refuses a capacity that no drive of `config` has, with those that there are; `checked` is what a check of `config` found.
pub(super) fn check(
    asked: &Asked,
    config: &Config,
    checked: Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    let step = step_bytes(config);
    if checked.is_ok() && capacity_bytes(config).abs_diff(asked.bytes) <= step.div_ceil(2) {
        return Ok(());
    }
    // If no size works, something else is wrong.
    let Some((least, most)) = sizes(config) else { return checked };
    let size = |blocks: u64| binary((blocks / u64::from(config.flash.planes)).saturating_mul(step));
    let problem = format!(
        "{}; allowed with engine.name = \"{}\" and this flash: {} to {}, in steps of {}",
        asked.text,
        config.engine.name,
        size(least),
        size(most),
        binary(step)
    );
    Err(ConfigError::new(CAPACITY, problem))
}
