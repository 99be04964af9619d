//! The files of each crate: which uses which, and how long they are.
//!
//! A file that uses another one which uses the first again is a *circle*: neither is understood without the other, and a
//! change of one is a change of both. Three forms of it are no circles here: a table and its rows (everything in a
//! `static`, a `const`, or a macro of rows that other crates expand, too); methods of a type in a file below that of the type; and uses by tests. Each other one is
//! refused, unless [`PARTS`] has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::rooms::{entries, name_of, root};

/// Circles that are left, each with all of its files: a type and an iterator or pin that holds it; a namespace and its
/// commands, which are functions over it; a row of a table that names the item that selects the row.
const PARTS: &[(&str, &[&str])] = &[
    (
        "device",
        &[
            "namespaces/kv",
            "namespaces/kv/batch",
            "namespaces/kv/commands",
            "namespaces/kv/commit",
            "namespaces/kv/parts",
            "namespaces/kv/walks",
        ],
    ),
    ("engines", &["divided", "divided/arriving", "divided/cursor", "divided/recovery"]),
    ("engines", &["hash/cache", "hash/cache/evict", "hash/cache/pin"]),
    ("flash", &["lib", "timing", "timing/flat"]),
    ("store", &["btree", "btree/cursor"]),
    ("store", &["hashlog", "hashlog/cursor"]),
    ("store", &["lsmtree", "lsmtree/cursor"]),
    ("store", &["rocksdb", "rocksdb/bridge"]),
    ("workload", &["lib", "params", "rows"]),
];

/// As many imports as a name is followed through.
const DEEPEST: u32 = 8;

/// A path as the source has it, from the crate's root: `["lsm", "engine", "LsmEngine"]`.
type ItemPath = Vec<String>;

/// What a file defines and names.
#[derive(Default)]
struct File {
    defined: BTreeSet<String>,
    /// Types that it has methods of.
    extended: BTreeSet<String>,
    /// Names that `use` imports, with their paths as written.
    imported: Vec<(String, ItemPath)>,
    /// Paths in its text, outside of `use` and of tables.
    named: BTreeSet<ItemPath>,
    /// Single names in its text that no path precedes.
    plain: BTreeSet<String>,
}

/// Words and signs of a source text. Comments, texts and characters are left out.
fn tokens(text: &str) -> Vec<String> {
    let (bytes, mut found, mut at) = (text.as_bytes(), Vec::new(), 0);
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    while at < bytes.len() {
        let may_be_text = matches!(bytes[at], b'"' | b'\'' | b'r' | b'b' | b'c');
        if bytes[at].is_ascii_whitespace() || !bytes[at].is_ascii() {
            at += 1;
        } else if bytes[at..].starts_with(b"//") {
            at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at);
        } else if let Some(length) = may_be_text.then(|| length_of_text(&text[at..])).flatten() {
            at += length;
        } else {
            let length = match bytes[at..].iter().position(|byte| !is_word(byte)) {
                Some(0) if bytes[at..].starts_with(b"::") => 2,
                Some(length) => length.max(1),
                None => bytes.len() - at,
            };
            found.push(text[at..at + length].to_owned());
            at += length;
        }
    }
    found
}

/// The length of the text or character that `rest` begins with, with its quotes.
fn length_of_text(rest: &str) -> Option<usize> {
    let prefix =
        rest.find(['"', '\'', '#']).filter(|end| ["", "r", "b", "br", "c"].contains(&&rest[..*end]))?;
    let raw = &rest[prefix..];
    let hashes = raw.bytes().take_while(|byte| *byte == b'#').count();
    if rest[..prefix].contains('r') && raw[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(prefix + hashes + 1 + raw[hashes + 1..].find(&end)? + end.len());
    }
    let quote = raw.chars().next()?;
    // A quote that another one does not follow within a character begins a lifetime.
    let is_text = quote == '"' || quote == '\'' && (raw[1..].starts_with('\\') || is_character(&raw[1..]));
    let mut escaped = false;
    let end = is_text.then_some(&raw[1..])?.char_indices().find(|(_, c)| {
        let ends = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map(|(end, _)| prefix + 1 + end + 1)
}

fn is_character(rest: &str) -> bool {
    let mut characters = rest.chars();
    characters.next().is_some() && characters.next() == Some('\'')
}

/// The end of the brackets that open at `at`, or of the item there: after its `;`, its `,` or its closing bracket.
fn end_of_item(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth == 0 => return at,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 && tokens[at] == "}" {
                    return at + 1;
                }
            }
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

/// The paths of a `use` with their names, from its first word on; and where it ends.
fn paths_of_use(
    tokens: &[String],
    mut at: usize,
    before: &ItemPath,
    found: &mut Vec<(String, ItemPath)>,
) -> usize {
    let mut path = before.clone();
    loop {
        match tokens[at].as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens[at] != "}" {
                    at = paths_of_use(tokens, at, &path, found);
                    at += usize::from(tokens[at] == ",");
                }
                return at + 1;
            }
            "," | "}" | ";" => break,
            "as" => {
                found.push((tokens[at + 1].clone(), path));
                return at + 2;
            }
            "self" if !path.is_empty() => at += 1,
            word => {
                path.push(word.to_owned());
                at += 1;
            }
        }
    }
    found.extend(path.last().cloned().map(|name| (name, path)));
    at
}

