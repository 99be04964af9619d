//! Manifests against the source: a library is compiled once more for its unit tests, and looked through for examples,
//! only where there are any. Both cost a test run of the workspace minutes where there is nothing to find.

use std::fs;
use std::path::{Path, PathBuf};

use super::rooms::{entries, name_of, root};

/// The languages by which `rustdoc` takes a fenced text as an example that is run or at least compiled.
const EXAMPLES: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries(folder)
        .into_iter()
        .flat_map(below)
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect()
}

fn has_unit_test(source: &str) -> bool {
    source.lines().any(|line| line.trim() == "#[test]" || line.trim().starts_with("proptest!"))
}

fn has_example(source: &str) -> bool {
    let mut is_open = false;
    source.lines().any(|line| {
        let comment = line.trim_start().strip_prefix("///").or(line.trim_start().strip_prefix("//!"));
        let Some(language) = comment.and_then(|text| text.trim_start().strip_prefix("```")) else {
            return false;
        };
        is_open = !is_open;
        is_open && EXAMPLES.contains(&language.trim())
    })
}

#[test]
fn a_library_says_which_tests_it_has() {
    for folder in entries(&root().join("crates")).into_iter().flat_map(|room| entries(&room)) {
        if !folder.join("src/lib.rs").exists() {
            continue;
        }
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let texts: Vec<String> =
            sources(&folder.join("src")).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let found = [
            ("test", texts.iter().any(|text| has_unit_test(text)), "a unit test in src"),
            ("doctest", texts.iter().any(|text| has_example(text)), "an example in a comment"),
        ];
        for (key, has, what) in found {
            let refuses = manifest.lines().any(|line| line == format!("{key} = false"));
            let name = name_of(&folder);
            assert!(!(has && refuses), "crate {name} has {what} that `{key} = false` keeps from being run");
            assert!(
                has || refuses,
                "crate {name} has not {what}: [lib] of its manifest needs `{key} = false`"
            );
        }
    }
}

/// A child that is forked while another thread makes a `LazyLock` inherits it as being made, and waits for ever. What a
/// library makes at its first use is a `once_cell::race::OnceBox`: two threads may both make it, and neither waits.
#[test]
fn nothing_that_a_library_makes_at_its_first_use_keeps_a_forked_child_waiting() {
    for folder in entries(&root().join("crates")).into_iter().flat_map(|room| entries(&room)) {
        // Programs, rigs of tests and inputs of a fuzzer fork no children that continue with these libraries.
        if ["cli", "fuzz", "rigs"].contains(&name_of(&folder).as_str()) {
            continue;
        }
        for path in sources(&folder.join("src")) {
            let waits = fs::read_to_string(&path).unwrap().contains("LazyLock");
            assert!(!waits, "{}: a LazyLock; use once_cell::race::OnceBox", path.display());
        }
    }
}
