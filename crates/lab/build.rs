//! Puts the revision of the source into the program, for reports. A tree without git says `unknown`.

use std::process::Command;

fn main() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let revision =
        git(&["describe", "--always", "--dirty", "--abbrev=10"]).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=KVDRIVE_REVISION={revision}");
    // The present revision changes with HEAD and with the branch it names.
    if let Some(folder) = git(&["rev-parse", "--absolute-git-dir"]) {
        println!("cargo::rerun-if-changed={folder}/HEAD");
        println!("cargo::rerun-if-changed={folder}/logs/HEAD");
    }
}