/// The type of an `impl`, whose text begins at `at`; and where its block begins.
fn type_of_impl(tokens: &[String], at: usize) -> (Option<String>, usize) {
    let length = tokens[at..].iter().take_while(|token| !["{", "where"].contains(&token.as_str())).count();
    let head = &tokens[at..at + length];
    let is_of_trait =
        |place: &usize| head[*place] == "for" && head.get(place + 1).is_none_or(|next| next != "<");
    let mut from = (0..head.len()).rfind(is_of_trait).map_or(0, |place| place + 1);
    let mut depth = 0;
    while from < head.len() {
        match head[from].as_str() {
            "<" => depth += 1,
            ">" => depth -= 1,
            "&" => {}
            _ if depth == 0 => break,
            _ => {}
        }
        from += 1;
    }
    let mut path = head[from..].iter().step_by(2).zip(head[from..].iter().skip(1).step_by(2));
    let last =
        path.position(|(_, sign)| sign != "::").map_or(head.len().saturating_sub(1), |last| from + 2 * last);
    (head.get(last).cloned(), at + length)
}

impl File {
    fn read(text: &str) -> File {
        let (tokens, mut file, mut at) = (tokens(text), File::default(), 0);
        let kinds = ["struct", "enum", "trait", "type", "const", "static", "fn", "union"];
        while at < tokens.len() {
            let word = tokens[at].as_str();
            let next = tokens.get(at + 1).map_or("", String::as_str);
            if word == "#" && tokens[at..].starts_with(&["#", "[", "cfg", "(", "test"].map(str::to_owned)) {
                let after = at + 1 + tokens[at + 1..].iter().position(|token| token == "]").unwrap_or(0) + 1;
                at = end_of_item(&tokens, after);
            } else if word == "use" && !["<", "+"].contains(&next) {
                at = paths_of_use(&tokens, at + 1, &ItemPath::new(), &mut file.imported);
            } else if word == "impl"
                && (at == 0 || ["}", ";", "{", "]", "unsafe"].contains(&tokens[at - 1].as_str()))
            {
                let (extended, block) = type_of_impl(&tokens, at + 1);
                file.extended.extend(extended);
                file.take_names(&tokens, at + 1..block);
                at = block;
            } else if word == "macro_rules"
                && tokens[..at].ends_with(&["macro_export", "]"].map(str::to_owned))
            {
                // The rows of a table that several crates expand.
                at = end_of_item(&tokens, at);
            } else if ["static", "const"].contains(&word)
                && tokens.get(at + 2).is_some_and(|sign| sign == ":")
            {
                file.defined.insert(next.to_owned());
                // The type is read, the value is a table.
                let end = end_of_item(&tokens, at);
                let value =
                    tokens[at..end].iter().position(|token| token == "=").map_or(end, |value| at + value);
                file.take_names(&tokens, at + 3..value);
                at = end;
            } else if kinds.contains(&word) {
                file.defined.insert(next.to_owned());
                at += 2;
            } else if word == "mod" && tokens.get(at + 2).is_some_and(|sign| sign == ";") {
                at += 3;
            } else {
                let length = path_length(&tokens[at..]);
                file.take_names(&tokens, at..at + length);
                at += length;
            }
        }
        file
    }

