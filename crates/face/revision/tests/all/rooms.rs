//! ARCHITECTURE.md against the source: which crate may import which, and whether files and names on the page
//! exist. Not whether its other statements are true.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A crate, its folder and the crates of the workspace that it imports outside of its tests.
struct Crate {
    name: String,
    room: String,
    imports: BTreeSet<String>,
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn page() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

fn crates() -> Vec<Crate> {
    let folders = entries(&root().join("crates")).into_iter().flat_map(|room| entries(&room));
    folders.map(|folder| read(&folder)).collect()
}

fn read(folder: &Path) -> Crate {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let (mut imports, mut of_tests) = (BTreeSet::new(), false);
    for line in manifest.lines() {
        if line.starts_with('[') {
            of_tests = line.contains("dev-dependencies");
        }
        let key = line.split(['.', ' ', '=']).next().unwrap();
        if !of_tests && key.starts_with("kvdrive") {
            imports.insert(key.strip_prefix("kvdrive-").unwrap_or(key).to_owned());
        }
    }
    Crate { name: name_of(folder), room: name_of(folder.parent().unwrap()), imports }
}

/// The column of each crate in the line of arrows, and whether that column names a whole room. If a crate has
/// the name of a room, the crate is meant.
fn columns(crates: &[Crate]) -> BTreeMap<String, (usize, bool)> {
    let page = page();
    let line = page.lines().find(|line| line.matches("◄─").count() > 3).expect("a line of arrows");
    let mut columns = BTreeMap::new();
    for (column, words) in line.split("◄─").enumerate() {
        for word in words.split(',').map(str::trim) {
            let is_room = !crates.iter().any(|a_crate| a_crate.name == word);
            let named = crates.iter().filter(|c| if is_room { c.room == word } else { c.name == word });
            let mut found = 0;
            for named in named {
                let before = columns.insert(named.name.clone(), (column, is_room));
                assert!(before.is_none(), "{} has two columns", named.name);
                found += 1;
            }
            assert!(found > 0, "{word} is neither a crate nor a room");
        }
    }
    columns
}

#[test]
fn a_crate_imports_only_what_lies_to_its_left() {
    let crates = crates();
    let columns = columns(&crates);
    for importer in &crates {
        let (column, _) =
            columns.get(&importer.name).unwrap_or_else(|| panic!("{} has no column", importer.name));
        for imported in &importer.imports {
            let (other, is_room) = columns[imported];
            // Within a room that is one column, Cargo's own rule suffices: no cycle.
            let allowed = other < *column || (other == *column && is_room);
            assert!(allowed, "{} imports {imported}, which does not lie to its left", importer.name);
        }
    }
}

fn with_all_below(crates: &[Crate], name: &str, found: &mut BTreeSet<String>) {
    if found.insert(name.to_owned()) {
        let named = crates.iter().find(|a_crate| a_crate.name == name).unwrap();
        named.imports.iter().for_each(|below| with_all_below(crates, below, found));
    }
}

#[test]
fn the_library_compiles_no_study_and_host_and_drive_meet_on_the_link() {
    let crates = crates();
    let below = |name: &str| {
        let mut found = BTreeSet::new();
        with_all_below(&crates, name, &mut found);
        found
    };
    let studies: BTreeSet<String> =
        crates.iter().filter(|c| c.room == "study").map(|c| c.name.clone()).collect();
    assert!(studies.contains("claims"));
    assert_eq!(below("kvdrive").intersection(&studies).next(), None);
    for (one, other) in [("host", "device"), ("host", "flash"), ("device", "host"), ("link", "flash")] {
        assert!(!below(one).contains(other), "{one} stands on {other}");
    }
}

#[test]
fn the_table_of_rooms_has_each_crate_in_its_folder() {
    let (page, mut room, mut told) = (page(), String::new(), BTreeSet::new());
    let section = page.split("\n## ").find(|section| section.starts_with("The rooms")).unwrap();
    for row in section.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if !cells[2].starts_with('`') {
            continue;
        }
        if !cells[1].is_empty() {
            room = cells[1].to_owned();
        }
        told.extend(cells[2].split(", ").map(|name| (room.clone(), name.trim_matches('`').to_owned())));
    }
    let there: BTreeSet<_> = crates().into_iter().map(|c| (c.room, c.name)).collect();
    assert_eq!(told, there);
}

