//! Numbers with units, as people write them for a setting that is counted in some [`Unit`]: "600us", "16KiB", "100k/s",
//! "1M".
//!
//! k or M alone means a thousand or a million of the counted unit. For bytes it is refused, because it is ambiguous:
//! 1000 or 1024.

use crate::Unit;

/// Units of one kind of key: name, and size in the key's own unit.
type Units = &'static [(&'static str, u64)];

const TIME: Units = &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
const SIZE: Units = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
const COUNT: Units = &[
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
];
const RATE: Units =
    &[("/s", 1), ("k/s", 1_000), ("M/s", 1_000_000), ("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];

fn units(unit: Unit) -> Units {
    match unit {
        Unit::Ns | Unit::NsPerKib => TIME,
        Unit::Bytes => SIZE,
        Unit::PerSecond => RATE,
        Unit::Ps | Unit::MibPerSecond | Unit::BytesPerSecond | Unit::None => COUNT,
    }
}

/// Reads a count of anything but bytes: `1000000`, `1M`.
///
/// # Errors
/// What is wrong with the text, in a few words.
pub fn parse_count(text: &str) -> Result<u64, String> {
    parse(Unit::None, text)?.try_into().map_err(|_| format!("\"{}\" is below 0", text.trim()))
}

/// Reads a time span, in ns: `100ms`.
///
/// # Errors
/// What is wrong with the text, in a few words; a number without a unit is an error.
pub fn parse_span(text: &str) -> Result<u64, String> {
    let is_bare = text.trim().ends_with(|last: char| last.is_ascii_digit());
    let span = if is_bare { None } else { parse(Unit::Ns, text).ok().and_then(|ns| u64::try_from(ns).ok()) };
    span.ok_or_else(|| format!("\"{}\" is no span of time; expected one as 100ms or 10s", text.trim()))
}

/// Reads an integer, with or without a unit, in the unit of its setting.
///
/// # Errors
/// What is wrong with the text, in a few words.
pub fn parse(unit: Unit, text: &str) -> Result<i64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || "._-+".contains(c))).unwrap_or(text.len());
    let (number, given) = (text[..end].replace('_', ""), text[end..].trim());
    let units = units(unit);
    let factor = match (given, units.iter().find(|(name, _)| *name == given)) {
        ("", _) => 1,
        (_, Some((_, factor))) => *factor,
        _ if number.is_empty() => return Err(format!("expected an integer, got \"{text}\"")),
        _ => {
            let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
            return Err(format!("unknown unit \"{given}\"; units: {}", names.join(", ")));
        }
    };
    let too_large = || format!("\"{text}\" is too large");
    if let Ok(whole) = number.parse::<i64>() {
        return whole.checked_mul(factor as i64).ok_or_else(too_large);
    }
    let own = units.first().filter(|(_, size)| *size == 1).map_or("", |(name, _)| *name);
    let no_integer = || format!("\"{text}\" is not a whole number {own}").trim_end().to_owned();
    let Some((whole, part)) = decimal(&number) else {
        return Err(format!("expected an integer, got \"{text}\""));
    };
    // Digit by digit: 0.1us are exactly 100 ns, and a time since 1970 has more digits than a floating-point number.
    let part = part.trim_end_matches('0');
    let scale = u32::try_from(part.len())
        .ok()
        .and_then(|digits| 10_i128.checked_pow(digits))
        .ok_or_else(no_integer)?;
    let read = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<i128>().ok() };
    let of_part = read(part).and_then(|part| part.checked_mul(factor.into())).ok_or_else(no_integer)?;
    if of_part % scale != 0 {
        return Err(no_integer());
    }
    let (sign, whole) =
        whole.strip_prefix('-').map_or((1, whole.trim_start_matches('+')), |whole| (-1, whole));
    let scaled = read(whole).and_then(|whole| whole.checked_mul(factor.into())?.checked_add(of_part / scale));
    scaled.and_then(|scaled| i64::try_from(sign * scaled).ok()).ok_or_else(too_large)
}

/// The two parts of a number with a decimal point.
fn decimal(number: &str) -> Option<(&str, &str)> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    let is_number = digits.len() + part.len() > 0
        && [digits, part].iter().all(|of| of.bytes().all(|byte| byte.is_ascii_digit()));
    is_number.then_some((whole, part))
}

#[cfg(test)]
mod tests {
    use super::{parse_count, parse_span};
    use crate::Unit;

    fn parse(key: &str, text: &str) -> Result<i64, String> {
        super::parse(Unit::of(key), text)
    }

    #[test]
    fn units_follow_the_key() {
        assert_eq!(parse("flash.erase_ns", "5ms"), Ok(5_000_000));
        assert_eq!(parse("flash.erase_ns", "0.1 us"), Ok(100));
        assert_eq!(parse("flash.erase_ns", "7"), Ok(7));
        assert_eq!(parse("flash.erase_ns", "-.5us"), Ok(-500));
        assert_eq!(parse("flash.erase_ns", "1790000000.123456789s"), Ok(1_790_000_000_123_456_789));
        assert_eq!(parse("flash.page_bytes", "16KiB"), Ok(16384));
        assert_eq!(parse("workload.value_size", "4KiB"), Ok(4096));
        assert_eq!(parse("controller.memcpy_ns_per_kib", "20.48us"), Ok(20480));
        assert_eq!(parse("flash.channels", "1_000"), Ok(1000));
        assert_eq!(parse("workload.ops", "1M"), Ok(1_000_000));
        assert_eq!(parse("workload.ops", "2.5k"), Ok(2_500));
        assert_eq!(parse("workload.num", "4Mi"), Ok(4 << 20));
        assert_eq!(parse("workload.value_size", "2kB"), Ok(2000));
        assert_eq!(parse("workload.rate_per_s", "100k/s"), Ok(100_000));
        assert_eq!(parse("workload.rate_per_s", "100k"), Ok(100_000));
        assert_eq!(parse_count("10k"), Ok(10_000));
        assert_eq!(parse_span("100ms"), Ok(100_000_000));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        let wrong = |key, text| parse(key, text).unwrap_err();
        assert_eq!(wrong("a_ns", "5KiB"), "unknown unit \"KiB\"; units: ns, us, µs, ms, s");
        assert_eq!(
            wrong("a_bytes", "1kb"),
            "unknown unit \"kb\"; units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
        );
        assert!(wrong("a_bytes", "1k").starts_with("unknown unit \"k\""), "1000 or 1024?");
        assert_eq!(wrong("channels", "8x"), "unknown unit \"x\"; units: k, M, G, Ki, Mi, Gi");
        assert_eq!(wrong("channels", "many"), "expected an integer, got \"many\"");
        assert_eq!(parse_count("-1").unwrap_err(), "\"-1\" is below 0");
        assert!(parse_span("100").unwrap_err().contains("100ms"), "of what?");
        assert_eq!(wrong("a_ns", "us"), "expected an integer, got \"us\"");
        assert_eq!(wrong("a_ns", "1.5"), "\"1.5\" is not a whole number ns");
        assert_eq!(wrong("a_ns", "9223372036854775807s"), "\"9223372036854775807s\" is too large");
        assert_eq!(wrong("ops", "99999999999999999999"), "\"99999999999999999999\" is too large");
        assert_eq!(wrong("a_ns", "99999999999.5s"), "\"99999999999.5s\" is too large");
    }
}
