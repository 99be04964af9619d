//! Programs that were not built for kvdrive: a small one in C, the shell, Python. The library is preloaded,
//! and a drive is served on a loopback socket.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::served::{self, Backend, Running};

const MEMORY_BYTES: usize = 8 << 20;

/// The library that was built with this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("libkvdrive_ng_preload.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// A C program of the folder of tests.
fn built(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ng-{name}-{}", std::process::id()));
    let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let options = ["-O1", "-Wall", "-D_FORTIFY_SOURCE=2", "-pthread", "-o"];
    let built = Command::new("cc").args(options).arg(&program).arg(source).output().expect("a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// The C program that knows what a kernel answers, built once.
fn program() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("program"));
    &PROGRAM
}

/// The C program that does what programs may do around ioctls, built once.
fn around_ioctls() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("allowed"));
    &PROGRAM
}

/// Runs a case of the C program of what surrounds ioctls; first with a drive on a socket, then with one in the program's process.
fn allowed(case: &[&str]) {
    let drive = drive();
    for nodes in [node_of(&drive), "/dev/ng0n1=kvdrive:cosmos-plus".into()] {
        said(preloaded(&nodes, around_ioctls()).arg("/dev/ng0n1").args(case));
    }
    drive.end();
}

#[test]
fn a_handler_of_a_signal_asks_during_an_ioctl() {
    allowed(&["handler"]);
}

#[test]
fn a_thread_that_waits_in_an_ioctl_is_cancelled_after_it() {
    allowed(&["cancel"]);
}

#[test]
fn a_handler_that_jumps_out_of_an_ioctl_leaves_no_lock() {
    allowed(&["longjmp"]);
}

#[test]
fn threads_with_small_stacks_ask() {
    for bytes in ["16384", "32768", "65536"] {
        allowed(&["stack", bytes]);
    }
}

#[test]
fn a_child_that_no_handler_of_fork_has_seen_is_refused() {
    allowed(&["raw-fork"]);
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_those_it_opens_then() {
    let folder = tempfile::tempdir().unwrap();
    allowed(&["close-all", folder.path().to_str().unwrap()]);
}

#[test]
fn links_streams_and_paths_with_dots_lead_to_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let case = ["/dev/ng0n1", "paths", folder.path().to_str().unwrap()];
    said(preloaded("/dev/ng0n1=kvdrive:cosmos-plus", around_ioctls()).args(case));
}

#[test]
fn a_node_has_no_bytes_and_is_told_from_a_file_of_its_number() {
    said(preloaded("/dev/ng0n1=kvdrive:cosmos-plus", around_ioctls()).args([
        "/dev/ng0n1",
        "file",
        "preloaded",
    ]));
}

pub(crate) fn drive() -> Running {
    let options = Options { transfer_max_bytes: 2 << 20, ..Options::default() };
    served::serve(Backend::Drive(Vec::new()), options, MEMORY_BYTES)
}

/// `program` with the library preloaded and these nodes.
fn preloaded(nodes: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("KVDRIVE_NG", nodes).env("LD_PRELOAD", library());
    command
}

pub(crate) fn node_of(drive: &Running) -> String {
    format!("/dev/ng0n1=tcp://{}", drive.at)
}

/// Runs a program; returns its output, and panics if it failed.
pub(crate) fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

#[test]
fn a_c_program_sees_what_a_kernel_would_show_it() {
    let drive = drive();
    let said = said(preloaded(&node_of(&drive), program()).args(["/dev/ng0n1", "/dev/nvme0"]));
    assert!(said.lines().count() > 80, "{said}");
    drive.end();
}

#[test]
fn a_forked_child_connects_anew_and_its_parent_goes_on() {
    let drive = drive();
    said(preloaded(&node_of(&drive), program()).args(["child", "/dev/ng0n1"]));
    drive.end();
}

#[test]
fn many_threads_of_a_program_ask_at_once() {
    let drive = drive();
    said(preloaded(&node_of(&drive), program()).args(["threads", "/dev/ng0n1", "12"]));
    drive.end();
}

