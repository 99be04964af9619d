//! The revision that a build reports: the build script, built and run on checkouts of two small crates; the statements
//! of ARCHITECTURE.md about the source ([`rooms`]); and which files use which ([`files`]).

mod engines;
mod files;
mod libraries;
mod plans;
mod rooms;
mod transports;

use std::path::{Path, PathBuf};
use std::process::Command;

struct Checkout {
    root: tempfile::TempDir,
    script: PathBuf,
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Checkout {
    fn new() -> Checkout {
        let root = tempfile::tempdir().unwrap();
        let script = root.path().join("script");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
        let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
        run(Command::new(rustc).args(["--edition=2024", "-o"]).arg(&script).arg(source));
        let checkout = Checkout { root, script };
        for (name, text) in [
            (".gitignore", "script\n"),
            ("crates/face/revision/Cargo.toml", ""),
            ("crates/study/claims/Cargo.toml", "[dependencies]\nkvdrive-sim.workspace = true\n"),
            ("crates/ground/sim/Cargo.toml", "[dependencies]\n"),
            ("crates/face/cli/Cargo.toml", "[dependencies]\nkvdrive-claims.workspace = true\n"),
            ("crates/study/claims/src/lib.rs", "claims"),
            ("crates/study/claims/files/a.toml", ""),
            ("crates/study/claims/tests/all/main.rs", ""),
            ("crates/ground/sim/src/lib.rs", "sim"),
            ("crates/face/cli/src/main.rs", "cli"),
        ] {
            checkout.write(name, text);
        }
        checkout
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn git(&self, arguments: &[&str]) {
        let who = ["-c", "user.name=Nobody", "-c", "user.email=nobody@localhost"];
        run(Command::new("git").current_dir(self.root.path()).args(who).args(arguments));
    }

    /// The revision, the differing files, and the files whose change makes the script run again.
    fn build(&self) -> (String, String, Vec<PathBuf>) {
        let package = self.root.path().join("crates/face/revision");
        let above = self.root.path().parent().unwrap();
        let said = run(Command::new(&self.script)
            .current_dir(&package)
            .env("CARGO_MANIFEST_DIR", &package)
            .env("GIT_CEILING_DIRECTORIES", above));
        let value = |key: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().to_owned()
        };
        let watched = said.lines().filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
        (
            value("cargo::rustc-env=KVDRIVE_REVISION="),
            value("cargo::rustc-env=KVDRIVE_DIFFERS="),
            watched.map(PathBuf::from).collect(),
        )
    }
}

#[test]
fn a_revision_says_whether_what_numbers_come_from_is_as_committed_and_what_is_not() {
    let checkout = Checkout::new();
    let outside = checkout.build();
    assert_eq!((outside.0.as_str(), outside.1.as_str()), ("unknown", ""), "no checkout");
    checkout.git(&["init", "-q"]);
    checkout.git(&["add", "."]);
    checkout.git(&["commit", "-q", "-m", "all"]);
    let (clean, differs, watched) = checkout.build();
    assert!(clean.len() >= 7 && clean.chars().all(|c| c.is_ascii_hexdigit()), "{clean}");
    assert_eq!(differs, "");
    // If a watched path did not exist, Cargo would build the crate again each time.
    assert!(watched.iter().all(|path| path.exists()), "{watched:?}");
    let is_watched =
        |name: &str| watched.iter().any(|path| checkout.root.path().join(name).starts_with(path));
    assert!(
        is_watched("crates/study/claims/src/lib.rs")
            && is_watched("crates/study/claims/files/a.toml")
            && is_watched("crates/ground/sim/src/lib.rs")
            && is_watched(".git/HEAD")
    );
    assert!(
        !is_watched("crates/face/cli/src/main.rs") && !is_watched("crates/study/claims/tests/all/main.rs")
    );

    checkout.write("crates/face/cli/src/main.rs", "other");
    assert_eq!(checkout.build().0, clean, "numbers do not come from the command line");
    checkout.write("crates/ground/sim/src/lib.rs", "other");
    let (dirty, differs, _) = checkout.build();
    assert!(dirty.starts_with(&format!("{clean}-dirty.")), "{dirty}");
    assert_eq!(differs, "crates/ground/sim/src/lib.rs");
    checkout.write("crates/ground/sim/src/lib.rs", "and another");
    checkout.write("crates/study/claims/src/new.rs", "new");
    let (other, differs, _) = checkout.build();
    assert!(other.starts_with(&format!("{clean}-dirty.")) && other != dirty, "{other}");
    assert_eq!(differs, "crates/ground/sim/src/lib.rs, crates/study/claims/src/new.rs");
    std::fs::remove_file(checkout.root.path().join("crates/study/claims/src/new.rs")).unwrap();
    checkout.write("crates/ground/sim/src/lib.rs", "sim");
    assert_eq!(checkout.build().0, clean);
}
