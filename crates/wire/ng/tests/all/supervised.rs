//! Programs that a preloaded library does not reach, under supervision: a static one, with a drive in this
//! process.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use kvdrive_ng::nodes::Nodes;
use kvdrive_ng::supervise::choose::{self, ServedBy};
use kvdrive_ng::supervise::run;
use kvdrive_ng::supervise::waiting::Waiting;

/// A C program without a dynamic linker.
fn built(name: &str, source: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let options = ["-static", "-O1", "-pthread", "-o"];
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let built = Command::new("cc").args(options).arg(&program).arg(source).output().expect("a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// The program that the preloaded library is tested with.
fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        built("ng-static", concat!(env!("CARGO_MANIFEST_DIR"), "/../../face/ng-preload/tests/program.c"))
    });
    &PROGRAM
}

/// The program's output under supervision; panics if it failed.
fn said_by(program: &Path, waiting: Waiting, nodes: &str, arguments: &[&str]) -> String {
    let mut file = tempfile::tempfile().unwrap();
    let mut command = Command::new(program);
    command.args(arguments).stdout(file.try_clone().unwrap()).stderr(file.try_clone().unwrap());
    let status = run(Nodes::of(nodes).unwrap(), command, waiting).unwrap();
    let mut said = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut said).unwrap();
    assert!(status.success(), "{status}\n{said}");
    said
}

fn said(nodes: &str, arguments: &[&str]) -> String {
    said_by(program(), Waiting::of_system(), nodes, arguments)
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

/// What a preloaded library has to make right.
#[test]
fn a_supervised_program_does_around_ioctls_what_a_kernel_allows() {
    let program = built("ng-allowed", "../../face/ng-preload/tests/allowed.c");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let cases: [&[&str]; 7] = [
        &["handler"],
        &["cancel"],
        &["longjmp"],
        &["stack", "16384"],
        &["close-all", folder],
        &["paths", folder],
        &["file"],
    ];
    for case in cases {
        let arguments = [&["/dev/ng0n1"], case].concat();
        said_by(&program, Waiting::of_system(), "/dev/ng0n1=kvdrive:cosmos-plus", &arguments);
    }
}

/// A number of the line that `signals.c` prints.
fn count(line: &str, name: &str) -> u64 {
    let named = line.trim().split(", ").find_map(|part| part.strip_suffix(name));
    named.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {line}"))
}

/// Both ways in which a call can wait, and both kinds of handlers. The program itself ends with a failure if a store was
/// lost or failed, or if a buffer changed after its call.
#[test]
fn signals_with_handlers_lose_no_store_and_change_no_buffer() {
    let program = built("ng-signals", "tests/signals.c");
    for waiting in [Waiting::of_system(), Waiting::Interrupted] {
        for handlers in ["restart", "interrupt"] {
            let said = said_by(
                &program,
                waiting,
                "/dev/ng0n1=kvdrive:cosmos-plus",
                &["/dev/ng0n1", "300", handlers],
            );
            println!("{waiting:?}, {handlers}: {said}");
            let names = ["signals", "interrupted", "ran", "twice"];
            let [signals, interrupted, ran, twice] = names.map(|name| count(&said, name));
            assert!(signals > 300, "{said}");
            if handlers == "restart" {
                assert_eq!(interrupted, 0, "{said}");
            }
            if waiting == Waiting::Killable {
                assert_eq!(ran, 0, "a call that returned EINTR was carried out: {said}");
                assert_eq!(twice, 0, "{said}");
            }
            // One signal in some thousands comes while the system takes the answer.
            assert!(twice <= 1 + signals / 500, "{said}");
        }
    }
}
