//! PUT, GET, HEAD, DELETE, listings, and objects that other programs stored.

use kvdrive::objects::Manifest;

use crate::support::{PART, Served, bytes};

#[test]
fn an_object_of_any_size_and_name_comes_back() {
    let served = Served::new();
    let names = [
        "a",
        "short",
        "with/slash",
        "a%20name%20of%20more%20than%20sixteen%20bytes",
        "%00%FF%C3%28",
        "%E2%82%AC",
    ];
    for (length, name) in [0, 1, 48, PART, PART + 1, 3 * PART + 17].into_iter().zip(names) {
        let (path, body) = (format!("/kvdrive/{name}"), bytes(length, length as u64));
        let put = served.ask("PUT", &path, &["content-type: text/plain", "x-amz-meta-who: me"], &body);
        assert_eq!(put.status, 200, "{put:?}");
        let got = served.get(&path);
        assert_eq!((got.status, got.body == body), (200, true), "{name}");
        assert_eq!(got.header("etag"), put.header("etag"));
        let head = served.ask("HEAD", &path, &[], &[]);
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), Some(&*length.to_string()));
        assert_eq!(
            (head.header("content-type"), head.header("x-amz-meta-who")),
            (Some("text/plain"), Some("me"))
        );
    }
    // The MD5 of no bytes and of one byte 0 are known.
    assert_eq!(served.get("/kvdrive/a").header("etag"), Some("\"d41d8cd98f00b204e9800998ecf8427e\""));
    let mut expected = names.map(str::to_owned).to_vec();
    expected.sort_by_key(|name| percent(name));
    assert_eq!(served.listed(), expected);
    for name in names {
        assert_eq!(served.ask("DELETE", &format!("/kvdrive/{name}"), &[], &[]).status, 204);
    }
    assert_eq!((served.pairs(), served.listed().len()), (0, 0), "no part is left");
    assert_eq!(served.get("/kvdrive/a").failure(), (404, "NoSuchKey".into()));
    assert_eq!(served.ask("HEAD", "/kvdrive/a", &[], &[]).status, 404);
    assert_eq!(served.get("/other/a").failure(), (404, "NoSuchBucket".into()));
}

fn percent(name: &str) -> Vec<u8> {
    let mut parts = name.split('%');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(part[2..].bytes());
    }
    bytes
}

#[test]
fn ranges_are_those_bytes_and_none_beyond_the_end() {
    let served = Served::new();
    let body = bytes(2 * PART + 100, 5);
    served.put("/kvdrive/o", &body);
    let last = body.len() - 1;
    for (range, first, end) in [
        ("0-0".to_owned(), 0, 1),
        (format!("{}-{}", PART - 1, PART), PART - 1, PART + 1),
        (format!("{}-", 2 * PART), 2 * PART, last + 1),
        ("-7".to_owned(), last - 6, last + 1),
        ("5-99999999999999999999999".to_owned(), 5, last + 1),
        ("-99999999".to_owned(), 0, last + 1),
    ] {
        let got = served.ask("GET", "/kvdrive/o", &[&format!("range: bytes={range}")], &[]);
        assert_eq!((got.status, got.body == body[first..end]), (206, true), "{range}");
        let said = format!("bytes {first}-{}/{}", end - 1, body.len());
        assert_eq!(got.header("content-range"), Some(&*said));
    }
    for beyond in [format!("{}-", last + 1), "99999999999999999999999-".to_owned(), "-0".to_owned()] {
        let got = served.ask("GET", "/kvdrive/o", &[&format!("range: bytes={beyond}")], &[]);
        assert_eq!(got.failure(), (416, "InvalidRange".into()), "{beyond}");
    }
    for other in ["bytes=5-2", "bytes=0-1,4-5", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=+1-2"] {
        let got = served.ask("GET", "/kvdrive/o", &[&format!("range: {other}")], &[]);
        assert_eq!((got.status, got.body.len()), (200, body.len()), "{other}");
    }
    let tag = served.get("/kvdrive/o").header("etag").unwrap().to_owned();
    assert_eq!(served.ask("GET", "/kvdrive/o", &[&format!("if-none-match: {tag}")], &[]).status, 304);
    assert_eq!(
        served.ask("GET", "/kvdrive/o", &["if-match: \"0\""], &[]).failure(),
        (412, "PreconditionFailed".into())
    );
    assert_eq!(served.ask("PUT", "/kvdrive/o", &["if-none-match: *"], b"new").status, 412);
    assert_eq!(served.get("/kvdrive/o").body, body);
}

