//! Bytes as messages and secrets of authentication.

use kvdrive_auth::Secret;
use kvdrive_spec::auth::Message;

/// A negotiation, a reply with a challenge of its own, a failure.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let negotiate = [&[0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 3, 6, 1, 2, 3][..], &[0; 57]].concat();
    let reply = [&[1, 2, 0, 0, 1, 0, 32, 0, 1, 0, 0, 0, 1, 0, 0, 0][..], &[9; 64]].concat();
    vec![negotiate, reply, vec![0, 0xF1, 0, 0, 1, 0, 1, 1]]
}

/// Reads the bytes as a message. What is taken means the same when it is written again.
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

/// Reads the bytes as a secret. What is taken is written as it was read.
pub fn secret(bytes: &[u8]) {
    if let Ok(secret) = std::str::from_utf8(bytes).unwrap_or_default().parse::<Secret>() {
        assert_eq!(secret.to_interchange().as_bytes(), bytes);
    }
}
