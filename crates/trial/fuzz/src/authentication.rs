//! Bytes as messages, secrets and PSKs of authentication.

use kvdrive_auth::psk::{Derivation, Version};
use kvdrive_auth::{Psk, Secret};
use kvdrive_nvme::auth::Message;

/// A negotiation, a reply with a challenge of its own, a failure.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let negotiate = [&[0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 3, 6, 1, 2, 3][..], &[0; 57]].concat();
    let reply = [&[1, 2, 0, 0, 1, 0, 32, 0, 1, 0, 0, 0, 1, 0, 0, 0][..], &[9; 64]].concat();
    vec![negotiate, reply, vec![0, 0xF1, 0, 0, 1, 0, 1, 1]]
}

/// Decodes the bytes as a message. A decoded message has the same content after it is encoded again.
pub fn message(bytes: &[u8]) {
    if let Ok((message, _)) = Message::decode(bytes) {
        assert_eq!(Message::decode(&message.encode()), Ok((message, &[][..])));
    }
}

/// The specification's example, and a longer one.
pub fn secret_seeds() -> Vec<Vec<u8>> {
    let long = Secret::new(None, &[7; 64]).expect("64 bytes are a secret").to_interchange();
    vec![b"DHHC-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:".to_vec(), long.into_bytes()]
}

/// Decodes the bytes as a secret. A decoded secret encodes to the same text.
pub fn secret(bytes: &[u8]) {
    if let Ok(secret) = std::str::from_utf8(bytes).unwrap_or_default().parse::<Secret>() {
        assert_eq!(secret.to_interchange().as_bytes(), bytes);
    }
}

/// The keys of libnvme's tests, in both lengths.
pub fn psk_seeds() -> Vec<Vec<u8>> {
    [
        "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
        "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
    ]
    .map(|text| text.into())
    .to_vec()
}

/// Decodes the bytes as a PSK. A decoded PSK encodes to the same text, and a key can be derived from it.
pub fn psk(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Psk>() {
        Ok(psk) => {
            assert_eq!(psk.to_interchange(), text);
            let made = psk.for_tls("nqn.host", "nqn.drive", Version::One, Derivation::Rfc8446);
            assert_eq!(made.expect("short names").secret.len(), psk.suite_hash().bytes());
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1),
    }
}
