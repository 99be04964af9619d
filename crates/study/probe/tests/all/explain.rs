//! One synchronous command explained: its steps fill its time without a gap, and include every byte that
//! crossed. On every engine, with every transfer method whose commands follow each other.

use kvdrive_config::Document;
use kvdrive_probe::explain::{Kind, explain};
use kvdrive_sim::TraceEntry;

fn document(settings: &[&str]) -> Document {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    settings.iter().for_each(|setting| document.set(setting).expect("a setting"));
    document
}

#[test]
fn steps_follow_each_other_from_the_call_to_the_return() {
    for row in kvdrive_link::transfer::METHODS.iter().filter(|row| !row.overlaps) {
        let method = format!("host.transfer={}", row.name);
        let settings = [
            method.as_str(),
            "workload.value_size=300",
            "link.cxl_store_ns=0",
            "link.cxl_line_ns=0",
            "host.cxl_setup_ns=0",
        ];
        follow_each_other(&document(&settings));
    }
}

#[test]
fn steps_of_every_engine_follow_each_other() {
    for row in kvdrive_device::engines::ENGINES {
        for transfer in ["prp", "piggyback"] {
            let mut document = Document::profile("kvvirt").expect("the profile exists");
            let (engine, method) = (format!("engine.name={}", row.name), format!("host.transfer={transfer}"));
            for set in [&engine, &method, "flash.blocks_per_die=64", "workload.value_size=300"] {
                document.set(set).expect("a setting");
            }
            follow_each_other(&document);
        }
    }
}

/// Every kind of command consists of consecutive steps.
fn follow_each_other(document: &Document) {
    let config = document.config().expect("it is whole");
    let name = format!("{} {}", config.engine.name, config.host.transfer.method);
    let batch = Kind::Batch(3);
    for kind in [Kind::Store, batch, Kind::Retrieve, Kind::Delete, Kind::Exist, Kind::List, Kind::Seek] {
        let explanation = explain(document, kind, &[]).expect("it runs");
        assert!(explanation.status.is_success());
        let mut at = 0;
        for step in &explanation.steps {
            assert_eq!(step.at, at, "{name} {kind:?}: a gap before {:?}", step.what);
            at += step.span_ns;
        }
        assert_eq!(at, explanation.latency_ns, "{name} {kind:?}");
    }
}

#[test]
fn every_byte_is_among_the_steps() {
    for (method, bytes, payload_bytes) in
        [("prp", 128, 4184), ("piggyback", 35, 88), ("piggyback", 128, 264), ("hybrid", 4096 + 32, 4272)]
    {
        let settings = [format!("host.transfer={method}"), format!("workload.value_size={bytes}")];
        let explanation =
            explain(&document(&[&settings[0], &settings[1]]), Kind::Store, &[]).expect("it runs");
        let crossed: u64 =
            explanation.steps.iter().filter(|step| step.room == "link").map(|step| step.bytes).sum();
        assert_eq!(crossed, payload_bytes, "{method}, {bytes} B");
    }
}

/// Only commands that use a window ask for one, and the other steps are the store: `88 + 68 x ceil(v / 64)`.
#[test]
fn asking_for_a_window_is_told_apart_from_the_store() {
    for (method, bytes, asking, payload_bytes) in [
        ("cxl", 128, 88, 224),
        ("piggyback-cxl", 100, 88, 224),
        ("piggyback-cxl", 20, 0, 88),
        ("adaptive-cxl", 20, 88, 156),
        ("prp", 128, 0, 4184),
        ("piggyback", 128, 0, 264),
    ] {
        let settings = [format!("host.transfer={method}"), format!("workload.value_size={bytes}")];
        let explanation =
            explain(&document(&[&settings[0], &settings[1]]), Kind::Store, &[]).expect("it runs");
        let (ahead, store) = explanation.steps.split_at(explanation.asking);
        let crossed = |steps: &[TraceEntry]| -> u64 {
            steps.iter().filter(|step| step.room == "link").map(|step| step.bytes).sum()
        };
        assert_eq!((crossed(ahead), crossed(store)), (asking, payload_bytes), "{method}, {bytes} B");
    }
}

/// SAKER's part comes first, then the link, and flash last, possibly after the answer.
#[test]
fn a_batch_from_the_container_to_flash() {
    for row in kvdrive_device::engines::ENGINES {
        let mut document = Document::profile("saker-mid").expect("the profile exists");
        let engine = format!("engine.name={}", row.name);
        for set in [&engine, "saker.enabled=true", "workload.value_size=16", "flash.blocks_per_die=64"] {
            document.set(set).unwrap_or_else(|error| panic!("{set}: {error}"));
        }
        let explanation = explain(&document, Kind::Batch(4), &[]).expect("it runs");
        assert!(explanation.status.is_success(), "{}", row.name);
        let rooms: Vec<&str> = explanation.steps.iter().map(|step| step.room).collect();
        let of = |room: &str| rooms.iter().position(|other| *other == room);
        assert_eq!(of("saker"), Some(0), "{}: {rooms:?}", row.name);
        assert!(of("link") > of("saker") && of("controller") > of("saker"), "{}: {rooms:?}", row.name);
        let (before, after_answer) =
            explanation.steps.split_at(explanation.steps.len() - explanation.after_answer);
        assert!(before.iter().all(|step| step.at + step.span_ns <= explanation.latency_ns));
        assert!(after_answer.iter().all(|step| step.at >= explanation.latency_ns));
        let unpacked = before.iter().filter(|step| step.what == "unpack").count();
        assert_eq!(unpacked, 4, "{}", row.name);
        let programmed = explanation.steps.iter().any(|step| step.what.contains("program"));
        assert!(programmed, "{}: {:?}", row.name, explanation.steps);
    }
}
