//! Drives of this program keep every clause, by every way to them.

use kvdrive_conform::Wanted;
use kvdrive_conform::clauses::clauses;
use kvdrive_conform::in_process::InProcess;
use kvdrive_conform::report::Verdict;
use kvdrive_conform::target::{Data, Target};
use kvdrive_nvme::Sqe;
use kvdrive_nvme::opcode::admin;
use kvdrive_subsystem::subsystem::Options;

use super::rig::{Served, checked, config};

/// Clauses that a drive does not offer on its own queues.
fn not_offered(report: &kvdrive_conform::report::Report) -> Vec<&'static str> {
    let none = report.judged.iter().filter(|judged| judged.verdict == Verdict::NotOffered);
    none.map(|judged| judged.clause.id).collect()
}

#[test]
fn every_engine_keeps_every_clause() {
    for row in kvdrive_device::engines::ENGINES {
        let mut drive = InProcess::power_on(row.name, config(row.name, &[])).unwrap();
        let report = checked(&mut drive, &Wanted::default());
        assert_eq!(report.failed(), [""; 0], "{}", row.name);
        assert_eq!(report.left, Vec::<Vec<u8>>::new(), "{}", row.name);
        let is_known = |id: &&str| {
            let clause = clauses().find(|clause| clause.id == *id).unwrap();
            clause.destructive
                || matches!(clause.group.name(), "fabrics" | "digests")
                || ["key-above-kvkml", "value-max", "value-above-kvvml", "format-index"].contains(id)
        };
        let surprising: Vec<_> = not_offered(&report).into_iter().filter(|id| !is_known(id)).collect();
        assert_eq!(surprising, [""; 0], "{}", row.name);
    }
}

/// The power cut of a drive on a file goes through the file, and the value of feature 20h with it.
#[test]
fn a_drive_on_a_file_keeps_every_clause() {
    let folder = tempfile::tempdir().unwrap();
    for engine in ["lsm", "plus", "btree"] {
        let path = format!("media.path={}", folder.path().join(engine).display());
        let mut drive = InProcess::power_on(engine, config(engine, &["media.kind=file", &path])).unwrap();
        let report = checked(&mut drive, &Wanted::default());
        assert_eq!(report.failed(), [""; 0], "{engine}");
        let power = report.judged.iter().find(|judged| judged.clause.id == "ednek-power").unwrap();
        assert_eq!(power.verdict, Verdict::Pass, "{engine}: {}", power.told);
    }
}

#[test]
fn a_served_drive_keeps_every_clause() {
    let served = Served::new(config("lsm", &[]), Options::default());
    let report = checked(&mut served.target(), &Wanted::default());
    assert_eq!(report.failed(), [""; 0]);
    let none = not_offered(&report);
    let of_network: Vec<_> = none
        .iter()
        .filter(|id| {
            let clause = clauses().find(|clause| clause.id == **id).unwrap();
            matches!(clause.group.name(), "fabrics" | "digests" | "hosts")
        })
        .collect();
    assert!(of_network.is_empty(), "{of_network:?}");
}

/// Format and a full namespace, on every engine.
#[test]
fn every_engine_is_erased_by_a_format_and_keeps_values_when_full() {
    let wanted = Wanted {
        destructive: true,
        only: vec!["format-erases".into(), "format-index".into(), "capacity".into()],
    };
    for row in kvdrive_device::engines::ENGINES {
        let mut drive = InProcess::power_on(row.name, config(row.name, &[])).unwrap();
        let report = checked(&mut drive, &wanted);
        let verdicts: Vec<_> =
            report.judged.iter().map(|judged| (judged.clause.id, judged.verdict.name())).collect();
        let all = ["format-index", "format-erases", "capacity"].map(|id| (id, "pass"));
        assert_eq!(verdicts, all, "{}: {}", row.name, report.judged[2].told);
    }
}

/// A host erases a served namespace only if its server lets it.
#[test]
fn a_host_may_format_if_its_server_allows_it() {
    let wanted = Wanted { destructive: true, only: vec!["format-erases".into(), "format-index".into()] };
    for (allow_format, verdict) in [(true, Verdict::Pass), (false, Verdict::NotOffered)] {
        let options = Options { allow_format, ..Options::default() };
        let served = Served::new(config("lsm", &[]), options);
        let mut target = served.target();
        let report = checked(&mut target, &wanted);
        assert_eq!(report.count(verdict), 2, "{allow_format}");
        let sqe = Sqe::new(admin::FORMAT, 0, 1);
        let status = target.admin(sqe, Data::None).unwrap().status;
        assert_eq!(status.is_success(), allow_format, "{status}");
    }
}

/// A served drive and the same on its own queues list the same pages, and answer each.
#[test]
fn log_pages_and_features_are_the_same_on_every_port() {
    let mut local = InProcess::power_on("lsm", config("lsm", &[])).unwrap();
    let served = Served::new(config("lsm", &[]), Options::default());
    let mut network = served.target();
    let of_port = |target: &mut dyn Target| {
        let mut log = |page: u32| {
            let mut sqe = Sqe::new(admin::GET_LOG_PAGE, 0, 1);
            sqe.cdw10.set(page | 15 << 16);
            sqe.cdw14.set(1 << 24);
            target.admin(sqe, Data::In(64)).unwrap().status
        };
        let logs: Vec<_> = (0..256).map(&mut log).collect();
        let mut feature = |id: u32| {
            let mut sqe = Sqe::new(admin::GET_FEATURES, 0, 1);
            sqe.cdw10.set(id);
            target.admin(sqe, Data::None).unwrap().status
        };
        // Feature 81h, the host's identifier, is of Fabrics.
        let features: Vec<_> = (0..256).filter(|id| *id != 0x81).map(&mut feature).collect();
        (logs, features)
    };
    let (own, other) = (of_port(&mut local), of_port(&mut network));
    assert_eq!(own, other);
    let there =
        |statuses: &[kvdrive_nvme::Status]| statuses.iter().filter(|status| status.is_success()).count();
    assert_eq!(
        (there(&own.0), there(&own.1)),
        (7, 8),
        "pages 00h to 05h and C0h; 01h 02h 04h 05h 07h 0Bh 0Fh 20h"
    );
}
