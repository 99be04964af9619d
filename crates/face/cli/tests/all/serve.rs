//! `kvdrive serve` as a program: it reports when it can be reached, serves, and ends on request.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kvdrive_host::tcp::{Initiator, Options};
use kvdrive_nvme::Key;

use super::serve_page::get;
use super::serve_secrets::kvdrive;

pub(crate) struct Served {
    pub(crate) program: Child,
    pub(crate) output: BufReader<std::process::ChildStdout>,
    pub(crate) nqn: String,
    pub(crate) address: String,
    pub(crate) page: String,
    _folder: tempfile::TempDir,
}

/// A test that fails leaves no server running.
impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.program.kill();
    }
}

/// Serves unpaced, unless `more` has another pace.
pub(crate) fn serve(more: &[&str]) -> Served {
    serve_by(Command::new(env!("CARGO_BIN_EXE_kvdrive")), more)
}

/// The same with at most `descriptors` file descriptors.
fn serve_with_descriptors(descriptors: u32, more: &[&str]) -> Served {
    let mut shell = Command::new("sh");
    let line = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    shell.args(["-c", &line, env!("CARGO_BIN_EXE_kvdrive")]);
    serve_by(shell, more)
}

pub(crate) fn serve_by(mut program: Command, more: &[&str]) -> Served {
    // Tests run side by side, so each has a folder of its own for the socket.
    let folder = tempfile::tempdir().unwrap();
    let mut program = program
        .args(["serve", "--listen", "tcp://127.0.0.1:0"])
        .args(if more.contains(&"--pace") { &[][..] } else { &["--pace", "off"] })
        .args(more)
        .env("XDG_RUNTIME_DIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(program.stdout.take().unwrap());
    let mut text = String::new();
    while !text.ends_with("ready\n") {
        assert_ne!(output.read_line(&mut text).unwrap(), 0, "it ended: {text}");
    }
    let word_after = |word: &str| {
        text.split_whitespace().skip_while(|other| *other != word).nth(1).unwrap_or_else(|| panic!("{text}"))
    };
    let nqn = word_after("subsystem").to_owned();
    let address = word_after("listening").trim_start_matches("tcp://").to_owned();
    let page = word_after("page").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let connect =
        format!("nvme connect -t tcp -a 127.0.0.1 -s {} -n {nqn}", address.split_once(':').unwrap().1);
    assert!(text.contains(&connect) && text.contains(" --tls") == more.contains(&"--tls"), "{text}");
    Served { program, output, nqn, address, page, _folder: folder }
}

pub(crate) fn store_and_retrieve(served: &Served) {
    let mut host = Initiator::connect(&served.address[..], &served.nqn, &Options::default()).unwrap();
    let mut queue = host.io_queue(1, 32).unwrap();
    let key = Key::new(b"key").unwrap();
    queue.store(key, b"hello").unwrap();
    assert_eq!(queue.retrieve(key, 4096).unwrap(), (5, b"hello".to_vec()));
}

/// A drive on a network has the same calls as one in the program: calls, iterators, pipelines, and refusals.
#[test]
fn a_program_uses_the_drive_as_one_of_its_own() {
    let served = serve(&[]);
    let drive = kvdrive::connect(&format!("tcp://{}", served.address)).unwrap();
    drive.store(b"b", b"1").unwrap();
    drive.store(b"a", &[7; 100_000]).unwrap();
    assert_eq!(drive.get(b"a").unwrap(), Some(vec![7; 100_000]));
    assert_eq!((drive.get(b"none").unwrap(), drive.exist(b"b").unwrap()), (None, true));
    drive.delete(b"b").unwrap();
    let large: Vec<u8> = (0..5 << 20).map(|at: u32| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    drive.store(b"large", &large).unwrap();
    let pairs: Vec<_> = drive.pairs_with_prefix(b"l").unwrap().map(Result::unwrap).collect();
    assert!(pairs == [(b"large".to_vec(), large)], "more of a value than an iterator brings");
    drive.delete(b"large").unwrap();
    let mut client = drive.client().unwrap();
    let keys: Vec<[u8; 4]> = (0..500u32).map(u32::to_be_bytes).collect();
    let mut pipeline = client.pipeline().unwrap();
    let mut answers = 0;
    for key in &keys {
        answers += pipeline.store(key, &key[..]).unwrap().into_iter().count();
    }
    while let Some(ended) = pipeline.next_ended().unwrap() {
        assert_eq!(ended.result, Ok(kvdrive::Done::Stored));
        answers += 1;
    }
    assert_eq!(answers, 500);
    drop(pipeline);
    let mut found: Vec<Vec<u8>> = drive.pairs().unwrap().map(|pair| pair.unwrap().0).collect();
    found.sort();
    assert_eq!((found.len(), &found[500][..]), (501, &b"a"[..]));
    // Threads may share the drive.
    std::thread::scope(|scope| {
        for part in keys.chunks(100) {
            let drive = &drive;
            scope.spawn(move || {
                part.iter().for_each(|key| assert_eq!(drive.get(key).unwrap(), Some(key.to_vec())))
            });
        }
    });
    let too_large = drive.store(b"a", &vec![0; (256 << 20) + 1]).unwrap_err();
    assert!(matches!(too_large, kvdrive::Error::ValueSize { .. }), "{too_large}");
    // Futures on any executor, and SAKER.
    let futures = drive.async_client().unwrap();
    assert_eq!(kvdrive_host::driver::block_on(futures.get(b"a")).unwrap(), Some(vec![7; 100_000]));
    let saker = drive.saker(kvdrive::saker::SakerConfig { in_flight: 4, ..Default::default() }).unwrap();
    let mut handle = saker.handle().unwrap();
    (0..300u32).for_each(|key| handle.store(&key.to_le_bytes(), b"small").unwrap());
    assert_eq!(handle.get(&7u32.to_le_bytes()).unwrap(), Some(b"small".to_vec()));
    handle.sync().unwrap();
    let counts = saker.counts();
    assert!(counts.of("requests") == 300 && counts.of("batches") < 20, "{counts:?}");
    assert_eq!(drive.get(&299u32.to_le_bytes()).unwrap(), Some(b"small".to_vec()));
    drop((handle, saker, futures));
    for refused in [drive.numbers().map(drop), drive.inject("").map(drop)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(&format!("this drive is served at tcp://{}", served.address)), "{refused}");
    }
    drop(client);
    let closed = drive.close().unwrap();
    assert_eq!((closed.lasting, closed.unanswered), (kvdrive::Lasting::Elsewhere, 0));
    for (at, line) in [("tcp://", "allowed: tcp://HOST:PORT"), ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1: ")] {
        let error = kvdrive::connect(at).map(drop).unwrap_err().to_string();
        assert!(error.contains(line) && !error.contains('\n'), "{error}");
    }
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
    assert!(report.contains("  store        1\n") && report.contains("  retrieve     1\n"), "{report}");
    // Hosts are not measured in it: their commands have the drive's own times, and the longest of them.
    let (_, commands) = report.split_once("\nCOMMANDS ").unwrap_or_default();
    let heading = &commands[..commands.find("  store ").unwrap_or_default()];
    assert!(heading.contains("modelled") && heading.contains("max"), "{report}");
    assert!(!heading.contains("measured"), "{report}");
}

#[test]
fn with_once_it_ends_when_the_last_host_has_gone() {
    let mut served = serve(&["--once", "--engine", "plus", "--scale", "1/128"]);
    store_and_retrieve(&served);
    assert!(served.program.wait().unwrap().success());
}

/// A recording that cannot be written ends in its error and status 1, and the report is printed all the same.
#[test]
fn a_recording_without_room_leaves_the_report_of_a_served_drive() {
    let mut served = serve(&["--once", "--record", "/dev/full"]);
    store_and_retrieve(&served);
    let mut report = String::new();
    served.output.read_to_string(&mut report).unwrap();
    assert_eq!(served.program.wait().unwrap().code(), Some(1), "{report}");
    assert!(report.contains("  store        1\n"), "{report}");
}

/// Rates with intervals and a series, and transactions, which only model time had before, over a network.
#[test]
fn a_run_over_a_network_keeps_a_rate_and_does_transactions() {
    let served = serve(&["--engine", "hashlog", "--profile", "saker-mid"]);
    let work = ["--workload", "fillrandom", "--num", "300", "--ops", "300", "--depth", "4", "--queues", "2"];
    let times = ["--rate", "2k/s", "--set", "run.interval_ns=30ms", "--verify", "--interval", "40ms"];
    let printed = run_against(&served, &[&work[..], &times].concat()).unwrap();
    let lines: Vec<serde_json::Value> = printed
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let ops: u64 = lines.iter().map(|line| line["ops"].as_u64().unwrap()).sum();
    assert!(ops == 300 && lines.len() >= 3, "{printed}");
    assert!(lines.last().unwrap()["ended_ns"].as_u64().unwrap() >= 149_000_000, "{printed}");
    assert!(printed.contains("operations began at 2 000/s"), "{printed}");
    let tpcc = ["--workload", "tpcc", "--set", "workload.shrink=64", "--ops", "100", "--depth", "4"];
    let printed = run_against(&served, &tpcc).unwrap();
    assert!(printed.contains("no update is lost") && printed.contains("TRANSACTIONS"), "{printed}");
}

#[test]
fn ignored_options_and_allowed_hosts_are_said_in_a_line() {
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

/// Runs `kvdrive ctl` with these arguments: returns its output, or its error.
pub(crate) fn ctl(socket: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["ctl", "--control"])
        .arg(socket)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn a_served_drive_fails_on_command_and_loses_its_power_and_no_pair() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let mut served = serve(&["--control", socket.to_str().unwrap()]);
    let key = Key::new(b"user42").unwrap();
    let mut host = Initiator::connect(&served.address[..], &served.nqn, &Options::default()).unwrap();
    let mut queue = host.io_queue(1, 32).unwrap();
    queue.store(key, b"hello").unwrap();

    let names =
        ctl(&socket, &["inject", "status", "--opcode", "retrieve", "--status", "88h", "--times", "1"]);
    assert_eq!(names.as_deref(), Ok("status 1\n"));
    assert!(queue.retrieve(key, 4096).unwrap_err().to_string().contains("88h"));
    assert_eq!(queue.retrieve(key, 4096).unwrap(), (5, b"hello".to_vec()), "it was once");
    let faults = ctl(&socket, &["--json", "faults"]).unwrap();
    assert!(faults.contains("\"struck\": 1") && faults.contains("\"name\": \"status 1\""), "{faults}");
    assert_eq!(ctl(&socket, &["faults", "clear", "status 1"]).as_deref(), Ok("1 rule cleared\n"));
    let error = ctl(&socket, &["inject", "red-error"]).unwrap_err();
    assert!(error.contains("there are read-error") && error.lines().count() == 1, "{error}");
    let error = ctl(&socket, &["inject", "lose", "--die", "1"]).unwrap_err();
    assert!(error.contains("die") && error.lines().count() == 1, "{error}");

    let hosts = ctl(&socket, &["hosts"]).unwrap();
    assert!(hosts.contains("io") && hosts.lines().count() == 2, "{hosts}");
    let status = ctl(&socket, &["status"]).unwrap();
    let has = |words: &str| status.lines().any(|line| line.split_whitespace().eq(words.split(' ')));
    assert!(status.contains("power       on, life 1") && has("retrieve 2"), "{status}");

    let error = ctl(&socket, &["power", "on"]).unwrap_err();
    assert!(error.contains("the drive has power"), "{error}");
    ctl(&socket, &["power", "cut", "--torn"]).unwrap();
    queue.retrieve(key, 4096).expect_err("the drive has vanished");
    assert!(Initiator::connect(&served.address[..], &served.nqn, &Options::default()).is_err());
    assert!(ctl(&socket, &["status"]).unwrap().contains("power       off"));
    let error = ctl(&socket, &["inject", "flip"]).unwrap_err();
    assert!(error.contains("kvdrive ctl --control") && error.contains(" --nsid 1 power on"), "{error}");
    assert!(ctl(&socket, &["power", "on"]).unwrap().contains("of model time"));
    let mut host = Initiator::connect(&served.address[..], &served.nqn, &Options::default()).unwrap();
    let mut queue = host.io_queue(1, 32).unwrap();
    assert_eq!(queue.retrieve(key, 4096).unwrap(), (5, b"hello".to_vec()));

    // The power is cut after two more commands.
    ctl(&socket, &["power", "cut", "--after", "2"]).unwrap();
    queue.store(key, b"once").unwrap();
    queue.store(key, b"more").unwrap();
    queue.store(key, b"lost").expect_err("the power has gone");
    while !ctl(&socket, &["status"]).unwrap().contains("power       off") {}
    ctl(&socket, &["power", "on"]).unwrap();
    let mut host = Initiator::connect(&served.address[..], &served.nqn, &Options::default()).unwrap();
    assert_eq!(host.io_queue(1, 32).unwrap().retrieve(key, 4096).unwrap(), (4, b"more".to_vec()));

    ctl(&socket, &["drain"]).unwrap();
    let mut report = String::new();
    served.output.read_to_string(&mut report).unwrap();
    assert!(served.program.wait().unwrap().success(), "{report}");
    assert!(report.contains("powered on 3 times"), "{report}");
    assert!(!socket.exists(), "its socket is gone");
    let error = ctl(&socket, &["status"]).unwrap_err();
    assert!(error.contains("no server answers") && error.lines().count() == 1, "{error}");
}

/// A key that does not exist is a miss; an unreadable value, or a cut, is a failure.
#[test]
fn misses_are_counted_beside_failures_and_a_cut_after_0_commands_meets_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let served = serve(&["--control", socket.to_str().unwrap()]);
    let connect = || Initiator::connect(&served.address[..], &served.nqn, &Options::default()).unwrap();
    let [key, absent] = [b"user42", b"user43"].map(|name| Key::new(name).unwrap());
    let mut host = connect();
    let mut queue = host.io_queue(1, 32).unwrap();
    queue.store(key, b"more").unwrap();
    ctl(&socket, &["inject", "status", "--opcode", "retrieve", "--status", "88h", "--times", "1"]).unwrap();
    queue.retrieve(key, 4096).unwrap_err();
    let status = ctl(&socket, &["status"]).unwrap();
    assert!(status.contains(" 0 I/O commands found nothing, 1 failed\n"), "{status}");
    queue.retrieve(absent, 4096).unwrap_err();
    assert!(!queue.exist(absent).unwrap());
    let status = ctl(&socket, &["status"]).unwrap();
    assert!(status.contains(" 2 I/O commands found nothing, 1 failed\n"), "{status}");

    ctl(&socket, &["power", "cut", "--after", "0"]).unwrap();
    queue.store(key, b"lost").expect_err("the power has gone");
    while !ctl(&socket, &["status"]).unwrap().contains("power       off") {}
    ctl(&socket, &["power", "on"]).unwrap();
    let mut host = connect();
    assert_eq!(host.io_queue(1, 32).unwrap().retrieve(key, 4096).unwrap(), (4, b"more".to_vec()));
}

