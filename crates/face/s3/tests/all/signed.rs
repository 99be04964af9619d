//! Requests that are signed, by code of the test's own.

use hmac::{Hmac, KeyInit, Mac};
use kvdrive_s3::{Access, Bucket, Door, listen};
use sha2::{Digest, Sha256};

use crate::support::{Served, Told, small};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// The time of the machine's clock, as signatures have it, so many seconds later.
fn time(later_s: i64) -> String {
    let mut command = std::process::Command::new("date");
    command.args(["-u", "-d", &format!("{later_s} seconds"), "+%Y%m%dT%H%M%SZ"]);
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}

struct Signer<'s> {
    served: &'s Served,
    id: &'s str,
    secret: &'s str,
    time: String,
}

impl Signer<'_> {
    fn key(&self) -> Vec<u8> {
        let key = mac(format!("AWS4{}", self.secret).as_bytes(), &self.time[..8]);
        ["eu-any-1", "s3", "aws4_request"].iter().fold(key, |key, part| mac(&key, part))
    }

    fn scope(&self) -> String {
        format!("{}/eu-any-1/s3/aws4_request", &self.time[..8])
    }

    /// The signature of a request with a canonical path and query.
    fn signature(
        &self,
        method: &str,
        path: &str,
        query: &str,
        of_body: &str,
        headers: &[(&str, &str)],
    ) -> String {
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{}\n{of_body}", names.join(";"));
        let text =
            format!("AWS4-HMAC-SHA256\n{}\n{}\n{}", self.time, self.scope(), hex(&Sha256::digest(canonical)));
        hex(&mac(&self.key(), &text))
    }

    fn ask(&self, method: &str, path: &str, query: &str, of_body: &str, body: &[u8]) -> (Told, String) {
        let host = self.served.at.to_string();
        let headers = [("host", &host[..]), ("x-amz-content-sha256", of_body), ("x-amz-date", &self.time)];
        let signature = self.signature(method, path, query, of_body, &headers);
        let authorization = format!(
            "authorization: AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={signature}",
            self.id,
            self.scope()
        );
        let lines =
            [authorization, format!("x-amz-content-sha256: {of_body}"), format!("x-amz-date: {}", self.time)];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        (self.served.ask(method, &format!("{path}{query}"), &lines, body), signature)
    }
}

fn served() -> Served {
    Served::of(small(), Some(Access { id: "ID".into(), secret: SECRET.into() }))
}

#[test]
fn a_request_is_carried_out_for_the_one_key_alone() {
    let served = served();
    let with = |id, secret, time| Signer { served: &served, id, secret, time };
    let right = with("ID", SECRET, time(0));
    let digest = hex(&Sha256::digest(b"hello"));
    assert_eq!(right.ask("PUT", "/kvdrive/a%20name%2Bmore", "", &digest, b"hello").0.status, 200);
    assert_eq!(right.ask("GET", "/kvdrive/a%20name%2Bmore", "", "UNSIGNED-PAYLOAD", b"").0.body, b"hello");
    let listed = right.ask("GET", "/kvdrive", "list-type=2&prefix=a%20n", "UNSIGNED-PAYLOAD", b"").0;
    assert_eq!(listed.texts("Key"), ["a name+more"]);
    let code = |told: (Told, String)| told.0.failure();
    let is = |status, code: &str| (status, code.to_owned());
    let ask = |signer: &Signer<'_>| code(signer.ask("PUT", "/kvdrive/o", "", "UNSIGNED-PAYLOAD", b"x"));
    assert_eq!(ask(&with("ID", "another", time(0))), is(403, "SignatureDoesNotMatch"));
    assert_eq!(ask(&with("DI", SECRET, time(0))), is(403, "InvalidAccessKeyId"));
    assert_eq!(ask(&with("ID", SECRET, time(-1000))), is(403, "RequestTimeTooSkewed"));
    assert_eq!(ask(&with("ID", SECRET, time(1000))), is(403, "RequestTimeTooSkewed"));
    assert_eq!(served.put("/kvdrive/o", b"x").failure(), is(403, "AccessDenied"));
    assert_eq!(
        code(right.ask("PUT", "/kvdrive/o", "", &digest, b"other")),
        is(400, "XAmzContentSHA256Mismatch")
    );
    // A signature of another path, method or query.
    let host = served.at.to_string();
    let headers =
        [("host", &host[..]), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), ("x-amz-date", &right.time)];
    let signature = right.signature("GET", "/kvdrive/o", "", "UNSIGNED-PAYLOAD", &headers);
    for bad in [
        "AWS4-HMAC-SHA256".to_owned(),
        "AWS4-HMAC-SHA256 Credential=ID, SignedHeaders=host, Signature=00".to_owned(),
        "AWS4-HMAC-SHA256 Credential=ID/x/y/s3/aws4_request, SignedHeaders=host, Signature=zz".to_owned(),
        format!(
            "AWS4-HMAC-SHA256 Credential=ID/{}, SignedHeaders=x-amz-date, Signature={signature}",
            right.scope()
        ),
        format!(
            "AWS4-HMAC-SHA256 Credential=ID/{}, SignedHeaders=host;x-none, Signature={signature}",
            right.scope()
        ),
        format!(
            "AWS4-HMAC-SHA256 Credential=ID/{}, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={signature}",
            right.scope()
        ),
        "Basic SUQ6eA==".to_owned(),
    ] {
        let lines = [
            format!("authorization: {bad}"),
            "x-amz-content-sha256: UNSIGNED-PAYLOAD".into(),
            format!("x-amz-date: {}", right.time),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let status = served.ask("PUT", "/kvdrive/o", &lines, b"x").status;
        assert!(status == 403 || status == 400, "{bad}: {status}");
    }
    assert_eq!(served.pairs(), 3, "one object of one part");
}

