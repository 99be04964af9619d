//! Who asks: AWS Signature Version 4, in the headers or in the query of a request, and the signatures of the chunks of a body.

use hmac::{Hmac, KeyInit, Mac};
use hyper::http::request::Parts;
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use crate::date;
use crate::failure::Failure;
use crate::request::{encoded, header, query};

/// How far the clocks of a program and of this machine may be apart, s.
const APART_S: u64 = 15 * 60;
/// Longest life of a signed address, s.
const LIFE_MAX_S: u64 = 7 * 24 * 3600;
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A key pair with which programs sign.
#[derive(Clone)]
pub struct Access {
    /// Its name, which requests carry.
    pub id: String,
    /// What they prove to have.
    pub secret: String,
}

impl std::str::FromStr for Access {
    type Err = String;

    fn from_str(text: &str) -> Result<Access, String> {
        let parts = text.trim().split_once(':').filter(|(id, secret)| !id.is_empty() && !secret.is_empty());
        let (id, secret) = parts.ok_or("allowed: ID:SECRET")?;
        Ok(Access { id: id.to_owned(), secret: secret.to_owned() })
    }
}

/// How the body of a request comes, and what is known of it.
pub enum Payload {
    /// As it is, with this SHA-256 if one is given.
    Plain(Option<[u8; 32]>),
    /// In chunks of `aws-chunked`, which are signed if there is a signer.
    Chunked(Option<ChunkSigner>),
}

/// Checks the signatures of chunks, each of which stands on the one before.
pub struct ChunkSigner {
    key: [u8; 32],
    time: String,
    scope: String,
    before: String,
}

impl ChunkSigner {
    /// Is this the signature of the next chunk, whose bytes have this digest?
    pub fn check(&mut self, digest: &[u8], signature: &str) -> bool {
        let empty = hex(&Sha256::digest([]));
        let text = format!(
            "{ALGORITHM}-PAYLOAD\n{}\n{}\n{}\n{empty}\n{}",
            self.time,
            self.scope,
            self.before,
            hex(digest)
        );
        self.is_next(&text, signature)
    }

    /// Is this the signature of the lines at the end, whose bytes have this digest?
    pub fn check_trailer(&mut self, digest: &[u8], signature: &str) -> bool {
        let text =
            format!("{ALGORITHM}-TRAILER\n{}\n{}\n{}\n{}", self.time, self.scope, self.before, hex(digest));
        self.is_next(&text, signature)
    }

    fn is_next(&mut self, text: &str, signature: &str) -> bool {
        let is_right = is_mac_of(&self.key, text, signature);
        self.before = signature.to_owned();
        is_right
    }
}

/// What a request says about its signature.
struct Signed {
    id: String,
    /// `20261129/us-east-1/s3/aws4_request`.
    scope: String,
    headers: String,
    signature: String,
    time: String,
    /// Seconds from `time` on; `None`: it is of now.
    life_s: Option<u64>,
}

/// Checks who signed a request, and returns how its body comes. Without `access` everybody may ask.
///
/// # Errors
/// It is not signed, or not by `access`, or at another time.
pub fn check(parts: &Parts, access: Option<&Access>) -> Result<Payload, Failure> {
    let given = header(parts, "x-amz-content-sha256");
    let Some(access) = access else { return payload(given, None) };
    let signed = signed(parts)?;
    if signed.id != access.id {
        return Err(Failure::new("InvalidAccessKeyId", 403, "there is no access key of that name"));
    }
    check_time(&signed)?;
    let (day, rest) = signed.scope.split_once('/').unwrap_or_default();
    let (region, rest) = rest.split_once('/').unwrap_or_default();
    if rest != "s3/aws4_request" || !signed.time.starts_with(day) || day.len() != 8 {
        return Err(Failure::new(
            "AuthorizationHeaderMalformed",
            400,
            "the scope is DAY/REGION/s3/aws4_request",
        ));
    }
    let of_body = match (given, signed.life_s) {
        (Some(given), _) => given,
        (None, Some(_)) => "UNSIGNED-PAYLOAD",
        (None, None) => return Err(Failure::invalid("x-amz-content-sha256 is missing")),
    };
    let canonical = canonical(parts, &signed, of_body)?;
    let text = format!("{ALGORITHM}\n{}\n{}\n{}", signed.time, signed.scope, hex(&Sha256::digest(canonical)));
    let key = [region, "s3", "aws4_request"]
        .into_iter()
        .fold(mac(format!("AWS4{}", access.secret).as_bytes(), day), |key, part| mac(&key, part));
    if !is_mac_of(&key, &text, &signed.signature) {
        let message = "the signature is not that of this request by that key's secret";
        return Err(Failure::new("SignatureDoesNotMatch", 403, message));
    }
    payload(
        Some(of_body),
        Some(ChunkSigner { key, time: signed.time, scope: signed.scope, before: signed.signature }),
    )
}