/// With any number of hosts, page and control socket answer, and the drive answers when the hosts have
/// disconnected.
#[test]
fn a_server_with_few_descriptors_stays_reachable() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let served = serve_with_descriptors(64, &["--control", socket.to_str().unwrap()]);
    let hosts: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(&served.address).unwrap()).collect();
    assert!(ctl(&socket, &["status"]).unwrap().contains("power       on"));
    assert!(get(&served, "/metrics").starts_with("HTTP/1.1 200"));
    // Connections that are not queues give way to connections that become queues.
    store_and_retrieve(&served);
    // Queues do not give way: no further queue is accepted until one has ended.
    let connect = || Initiator::connect(&served.address[..], &served.nqn, &Options::default());
    let mut connected = Vec::new();
    while let (Ok(host), true) = (connect(), connected.len() < 100) {
        connected.push(host);
    }
    assert!((8..64).contains(&connected.len()), "{} hosts", connected.len());
    assert!(ctl(&socket, &["status"]).unwrap().contains("power       on"));
    assert!(get(&served, "/metrics").starts_with("HTTP/1.1 200"));
    drop((hosts, connected));
    let clock = kvdrive_sim::wall::Stopwatch::start();
    while connect().is_err() {
        assert!(clock.seconds() < 10.0, "hosts have gone, and none is taken");
    }
    store_and_retrieve(&served);
}

