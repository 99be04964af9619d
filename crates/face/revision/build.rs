//! Puts the revision of the source into the program, for reports: `91ba31d8f0` as committed, otherwise
//! `91ba31d8f0-dirty.1f0c9a34` with a digest of what differs, and the names of the files that do. A tree
//! without git says `unknown`.
//!
//! Only files that numbers depend on count: the crates of the room `study`, the crates below them, and the files that
//! determine how they are built. A change of anything else, as of the command line or of a test, does not make a
//! revision dirty.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Besides the crates; from the root of the workspace.
const ALSO: &[&str] = &["Cargo.toml", "Cargo.lock", ".cargo"];
/// The room whose crates depend on everything that determines numbers.
const UPPERMOST: &str = "crates/study";
/// Folders of a crate on which no number depends.
const NO_SOURCE: &[&str] = &["tests", "examples", "benches"];
/// Most names that are listed; of the others only the number is given.
const NAMED: usize = 4;

fn main() {
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where it is"));
    let root = package.ancestors().nth(3).expect("the package is in a room of the workspace");
    let mut folders = BTreeSet::new();
    for uppermost in entries(&root.join(UPPERMOST)) {
        with_those_below(root, uppermost.file_name().expect("an entry has a name").as_ref(), &mut folders);
    }
    let is_source =
        |path: &PathBuf| path.file_name().is_some_and(|name| NO_SOURCE.iter().all(|part| name != *part));
    let parts = folders.iter().flat_map(|folder| entries(folder)).filter(is_source);
    let sources = ALSO.iter().map(|name| root.join(name)).chain(parts);
    // Cargo treats a missing file as one that always changes.
    let sources: Vec<PathBuf> = sources.filter(|path| path.exists()).collect();
    sources.iter().for_each(|path| println!("cargo::rerun-if-changed={}", path.display()));
    let (revision, differs) = revision(&package, root, &sources).unwrap_or(("unknown".into(), String::new()));
    println!("cargo::rustc-env=KVDRIVE_REVISION={revision}");
    println!("cargo::rustc-env=KVDRIVE_DIFFERS={differs}");
}

/// The entries of a folder, in order; none if there is no such folder.
fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// The folders of crate `name` of the workspace and of all of the workspace's crates that it depends on.
fn with_those_below(root: &Path, name: &Path, folders: &mut BTreeSet<PathBuf>) {
    let mut candidates = entries(&root.join("crates")).into_iter().map(|room| room.join(name));
    let Some(folder) = candidates.find(|folder| folder.join("Cargo.toml").exists()) else { return };
    let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else { return };
    if !folders.insert(folder) {
        return;
    }
    let ours = manifest.lines().filter_map(|line| line.strip_prefix("kvdrive-"));
    for below in ours.filter_map(|rest| rest.split(['.', ' ', '=']).next()) {
        with_those_below(root, below.as_ref(), folders);
    }
}

/// The commit, dirty or not, and what differs from it; `None` where git knows nothing of this source.
fn revision(package: &Path, root: &Path, sources: &[PathBuf]) -> Option<(String, String)> {
    let git = |arguments: &[&str], paths: &[PathBuf]| {
        let mut command = Command::new("git");
        command.current_dir(root).env("GIT_OPTIONAL_LOCKS", "0").args(arguments);
        let output = command.arg("--").args(paths).output().ok()?;
        output.status.success().then_some(output.stdout)
    };
    let line = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // Source inside a checkout of another project has no revision.
    git(&["ls-files", "--error-unmatch"], &[package.join("Cargo.toml")])?;
    // Never by a tag, which may be moved.
    let commit = line(&["rev-parse", "--short=10", "HEAD"])?;
    // The present commit changes with HEAD and with the branch it names.
    let folder = PathBuf::from(line(&["rev-parse", "--absolute-git-dir"])?);
    let heads = [folder.join("HEAD"), folder.join("logs/HEAD")];
    heads.iter().filter(|path| path.exists()).for_each(|path| {
        println!("cargo::rerun-if-changed={}", path.display());
    });
    let changed = git(&["diff", "HEAD", "--name-only", "--relative", "-z"], sources)?;
    let new = git(&["ls-files", "--others", "--exclude-standard", "-z"], sources)?;
    let names = [changed, new].concat();
    let names: BTreeSet<&[u8]> = names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Some((commit, String::new()));
    }
    let names: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let mut digest = DefaultHasher::new();
    for name in &names {
        (name, std::fs::read(root.join(OsStr::new(name))).ok()).hash(&mut digest);
    }
    let mut differs = names[..names.len().min(NAMED)].join(", ");
    if names.len() > NAMED {
        differs += &format!(" and {} more", names.len() - NAMED);
    }
    Some((format!("{commit}-dirty.{:08x}", digest.finish() as u32), differs))
}
