//! One synchronous command explained: its steps fill its time without a gap, and every byte that crossed is among them.

use kvdrive_lab::config::Document;
use kvdrive_lab::explain::{Kind, explain};

fn document(settings: &[&str]) -> Document {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    settings.iter().for_each(|setting| document.set(setting).expect("a setting"));
    document
}

#[test]
fn steps_follow_each_other_from_the_call_to_the_return() {
    let kinds = [Kind::Store, Kind::Retrieve, Kind::Delete, Kind::Exist, Kind::List, Kind::Seek];
    for row in kvdrive_link::transfer::METHODS.iter().filter(|row| !row.name.contains("pipelined")) {
        let method = format!("host.transfer={}", row.name);
        for kind in kinds {
            let settings = [
                method.as_str(),
                "workload.value_size=300",
                "link.cxl_store_ns=0",
                "link.cxl_line_ns=0",
                "host.cxl_setup_ns=0",
            ];
            let explanation = explain(&document(&settings), kind).expect("it runs");
            assert!(explanation.status.is_success());
            let mut at = 0;
            for step in &explanation.steps {
                assert_eq!(step.at, at, "{} {kind:?}: a gap before {:?}", row.name, step.what);
                at += step.span_ns;
            }
            assert_eq!(at, explanation.latency_ns, "{} {kind:?}", row.name);
        }
    }
}

#[test]
fn every_byte_is_among_the_steps() {
    for (method, bytes, payload_bytes) in
        [("prp", 128, 4184), ("piggyback", 35, 88), ("piggyback", 128, 264), ("hybrid", 4096 + 32, 4272)]
    {
        let settings = [format!("host.transfer={method}"), format!("workload.value_size={bytes}")];
        let explanation = explain(&document(&[&settings[0], &settings[1]]), Kind::Store).expect("it runs");
        let crossed: u64 =
            explanation.steps.iter().filter(|step| step.room == "link").map(|step| step.bytes).sum();
        assert_eq!(crossed, payload_bytes, "{method}, {bytes} B");
    }
}
