//! A new engine is one folder and one row: no other file names the types of an engine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::rooms::{entries, name_of, root};

/// Where the rows are.
const TABLE: &str = "drive/engines/src/table.rs";

/// A row: the folder of the engine, and the names of its types.
#[derive(Debug, PartialEq)]
struct Row {
    folder: String,
    types: Vec<String>,
}

/// The rows of the table: `field: $crate::FOLDER::Settings => $crate::other::Wrapper<$crate::FOLDER::Engine>;`.
fn rows(table: &str) -> Vec<Row> {
    let body = table.split_once("$with! {").and_then(|(_, rest)| rest.split_once('}')).expect("a table").0;
    let row = |line: &str| {
        let (_, types) = line.split_once(':').expect("a row");
        let paths: Vec<Vec<&str>> = types
            .split("$crate::")
            .skip(1)
            .map(|path| {
                path.split("::").map(|part| part.trim_end_matches([' ', '=', '>', '<', ';'])).collect()
            })
            .collect();
        let folder = paths[0][0].to_owned();
        let of_folder = paths.iter().filter(|path| path[0] == folder);
        let types = of_folder.map(|path| path.last().expect("a name").to_string()).collect();
        Row { folder, types }
    };
    body.lines().map(str::trim).filter(|line| !line.is_empty()).map(row).collect()
}

/// Every file of Rust below `folder`, by its path from `crates`.
fn sources(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for path in entries(folder) {
        let name = format!("{prefix}{}", name_of(&path));
        if path.is_dir() {
            sources(&path, &format!("{name}/"), found);
        } else if name.ends_with(".rs") {
            found.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// The files outside its folder and the table that name a type of the row.
fn named_in<'a>(row: &Row, files: &'a BTreeMap<String, String>) -> Vec<&'a str> {
    let own = format!("drive/engines/src/{}/", row.folder);
    let others = files.iter().filter(|(file, _)| **file != TABLE && !file.starts_with(&own));
    others
        .filter(|(_, text)| row.types.iter().any(|name| has_word(text, name)))
        .map(|(file, _)| &**file)
        .collect()
}

#[test]
fn an_engine_is_one_folder_and_one_row() {
    let mut files = BTreeMap::new();
    let rooms = root().join("crates");
    for (room, path) in entries(&rooms).into_iter().map(|path| (name_of(&path), path)) {
        for path in entries(&path) {
            let name = name_of(&path);
            sources(&path.join("src"), &format!("{room}/{name}/src/"), &mut files);
        }
    }
    let rows = rows(&files[TABLE]);
    let folders = files.keys().filter_map(|file| file.strip_prefix("drive/engines/src/")?.split_once('/'));
    let with_engine: Vec<_> = folders
        .filter(|(folder, file)| {
            let text = &files[&format!("drive/engines/src/{folder}/{file}")];
            text.contains("impl Family for")
        })
        .map(|(folder, _)| folder.to_owned())
        .collect();
    let mut in_table: Vec<_> = rows.iter().map(|row| row.folder.clone()).collect();
    in_table.sort_unstable();
    assert_eq!(with_engine, in_table, "each engine has a row, and says of itself what it is");
    for row in &rows {
        assert!(row.types.len() == 2, "{row:?}: settings and engine");
        assert_eq!(named_in(row, &files), [""; 0], "{row:?}");
    }
}

#[test]
fn an_engine_that_another_file_names_is_found() {
    let table = "$with! {\n one: $crate::a::Config => $crate::wrapped::Wrapped<$crate::a::Engine>;\n two: $crate::b::C2 => $crate::b::E2;\n }";
    let types = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let (one, two) = (
        Row { folder: "a".into(), types: types(["Config", "Engine"]) },
        Row { folder: "b".into(), types: types(["C2", "E2"]) },
    );
    let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let files = [text("drive/engines/src/b/x.rs", "E2"), text("drive/device/src/y.rs", "use b::{C2, D};")];
    assert_eq!(named_in(&two, &files.into()), ["drive/device/src/y.rs"]);
    assert_eq!(rows(table), [one, two]);
}
