//! The text form of secrets: `PREFIX:xx:BASE64:`. In base 64 are the bytes and their CRC-32 in four more,
//! lowest first; `xx` says how they are used.

use base64ct::{Base64, Encoding};

use crate::BadSecret;

const CRC_BYTES: usize = 4;

/// One kind of text form.
pub(crate) struct Frame {
    pub(crate) prefix: &'static str,
    /// Permitted sizes, bytes.
    pub(crate) sizes: &'static [usize],
    /// The error for a text of another form or size.
    pub(crate) form: BadSecret,
    pub(crate) size: BadSecret,
}

/// Decodes `xx` as a number, and the bytes.
pub(crate) fn decode(frame: &Frame, text: &str) -> Result<(Option<u8>, Vec<u8>), BadSecret> {
    let Frame { prefix, sizes, form, size } = *frame;
    let rest = text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(':')).ok_or(form)?;
    let (hash, encoded) = rest.split_once(':').ok_or(form)?;
    let hash = match hash.as_bytes() {
        [b'0', digit @ b'0'..=b'9'] => Some(digit - b'0'),
        _ => None,
    };
    let mut bytes = Base64::decode_vec(encoded).map_err(|_| BadSecret::Base64)?;
    let crc = bytes.split_off(bytes.len().checked_sub(CRC_BYTES).ok_or(size)?);
    if !sizes.contains(&bytes.len()) {
        return Err(size);
    }
    if crc32fast::hash(&bytes).to_le_bytes() != *crc {
        return Err(BadSecret::Checksum);
    }
    Ok((hash, bytes))
}

pub(crate) fn encode(frame: &Frame, hash: u8, bytes: &[u8]) -> String {
    let checked = [bytes, &crc32fast::hash(bytes).to_le_bytes()].concat();
    format!("{}{hash:02}:{}:", frame.prefix, Base64::encode_string(&checked))
}