#[test]
fn what_is_lost_with_a_drives_power_says_how_it_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, second) = (folder.path().join("drive.sock"), folder.path().join("second.toml"));
    std::fs::write(&second, "").unwrap();
    let path = socket.to_str().unwrap();
    let _served = serve(&["--control", path, "--namespace", second.to_str().unwrap()]);
    let again = format!("kvdrive ctl --control {path} --nsid 2 power on");
    let said = ctl(&socket, &["--nsid", "2", "power", "cut"]).unwrap();
    assert!(said.contains(&again), "{said}");
    let error = ctl(&socket, &["--nsid", "2", "faults"]).unwrap_err();
    assert!(error.contains(&again), "{error}");
    let arguments: Vec<&str> = again.split(' ').skip(1).collect();
    assert!(kvdrive(&arguments).unwrap().contains("of model time"));
}

#[test]
fn how_late_events_are_is_shown_where_the_drive_is_paced() {
    let folder = tempfile::tempdir().unwrap();
    for (pace, is_paced) in [("model", true), ("off", false)] {
        let socket = folder.path().join(pace);
        let served = serve(&["--pace", pace, "--control", socket.to_str().unwrap()]);
        store_and_retrieve(&served);
        let seen = get(&served, "/seen");
        assert_eq!(seen.contains("\"lateness\":{\"count\":"), is_paced, "{seen}");
        let metrics = get(&served, "/metrics");
        assert_eq!(metrics.contains("kvdrive_lateness_seconds_count"), is_paced, "{metrics}");
        let status = ctl(&socket, &["status"]).unwrap();
        assert_eq!(status.contains("\nlate        "), is_paced, "{status}");
    }
}

