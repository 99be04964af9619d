//! The vendor's log page that says whether, and why, a drive is read-only.
//!
//! ```text
//!   0    1        4                                    512
//!   +----+--------+------------------------------------+
//!   | on | zero   | reason, UTF-8, zero padded         |
//!   +----+--------+------------------------------------+
//!   on: 0 the drive takes writes, 1 it is read-only
//! ```

/// Identifier, among those for vendors (C0h to FFh).
pub const LOG_PAGE: u8 = 0xC0;
/// Size in bytes.
pub const BYTES: usize = 512;
const REASON_AT: usize = 4;

/// The page of a drive that is read-only for `reason`, or that is not read-only. A long reason is truncated.
#[must_use]
pub fn encode(reason: Option<&str>) -> [u8; BYTES] {
    let mut page = [0; BYTES];
    if let Some(reason) = reason {
        page[0] = 1;
        let most = reason.len().min(BYTES - REASON_AT);
        let bytes = (0..=most).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
        page[REASON_AT..REASON_AT + bytes].copy_from_slice(&reason.as_bytes()[..bytes]);
    }
    page
}

/// The reason in a page.
#[must_use]
pub fn decode(page: &[u8; BYTES]) -> Option<String> {
    let text = page[REASON_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
    (page[0] != 0).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_comes_back_as_far_as_it_fits() {
        assert_eq!(decode(&encode(None)), None);
        assert_eq!(decode(&encode(Some(""))), Some(String::new()));
        let long = "\u{e4}".repeat(300);
        assert_eq!(decode(&encode(Some(&long))), Some(long[..508].to_owned()));
    }
}
