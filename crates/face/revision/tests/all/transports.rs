//! A transport of crate `host` is one file, and no other file knows a wire.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The files that connect a transport, beside the one that implements it, by the place of that one.
const WIRES: [(&str, &str); 3] =
    [("tcp/socket.rs", "tcp/"), ("threaded/rings.rs", "threaded/"), ("node.rs", "node.rs")];
/// Names that only these files may have: of sockets, rings and devices.
const NAMES: [&str; 8] = [
    "TcpStream",
    "SharedLink",
    "SharedQueue",
    "SharedBuffer",
    "ioctl",
    "crate::tcp",
    "crate::threaded",
    "crate::node",
];
/// Where a drive's address chooses the transport, and what may be named there.
const CHOICE: [(&str, &str); 3] =
    [("access.rs", "crate::tcp::Options"), ("reach.rs", "crate::node"), ("reach.rs", "crate::tcp")];

/// The code of each file below `folder`, without comments, by its path there.
pub fn sources(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().to_string_lossy());
        if path.is_dir() {
            sources(&path, &format!("{name}/"), found);
            continue;
        }
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        found.insert(name, code.collect::<Vec<_>>().join("\n"));
    }
}

/// The code, with `crate::{a, b}` as `crate::a crate::b`.
fn ungrouped(code: &str) -> String {
    let mut parts = code.split("crate::{");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (group, rest) = part.split_once('}').unwrap_or((part, ""));
        group.split(',').for_each(|name| whole.push_str(&format!(" crate::{} ", name.trim())));
        whole.push_str(rest);
    }
    whole
}

/// The names of a wire in the code of `file`.
fn wires_in<'a>(file: &str, code: &str, names: &'a [&'a str]) -> Vec<&'a str> {
    let mut code = ungrouped(code);
    for (_, allowed) in CHOICE.iter().filter(|(of, _)| *of == file) {
        code = code.replace(allowed, "");
    }
    names.iter().copied().filter(|name| code.contains(name)).collect()
}

#[test]
fn a_transport_is_one_file_and_no_other_file_of_host_names_a_wire() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../host/host/src");
    let mut files = BTreeMap::new();
    sources(&folder, "", &mut files);
    assert!(files.len() > 40, "{} files", files.len());
    let implement: Vec<_> = files
        .iter()
        .filter(|(_, code)| code.contains("impl Transport for"))
        .map(|(file, _)| &**file)
        .collect();
    let mut expected = WIRES.map(|(file, _)| file);
    expected.sort_unstable();
    assert_eq!(implement, expected);
    for (file, code) in &files {
        if WIRES.iter().all(|(_, place)| !file.starts_with(place)) {
            assert_eq!(wires_in(file, code, &NAMES), [""; 0], "{file}");
        }
    }
}

#[test]
fn a_wire_outside_of_its_file_is_found() {
    assert_eq!(wires_in("saker.rs", "use std::net::TcpStream;", &NAMES), ["TcpStream"]);
    assert_eq!(wires_in("saker.rs", "use crate::tcp::Options;", &NAMES), ["crate::tcp"]);
    assert_eq!(wires_in("saker.rs", "use crate::{client, node};", &NAMES), ["crate::node"]);
    assert_eq!(wires_in("access.rs", "use crate::tcp::Options;", &NAMES), [""; 0]);
}
