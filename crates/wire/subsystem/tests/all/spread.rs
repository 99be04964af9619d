//! Several drives used by one pipeline, each with its share of the keys.

use std::collections::BTreeMap;

use kvdrive_content::Region;
use kvdrive_host::spread::{Pipeline, Spread};
use kvdrive_host::tcp::{Initiator, Options as HostOptions};
use kvdrive_host::{Answer, Call, Completion, Pipelined};
use kvdrive_nvme::list::{LIST_HEADER_BYTES, entry_bytes};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::Rng;
use kvdrive_subsystem::subsystem::Options;

use kvdrive_rigs::served::{Backend, Running, serve};

const NAMES: [&str; 3] = ["a", "b", "c"];
const DEPTH: u32 = 8;

struct Several {
    servers: Vec<Option<Running>>,
    /// Its drivers live as long as the test.
    pipeline: Pipeline<'static, Vec<u8>>,
    _hosts: Vec<Initiator>,
}

impl Several {
    fn serve(settings: &[&str]) -> Several {
        let settings: Vec<String> = settings.iter().map(|set| set.to_string()).collect();
        let servers: Vec<_> =
            NAMES.map(|_| serve(Backend::Beside(settings.clone()), Options::default(), 1 << 20)).into();
        let (mut hosts, mut drivers) = (Vec::new(), Vec::new());
        for server in &servers {
            let mut host = Initiator::connect(server.at, &server.nqn, &HostOptions::default()).unwrap();
            let queue = host.io_queue(1, DEPTH as u16 + 1).unwrap();
            let driver = queue.into_driver(DEPTH, 1 << 20, 1 << 20).unwrap();
            drivers.push(Some(Box::leak(Box::new(driver))));
            hosts.push(host);
        }
        let is_ordered = settings.is_empty();
        let silence = HostOptions::default().silence;
        let spread = Spread::new(&NAMES).unwrap();
        let pipeline = Pipeline::new(spread, drivers, DEPTH, is_ordered, silence).unwrap();
        Several { servers: servers.into_iter().map(Some).collect(), pipeline, _hosts: hosts }
    }

    /// Makes one call, and waits for its answer.
    fn call(&mut self, call: Call<()>, value: &[u8]) -> (Result<Answer, Status>, Region) {
        self.pipeline.begin(call, value.to_vec(), Region::new()).expect("there is room");
        let Completion { result, content, .. } = self.pipeline.next_completion().unwrap().unwrap();
        (result, content)
    }

    fn store(&mut self, key: Key, value: &[u8]) -> Result<Answer, Status> {
        self.call(Call::Store { key, value: (), options: StoreOptions::default() }, value).0
    }

    /// The keys and values of a scan, to its end.
    fn scan(&mut self, from: Option<Key>) -> Vec<(Key, Vec<u8>)> {
        let (opened, mut content) = self.call(Call::Seek { key: from }, &[]);
        let (iterator, mut pair) = opened.unwrap().opened();
        let mut found = Vec::new();
        while let Some(this) = pair {
            found.push((this.key, content.to_bytes(this.value_bytes)));
            let (next, came) = self.call(Call::Next { iterator }, &[]);
            (pair, content) = (next.unwrap().pair(), came);
        }
        assert_eq!(self.call(Call::Next { iterator }, &[]).0.unwrap().pair(), None, "it stays at its end");
        assert_eq!(self.call(Call::Close { iterator }, &[]).0, Ok(Answer::Done));
        let again = self.call(Call::Next { iterator }, &[]).0;
        assert_eq!(again, Err(Status::NO_SUCH_ITERATOR), "it is closed");
        found
    }
}

/// Keys and values that are the same in every run.
fn pairs(count: u32) -> BTreeMap<Key, Vec<u8>> {
    let mut rng = Rng::stream(11, "spread");
    (0..count)
        .map(|_| rng.below(1 << 20) as u32)
        .map(|n| (Key::from_u32_be(n), n.to_le_bytes().to_vec()))
        .collect()
}