#[test]
fn pages_of_a_listing_have_every_name_once() {
    let served = Served::new();
    let mut names: Vec<String> =
        (0..23).map(|n| format!("of/{}/an object of a long name {n}", n % 4)).collect();
    names.extend(["a", "b/c", "zz"].map(str::to_owned));
    names.sort();
    for name in &names {
        assert_eq!(
            served.put(&format!("/kvdrive/{}", name.replace(' ', "%20")), name.as_bytes()).status,
            200
        );
    }
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let page = served.get(&format!("/kvdrive?list-type=2&max-keys=4{token}"));
        assert!(page.texts("Key").len() <= 4);
        seen.extend(page.texts("Key"));
        match page.texts("NextContinuationToken").first() {
            Some(next) => token = format!("&continuation-token={next}"),
            None => break,
        }
    }
    assert_eq!(seen, names);
    let page = served.get("/kvdrive?list-type=2&delimiter=/");
    assert_eq!(
        (page.texts("Key"), page.texts("CommonPrefixes")),
        (
            vec!["a".into(), "zz".into()],
            ["b/", "of/"].map(|common| format!("<Prefix>{common}</Prefix>")).to_vec()
        )
    );
    let first = served.get("/kvdrive?list-type=2&delimiter=/&max-keys=3");
    let next = &first.texts("NextContinuationToken")[0];
    let second = served.get(&format!("/kvdrive?list-type=2&delimiter=/&continuation-token={next}"));
    assert_eq!((second.texts("Key"), second.texts("CommonPrefixes").len()), (vec!["zz".to_owned()], 0));
    let some = served
        .get("/kvdrive?list-type=2&prefix=of/1/&start-after=of/1/an%20object%20of%20a%20long%20name%2013");
    assert_eq!(some.texts("Size"), ["32", "32", "31", "31"], "of 17, 21, 5 and 9: {}", some.text());
    assert!(
        some.texts("Key")
            .iter()
            .all(|name| name.starts_with("of/1/") && &name[..] > "of/1/an object of a long name 13")
    );
    // A version of the call without tokens.
    let old = served.get("/kvdrive?max-keys=2");
    assert_eq!(old.texts("NextMarker"), ["b/c"]);
    assert_eq!(served.get("/kvdrive?marker=b/c&max-keys=1").texts("Key"), [names[2].clone()]);

    let list: String = names.iter().map(|name| format!("<Object><Key>{name}</Key></Object>")).collect();
    let gone = served.ask(
        "POST",
        "/kvdrive?delete",
        &[],
        format!("<Delete>{list}<Object><Key>none &amp; &#x41;</Key></Object></Delete>").as_bytes(),
    );
    assert_eq!((gone.texts("Deleted").len(), served.pairs()), (names.len() + 1, 0), "{}", gone.text());
    assert!(gone.text().contains("none &amp; A"));
}

/// The Python package stores small objects as one pair, and large ones as parts and a manifest; an older version chose keys
/// of parts without a mark.
#[test]
fn objects_of_other_programs_are_the_doors_and_its_are_theirs() {
    let served = Served::new();
    let (one, large) = (bytes(1000, 1), bytes(2 * PART + 5, 2));
    let old = Manifest {
        size: large.len() as u64,
        part_bytes: PART as u64,
        beginning: *b"any12 bytes!",
        is_described: false,
    };
    served.on_drive(|drive| {
        drive.store(b"a name of more than sixteen bytes", &one).unwrap();
        drive.store(b"empty", b"").unwrap();
        large.chunks(PART).zip(0..).for_each(|(part, number)| drive.store(&old.key(number), part).unwrap());
        drive.store(b"large", &old.to_bytes()).unwrap();
    });
    assert_eq!(served.listed(), ["a%20name%20of%20more%20than%20sixteen%20bytes", "empty", "large"]);
    assert_eq!(served.get("/kvdrive/a%20name%20of%20more%20than%20sixteen%20bytes").body, one);
    assert_eq!(
        (served.get("/kvdrive/large").body == large, served.get("/kvdrive/empty").status),
        (true, 200)
    );
    let middle =
        served.ask("GET", "/kvdrive/large", &[&format!("range: bytes={}-{}", PART - 2, PART + 1)], &[]);
    assert_eq!(middle.body, large[PART - 2..PART + 2]);

    served.put("/kvdrive/large", &one);
    served.on_drive(|drive| {
        let manifest = Manifest::read(&drive.get(b"large").unwrap().unwrap()).unwrap();
        assert_eq!((manifest.size, manifest.parts()), (1000, 1));
        assert_eq!(drive.get(&manifest.key(0)).unwrap().unwrap(), one);
        assert!(drive.get(&old.key(0)).unwrap().is_none(), "the parts of the old one are gone");
    });
}
