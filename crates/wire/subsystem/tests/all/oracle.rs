//! Random actions of several hosts, compared with an oracle of the outcomes that the specification allows, without
//! sockets. Every unit is cut into pieces of random sizes; the oracle knows controllers, queues and pairs.

use std::collections::BTreeMap;

use kvdrive_nvme::Key;
use kvdrive_sim::Rng;
use kvdrive_subsystem::shared::{Core, Use};
use kvdrive_subsystem::subsystem::{Event, Options};
use kvdrive_subsystem::tcp::connection::{Connection, Limits};

use kvdrive_rigs::memory::Memory;
use kvdrive_rigs::wire::{address, connect, core, data, hex, ic_req, retrieve, set_cc, store, units, zeros};

const QUEUES: u8 = 3;
const HOSTS: usize = 3;
const SUCCESS: u16 = 0;
const SEQUENCE_ERROR: u16 = 0x0C;
const NOT_FOUND: u16 = 0x87;
const INVALID_PARAMETERS: u16 = 0x182;

/// The oracle's state of a controller.
struct Controller {
    id: u8,
    enabled: bool,
    connection: usize,
    queues: BTreeMap<u8, usize>,
}

struct World {
    core: Core,
    memory: Memory,
    connections: Vec<Option<Connection>>,
    rng: Rng,
    hosts: Vec<Option<Controller>>,
    pairs: BTreeMap<Key, Vec<u8>>,
    cid: u8,
}

impl World {
    fn new(seed: u64) -> World {
        let options = Options { io_queues_max: u16::from(QUEUES), ..Options::default() };
        let (core, memory) = core(options, 1 << 20);
        let hosts = (0..HOSTS).map(|_| None).collect();
        let rng = Rng::stream(seed, "oracle");
        World { core, memory, connections: Vec::new(), rng, hosts, pairs: BTreeMap::new(), cid: 0 }
    }

    fn open(&mut self) -> usize {
        let key = self.connections.len();
        self.connections.push(Some(Connection::new(key, Limits::default(), address(), &self.core)));
        let answer = self.send(key, &ic_req());
        assert_eq!(answer[0], 1);
        key
    }

    /// Sends a unit in pieces and returns the bytes that the connection sent.
    fn send(&mut self, key: usize, mut bytes: &[u8]) -> Vec<u8> {
        while !bytes.is_empty() {
            let piece = (1 + self.rng.below(bytes.len() as u64) as usize).min(bytes.len());
            let Some(connection) = &mut self.connections[key] else { return Vec::new() };
            let taken = connection.receive(&mut self.core, &bytes[..piece]);
            assert_eq!(taken, piece, "memory suffices here");
            bytes = &bytes[piece..];
        }
        self.settle();
        self.connections[key].as_mut().map(|connection| connection.output().take_all()).unwrap_or_default()
    }

    fn settle(&mut self) {
        self.core.subsystem.poll();
        while let Some(event) = self.core.subsystem.next_event() {
            let queue = match &event {
                Event::Completed(completion) => completion.tag.queue,
                Event::Close(queue) => *queue,
                _ => panic!("these hosts have no secret, and abort nothing"),
            };
            let found = self.connections.iter_mut().flatten().find(|other| other.queue() == Some(queue));
            let Some(connection) = found else { continue };
            match event {
                Event::Completed(completion) => connection.complete(&mut self.core, completion),
                Event::Close(_) => connection.end(&mut self.core),
                _ => {}
            }
        }
        for of in Use::ALL {
            assert!(self.core.memory(of).line.is_empty());
        }
    }

    /// The only response in these bytes: status and dword 0.
    #[track_caller]
    fn status(answer: &[u8]) -> (u16, u32) {
        let all = units(answer);
        let response = all.last().expect("there is an answer");
        assert_eq!(response[0], 5);
        let field = u16::from_le_bytes([response[22], response[23]]);
        (field >> 1 & 0x7FF, u32::from_le_bytes(response[8..12].try_into().unwrap()))
    }

    fn next_cid(&mut self) -> u8 {
        self.cid = self.cid.wrapping_add(1);
        self.cid
    }