    /// Takes the paths and names out of some of the tokens. No names: fields and methods, before and after their signs.
    fn take_names(&mut self, tokens: &[String], range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            let length = path_length(&tokens[at..]);
            let path: ItemPath = tokens[at..at + length].iter().step_by(2).cloned().collect();
            let is_member =
                at > 0 && tokens[at - 1] == "." || tokens.get(at + length).is_some_and(|sign| sign == ":");
            match path.as_slice() {
                [_] if is_member => {}
                [name] => _ = self.plain.insert(name.clone()),
                _ => _ = self.named.insert(path),
            }
            at += length;
        }
    }
}

/// How many tokens the path has that `tokens` begin with; 1 for a sign.
fn path_length(tokens: &[String]) -> usize {
    let is_word = |token: &String| token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let mut length = 1;
    while is_word(&tokens[0])
        && tokens.get(length).is_some_and(|sign| sign == "::")
        && tokens.get(length + 1).is_some_and(is_word)
    {
        length += 2;
    }
    length
}

/// The files of a crate by their modules; the root's is empty.
struct Source {
    name: String,
    files: BTreeMap<ItemPath, File>,
}

fn collect(folder: &Path, module: &ItemPath, files: &mut BTreeMap<ItemPath, String>) {
    for path in entries(folder) {
        let name = name_of(&path);
        let stem = name.trim_end_matches(".rs");
        let mut module = module.clone();
        if !["lib.rs", "mod.rs", "main.rs"].contains(&name.as_str()) {
            module.push(stem.to_owned());
        }
        if path.is_dir() {
            collect(&path, &module, files);
        } else if stem != name {
            files.insert(module, fs::read_to_string(&path).unwrap());
        }
    }
}

impl Source {
    fn read(folder: &Path) -> Source {
        let mut texts = BTreeMap::new();
        collect(&folder.join("src"), &ItemPath::new(), &mut texts);
        let of_tests = of_tests(&texts);
        texts.retain(|module, _| !of_tests.iter().any(|tests| module.starts_with(tests)));
        let files = texts.into_iter().map(|(module, text)| (module, File::read(&text))).collect();
        Source { name: name_of(folder), files }
    }

    /// A path that stands in the file of `module`, from the crate's root; `None`: it leads out of the crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<ItemPath> {
        let up = path.iter().take_while(|word| *word == "super").count();
        let (start, rest) = match path.first().map(String::as_str) {
            Some("crate") => (&module[..0], &path[1..]),
            Some("self") => (module, &path[1..]),
            Some("super") => (&module[..module.len().checked_sub(up)?], &path[up..]),
            Some(first) if self.files.contains_key(&[module, &[first.to_owned()]].concat()) => (module, path),
            _ => return None,
        };
        Some([start, rest].concat())
    }

    /// The file that defines the item of a path from the root, through all that is imported again, and the item's name
    /// there; no name: the path is that of the file.
    fn item(&self, path: &[String], depth: u32) -> Option<(&ItemPath, Option<String>)> {
        let length = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]))?;
        let (module, file) = self.files.get_key_value(&path[..length])?;
        let Some(name) = path.get(length) else { return Some((module, None)) };
        let elsewhere = |(imported, from): &(String, ItemPath)| {
            let from = self.absolute(module, from).filter(|_| imported == name || imported == "*")?;
            let (kept, replaced) = if imported == "*" { (from.len() - 1, 0) } else { (from.len(), 1) };
            let onward = [&from[..kept], &path[length + replaced..]].concat();
            self.item(&onward, depth + 1).filter(|(found, _)| *found != module)
        };
        let is_here = file.defined.contains(name) || depth == DEEPEST;
        let found = if is_here { None } else { file.imported.iter().find_map(elsewhere) };
        Some(found.unwrap_or_else(|| (module, Some(name.clone()))))
    }

    /// The files that a file uses, with the names that it uses of each.
    fn used_by(&self, module: &ItemPath) -> BTreeMap<&ItemPath, BTreeSet<String>> {
        let file = &self.files[module];
        let imported =
            |name: &String| file.imported.iter().find(|(known, _)| known == name).map(|(_, from)| from);
        let plain = file.imported.iter().filter(|(name, _)| name == "*" || file.plain.contains(name));
        let whole = |path: &ItemPath| match imported(&path[0]) {
            Some(from) => [from.as_slice(), &path[1..]].concat(),
            None => path.clone(),
        };
        let paths = plain.map(|(_, path)| path.clone()).chain(file.named.iter().map(whole));
        let mut used: BTreeMap<&ItemPath, BTreeSet<String>> = BTreeMap::new();
        for path in paths.filter_map(|path| self.absolute(module, &path)) {
            if let Some((found, Some(name))) = self.item(&path, 0).filter(|(found, _)| *found != module) {
                used.entry(found).or_default().insert(name);
            }
        }
        // Methods of a type in a file below that of the type.
        used.retain(|found, names| !(module.starts_with(found) && names.is_subset(&file.extended)));
        used
    }

    /// Sets of files in which each uses each other one, by way of others or not.
    fn circles(&self) -> Vec<BTreeSet<&ItemPath>> {
        let used: BTreeMap<&ItemPath, BTreeSet<&ItemPath>> =
            self.files.keys().map(|module| (module, self.used_by(module).into_keys().collect())).collect();
        let reached: BTreeMap<&ItemPath, BTreeSet<&ItemPath>> =
            self.files.keys().map(|module| (module, reached(&used, module))).collect();
        let circle = |module: &&ItemPath| -> BTreeSet<&ItemPath> {
            reached[*module].iter().copied().filter(|other| reached[*other].contains(*module)).collect()
        };
        let mut circles: Vec<_> =
            self.files.keys().map(|module| circle(&module)).filter(|it| !it.is_empty()).collect();
        circles.sort();
        circles.dedup();
        circles
    }
}