#[test]
fn a_signed_address_is_good_for_its_time() {
    let served = served();
    let right = Signer { served: &served, id: "ID", secret: SECRET, time: time(-30) };
    let address = |signer: &Signer<'_>, life: &str, method: &str| {
        let credential = format!("ID/{}", signer.scope()).replace('/', "%2F");
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={}&X-Amz-Expires={life}&X-Amz-SignedHeaders=host",
            signer.time
        );
        let host = served.at.to_string();
        let signature =
            signer.signature(method, "/kvdrive/o", &query, "UNSIGNED-PAYLOAD", &[("host", &host)]);
        format!("/kvdrive/o?{query}&X-Amz-Signature={signature}")
    };
    assert_eq!(served.put(&address(&right, "60", "PUT"), b"by address").status, 200);
    assert_eq!(served.get(&address(&right, "60", "GET")).body, b"by address");
    assert_eq!(served.get(&address(&right, "60", "PUT")).failure(), (403, "SignatureDoesNotMatch".into()));
    assert_eq!(served.get(&address(&right, "10", "GET")).failure(), (403, "AccessDenied".into()));
    assert_eq!(
        served.get(&address(&right, "99999999", "GET")).failure(),
        (400, "AuthorizationHeaderMalformed".into())
    );
}

/// Chunks that are signed one on the other, with a signed trailer.
#[test]
fn a_chunk_that_is_not_signed_in_its_place_leaves_nothing() {
    let served = served();
    let signer = Signer { served: &served, id: "ID", secret: SECRET, time: time(0) };
    for (kind, is_right) in
        [("right", true), ("changed", false), ("swapped", false), ("unsigned", false), ("trailer", false)]
    {
        let of_body = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
        let host = served.at.to_string();
        let headers =
            [("host", &host[..]), ("x-amz-content-sha256", of_body), ("x-amz-date", &signer.time[..])];
        let mut before = signer.signature("PUT", "/kvdrive/o", "", of_body, &headers);
        let mut chunks = Vec::new();
        for data in [&b"hello "[..], b"world!", b""] {
            let text = format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{before}\n{}\n{}",
                signer.time,
                signer.scope(),
                hex(&Sha256::digest([])),
                hex(&Sha256::digest(data))
            );
            before = hex(&mac(&signer.key(), &text));
            let data = if kind == "changed" && data == b"world!" { b"World!" } else { data };
            let signature =
                if kind == "unsigned" { String::new() } else { format!(";chunk-signature={before}") };
            let end = if data.is_empty() { "" } else { "\r\n" };
            chunks.push(format!("{:x}{signature}\r\n{}{end}", data.len(), String::from_utf8_lossy(data)));
        }
        if kind == "swapped" {
            chunks.swap(0, 1);
        }
        let line = "x-amz-checksum-crc32:A7TCbQ==";
        let text = format!(
            "AWS4-HMAC-SHA256-TRAILER\n{}\n{}\n{before}\n{}",
            signer.time,
            signer.scope(),
            hex(&Sha256::digest(format!("{line}\n")))
        );
        let last = if kind == "trailer" { before.clone() } else { hex(&mac(&signer.key(), &text)) };
        let body = chunks.concat() + &format!("{line}\r\nx-amz-trailer-signature:{last}\r\n\r\n");
        let told = signer.ask("PUT", "/kvdrive/o", "", of_body, body.as_bytes()).0;
        if is_right {
            let got = signer.ask("GET", "/kvdrive/o", "", "UNSIGNED-PAYLOAD", b"").0;
            assert_eq!((told.status, &got.body[..]), (200, &b"hello world!"[..]), "{told:?}");
            assert_eq!(signer.ask("DELETE", "/kvdrive/o", "", "UNSIGNED-PAYLOAD", b"").0.status, 204);
        } else {
            assert_eq!(told.failure(), (403, "SignatureDoesNotMatch".into()), "{kind}");
        }
    }
    assert_eq!(served.pairs(), 0);
}

#[test]
fn an_address_that_others_reach_needs_a_key() {
    let door = || Door {
        buckets: vec![std::sync::Arc::new(Bucket::new("b".into(), || Err(kvdrive::Error::Off)))],
        access: None,
    };
    let error = listen("0.0.0.0:0".parse().unwrap(), door()).unwrap_err().to_string();
    assert!(error.contains("give --s3-key"), "{error}");
    assert!(["", "ID", "ID:", ":SECRET"].iter().all(|text| text.parse::<Access>().is_err()));
    assert_eq!("ID:SE:CRET".parse::<Access>().map(|access| access.secret), Ok("SE:CRET".to_owned()));
}