/// A network may move what is one command for a host as parts; it has its name in the drive all the same.
#[test]
fn a_retrieve_has_one_name_at_its_host_and_in_the_drive() {
    let served = serve(&[]);
    run_against(&served, &["--workload", "ycsb-c", "--ops", "20", "--num", "10"]).unwrap();
    let seen = get(&served, "/seen");
    let seen: serde_json::Value = serde_json::from_str(seen.rsplit("\r\n\r\n").next().unwrap()).unwrap();
    let retrieves =
        |of: &str, name: &str| seen.pointer(&format!("{of}/{name}/count")).and_then(|it| it.as_u64());
    assert_eq!(retrieves("/latencies", "retrieve"), Some(20), "{seen}");
    assert_eq!(retrieves("/drive/latencies", "retrieve"), Some(20), "{seen}");
    assert_eq!(retrieves("/drive/latencies", "retrieve-part"), None, "{seen}");
    assert!(get(&served, "/").contains("[n, \"in the drive\"]"), "a row for what has no name at a host");
}

/// Runs `kvdrive run --connect` with these arguments: returns its output, or its error.
pub(crate) fn run_against(served: &Served, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["run", "--connect", &format!("tcp://{}", served.address)])
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn a_workload_runs_against_a_served_drive_and_what_comes_back_is_checked() {
    let served = serve(&[]);
    let work = ["--workload", "ycsb-a", "--ops", "2000", "--num", "500", "--depth", "8"];
    let json = |more: &[&str]| -> serde_json::Value {
        let text = run_against(&served, &[&work[..], more, &["--json", "-"]].concat()).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let report = json(&["--verify", "--queues", "2", "--digests", "both"]);
    let count = |name: &str| report["ops"][name].as_u64().unwrap();
    assert_eq!((count("store") + count("retrieve"), count("errors")), (2000, 0), "{report}");
    assert_eq!(report["verified"]["checked"].as_u64(), Some(count("retrieve")), "{report}");
    assert_eq!(report["target"]["loaded_pairs"], 500);
    assert_eq!(report["target"]["header_digests"], true);
    assert!(report["latency_ns"]["retrieve"]["p50"].as_u64() > Some(1_000), "{report}");
    assert!(report.get("nand").is_none() && report.get("traffic").is_none(), "not known: {report}");

    // The pairs that it stored are there, and no others.
    let read_back = json(&["--verify-only"]);
    assert_eq!(read_back["ops"]["store"], 0);
    assert_eq!(read_back["verified"]["checked"], 500, "{read_back}");
    // What differs may be the options and not the pairs, which the sentence says, as that of an image does.
    for other in [["--value-size", "33"], ["--seed", "2"], ["--ops", "500"]] {
        let work = work.map(|word| if word == "2000" && other[0] == "--ops" { other[1] } else { word });
        let other = if other[0] == "--ops" { &[][..] } else { &other };
        let error = run_against(&served, &[&work[..], &["--verify-only"], other].concat()).unwrap_err();
        assert!(
            error.contains("--verify-only: ")
                && error.contains("the options must be those of the run that stored them"),
            "{other:?}: {error}"
        );
    }

    let text = run_against(&served, &["--workload", "ycsb-e", "--ops", "20", "--num", "100"]).unwrap();
    assert!(text.contains("not known here: ") && text.contains("LATENCY"), "{text}");
    assert!(
        !text.contains("NAND") && !text.contains("TRAFFIC") && !text.contains("own clock went"),
        "{text}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reads.csv");
    let reads: String = (0..100).map(|key| format!("{key},get,{key}\n")).collect();
    std::fs::write(&file, reads).unwrap();
    let trace = format!("trace:{}", file.display());
    let trace = ["--workload", &trace];
    for (more, line) in [
        (&["--nqn", "nqn.x"][..], "nqn.x: connect"),
        (&["--nsid", "7"], "namespace 7: "),
        (&["--depth", "1024", "--set", "host.queue_entries=2048"], "host.depth: 1024 on 1 queues; those of"),
        (&["--set", "flash.channels=8"], "--set flash.channels=8: "),
        (&["--engine", "plus"], "--engine: "),
        (&[&trace[..], &["--load", "keys:1M:1MiB"]].concat(), "1 000 000 values of 1 048 576 B are 1.049 TB"),
        (
            &[&trace[..], &["--load", "reads:4294967295"]].concat(),
            "workload.load: 100 values are 429.5 GB, and",
        ),
    ] {
        let error = run_against(&served, more).unwrap_err();
        assert!(error.contains(line) && error.lines().count() == 1, "{more:?}: {error}");
    }
    let mut gone = served;
    gone.address = "127.0.0.1:1".into();
    let error = run_against(&gone, &work).unwrap_err();
    assert!(error.starts_with("kvdrive: tcp://127.0.0.1:1: ") && error.contains("refused"), "{error}");
}

#[test]
fn a_lost_connection_leaves_the_report_so_far() {
    let mut served = serve(&[]);
    let mut run = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["run", "--connect", &format!("tcp://{}", served.address), "--workload", "fillseq"])
        .args(["--set", "workload.key_size=8", "--ops", "20M", "--interval", "5ms", "--interval-file", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = run.stdout.take().unwrap();
    out.read_exact(&mut [0; 64]).unwrap();
    served.program.kill().unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = run.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&served.address) && error.lines().count() == 1, "{error}");
    assert!(rest.contains("this is the report so far") && rest.contains("LATENCY"), "{rest}");
}