#[test]
fn lists_and_scans_of_ordered_drives_are_those_of_one() {
    let mut several = Several::serve(&[]);
    let oracle = pairs(300);
    for (key, value) in &oracle {
        assert_eq!(several.store(*key, value), Ok(Answer::Done));
    }
    let stored: Vec<u64> = several.pipeline.tally().take().iter().map(|share| share.stores).collect();
    assert!(stored.iter().all(|stores| *stores > 50), "{stored:?}");
    assert_eq!(stored.iter().sum::<u64>(), oracle.len() as u64);
    let (middle, _) = oracle.iter().nth(150).unwrap();
    for from in [None, Some(*middle)] {
        let rest =
            || oracle.range(from.unwrap_or(Key::from_u32_be(0))..).map(|(key, value)| (*key, value.clone()));
        assert_eq!(several.scan(from), rest().collect::<Vec<_>>());
        for count in [0, 1, 7, 1000] {
            let buffer_bytes = (LIST_HEADER_BYTES + count * entry_bytes(4)) as u32;
            let keys = several.call(Call::List { start: from, buffer_bytes }, &[]).0.unwrap().keys();
            assert_eq!(keys, rest().map(|(key, _)| key).take(count).collect::<Vec<_>>(), "{count}");
        }
    }
    assert_eq!(several.call(Call::Batch { value: () }, &[]).0, Err(Status::INVALID_OPCODE));
}

#[test]
fn drives_without_an_order_are_scanned_one_after_the_other() {
    let mut several =
        Several::serve(&["engine.name=plus", "flash.blocks_per_die=64", "flash.spare_blocks=0"]);
    let oracle = pairs(200);
    for (key, value) in &oracle {
        assert_eq!(several.store(*key, value), Ok(Answer::Done));
    }
    assert_eq!(several.scan(None).into_iter().collect::<BTreeMap<_, _>>(), oracle);
    let list = several.call(Call::List { start: None, buffer_bytes: 4096 }, &[]).0;
    assert_eq!(list, Err(Status::INVALID_OPCODE));
}

/// Commands under way, also those of a scan, end; no call waits for the lost drive.
#[test]
fn a_lost_drive_takes_its_keys_along_and_the_others_go_on() {
    let mut several = Several::serve(&[]);
    let (oracle, spread) = (pairs(200), Spread::new(&NAMES).unwrap());
    for (key, value) in &oracle {
        assert_eq!(several.store(*key, value), Ok(Answer::Done));
    }
    let (opened, _) = several.call(Call::Seek { key: None }, &[]);
    let (iterator, _) = opened.unwrap().opened();
    several.pipeline.tally().take();
    several.servers[1].take().unwrap().end();
    let (mut failed, mut under_way) = (0, oracle.keys());
    loop {
        while several.pipeline.has_room()
            && let Some(key) = under_way.next()
        {
            several.pipeline.begin(Call::Retrieve { key: *key }, Vec::new(), Region::new()).unwrap();
        }
        let Some(Completion { call, result, content, .. }) = several.pipeline.next_completion().unwrap()
        else {
            break;
        };
        let key = call.key().unwrap();
        failed += u64::from(result.is_err());
        match spread.place(&key.to_array()[..key.len()]) {
            1 => assert_eq!(result, Err(Status::HOST_PATH_ERROR), "{key}"),
            _ => assert_eq!(content.to_bytes(result.unwrap().value()), oracle[&key], "{key}"),
        }
    }
    let nexts = (0..=oracle.len()).map(|_| several.call(Call::Next { iterator }, &[]).0);
    assert!(
        nexts.into_iter().any(|next| next == Err(Status::HOST_PATH_ERROR)),
        "no scan is short of pairs unsaid"
    );
    assert_eq!(several.call(Call::Close { iterator }, &[]).0, Err(Status::HOST_PATH_ERROR));
    assert_eq!(several.call(Call::Seek { key: None }, &[]).0, Err(Status::HOST_PATH_ERROR));
    let (tally, lost) = (several.pipeline.tally().take(), several.pipeline.tally().lost());
    assert!(lost[1].is_some() && lost[0].is_none() && lost[2].is_none(), "{lost:?}");
    assert!(failed > 30 && tally[1].failed >= failed && tally[1].retrieves == 0, "{tally:?}");
    assert_eq!((tally[0].failed, tally[2].failed), (0, 0), "{tally:?}");

    // When all drives are lost, calls return the error.
    for number in [0, 2] {
        several.servers[number].take().unwrap().end();
    }
    several
        .pipeline
        .begin(Call::Exist { key: *oracle.keys().next().unwrap() }, Vec::new(), Region::new())
        .unwrap();
    several.pipeline.begin(Call::Seek { key: None }, Vec::new(), Region::new()).unwrap();
    while let Ok(ended) = several.pipeline.next_completion() {
        assert!(ended.expect("they are under way").result.is_err());
    }
    assert!(several.pipeline.tally().lost().iter().all(Option::is_some));
}