    fn drop_connection(&mut self, key: usize) {
        if let Some(mut connection) = self.connections[key].take() {
            connection.abandon(&mut self.core);
        }
        self.settle();
    }

    fn act(&mut self) {
        let host = self.rng.below(HOSTS as u64) as usize;
        match self.rng.below(12) {
            0 => self.connect_admin(host),
            1 | 2 => self.connect_queue(host),
            3 => self.configure(host),
            4 => self.leave(host),
            _ => self.command(host),
        }
        let controllers = self.hosts.iter().flatten().count();
        assert_eq!(self.core.subsystem.controllers(), controllers);
        assert_eq!(self.core.used_bytes(), 0);
        for host in self.hosts.iter().flatten() {
            for key in host.queues.values().chain([&host.connection]) {
                assert!(self.connections[*key].as_ref().is_some_and(|there| !there.is_ending()));
            }
        }
    }

    fn connect_admin(&mut self, host: usize) {
        if self.hosts[host].is_some() {
            return;
        }
        let key = self.open();
        let cid = self.next_cid();
        let (status, id) = Self::status(&self.send(key, &connect(cid, 0, 31, [0xFF, 0xFF])));
        assert_eq!(status, SUCCESS);
        let taken: Vec<u8> = self.hosts.iter().flatten().map(|other| other.id).collect();
        assert!(!taken.contains(&(id as u8)), "two controllers have one identifier");
        self.hosts[host] =
            Some(Controller { id: id as u8, enabled: false, connection: key, queues: BTreeMap::new() });
    }

    fn connect_queue(&mut self, host: usize) {
        let key = self.open();
        let (cid, number) = (self.next_cid(), 1 + self.rng.below(u64::from(QUEUES) + 1) as u8);
        let (id, expected) = match &self.hosts[host] {
            None => (200, INVALID_PARAMETERS),
            Some(there) if !there.enabled => (there.id, SEQUENCE_ERROR),
            Some(there) if number > QUEUES || there.queues.contains_key(&number) => {
                (there.id, INVALID_PARAMETERS)
            }
            Some(there) => (there.id, SUCCESS),
        };
        let (status, _) = Self::status(&self.send(key, &connect(cid, number, 15, [id, 0])));
        assert_eq!(status, expected, "queue {number}");
        if let (SUCCESS, Some(there)) = (status, &mut self.hosts[host]) {
            there.queues.insert(number, key);
        } else {
            self.drop_connection(key);
        }
    }

    /// Enables, resets or shuts down.
    fn configure(&mut self, host: usize) {
        let cid = self.next_cid();
        let (wanted, enabled) =
            [("61004600", true), ("60004600", false), ("61404600", true)][self.rng.below(3) as usize];
        let Some(there) = &self.hosts[host] else { return };
        let (key, was_enabled) = (there.connection, there.enabled);
        assert_eq!(Self::status(&self.send(key, &set_cc(cid, wanted))).0, SUCCESS);
        let get = [
            hex("04 00 48 00 48 00 00 00  7f 40 fe 00 04 000000"),
            zeros(32),
            hex("00000000 1c000000"),
            zeros(16),
        ];
        let (_, csts) = Self::status(&self.send(key, &get.concat()));
        assert_eq!(csts & 1, u32::from(enabled), "CSTS.RDY");
        let Some(there) = &mut self.hosts[host] else { return };
        there.enabled = enabled;
        if was_enabled && !enabled {
            for (_, key) in std::mem::take(&mut there.queues) {
                let ended = self.connections[key].as_ref().is_none_or(Connection::is_ending);
                assert!(ended, "a reset ends I/O queues");
            }
        }
    }

