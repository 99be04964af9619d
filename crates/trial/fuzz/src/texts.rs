//! Bytes as files of users: configurations, fault rules, traces.

use std::io::Write;

use kvdrive_config::Document;
use kvdrive_config::faults::rules;
use kvdrive_workload::{build, kvcache};

/// The file's name in messages.
const NAME: &str = "file.toml";
/// Limit of operations: a trace may repeat an operation a billion times.
const MOST_OPERATIONS: usize = 10_000;

/// Typical settings, one line of each kind.
pub fn configuration_seeds() -> Vec<Vec<u8>> {
    [
        "[flash]\nchannels = 4\npage_bytes = 4096\n\n[run]\nseed = 3\n",
        "engine.name = \"plus\"\nhash.dram_bytes = \"16MiB\"\n[workload]\nname = \"ycsb-a\"\nops = \"10k\"\n",
        "[lsm]\nrings = [3, 3, 4, 64]\n[host]\ntransfer = \"adaptive\"\nalpha = 0.5\n",
        // The parser panicked at these (toml_edit to 0.23).
        "==\n[._[._",
        "={=<=u==",
    ]
    .map(|text| text.into())
    .to_vec()
}

/// Lays the text over a profile, and builds a configuration.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    let read = document.merge_text(NAME, text).and_then(|()| document.config().map(drop));
    if let Err(error) = read {
        one_line(&error.to_string());
    }
}

/// One rule of each kind of matching.
pub fn fault_seeds() -> Vec<Vec<u8>> {
    [
        "[[rule]]\nfault = \"read-error\"\nkey = \"user42\"\ntimes = 3\n",
        "[[rule]]\nfault = \"status\"\nopcode = \"store\"\nstatus = \"81h\"\nprobability = \"1 %\"\n",
        "[[rule]]\nfault = \"delay\"\nat = \"program\"\nevery = 10\ndelay = \"2ms\"\nname = \"slow\"\n",
        "[[rule]]\nfault = \"power-cut\"\nafter = 1000\ntorn = true\n",
    ]
    .map(|text| text.into())
    .to_vec()
}

/// Reads the text as fault rules of an ordinary drive.
pub fn faults(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let config = Document::profile("cosmos-plus").and_then(|document| document.config());
    let geometry = config.expect("a profile is whole").flash.geometry();
    if let Err(error) = rules(NAME, text, &geometry) {
        let line = error.to_string();
        one_line(&line);
        assert!(line.starts_with(NAME), "it does not say where: {line}");
    }
}

/// A few operations of each format.
pub fn trace_seeds() -> Vec<Vec<u8>> {
    [
        "time,op,key,size\n0,store,a,100\n800,get,a,\n# a comment\n\n2us,Put,user17,4KiB\n3us,scan,a,2\n",
        "INSERT usertable user628478 [ field1=a b=c [ field0=123 ]\nREAD usertable user628478 [ <all fields>]\n\
         SCAN usertable user1 57 [ <all fields>]\n",
        "0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n0,yDqF:3q:1AJrrJ1nnCJKKrnGx1A,27,27,5,set,1728000\n",
        "op_time,key,key_size,op,op_count,size,cache_hits,ttl\n1,k1,4,GET,2,100,0,0\n2,k2,4,SET,1,50,0,0\n",
    ]
    .map(|text| text.into())
    .to_vec()
}

/// Draws the operations of a trace with these bytes.
pub fn trace(bytes: &[u8]) {
    draw("trace", bytes, &[]);
}

/// Requests to a language model: a conversation of two turns, a block that is in it twice, and no blocks at all.
pub fn request_seeds() -> Vec<Vec<u8>> {
    [
        "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 9, \"hash_ids\": [0, 1]}\n\
         {\"timestamp\": 3000, \"input_length\": 1500, \"output_length\": 9, \"hash_ids\": [0, 1, 2]}\n",
        "{\"hash_ids\": [7, 8, 7], \"output_length\": 1, \"input_length\": 1025, \"timestamp\": 1, \"other\": {}}\n",
        "{\"timestamp\": 18446744073709551615, \"input_length\": 0, \"output_length\": 0, \"hash_ids\": []}\n",
    ]
    .map(|text| text.into())
    .to_vec()
}

/// Draws the operations of a small cache of a language model by a trace with these bytes, in each layout.
pub fn requests(bytes: &[u8]) {
    for layout in kvcache::LAYOUTS {
        let objects = format!("workload.cache_objects={}", layout.name);
        draw("kvcache", bytes, &[&objects, "workload.cache_blocks=2", "workload.cache_model=llama-3.1-405b"]);
    }
}

/// Draws the operations that a workload makes of a file with these bytes.
fn draw(workload: &str, bytes: &[u8], settings: &[&str]) {
    let mut file = tempfile::NamedTempFile::new().expect("a place for a file");
    file.write_all(bytes).expect("room for a file");
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    let own = [format!("workload.name={workload}"), format!("workload.trace={}", file.path().display())];
    for setting in own.iter().map(String::as_str).chain(settings.iter().copied()) {
        document.set(setting).expect("a workload and its file");
    }
    let config = document.config().expect("a profile and a trace");
    let mut trace = match build(&config.workload, 1) {
        Ok(trace) => trace,
        Err(error) => return one_line(&error),
    };
    for _ in 0..MOST_OPERATIONS {
        match trace.draw() {
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => return one_line(&error),
        }
    }
}

fn one_line(error: &str) {
    assert!(!error.trim().is_empty() && error.lines().count() == 1, "not one line: {error:?}");
}