#[test]
fn several_namespaces_are_drives_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("drive.sock");
    let second = folder.path().join("second.toml");
    std::fs::write(&second, "[controller]\ncontexts = 2\n").unwrap();
    let mut served = serve(&["--control", socket.to_str().unwrap(), "--namespace", second.to_str().unwrap()]);
    let mut host = Initiator::connect(&served.address[..], &served.nqn, &Options::default()).unwrap();
    let mut queue = host.io_queue(1, 32).unwrap();
    let key = Key::new(b"key").unwrap();
    queue.store(key, b"one").unwrap();
    queue.nsid = 2;
    assert!(!queue.exist(key).unwrap());
    queue.store(key, b"two").unwrap();
    // A fault in one namespace does not affect the other.
    let inject = ["inject", "status", "--opcode", "retrieve", "--status", "88h"];
    ctl(&socket, &[&["--nsid", "2"][..], &inject].concat()).unwrap();
    assert!(queue.retrieve(key, 100).unwrap_err().to_string().contains("88h"));
    queue.nsid = 1;
    assert_eq!(queue.retrieve(key, 100).unwrap().1, b"one");
    assert_eq!(ctl(&socket, &["--nsid", "2", "faults", "clear"]).as_deref(), Ok("1 rule cleared\n"));
    let error = ctl(&socket, &["--nsid", "3", "status"]).unwrap_err();
    assert!(error.contains("nsid 3: there is no such namespace") && error.lines().count() == 1, "{error}");
    assert!(get(&served, "/seen").contains("\"nsid\":1,") && get(&served, "/2/seen").contains("\"nsid\":2,"));

    // For a host that uses both, all vanishes if either loses its power; a drive that has power refuses `power on`.
    ctl(&socket, &["--nsid", "2", "power", "cut"]).unwrap();
    queue.retrieve(key, 100).expect_err("the subsystem has vanished");
    let error = ctl(&socket, &["power", "on"]).unwrap_err();
    assert!(error.contains("the drive has power"), "{error}");
    ctl(&socket, &["--nsid", "2", "power", "on"]).unwrap();
    let mut host = Initiator::connect(&served.address[..], &served.nqn, &Options::default()).unwrap();
    let mut queue = host.io_queue(1, 32).unwrap();
    assert_eq!(queue.retrieve(key, 100).unwrap().1, b"one");
    queue.nsid = 2;
    assert_eq!(queue.retrieve(key, 100).unwrap().1, b"two");

    ctl(&socket, &["drain"]).unwrap();
    let mut report = String::new();
    served.output.read_to_string(&mut report).unwrap();
    assert!(served.program.wait().unwrap().success(), "{report}");
    assert!(report.contains("namespace 1\n") && report.contains("namespace 2\n"), "{report}");
}
