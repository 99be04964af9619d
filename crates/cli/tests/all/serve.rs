//! `kvdrive serve` as a program: it says when it can be reached, serves, and ends as it is told to.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use kvdrive_host::tcp::{Initiator, Options};
use kvdrive_spec::Key;

struct Served {
    program: Child,
    output: BufReader<std::process::ChildStdout>,
    nqn: String,
    address: String,
}

fn serve(more: &[&str]) -> Served {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["serve", "--listen", "tcp://127.0.0.1:0", "--pace", "off"])
        .args(more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut text = String::new();
    while !text.ends_with("ready\n") {
        assert_ne!(output.read_line(&mut text).unwrap(), 0, "it ended: {text}");
    }
    let word_behind = |word: &str| {
        text.split_whitespace().skip_while(|other| *other != word).nth(1).unwrap_or_else(|| panic!("{text}"))
    };
    let nqn = word_behind("subsystem").to_owned();
    let address = word_behind("listening").trim_start_matches("tcp://").to_owned();
    let connect =
        format!("nvme connect -t tcp -a 127.0.0.1 -s {} -n {nqn}", address.split_once(':').unwrap().1);
    assert!(text.contains(&connect), "{text}");
    Served { program, output, nqn, address }
}

fn store_and_retrieve(served: &Served) {
    let mut host = Initiator::connect(&served.address[..], &served.nqn, &Options::default()).unwrap();
    let mut queue = host.io_queue(1, 32).unwrap();
    let key = Key::new(b"key").unwrap();
    queue.store(key, b"hello").unwrap();
    assert_eq!(queue.retrieve(key, 4096).unwrap(), (5, b"hello".to_vec()));
}

#[test]
fn sigterm_ends_it_with_a_report_of_what_was_served() {
    let mut served = serve(&[]);
    store_and_retrieve(&served);
    let killed = Command::new("kill").arg(served.program.id().to_string()).status().unwrap();
    assert!(killed.success());
    let mut report = String::new();
    served.output.read_to_string(&mut report).unwrap();
    assert!(served.program.wait().unwrap().success(), "{report}");
    assert!(report.contains("01h store        1") && report.contains("02h retrieve     1"), "{report}");
}

#[test]
fn with_once_it_ends_when_the_last_host_has_gone() {
    let mut served = serve(&["--once", "--engine", "plus", "--scale", "1/256"]);
    store_and_retrieve(&served);
    assert!(served.program.wait().unwrap().success());
}

#[test]
fn what_it_does_not_look_at_and_who_may_connect_is_said_in_a_line() {
    for (arguments, line) in [
        (&["--ops", "5"][..], "--ops: serve does not look at it"),
        (&["--listen", "tcp://0.0.0.0:0"], "--allow-any-host"),
        (&["--listen", "http://127.0.0.1:0"], "allowed: tcp://ADDRESS:PORT"),
        (&["--nqn", "iqn.x"], "a name begins with \"nqn.\""),
        (&["--in-capsule", "9000"], "allowed: a multiple of 16, to 8192"),
    ] {
        let program =
            Command::new(env!("CARGO_BIN_EXE_kvdrive")).arg("serve").args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&program.stderr).into_owned();
        assert!(!program.status.success() && error.contains(line), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
