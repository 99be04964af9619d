//! What a request asks for: its bucket, the name of its object, and its query.

use hyper::http::request::Parts;
use percent_encoding::percent_decode_str;

/// The parts of a path `/BUCKET/NAME`.
pub struct ObjectPath {
    /// The bucket; empty: the request is about all of them.
    pub bucket: String,
    /// The name of the object, in any bytes; empty: the request is about the bucket.
    pub name: Vec<u8>,
}

impl ObjectPath {
    /// Of a request.
    pub fn of(parts: &Parts) -> ObjectPath {
        let path = parts.uri.path();
        let path = path.strip_prefix('/').unwrap_or(path);
        let (bucket, name) = path.split_once('/').unwrap_or((path, ""));
        let bucket = percent_decode_str(bucket).decode_utf8_lossy().into_owned();
        ObjectPath { bucket, name: percent_decode_str(name).collect() }
    }
}

/// The value of a header, if it is a text.
pub fn header<'p>(parts: &'p Parts, name: &str) -> Option<&'p str> {
    parts.headers.get(name)?.to_str().ok().map(str::trim)
}

/// Names and values of the query. A name without a value has an empty one.
pub fn query(parts: &Parts) -> Vec<(String, String)> {
    let text = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// Percent-encoded as S3 has it: letters, digits and `-_.~` stay, and `/` of a path.
pub fn encoded(bytes: &[u8], is_path: bool) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(*byte as char),
            b'/' if is_path => text.push('/'),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}