#[test]
fn a_descriptor_outlives_exec() {
    let drive = drive();
    let line = format!("exec 7<>/dev/ng0n1; exec {} inherited 7", program().display());
    said(preloaded(&node_of(&drive), "bash").args(["-c", &line]));
    drive.end();
}

#[test]
fn the_shell_sees_a_character_device() {
    let drive = drive();
    let line = "[ -c /dev/ng0n1 ] && [ -c /dev/nvme0 ] && [ ! -e /dev/ng0n2 ] && cd /dev && ls -l ng0n1";
    let said = said(preloaded(&node_of(&drive), "bash").args(["-c", line]));
    assert!(said.starts_with("crw-------"), "{said}");
    drive.end();
}

#[test]
fn a_drive_in_the_process_answers_as_one_that_is_served() {
    let nodes = "/dev/ng0n1=kvdrive:cosmos-plus";
    let said = said(preloaded(nodes, program()).args(["/dev/ng0n1", "/dev/nvme0"]));
    assert!(said.lines().count() > 80, "{said}");
}

#[test]
fn a_child_is_told_why_it_cannot_use_its_parents_drive() {
    let nodes = "/dev/ng0n1=kvdrive:cosmos-plus";
    let output = preloaded(nodes, program()).args(["child", "/dev/ng0n1"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("WRONG the child") && out.contains("ok the parent goes on"), "{out}{err}");
    assert!(err.contains("a child cannot use the drive in its parent's process"), "{err}");
}

#[test]
fn a_variable_that_names_no_drive_says_so_and_the_program_runs() {
    for (nodes, why) in [
        ("/dev/ng0n1=nvme:1", "allowed: tcp://HOST:PORT, kvdrive:PROFILE"),
        ("dev/ng0n1=tcp://127.0.0.1:1", "begins at the root"),
        ("/dev/ng0n1=tcp://127.0.0.1:1;/dev/ng0n1=tcp://127.0.0.1:2", "/dev/ng0n1 is there twice"),
        ("/nothing/here.toml", "No such file"),
        ("/dev/ng0n1=kvdrive:no-such-profile", "no-such-profile"),
    ] {
        let output = preloaded(nodes, "true").output().unwrap();
        assert!(output.status.success(), "{nodes}");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.lines().count() == 1 && err.contains(why), "{nodes}: {err}");
    }
}

#[test]
fn a_drive_without_a_server_is_a_path_error_and_one_line() {
    let nodes = "/dev/ng0n1=tcp://127.0.0.1:1";
    let output = preloaded(nodes, program()).args(["threads", "/dev/ng0n1", "2"]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert_eq!(
        err.lines().collect::<Vec<_>>(),
        ["kvdrive-ng: tcp://127.0.0.1:1: discovery of the subsystem: Connection refused (os error 111)"]
    );
}

#[test]
fn a_node_may_give_a_program_the_rights_of_others_than_root() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ng-nodes-{}.toml", std::process::id()));
    let nodes = "[[node]]\npath = \"/dev/ng0n1\"\ndrive = \"kvdrive:cosmos-plus\"\nprivileged = false\n";
    std::fs::write(&file, nodes).unwrap();
    said(preloaded(file.to_str().unwrap(), program()).args(["unprivileged", "/dev/ng0n1", "/dev/nvme0"]));
}

#[test]
fn a_drive_in_a_file_keeps_its_pairs_and_its_name_between_programs() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = format!("/dev/ng0n1=kvdrive:cosmos-plus,file={}", folder.path().join("drive.img").display());
    said(preloaded(&nodes, program()).args(["/dev/ng0n1", "/dev/nvme0"]));
    // The first run began with an empty namespace, and left a pair in it.
    let output = preloaded(&nodes, program()).args(["/dev/ng0n1", "/dev/nvme0"]).output().unwrap();
    let second = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<_> = second.lines().filter(|line| line.starts_with("WRONG")).collect();
    assert_eq!(wrong, ["WRONG keys of the list: 3h, not 2h"], "{second}");
}