fn payload(given: Option<&str>, signer: Option<ChunkSigner>) -> Result<Payload, Failure> {
    Ok(match given {
        None | Some("UNSIGNED-PAYLOAD") => Payload::Plain(None),
        Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER") => Payload::Chunked(None),
        Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD" | "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER") => {
            Payload::Chunked(signer)
        }
        Some(digest) => {
            let bytes = unhex(digest).and_then(|bytes| bytes.try_into().ok());
            Payload::Plain(Some(bytes.ok_or_else(|| Failure::invalid("x-amz-content-sha256 is no SHA-256"))?))
        }
    })
}

fn signed(parts: &Parts) -> Result<Signed, Failure> {
    let missing = || Failure::new("AccessDenied", 403, "requests are signed by AWS Signature Version 4");
    let malformed = || {
        Failure::new(
            "AuthorizationHeaderMalformed",
            400,
            "the authorization is not as AWS4-HMAC-SHA256 has it",
        )
    };
    let (credential, headers, signature, time, life_s);
    if let Some(text) = header(parts, "authorization") {
        let fields = text.strip_prefix(ALGORITHM).ok_or_else(missing)?;
        let field = |name: &str| {
            let found =
                fields.split(',').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='));
            found.map(str::to_owned).ok_or_else(malformed)
        };
        (credential, headers, signature) =
            (field("Credential")?, field("SignedHeaders")?, field("Signature")?);
        time = header(parts, "x-amz-date").ok_or_else(malformed)?.to_owned();
        life_s = None;
    } else {
        let query = query(parts);
        let field =
            |name: &str| query.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone());
        if field("X-Amz-Algorithm").as_deref() != Some(ALGORITHM) {
            return Err(missing());
        }
        let field = |name: &str| field(name).ok_or_else(malformed);
        credential = field("X-Amz-Credential")?;
        (headers, signature, time) =
            (field("X-Amz-SignedHeaders")?, field("X-Amz-Signature")?, field("X-Amz-Date")?);
        let life = field("X-Amz-Expires")?.parse().ok().filter(|life| *life <= LIFE_MAX_S);
        life_s = Some(life.ok_or_else(malformed)?);
    }
    let (id, scope) = credential.split_once('/').ok_or_else(malformed)?;
    // What is not signed may be anybody's.
    if !headers.split(';').any(|name| name == "host") {
        return Err(malformed());
    }
    Ok(Signed { id: id.to_owned(), scope: scope.to_owned(), headers, signature, time, life_s })
}

fn check_time(signed: &Signed) -> Result<(), Failure> {
    let at = date::of_signature(&signed.time).ok_or_else(|| Failure::invalid("x-amz-date is no time"))?;
    let now = date::now();
    match signed.life_s {
        None if at.abs_diff(now) > APART_S => Err(Failure::new(
            "RequestTimeTooSkewed",
            403,
            "the request is of another time than this machine's clock",
        )),
        Some(life_s) if now > at + life_s || at > now + APART_S => {
            Err(Failure::new("AccessDenied", 403, "the signed address is of another time"))
        }
        _ => Ok(()),
    }
}

/// The request as it was signed.
fn canonical(parts: &Parts, signed: &Signed, of_body: &str) -> Result<String, Failure> {
    let path: Vec<u8> = percent_decode_str(parts.uri.path()).collect();
    let mut pairs: Vec<String> = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("X-Amz-Signature="))
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let again = |text: &str| encoded(&percent_decode_str(text).collect::<Vec<u8>>(), false);
            format!("{}={}", again(name), again(value))
        })
        .collect();
    pairs.sort_unstable();
    let mut text = format!("{}\n{}\n{}\n", parts.method, encoded(&path, true), pairs.join("&"));
    for name in signed.headers.split(';') {
        let values = parts.headers.get_all(name).iter().map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes());
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        });
        let values = values.collect::<Vec<_>>();
        if values.is_empty() {
            return Err(Failure::new(
                "AccessDenied",
                403,
                format!("header {name} is signed and is not there"),
            ));
        }
        text += &format!("{name}:{}\n", values.join(","));
    }
    Ok(text + "\n" + &signed.headers + "\n" + of_body)
}

fn mac(key: &[u8], text: &str) -> [u8; 32] {
    with(key, text).finalize().into_bytes().into()
}

fn with(key: &[u8], text: &str) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac
}

/// Compared without telling where they differ.
fn is_mac_of(key: &[u8], text: &str, signature: &str) -> bool {
    unhex(signature).is_some_and(|signature| with(key, text).verify_slice(&signature).is_ok())
}

/// In hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
    text.as_bytes().chunks(2).map(pair).collect()
}
