//! Programs that a preloaded library does not reach, under supervision: a static one, with a drive in this
//! process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use kvdrive_ng::nodes::Nodes;
use kvdrive_ng::supervise::choose::{self, ServedBy};
use kvdrive_ng::supervise::run;

/// The C program that the preloaded library is tested with, without a dynamic linker.
fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let program =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ng-static-{}", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../ng-preload/tests/program.c");
        let options = ["-static", "-O1", "-pthread", "-o"];
        let built =
            Command::new("cc").args(options).arg(&program).arg(source).output().expect("a C compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    });
    &PROGRAM
}

/// The program's output under supervision; panics if it failed.
fn said(nodes: &str, arguments: &[&str]) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "ng-said-{}-{}",
        std::process::id(),
        arguments[0].len()
    ));
    let file = File::create(&path).unwrap();
    let mut command = Command::new(program());
    command.args(arguments).stdout(file.try_clone().unwrap()).stderr(file);
    let status = run(Nodes::of(nodes).unwrap(), command).unwrap();
    let said = std::fs::read_to_string(&path).unwrap();
    assert!(status.success(), "{status}\n{said}");
    said
}

#[test]
fn a_static_program_is_known_as_one_and_sees_what_a_kernel_would_show_it() {
    assert_eq!(choose::served_by(program()), ServedBy::NoLinker);
    let said = said("/dev/ng0n1=kvdrive:cosmos-plus", &["/dev/ng0n1", "/dev/nvme0"]);
    assert!(said.lines().count() > 80, "{said}");
}

#[test]
fn children_and_threads_of_a_static_program_share_its_drive() {
    let nodes = "/dev/ng0n1=kvdrive:cosmos-plus";
    said(nodes, &["child", "/dev/ng0n1"]);
    said(nodes, &["threads", "/dev/ng0n1", "12"]);
}
