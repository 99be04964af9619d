//! Completions of a drive on a thread of its own: in groups for a host that waits for groups, else a few at a time.

use std::sync::{Arc, Condvar, Mutex};

use kvdrive_host::threaded::Serving;
use kvdrive_link::shared::{CompletionSink, ServerConfig, SharedLink, SharedQueue, serve_thread};
use kvdrive_nvme::{Command, Cqe, DRIVE_NSID};
use kvdrive_sim::wall::Pace;

use crate::firmware::{self, Counters, Steered};
use crate::threaded::key;

/// A host that notes how many completions it gets at a time.
struct Counting {
    gathers: bool,
    groups: Mutex<Vec<usize>>,
    came: Condvar,
}

impl CompletionSink for Counting {
    fn complete(&self, _: &SharedQueue, cqes: &[Cqe]) {
        self.groups.lock().unwrap().push(cqes.len());
        self.came.notify_one();
    }

    fn gathers(&self) -> bool {
        self.gathers
    }

    fn power_off(&self) {}
}

/// The groups in which commands of one doorbell complete.
fn groups(pace: Pace, gathers: bool, commands: u16) -> Vec<usize> {
    let sink = Arc::new(Counting { gathers, groups: Mutex::default(), came: Condvar::new() });
    let (link, _admin) = SharedLink::new(sink.clone());
    let config = ServerConfig { pace, recorder: None };
    let serving: Serving<Steered, Counters> = serve_thread(&link, config, firmware::build).unwrap();
    let queue = link.create_queue(64, sink.clone()).unwrap();
    let exist = |cid: u16| Command::Exist { key: key(cid.into()) }.encode(cid, DRIVE_NSID);
    assert!(queue.submit(&mut (0..commands).map(exist).collect(), 0));
    let is_missing = |groups: &mut Vec<usize>| groups.iter().sum::<usize>() < usize::from(commands);
    let groups = sink.came.wait_while(sink.groups.lock().unwrap(), is_missing).unwrap().clone();
    link.close();
    serving.join();
    groups
}

#[test]
fn completions_of_many_commands_come_in_groups_where_the_host_waits_for_them() {
    let gathered = groups(Pace::Off, true, 32);
    assert!(gathered[0] >= 16 && gathered.iter().sum::<usize>() == 32, "{gathered:?}");
    assert_eq!(groups(Pace::Off, true, 1), [1], "a lone command waits for no other");
    assert_eq!(groups(Pace::Off, true, 7).iter().sum::<usize>(), 7);
    for (pace, gathers) in [(Pace::Off, false), (Pace::Model, true)] {
        let few = groups(pace, gathers, 32);
        assert!(few.iter().all(|group| *group <= 8), "{pace:?}: {few:?}");
    }
}
