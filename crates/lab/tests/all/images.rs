//! Images read from end to end, as `kvdrive check` and `kvdrive dump` do.

use kvdrive_flash::power::machine_file::faults::{self, Call, Fault};
use kvdrive_lab::config::Document;
use kvdrive_lab::image::{PairState, read_image};
use kvdrive_lab::run::run;

/// A full disk keeps nobody from reading what is on it.
#[test]
fn an_image_that_takes_no_write_is_read_all_the_same_and_not_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("media.path={}", folder.path().join("image").display());
    let mut document = Document::profile("cosmos-plus").unwrap();
    for set in ["media.kind=file", &path, "workload.name=fillseq", "workload.ops=300"] {
        document.set(set).unwrap();
    }
    run(&document, &|_, _| {}).unwrap();
    let full = Fault { call: Call::Write, which: 0..u64::MAX, error: std::io::ErrorKind::StorageFull };
    faults::arm(Some(full.clone()));
    let mut heard = 0;
    let tally = read_image(&document, false, &mut |_, found| {
        heard += u64::from(matches!(found, PairState::Whole(_)));
    })
    .expect("it is read");
    assert_eq!((tally.whole, heard), (300, 300));
    let failure = tally.write_failure.as_ref().expect("it is said").to_string();
    assert!(tally.is_whole() && failure.contains("image") && failure.contains("read-only"), "{failure}");
    faults::arm(Some(full));
    let error = read_image(&document, true, &mut |_, _| {}).expect_err("nothing could be deleted");
    faults::arm(None);
    assert!(error.to_string().contains("read-only"), "{error}");
    assert_eq!(read_image(&document, false, &mut |_, _| {}).unwrap().write_failure, None);
}
