//! Numbers for people, in the unit that suits their size. [`crate::quantity`] reads such numbers.

use crate::with_decimals;

/// A number with as many decimals as make four significant digits.
pub fn short(number: f64) -> String {
    let decimals = match number.abs() {
        n if n >= 100.0 => 1,
        n if n >= 10.0 => 2,
        _ => 3,
    };
    with_decimals(number, decimals)
}

fn scaled(number: f64, units: &[(&str, f64)]) -> String {
    let (unit, size) = units.iter().rev().find(|(_, size)| number.abs() >= *size).unwrap_or(&units[0]);
    if *size == 1.0 && number.fract() == 0.0 {
        return format!("{number:.0} {unit}");
    }
    format!("{} {unit}", short(number / size))
}

/// A time: `10.80 us`.
pub fn time(ns: f64) -> String {
    scaled(ns, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// A number of bytes: `34.87 MB`, decimal as the papers count.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, &[("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)])
}

/// A share: `97.90 %`; from ten times on a factor: `12.50 x`.
pub fn percent(share: f64) -> String {
    if share.abs() >= 10.0 {
        return short(share) + " x";
    }
    format!("{:.2} %", 100.0 * share)
}

/// A rate: `57.4 k/s`.
pub fn rate(per_s: f64) -> String {
    scaled(per_s, &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_the_unit_that_suits_its_size() {
        assert_eq!(
            [400.0, 10_800.0, 75_497_500.0, 3.6e9].map(time),
            ["400 ns", "10.80 us", "75.50 ms", "3.600 s"]
        );
        assert_eq!([71.0, 2.2e6, 68.7e9, 1e14].map(bytes), ["71 B", "2.200 MB", "68.70 GB", "100.0 TB"]);
        assert_eq!([320.0, 57_400.0, 2.29e6].map(rate), ["320 /s", "57.40 k/s", "2.290 M/s"]);
        assert_eq!([0.979, 12.5].map(percent), ["97.90 %", "12.50 x"]);
    }
}
