//! The link between threads, the application's side of it.

use std::sync::Arc;

use kvdrive_link::shared::{CompletionSink, NoQueue, SharedLink, SharedQueue};
use kvdrive_nvme::Cqe;

/// A host without a bell.
struct Nowhere;

impl CompletionSink for Nowhere {
    fn complete(&self, _queue: &SharedQueue, _cqes: &[Cqe]) {}
    fn power_off(&self) {}
}

#[test]
fn one_queue_pair_more_than_there_are_identifiers_is_refused() {
    let sink = Arc::new(Nowhere);
    let (link, _admin) = SharedLink::new(sink.clone());
    for number in 1..=u16::MAX {
        assert!(link.create_queue(2, sink.clone()).is_ok(), "queue pair {number}");
    }
    let refused = link.create_queue(2, sink).err();
    assert_eq!(refused, Some(NoQueue::NoIdentifier));
    assert!(refused.unwrap().to_string().starts_with("the drive has 65536 queue pairs"));
}