    /// A connection is lost, or a queue disconnects.
    fn leave(&mut self, host: usize) {
        let (cid, whole, which) = (self.next_cid(), self.rng.one_in(2), self.rng.next_u32() as usize);
        let Some(there) = &mut self.hosts[host] else { return };
        if whole {
            let Controller { connection, queues, .. } = self.hosts[host].take().unwrap();
            self.drop_connection(connection);
            for key in queues.values() {
                let ended = self.connections[*key].as_ref().is_none_or(Connection::is_ending);
                assert!(ended, "without its admin queue a controller ends");
            }
            return;
        }
        let Some(number) = there.queues.keys().nth(which % usize::from(QUEUES)).copied() else { return };
        let key = there.queues.remove(&number).unwrap();
        if which & 64 == 0 {
            self.drop_connection(key);
            return;
        }
        let disconnect =
            [hex("04 00 48 00 48 00 00 00  7f 40"), vec![cid, 0], hex("08 000000"), zeros(56)].concat();
        let connected = self.hosts[host].as_ref().is_some_and(|there| there.enabled);
        assert!(connected, "there are no I/O queues otherwise");
        assert_eq!(Self::status(&self.send(key, &disconnect)).0, SUCCESS);
        assert!(self.connections[key].as_ref().is_some_and(Connection::is_ending));
    }

    fn command(&mut self, host: usize) {
        let cid = self.next_cid();
        let name = [b'k', self.rng.below(6) as u8];
        let key = Key::new(&name).unwrap();
        let (which, bytes) = (self.rng.next_u32() as usize, self.rng.below(20_000) as usize);
        let value: Vec<u8> = (0..bytes).map(|at| (at as u8).wrapping_add(cid)).collect();
        let Some(there) = &self.hosts[host] else { return };
        let Some(queue) = there.queues.values().nth(which % usize::from(QUEUES)).copied() else { return };
        match which % 5 {
            0 | 1 if !value.is_empty() => {
                let in_capsule = bytes <= 8192 && which & 64 == 0;
                let mut answer = self.send(queue, &store(cid, &name, &value, in_capsule));
                if !in_capsule {
                    answer = self.send_asked(queue, cid, &answer, &value);
                }
                assert_eq!(Self::status(&answer), (SUCCESS, 0));
                self.pairs.insert(key, value);
            }
            2 => {
                let mut unit = retrieve(cid, &name, 0);
                unit[8] = 0x10;
                assert_eq!(Self::status(&self.send(queue, &unit)), (SUCCESS, 0));
                self.pairs.remove(&key);
            }
            _ => {
                let room = (bytes as u32).max(1);
                let answer = self.send(queue, &retrieve(cid, &name, room));
                let Some(value) = self.pairs.get(&key) else {
                    assert_eq!(Self::status(&answer).0, NOT_FOUND);
                    return;
                };
                assert_eq!(Self::status(&answer), (SUCCESS, value.len() as u32));
                let got: Vec<u8> = units(&answer)
                    .iter()
                    .filter(|unit| unit[0] == 7)
                    .flat_map(|unit| unit[24..].to_vec())
                    .collect();
                assert_eq!(got, value[..value.len().min(room as usize)]);
            }
        }
        assert_eq!(self.memory.state.borrow().pairs, self.pairs);
    }

    /// Sends a value that the controller asked for, in a few pieces.
    fn send_asked(&mut self, queue: usize, cid: u8, r2t: &[u8], value: &[u8]) -> Vec<u8> {
        assert_eq!((r2t[0], r2t[8]), (9, cid));
        assert_eq!(u32::from_le_bytes(r2t[16..20].try_into().unwrap()) as usize, value.len());
        let tag = u16::from_le_bytes([r2t[10], r2t[11]]);
        let mut at = 0;
        loop {
            let piece = (1 + self.rng.below(8192) as usize).min(value.len() - at);
            let last = at + piece == value.len();
            let answer = self.send(queue, &data(cid, tag, at as u32, &value[at..at + piece], last));
            if last {
                return answer;
            }
            assert!(answer.is_empty());
            at += piece;
        }
    }
}

#[test]
fn hosts_that_come_work_reset_and_go_see_what_the_specification_allows() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.act();
        }
        assert!(world.core.subsystem.served().queues > 0);
        for key in 0..world.connections.len() {
            world.drop_connection(key);
        }
        assert_eq!(world.memory.state.borrow().sessions, 0, "seed {seed}");
    }
}
