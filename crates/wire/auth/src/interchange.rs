//! The text form of secrets: `PREFIX:xx:BASE64:`. In base 64 are the bytes and their CRC-32 in four more,
//! lowest first; `xx` says how they are used.

use base64ct::{Base64, Encoding};

const CRC_BYTES: usize = 4;

/// Why a text is not a secret. Messages do not repeat the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadSecret {
    /// The form is wrong.
    #[error("not a secret; a secret has the form DHHC-1:00:BASE64: (`kvdrive secret dhchap` makes one)")]
    Form,
    /// The hash is unknown.
    #[error("a secret with an unknown hash; there are 00, 01, 02 and 03")]
    Hash,
    /// The part between the colons is not base 64.
    #[error("a secret that is not in base 64")]
    Base64,
    /// The size is wrong.
    #[error("a secret of another size than 32, 48 or 64 bytes")]
    Size,
    /// The checksum is wrong.
    #[error("a secret whose checksum is wrong: a character of it is wrong")]
    Checksum,
    /// The form of a PSK is wrong.
    #[error("not a PSK; a PSK has the form NVMeTLSkey-1:01:BASE64: (`kvdrive secret psk` makes one)")]
    PskForm,
    /// The hash of a PSK is unknown.
    #[error("a PSK with an unknown hash; there are 00, 01 and 02")]
    PskHash,
    /// The size of a PSK is wrong.
    #[error("a PSK of another size than its hash's: 32 bytes with 01, 48 with 02, either with 00")]
    PskSize,
}

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
