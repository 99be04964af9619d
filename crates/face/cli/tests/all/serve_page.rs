//! The page of `kvdrive serve`: what it answers, to which requests, and that it stays reachable.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::serve::{Served, serve, store_and_retrieve};

/// The page's answer to a request.
fn answer(served: &Served, request: &str) -> String {
    let mut stream = TcpStream::connect(&served.page).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The page's answer to a request for `path`.
pub(crate) fn get(served: &Served, path: &str) -> String {
    answer(served, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", served.page))
}

/// A web page that points a name of its own at this machine must not read the page of the drive through it.
#[test]
fn a_request_that_names_another_host_is_refused() {
    let served = serve(&["--http-name", "Drive.example.org"]);
    let port = served.page.rsplit(':').next().unwrap();
    let ask = |path: &str, lines: &str| {
        answer(&served, &format!("GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n"))
    };
    for host in [
        served.page.as_str(),
        "localhost",
        &format!("LocalHost:{port}"),
        "localhost.",
        "127.8.0.1",
        &format!("[::1]:{port}"),
        "192.0.2.7:80",
        "[2001:db8::7]",
        "drive.example.org:443",
    ] {
        let answer = ask("/seen", &format!("Host: {host}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}: {answer}");
    }
    for host in
        ["attacker.example", "localhost.attacker.example", "127.0.0.1.attacker.example:80", "", "[::1", "a b"]
    {
        for path in ["/", "/metrics", "/seen", "/events", "/curve", "/nothing"] {
            let answer = ask(path, &format!("Host: {host}\r\n"));
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 421"), "{host} {path}: {answer}");
            assert!(body.contains("--http-name") && body.trim_end().lines().count() == 1, "{body}");
        }
    }
    let twice = ask("/seen", "Host: localhost\r\nHost: attacker.example\r\n");
    assert!(twice.starts_with("HTTP/1.1 4"), "{twice}");
    // A program without a name to say, as HTTP/1.0 permits; web browsers always say one.
    assert!(answer(&served, "GET /seen HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200"));
    let absolute = answer(&served, "GET http://attacker.example/seen HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(absolute.starts_with("HTTP/1.1 421"), "{absolute}");
}

/// Despite many requests and streams that never end, a further connection is answered.
#[test]
fn half_sent_requests_and_streams_do_not_keep_the_page() {
    let served = serve(&[]);
    let open = |request: &'static str| {
        let begin = move |page: &str| {
            let mut stream = TcpStream::connect(page).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        };
        (0..40).map(|_| begin(&served.page)).collect::<Vec<_>>()
    };
    let mut halves = open("GET /metrics HTTP/1.1\r\nHost: ");
    let streams = open("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(get(&served, "/metrics").starts_with("HTTP/1.1 200"));
    drop(streams);
    halves[39].set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let mut answer = String::new();
    let _ = halves[39].read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.contains("408"), "{answer}");
}

#[test]
fn metrics_are_written_as_is_asked_for_and_a_page_for_all_is_warned_of() {
    let served = serve(&["--http", "127.0.0.1:0"]);
    let ask = |accept: &str| {
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        );
        answer(&served, &request)
    };
    let plain = ask("text/plain");
    assert!(plain.contains("content-type: text/plain; version=0.0.4") && !plain.contains("# EOF"), "{plain}");
    let open = ask("application/openmetrics-text;version=1.0.0,text/plain;q=0.3");
    assert!(open.contains("content-type: application/openmetrics-text") && open.contains("# EOF"), "{open}");
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_kvdrive"))
        .args(["serve", "--listen", "tcp://127.0.0.1:0", "--http", "0.0.0.0:0"])
        .args(["--control", folder.path().join("drive.sock").to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut warning = String::new();
    BufReader::new(program.stderr.take().unwrap()).read_line(&mut warning).unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(warning.contains("warning: --http 0.0.0.0:"), "{warning}");
}

#[test]
fn the_page_the_metrics_and_the_snapshot_are_where_it_says() {
    let served = serve(&[]);
    store_and_retrieve(&served);
    let get = |path: &str| get(&served, path);
    let page = get("/");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("new EventSource(\"events\")"), "{page}");
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "it needs nothing else");
    let metrics = get("/metrics");
    for line in [
        "kvdrive_hosts_io_commands_total{opcode=\"store\"} 1.0",
        "kvdrive_command_seconds_count{opcode=\"store\"} 1",
        "kvdrive_drive_command_seconds_count{opcode=\"retrieve\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let seen = get("/seen");
    assert!(seen.contains("\"has_power\":1"), "{seen}");
    assert!(get("/nothing").starts_with("HTTP/1.1 404"));
    // The commands are in the curve after the second that follows them, whether the page is open or not.
    let last = || {
        let curve = get("/curve");
        let points: Vec<(u64, u64)> = serde_json::from_str(curve.rsplit("\r\n\r\n").next().unwrap()).unwrap();
        points.last().copied().unwrap_or_default()
    };
    while last().0 < 2 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(last().1 > 0, "a point has its time");
}

/// Clients that ask for the metrics again and again, and read nothing: 32 of them made the server hold 700 MB.
#[test]
fn clients_that_read_no_answer_do_not_grow_the_server() {
    let served = serve(&[]);
    let status = format!("/proc/{}/status", served.program.id());
    let of = |name: &str| -> u64 {
        let status = std::fs::read_to_string(&status).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!(get(&served, "/metrics").starts_with("HTTP/1.1 200"));
    let before_kib = of("VmRSS:");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    for _ in 0..3 {
        let clients: Vec<TcpStream> = (0..32)
            .map(|_| {
                let mut client = TcpStream::connect(&served.page).unwrap();
                client.set_nonblocking(true).unwrap();
                let _ = client.write(request.as_bytes());
                client
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(700));
        drop(clients);
    }
    assert!(get(&served, "/metrics").starts_with("HTTP/1.1 200"));
    let (grown_kib, threads) = (of("VmRSS:").saturating_sub(before_kib), of("Threads:"));
    assert!(grown_kib < 100 << 10 && threads < 30, "{} MiB more, {threads} threads", grown_kib >> 10);
}