/// All files that one uses, by way of others or not.
fn reached<'a>(
    used: &BTreeMap<&'a ItemPath, BTreeSet<&'a ItemPath>>,
    from: &'a ItemPath,
) -> BTreeSet<&'a ItemPath> {
    let (mut found, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(module) = ahead.pop() {
        ahead.extend(used[module].iter().copied().filter(|next| found.insert(*next)));
    }
    found
}

/// Modules that are compiled for tests only: `#[cfg(test)] mod NAME;`.
fn of_tests(texts: &BTreeMap<ItemPath, String>) -> Vec<ItemPath> {
    let mut found = Vec::new();
    for (module, text) in texts {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let declared = lines.windows(2).filter(|pair| pair[0].starts_with("#[cfg(test"));
        let names = declared.filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'));
        found.extend(names.map(|name| [module.as_slice(), &[name.to_owned()]].concat()));
    }
    found
}

fn sources() -> Vec<Source> {
    let rooms = entries(&root().join("crates"));
    let mut folders: Vec<PathBuf> = rooms.iter().flat_map(|room| entries(room)).collect();
    folders.push(root().join("bindings/python"));
    folders.iter().map(|folder| Source::read(folder)).collect()
}

fn shown(module: &[String]) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("/") }
}

impl Source {
    /// The items of the others that each file of a circle uses, one line a file.
    fn describe(&self, circle: &BTreeSet<&ItemPath>) -> String {
        let line = |module: &&ItemPath| {
            let used = self.used_by(module).into_iter().filter(|(other, _)| circle.contains(other));
            let used: Vec<_> = used.map(|(other, names)| format!("{} {names:?}", shown(other))).collect();
            format!("\n  {} uses {}", shown(module), used.join(", "))
        };
        format!("{}:{}", self.name, circle.iter().map(line).collect::<String>())
    }
}

#[test]
fn no_two_files_of_a_crate_use_each_other() {
    let (mut new, mut left) = (Vec::new(), BTreeSet::new());
    for source in sources() {
        for circle in source.circles() {
            let files: Vec<_> = circle.iter().map(|module| shown(module)).collect();
            match PARTS.iter().find(|(name, known)| *name == source.name && *known == files) {
                Some(row) => _ = left.insert(*row),
                None => new.push(source.describe(&circle)),
            }
        }
    }
    assert!(new.is_empty(), "{}", new.join("\n"));
    assert_eq!(left, PARTS.iter().copied().collect(), "a row of PARTS is no circle any more");
}