/// Files and folders of the source as paths from the root, and all Rust text.
fn source() -> (Vec<String>, String) {
    let (root, mut paths, mut text) = (root(), Vec::new(), String::new());
    let folders = [".ci", "bindings", "crates", "docs", "fuzz", "scripts"];
    let mut ahead: Vec<PathBuf> = folders.map(|name| root.join(name)).into();
    while let Some(path) = ahead.pop() {
        paths.push(format!("/{}", path.strip_prefix(&root).unwrap().display()));
        // Folders of build outputs are left out.
        let is_built = name_of(&path).starts_with('_') || name_of(&path) == "target";
        if path.is_dir() && (!is_built || path.starts_with(root.join("crates"))) {
            ahead.extend(entries(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &fs::read_to_string(path).unwrap();
        }
    }
    (paths, text)
}

/// If a path has a word in capitals, a reader replaces that word by a new name: only the path in front of it
/// has to exist.
fn exists(path: &str, paths: &[String]) -> bool {
    let is_given = |part: &&str| !part.starts_with(|c: char| c.is_ascii_uppercase() || c == '*');
    let given: Vec<&str> = path.trim_end_matches('/').split('/').take_while(is_given).collect();
    let end = format!("/{}", given.join("/"));
    given.is_empty() || paths.iter().any(|path| path.ends_with(&end))
}

/// The names that the source defines, and those of Rust that the pages use.
fn definitions(text: &str) -> BTreeSet<&str> {
    let kinds = ["struct", "enum", "trait", "type", "static", "const", "fn"];
    let mut found = BTreeSet::from(["BTreeMap"]);
    for line in text.lines() {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        found.extend(words.windows(2).filter(|pair| kinds.contains(&pair[0])).map(|pair| pair[1]));
    }
    found
}

#[test]
fn the_pages_for_newcomers_name_what_is_there() {
    let (paths, text) = source();
    let defined = definitions(&text);
    let mut missing = Vec::new();
    for page in
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/adding.md", "docs/invariants.md", "docs/words.md"]
    {
        let words = fs::read_to_string(root().join(page)).unwrap();
        for word in words.split('`').skip(1).step_by(2).filter(|word| !word.contains([' ', ':', '[', '-'])) {
            let is_path = word.trim_start_matches('/') == word && word.contains('/') || word.ends_with(".rs");
            if is_path && !exists(word, &paths) {
                missing.push(format!("{page}: {word}"));
            }
        }
        for word in words.split('`').skip(1).step_by(2) {
            let name = |c: char| c.is_alphanumeric() || c == '_';
            let names: Vec<&str> = word.trim_end_matches("()").split("::").collect();
            let is_code = names.iter().all(|part| !part.is_empty() && part.chars().all(name))
                && (word.ends_with("()") || word.starts_with(|c: char| c.is_ascii_uppercase()));
            let gone = names.into_iter().filter(|part| is_code && !defined.contains(part));
            missing.extend(gone.map(|part| format!("{page}: {part}")));
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn architecture_stays_a_page_of_fifteen_minutes() {
    assert!(page().len() <= 12 * 1024, "{} bytes", page().len());
}

/// The functions that a `const` table names are compiled again in every crate that uses the table: each
/// engine, for example, in the command, in the runner of workloads and in seven more.
#[test]
fn tables_that_several_crates_see_are_statics() {
    let (_, text) = source();
    let is_table = |line: &&str| {
        let declared = line.trim_start().strip_prefix("pub const ").and_then(|line| line.split_once(": &["));
        declared.is_some_and(|(_, rows)| {
            let row = rows.trim_start_matches('&');
            row.starts_with(|first: char| first.is_ascii_uppercase())
        })
    };
    let tables: Vec<&str> = text.lines().filter(is_table).collect();
    assert_eq!(tables, Vec::<&str>::new());
}
