//! Uploads in parts.

use std::thread;

use crate::support::{PART, Served, Told, bytes};

fn begin(served: &Served, path: &str) -> String {
    served.ask("POST", &format!("{path}?uploads"), &["x-amz-meta-of: parts"], b"").texts("UploadId")[0]
        .clone()
}

fn part(served: &Served, path: &str, id: &str, number: usize, body: &[u8]) -> String {
    let put = served.put(&format!("{path}?partNumber={number}&uploadId={id}"), body);
    assert_eq!(put.status, 200, "{put:?}");
    put.header("etag").unwrap().to_owned()
}

fn complete(served: &Served, path: &str, id: &str, parts: &[(usize, String)]) -> Told {
    let list: String = parts
        .iter()
        .map(|(number, etag)| {
            format!(
                "<Part><ETag>{}</ETag><PartNumber>{number}</PartNumber></Part>",
                etag.replace('"', "&quot;")
            )
        })
        .collect();
    let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    served.ask("POST", &format!("{path}?uploadId={id}"), &[], list.as_bytes())
}

/// Parts of one size become the object's; others, and parts with gaps between their numbers, are copied.
#[test]
fn parts_of_any_sizes_become_one_object() {
    let served = Served::new();
    for (name, sizes, numbers) in [
        ("equal", vec![20_000, 20_000, 20_000], vec![1, 2, 3]),
        ("a last one that is short, and a long name", vec![20_000, 20_000, 5], vec![1, 2, 3]),
        ("odd", vec![5, PART, 20_000, PART], vec![1, 2, 3, 4]),
        ("gaps", vec![20_000, 20_000], vec![3, 10_000]),
        ("one", vec![7], vec![1]),
    ] {
        let path = format!("/kvdrive/{}", name.replace(' ', "%20"));
        let id = begin(&served, &path);
        let contents: Vec<_> = sizes.iter().zip(0..).map(|(size, seed)| bytes(*size, seed)).collect();
        // In another order than that of their numbers.
        let mut parts: Vec<_> = numbers
            .iter()
            .zip(&contents)
            .rev()
            .map(|(n, body)| (*n, part(&served, &path, &id, *n, body)))
            .collect();
        parts.reverse();
        assert_eq!(served.get(&path).status, 404, "it is not there before its end");
        assert!(served.get("/kvdrive?uploads").text().contains(&id));
        let ended = complete(&served, &path, &id, &parts);
        assert_eq!(ended.status, 200, "{ended:?}");
        let got = served.get(&path);
        assert!(got.body == contents.concat() && got.header("x-amz-meta-of") == Some("parts"), "{name}");
        assert!(got.header("etag").unwrap().ends_with(&format!("-{}\"", parts.len())));
        assert_eq!(complete(&served, &path, &id, &parts).failure(), (404, "NoSuchUpload".into()));
        assert_eq!(served.ask("DELETE", &path, &[], &[]).status, 204);
        assert_eq!(served.pairs(), 0, "{name}");
    }
}

#[test]
fn uploads_of_one_name_at_once_end_as_one_of_them() {
    let served = Served::new();
    let path = "/kvdrive/one name for all of them";
    let path = path.replace(' ', "%20");
    let contents: Vec<_> = (0..6).map(|seed| bytes(3 * 30_000, seed)).collect();
    thread::scope(|scope| {
        for content in &contents {
            let (served, path) = (&served, &path);
            scope.spawn(move || {
                let id = begin(served, path);
                let parts: Vec<_> = content
                    .chunks(30_000)
                    .zip(1..)
                    .map(|(body, n)| (n, part(served, path, &id, n, body)))
                    .collect();
                assert_eq!(complete(served, path, &id, &parts).status, 200);
            });
        }
    });
    let got = served.get(&path).body;
    assert!(contents.contains(&got), "no mixture");
    assert_eq!(served.pairs(), 5, "three parts, description and manifest of one object");
}

#[test]
fn a_wrong_list_is_refused_and_the_upload_goes_on() {
    let served = Served::new();
    let id = begin(&served, "/kvdrive/o");
    let one = part(&served, "/kvdrive/o", &id, 1, b"first");
    let two = part(&served, "/kvdrive/o", &id, 2, b"second");
    let code = |told: Told| told.failure();
    let is = |status, code: &str| (status, code.to_owned());
    let of = |parts: &[(usize, &String)]| {
        let parts: Vec<_> = parts.iter().map(|(n, tag)| (*n, (*tag).clone())).collect();
        code(complete(&served, "/kvdrive/o", &id, &parts))
    };
    assert_eq!(of(&[(1, &two)]), is(400, "InvalidPart"));
    assert_eq!(of(&[(3, &one)]), is(400, "InvalidPart"));
    assert_eq!(of(&[(2, &two), (1, &one)]), is(400, "InvalidPartOrder"));
    assert_eq!(of(&[(1, &one), (1, &one)]), is(400, "InvalidPartOrder"));
    assert_eq!(of(&[]), is(400, "MalformedXML"));
    for bad in ["", "no xml", "<CompleteMultipartUpload><Part>", "<A>&no;</A>"] {
        let told = served.ask("POST", &format!("/kvdrive/o?uploadId={id}"), &[], bad.as_bytes());
        assert_eq!(told.failure(), is(400, "MalformedXML"), "{bad}");
    }
    let put = |query: &str, body: &[u8]| served.put(&format!("/kvdrive/o?{query}"), body).failure();
    assert_eq!(put(&format!("partNumber=0&uploadId={id}"), b"x"), is(400, "InvalidArgument"));
    assert_eq!(put(&format!("partNumber=10001&uploadId={id}"), b"x"), is(400, "InvalidArgument"));
    assert_eq!(put("partNumber=1&uploadId=none", b"x"), is(404, "NoSuchUpload"));
    assert_eq!(put(&format!("partNumber=3&uploadId={id}"), &bytes(PART + 1, 1)), is(400, "EntityTooLarge"));
    assert_eq!(served.get(&format!("/kvdrive/o?uploadId={id}")).texts("Size"), ["5", "6"]);
    // A part that is sent again replaces the first.
    let one = part(&served, "/kvdrive/o", &id, 1, b"again");
    assert_eq!(complete(&served, "/kvdrive/o", &id, &[(1, one), (2, two)]).status, 200);
    assert_eq!(served.get("/kvdrive/o").body, b"againsecond");

    let id = begin(&served, "/kvdrive/o");
    part(&served, "/kvdrive/o", &id, 1, b"first");
    assert_eq!(served.ask("DELETE", &format!("/kvdrive/o?uploadId={id}"), &[], &[]).status, 204);
    assert_eq!(served.get("/kvdrive/o").body, b"againsecond", "an upload that was ended changes nothing");
    served.ask("DELETE", "/kvdrive/o", &[], &[]);
    assert_eq!(served.pairs(), 0);
}
