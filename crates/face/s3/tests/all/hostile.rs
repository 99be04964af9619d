//! Requests of programs that are wrong or mean harm: an answer, and nothing on the drive.

use std::io::Write;
use std::net::Shutdown;

use crate::support::{PART, Served, Told, bytes};

#[test]
fn a_body_that_ends_early_or_is_not_what_it_says_leaves_nothing() {
    let served = Served::new();
    let body = bytes(2 * PART, 3);
    let head =
        |lines: &str| format!("PUT /kvdrive/o HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{lines}\r\n");
    // The program goes away in the middle.
    for sent in [0, 1, PART, PART + 1, 2 * PART] {
        let mut socket = served.connect();
        socket.write_all(head(&format!("content-length: {}\r\n", 2 * PART + 1)).as_bytes()).unwrap();
        socket.write_all(&body[..sent]).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        assert_ne!(Told::from(socket).status, 200, "{sent}");
    }
    let chunked =
        "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\nx-amz-decoded-content-length: 5\r\n";
    for (text, code) in [
        ("5\r\nhello\r\n0\r\n", "200"),
        ("5\r\nhello\r\n0\r\n\r\n", "200"),
        ("5;any=thing\r\nhello\r\n0;\r\nx-amz-checksum-md4:zzz\r\n\r\n", "200"),
        ("2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "200"),
        ("4\r\nhell\r\n0\r\n\r\n", "IncompleteBody"),
        ("6\r\nhello!\r\n0\r\n\r\n", "InvalidArgument"),
        ("5\r\nhello!\r\n0\r\n\r\n", "IncompleteBody"),
        ("5\r\nhello\r\n", "IncompleteBody"),
        ("5\r\nhel", "IncompleteBody"),
        ("5", "IncompleteBody"),
        ("", "IncompleteBody"),
        ("-5\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
        ("+5\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
        ("zz\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
        ("ffffffffffffffffff\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
        ("ffffffffffffffff\r\nhello\r\n0\r\n\r\n", "InvalidArgument"),
    ] {
        let lines = format!("{chunked}content-length: {}\r\n", text.len());
        let told = served.raw(&[head(&lines).as_bytes(), text.as_bytes()].concat());
        let expected = if code == "200" { String::new() } else { code.to_owned() };
        assert_eq!(told.failure().1, expected, "{text:?}: {told:?}");
        if code == "200" {
            assert_eq!(served.get("/kvdrive/o").body, b"hello");
            served.ask("DELETE", "/kvdrive/o", &[], &[]);
        }
    }
    let endless = format!("{chunked}content-length: 100000\r\n");
    let told = served.raw(&[head(&endless).as_bytes(), &[b'1'; 100_000]].concat());
    assert_eq!(told.failure(), (400, "InvalidArgument".into()), "a line without an end");
    assert_eq!(served.pairs(), 0);
}

/// What NIXL sends: both kinds of chunks, and a checksum that comes last.
#[test]
fn a_checksum_that_is_wrong_or_does_not_come_leaves_nothing() {
    let served = Served::new();
    // Of "hello", by other programs: CRC-32, CRC-32C, CRC-64/NVME, SHA-256.
    let sums = [
        ("crc32", "NhCmhg=="),
        ("crc32c", "mnG7TA=="),
        ("crc64nvme", "M3eFcAZSQlc="),
        ("sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="),
    ];
    for (name, sum) in sums {
        for (sum, is_right) in [(sum, true), ("AAAAAAAAAAA=", false), ("", false)] {
            let trailer = format!("x-amz-checksum-{name}:{sum}\r\n");
            let text = format!("5\r\nhello\r\n0\r\n{}\r\n", if sum.is_empty() { "" } else { &trailer });
            let head = format!(
                "PUT /kvdrive/o HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\
                 content-encoding: aws-chunked\r\nx-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n\
                 x-amz-decoded-content-length: 5\r\nx-amz-trailer: x-amz-checksum-{name}\r\n\r\n"
            );
            let chunks: String = text
                .as_bytes()
                .chunks(4)
                .map(|part| format!("{:x}\r\n{}\r\n", part.len(), String::from_utf8_lossy(part)))
                .collect();
            let told = served.raw(format!("{head}{chunks}0\r\n\r\n").as_bytes());
            assert_eq!(told.status == 200, is_right, "{name} {sum}: {told:?}");
            let header = format!("x-amz-checksum-{name}: {sum}");
            let lines: &[&str] = if sum.is_empty() { &["content-md5: AAAA"] } else { &[&header] };
            let told = served.ask("PUT", "/kvdrive/p", lines, b"hello");
            assert_eq!(told.status == 200, is_right, "{name} {sum}: {told:?}");
        }
        let got = served.get("/kvdrive/o");
        assert_eq!((&got.body[..], got.header("content-encoding")), (&b"hello"[..], None));
        served.ask("DELETE", "/kvdrive/o", &[], &[]);
        served.ask("DELETE", "/kvdrive/p", &[], &[]);
    }
    assert_eq!(served.pairs(), 0);
}

#[test]
fn a_request_that_is_no_request_is_answered() {
    let served = Served::new();
    let code = |told: Told| told.failure();
    let is = |status, code: &str| (status, code.to_owned());
    assert_eq!(served.raw(b"no http at all\r\n\r\n").status, 400);
    let long = format!("GET /kvdrive/o HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "a".repeat(2 << 20));
    assert_eq!(served.raw(long.as_bytes()).status, 431);
    let many: String = (0..200).map(|n| format!("x-{n}: a\r\n")).collect();
    assert_eq!(served.raw(format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n").as_bytes()).status, 431);
    assert_eq!(code(served.put(&format!("/kvdrive/{}", "n".repeat(1025)), b"x")), is(400, "KeyTooLongError"));
    assert_eq!(code(served.put("/kvdrive/%FFkvp000000000000", b"x")), is(400, "InvalidArgument"));
    assert_eq!(
        code(served.ask("PUT", "/kvdrive/o", &[&format!("x-amz-meta-a: {}", "m".repeat(9000))], b"x")),
        is(400, "MetadataTooLarge")
    );
    assert_eq!(
        code(served.ask("PUT", "/kvdrive/o", &["x-amz-content-sha256: 12"], b"x")),
        is(400, "InvalidArgument")
    );
    let wrong = format!("x-amz-content-sha256: {}", "0".repeat(64));
    assert_eq!(code(served.ask("PUT", "/kvdrive/o", &[&wrong], b"x")), is(400, "XAmzContentSHA256Mismatch"));
    assert_eq!(
        code(served.ask("PUT", "/kvdrive/o", &["x-amz-copy-source: /kvdrive/p"], b"")),
        is(501, "NotImplemented")
    );
    assert_eq!(code(served.get("/kvdrive/o?acl")), is(501, "NotImplemented"));
    assert_eq!(code(served.ask("PATCH", "/kvdrive/o", &[], b"")), is(405, "MethodNotAllowed"));
    assert_eq!(code(served.ask("DELETE", "/kvdrive", &[], b"")), is(405, "MethodNotAllowed"));
    assert_eq!(code(served.get("/kvdrive?list-type=2&continuation-token=zz")), is(400, "InvalidArgument"));
    assert_eq!(code(served.get("/kvdrive?list-type=2&max-keys=-1")), is(400, "InvalidArgument"));
    assert_eq!(
        code(served.ask("POST", "/kvdrive?delete", &[], b"<Delete></Delete>")),
        is(400, "MalformedXML")
    );
    let large = format!(
        "PUT /kvdrive/o HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        (5u64 << 30) + 1
    );
    assert_eq!(code(served.raw(large.as_bytes())), is(400, "EntityTooLarge"));
    assert_eq!((served.pairs(), served.get("/").texts("Name")), (0, vec!["kvdrive".to_owned()]));
}
