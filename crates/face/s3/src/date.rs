//! Times of the world: of signatures and objects. Nothing of a drive depends on them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 86_400;

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "objects have the time of their store, and signatures end")]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// As headers have it: `Sun, 29 Nov 2026 20:30:00 GMT`.
pub fn in_header(seconds: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799)))
}

/// As XML has it: `2026-11-29T20:30:00.000Z`.
pub fn in_xml(seconds: u64) -> String {
    // From the first of March of year 0, a leap day is the last day of its year.
    let days = seconds / DAY_S + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let of_day = seconds % DAY_S;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.000Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// Seconds since 1970 of a signature's time, `20261129T203000Z`; `None`: it is none.
pub fn of_signature(text: &str) -> Option<u64> {
    let digits: String = text.strip_suffix('Z')?.split('T').collect();
    let is_one = text.len() == 16 && digits.len() == 14 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = |at: usize, length: usize| digits[at..at + length].parse::<u64>().ok();
    let [year, month, day] =
        [(0, 4), (4, 2), (6, 2)].map(|(at, length)| is_one.then(|| number(at, length)).flatten());
    let [hour, minute, second] = [8, 10, 12].map(|at| is_one.then(|| number(at, 2)).flatten());
    let (year, month, day) = (year?, month?, day?);
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour? > 23 || minute? > 59 || second? > 60 {
        return None;
    }
    let years = if month <= 2 { year - 1 } else { year };
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_era =
        years % 400 * 365 + years % 400 / 4 - years % 400 / 100 + (153 * from_march + 2) / 5 + day - 1;
    let days = years / 400 * 146_097 + of_era - 719_468;
    Some(days * DAY_S + hour? * 3600 + minute? * 60 + second?)
}