/// Two files that use each other, and then each exception.
#[test]
fn a_circle_is_found_and_a_table_is_none() {
    let circles = |texts: &[(&str, &str)]| {
        let of = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let files = texts.iter().map(|(path, text)| (of(path), File::read(text))).collect();
        Source { name: String::new(), files }.circles().len()
    };
    let a = "use super::b::Two; pub struct One { two: Two }";
    assert_eq!(circles(&[("a", a), ("b", "pub struct Two(Vec<crate::a::One>);")]), 1);
    assert_eq!(circles(&[("a", a), ("b", "pub struct Two; fn f() { super::a::One::default(); }")]), 1);
    assert_eq!(circles(&[("a", a), ("b", "// use super::a::One;\npub struct Two(&'static str);")]), 0);
    assert_eq!(circles(&[("a", a), ("b", "pub struct Two; const TEXT: &str = \"crate::a::One\";")]), 0);
    assert_eq!(
        circles(&[("a", a), ("b", "pub struct Two; #[cfg(test)] mod tests { use crate::a::One; f(One); }")]),
        0
    );
    // By way of a file that imports it again.
    let root = ("", "mod a; mod b; mod c; pub use a::One;");
    assert_eq!(circles(&[root, ("a", a), ("b", "use crate::One; pub struct Two(One);")]), 1);
    let table = "pub struct Row; pub static ROWS: &[Row] = &[a::ROW, super::t::a::ROW];";
    assert_eq!(circles(&[("t", table), ("t/a", "use super::Row; pub const ROW: Row = Row;")]), 0);
    let rows =
        "pub struct Row; #[macro_export] macro_rules! rows { ($f:ident) => { $f! { $crate::t::a::Row } }; }";
    assert_eq!(circles(&[("t", rows), ("t/a", "use super::Row; pub struct Row;")]), 0);
    let methods = "use super::Whole; pub struct Part; impl<T> Whole<T> { fn f() {} }";
    assert_eq!(circles(&[("t", "use a::Part; struct Whole<T>(T, Part);"), ("t/a", methods)]), 0);
    let more = "use super::{Other, Whole}; pub struct Part(Other); impl Whole { fn f() {} }";
    assert_eq!(circles(&[("t", "use a::Part; struct Other; struct Whole(Part);"), ("t/a", more)]), 1);
}

/// The lines of each function of a file that has more than `most`. Lines of a text do not count: a test may expect a
/// text of many lines. Sources are formatted, so a function ends where its indentation does.
fn long_functions(text: &str, most: usize) -> Vec<(String, usize)> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let words = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe"];
    let (mut open, mut found, mut is_text) = (Vec::<(usize, String, usize)>::new(), Vec::new(), false);
    for line in text.lines() {
        if is_text {
            is_text = !line.trim_start().starts_with("\"#");
            continue;
        }
        is_text = line.matches("r#\"").count() > line.matches("\"#").count();
        open.iter_mut().for_each(|(.., lines)| *lines += 1);
        let mut declared = line.split_whitespace().skip_while(|word| words.contains(word));
        if declared.next() == Some("fn") {
            let name = declared.next().unwrap_or_default().split(['(', '<']).next().unwrap_or_default();
            open.push((indentation(line), name.to_owned(), 1));
        }
        let ends =
            |at: &usize| *at == indentation(line) && (line.trim_end().ends_with('}') || line.ends_with(';'));
        if open.last().is_some_and(|(at, ..)| ends(at)) {
            let (_, name, lines) = open.pop().expect("it is open");
            found.extend((lines > most).then_some((name, lines)));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let (mut ahead, mut long) = (vec![root().join("crates"), root().join("bindings")], Vec::new());
    while let Some(path) = ahead.pop() {
        if path.is_dir() {
            ahead.extend(entries(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let functions = long_functions(&fs::read_to_string(&path).unwrap(), 70);
            long.extend(
                functions
                    .into_iter()
                    .map(|(name, lines)| format!("{}: {name}, {lines} lines", path.display())),
            );
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn a_long_function_is_found() {
    let text = "impl A {\n    pub fn f<T>(\n        a: T,\n    ) {\n        g(|| {\n        });\n    }\n    fn g() {}\n    fn h();\n}\n";
    assert_eq!(long_functions(text, 5), [("f".to_owned(), 6)]);
    assert_eq!(long_functions("fn f() {\n    a(r#\"\nb\n\"#);\n}\n", 3), []);
    assert_eq!(long_functions("fn f() {\n    a(r#\"\nb\n\"#);\n}\n", 2), [("f".to_owned(), 3)]);
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for name in ["crates", "bindings"] {
        let mut ahead = vec![root().join(name)];
        while let Some(path) = ahead.pop() {
            if path.is_dir() {
                ahead.extend(entries(&path));
            } else if path
                .extension()
                .is_some_and(|extension| ["rs", "py"].contains(&extension.to_str().unwrap()))
            {
                let lines = fs::read_to_string(&path).unwrap().lines().count();
                long.extend((lines > 600).then(|| format!("{}: {lines} lines", path.display())));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
