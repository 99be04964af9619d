//! A range of an object's bytes.

use crate::failure::Failure;

/// The bytes that a `Range` header asks for, of an object of `size` bytes; `None`: all of it, as S3 answers a header that it
/// does not know or that has several ranges.
///
/// # Errors
/// It begins behind the last byte.
pub fn range(header: Option<&str>, size: u64) -> Result<Option<std::ops::Range<u64>>, Failure> {
    let Some((from, to)) = header.and_then(|text| text.trim().strip_prefix("bytes=")?.split_once('-')) else {
        return Ok(None);
    };
    // More than a number has is behind every end; an end that is left out is 0 here.
    let number = |text: &str| {
        let is_number = text.trim().bytes().all(|byte| byte.is_ascii_digit());
        let is_long = !text.trim().is_empty();
        is_number.then(|| text.trim().parse().unwrap_or(if is_long { u64::MAX } else { 0 }))
    };
    let (Some(first), Some(last)) = (number(from), number(to)) else { return Ok(None) };
    let beyond = || {
        let message = format!("the range {from}-{to} has no byte of the object's {size}");
        Err(Failure::new("InvalidRange", 416, message))
    };
    let range = match (from.trim().is_empty(), to.trim().is_empty()) {
        (true, true) => return Ok(None),
        (true, false) => size.saturating_sub(last)..size,
        (false, true) => first..size,
        (false, false) if last < first => return Ok(None),
        (false, false) => first..last.saturating_add(1).min(size),
    };
    if range.is_empty() { beyond() } else { Ok(Some(range)) }
}
