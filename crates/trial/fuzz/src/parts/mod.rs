//! Values in parts: two hosts on connections without sockets, which store, retrieve and lie, and a small drive of any
//! engine behind them, whose power may be cut at any of its events.
//!
//! ```text
//!   the first byte: the engine. Then steps of 8 bytes:
//!     kind  host and stream  key  wait  first (2)  second (2)          numbers: low byte first
//!
//!      0 NEXT            the next part of the stream's value; a new one has 64 * first bytes, in parts of 64 * second
//!      1 PART            a part from 16 * first on, of 8 * second bytes, of a value as large as the stream's
//!      2 STORE           a value of 64 * first bytes by one command, which the connection divides if it is large
//!      3 RETRIEVE        into 64 * first bytes
//!      4 RETRIEVE_PART   from 64 * first on, 64 * second bytes
//!      5 DELETE          6 DISCARD: the stream's value
//!      7 DATA            64 * second bytes of what was asked for
//!      8 WRONG_DATA      the same, from first too far on, with second bytes too many
//!      9 ALTER           the next unit at byte first, by second; a further ALTER adds to it
//!     10 LEAVE           both connections of the host end, and it connects anew
//!     11 CUT             the drive loses its power, and starts again
//!     12 PAUSE           10 * first ms pass
//!   bit 7 of the kind: data are sent by DATA steps only. The next step begins after so many looks of the drive's loop as
//!   `wait` says; from 128 on, when the drive has nothing left to do.
//! ```
//!
//! A third host stores pairs before and looks at them in between: a value is one that was stored, whole, and other keys
//! keep theirs ([`oracle`]). What the loop looks at between two events depends a little on the machine's clock, so a cut
//! may come some events earlier or later when an input is tried again.

mod host;
mod oracle;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kvdrive_config::Config;
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::power::Survivors;
use kvdrive_link::shared::{ServerConfig, Serving};
use kvdrive_nvme::{Command, Key, RetrieveOptions, RetrievePart, Status, Store, StoreOptions, StorePart};
use kvdrive_run::wall::{Running, ServedDrive, served};
use kvdrive_sim::Ns;
use kvdrive_sim::wall::{Bell, Pace, Polled, Sleeper, Source};
use kvdrive_subsystem::drive::power_on_beside;
use kvdrive_subsystem::namespace::ServedNamespace;
use kvdrive_subsystem::shared::Core;
use kvdrive_subsystem::subsystem::{Options, Subsystem};

use host::{Host, give_memory, hand_over, keys_of};
use kvdrive_rigs::drive::document;
use oracle::Oracle;

const STEP_BYTES: usize = 8;
const SLOW: u8 = 1 << 7;
const KINDS: u8 = 13;
/// Values of `wait` from here on: until the drive is idle.
const UNTIL_IDLE: u8 = 128;
/// Memory of the server for data, less than three large values.
const MEMORY_BYTES: usize = 6 << 20;
const TRANSFER_MAX_BYTES: u32 = 4 << 20;
/// The small drive is large enough for some values that a connection divides, which are larger than 2 MiB.
const LARGE: [&str; 2] = ["controller.max_value_bytes=4194304", "flash.blocks_per_die=112"];
/// Hosts that carry out the steps; one more, the keeper, stores pairs before and looks at them in between.
const HOSTS: usize = 2;
const KEEPER: usize = HOSTS;
/// Sizes of the pairs that are stored before.
const KEPT_BYTES: [u32; 4] = [10, 5_000, 70_000, 300_000];
/// Streams of a host, from 1 on.
const STREAMS: usize = 4;
/// A look is this much later than the one before, by the clock that decides which hosts are at work.
const LOOK_NS: u64 = 1000;
/// Looks after which a loop without an end is one.
const LOOKS_MAX: u64 = 20_000_000;

enum Act {
    Step([u8; STEP_BYTES]),
    /// The keeper stores the pair of this number.
    Keep(usize),
    /// The keeper looks up every key, and lists all.
    Look,
    LookUp(Key),
    /// Hosts leave.
    Leave,
    End,
}

/// A value of which a host sends the parts in their order.
#[derive(Clone, Copy)]
struct Plan {
    store: Store,
    at: u32,
    part_bytes: u32,
}

/// Hosts and steps. They outlive the power of the drive.
struct Player {
    core: Core,
    hosts: Vec<Host>,
    oracle: Oracle,
    acts: VecDeque<Act>,
    plans: [[Option<Plan>; STREAMS]; HOSTS],
    /// Looks until the next act; `None`: until the drive is idle.
    wait: Option<u8>,
    looks: u64,
    /// The keeper's command under way is one that has to succeed.
    awaited: Option<Awaited>,
}

#[derive(Clone, Copy)]
enum Awaited {
    Stored,
    Found(Key),
    Listed,
}

/// The player while the drive has power.
struct Session<'a> {
    player: &'a mut Player,
    serving: &'a Serving<Running, ServedDrive>,
    is_over: bool,
}

/// The loop does not sleep: there is always a next act.
struct Awake;

impl Sleeper for Awake {
    fn sleep(&mut self, _: Duration) {}
}

fn key_of(number: u8) -> Key {
    Key::new(&[b'k', number % 4]).expect("two bytes")
}

fn plain(key: Key, value_bytes: u32) -> Store {
    Store { key, value_bytes, options: StoreOptions::default() }
}

impl Player {
    fn new(steps: &[[u8; STEP_BYTES]]) -> Player {
        let options = Options { transfer_max_bytes: TRANSFER_MAX_BYTES, ..Options::default() };
        let core = Core::new(Subsystem::new(options).expect("valid options"), MEMORY_BYTES);
        let kept = (0..KEPT_BYTES.len()).map(Act::Keep);
        let steps = steps.iter().map(|step| Act::Step(*step));
        let ends = [Act::Look, Act::Leave, Act::Look, Act::End];
        Player {
            core,
            hosts: Vec::new(),
            oracle: Oracle::default(),
            acts: kept.chain(steps).chain(ends).collect(),
            plans: Default::default(),
            wait: None,
            looks: 0,
            awaited: None,
        }
    }

    /// The drive has power.
    fn begin(&mut self, namespace: Box<dyn ServedNamespace>) {
        if self.hosts.is_empty() {
            self.core.subsystem.attach(1, namespace);
        } else {
            self.core.subsystem.replace(1, namespace);
            self.acts.push_front(Act::Look);
        }
        self.hosts.clear();
        (self.wait, self.awaited) = (None, None);
    }

    /// The drive has lost its power: every command is answered or dropped, and nothing of it remains.
    fn lost_power(&mut self) {
        self.core.subsystem.poll();
        hand_over(&mut self.core, &mut self.hosts);
        for number in 0..self.hosts.len() {
            self.leave(number);
        }
        self.core.subsystem.poll();
        hand_over(&mut self.core, &mut self.hosts);
        self.check_nothing_left();
        self.oracle.is_quiet();
    }

    fn leave(&mut self, number: usize) {
        let Player { core, hosts, oracle, plans, .. } = self;
        hosts[number].end(core, oracle);
        if let Some(plans) = plans.get_mut(number) {
            *plans = Default::default();
        }
    }

    fn check_nothing_left(&self) {
        let left = (self.core.used_bytes(), self.core.subsystem.controllers());
        assert_eq!(left, (0, 0), "memory or controllers are left");
    }

    /// A look of the loop; `false`: the drive still has something to do.
    fn look(&mut self) -> bool {
        let Player { core, hosts, oracle, .. } = self;
        core.now_ns += LOOK_NS;
        core.subsystem.note_time(core.now_ns);
        let under_way = core.subsystem.poll() | core.subsystem.holds_commands();
        if core.subsystem.is_starting() {
            return false;
        }
        for number in hosts.len()..=KEEPER {
            hosts.push(Host::connect(core, number));
        }
        let mut any = under_way | hand_over(core, hosts);
        give_memory(core, hosts);
        for host in hosts.iter_mut() {
            any |= host.move_bytes(core, oracle);
        }
        assert!(core.used_bytes() <= core.limit_bytes(), "more memory than there is");
        for number in 0..HOSTS {
            if !self.hosts[number].is_open() {
                self.leave(number);
                self.hosts[number] = Host::connect(&mut self.core, number);
            }
        }
        self.looks += 1;
        assert!(self.looks < LOOKS_MAX, "it does not end");
        !any
    }

    /// Carries the next act out; `true`: it is a cut of the power.
    fn act(&mut self) -> bool {
        self.wait = None;
        match self.acts.pop_front().expect("the last one is the end") {
            Act::Step(step) => return self.step(step),
            Act::Keep(number) => {
                let (key, bytes) = (Key::from_u32_be(number as u32), KEPT_BYTES[number]);
                self.ask(Command::Store(plain(key, bytes)), bytes, Awaited::Stored);
            }
            Act::Look => {
                // Nothing is under way: a connection that has ended has left nothing in the drive.
                self.oracle.is_quiet();
                let list = Command::List { start: None, buffer_bytes: 1 << 16 };
                self.ask(list, 1 << 16, Awaited::Listed);
                self.oracle.keys().into_iter().for_each(|key| self.acts.push_front(Act::LookUp(key)));
            }
            Act::LookUp(key) => {
                let (buffer_bytes, options) = (TRANSFER_MAX_BYTES, RetrieveOptions::default());
                self.ask(Command::Retrieve { key, buffer_bytes, options }, buffer_bytes, Awaited::Found(key));
            }
            Act::Leave => (0..HOSTS).for_each(|number| self.leave(number)),
            Act::End => unreachable!("the session ends before"),
        }
        false
    }

    /// The keeper sends a command.
    fn ask(&mut self, command: Command, bytes: u32, awaited: Awaited) {
        self.hosts[KEEPER].send(&mut self.oracle, command, bytes, true);
        self.awaited = Some(awaited);
    }

    /// Looks at the answer to the keeper's command, after the drive has become idle.
    fn check_answer(&mut self) {
        let Some(awaited) = self.awaited.take() else { return };
        let answer = self.hosts[KEEPER].answer.take().expect("an idle drive has answered");
        match awaited {
            Awaited::Stored => assert_eq!(answer.status, Status::SUCCESS, "an empty drive"),
            Awaited::Found(key) => {
                let is_whole = answer.status.is_success() && answer.dw0 as usize == answer.bytes.len();
                assert!(is_whole || answer.status == Status::KEY_NOT_FOUND, "{key:?}: {}", answer.status);
            }
            Awaited::Listed => {
                assert_eq!(answer.status, Status::SUCCESS, "a List");
                self.oracle.listed(&keys_of(&answer));
            }
        }
    }

    fn step(&mut self, [kind, whose, key, wait, a, b, c, d]: [u8; STEP_BYTES]) -> bool {
        let [first, second] = [[a, b], [c, d]].map(|bytes| u32::from(u16::from_le_bytes(bytes)));
        let (number, stream, key) = (usize::from(whose & 1), usize::from(whose >> 1) % STREAMS, key_of(key));
        self.wait = (wait < UNTIL_IDLE).then_some(wait);
        let Player { core, hosts, oracle, plans, .. } = self;
        let (host, plan) = (&mut hosts[number], &mut plans[number][stream]);
        let (is_prompt, options) = (kind & SLOW == 0, RetrieveOptions::default());
        let stream_number = stream as u16 + 1;
        let mut send = |command, bytes| host.send(oracle, command, bytes, is_prompt);
        match (kind & !SLOW) % KINDS {
            0 => {
                let fresh =
                    Plan { store: plain(key, 64 * first), at: 0, part_bytes: 64 * (second % 4096 + 1) };
                let Plan { store, at, part_bytes } = plan.unwrap_or(fresh);
                let bytes = part_bytes.min(store.value_bytes - at);
                send(Command::StorePart(StorePart { store, at, bytes, stream: stream_number }), bytes);
                let goes_on = at + bytes < store.value_bytes;
                *plan = goes_on.then_some(Plan { store, at: at + bytes, part_bytes });
            }
            1 => {
                let value_bytes = plan.map_or(64 * first, |plan| plan.store.value_bytes);
                let store = plain(key, value_bytes);
                let (at, bytes) = (16 * first, 8 * second);
                send(Command::StorePart(StorePart { store, at, bytes, stream: stream_number }), bytes);
            }
            2 => send(Command::Store(plain(key, 64 * first)), 64 * first),
            3 => send(Command::Retrieve { key, buffer_bytes: 64 * first, options }, 64 * first),
            4 => {
                let (at, bytes, room) = (64 * first, 64 * second, TRANSFER_MAX_BYTES);
                let part = RetrievePart { key, at, bytes, stream: stream_number, room, options };
                send(Command::RetrievePart(part), bytes);
            }
            5 => send(Command::Delete { key, must_exist: false }, 0),
            6 => send(Command::Discard { stream: stream_number }, 0),
            7 => host.send_data(stream, 64 * second),
            8 => host.send_wrong_data(stream, first, second),
            9 => host.alterations.push((first as usize, second as u8)),
            10 => self.leave(number),
            11 => return true,
            _ => {
                core.now_ms += u64::from(10 * first);
                hosts.iter_mut().for_each(|host| host.tick(core));
            }
        }
        false
    }
}

impl Source for Session<'_> {
    fn poll(&mut self, _: Ns) -> Polled {
        if self.is_over {
            return Polled::Closed;
        }
        let player = &mut *self.player;
        let is_idle = player.look();
        let is_step = matches!(player.acts.front(), Some(Act::Step(_)));
        match &mut player.wait {
            Some(0) if is_step => {}
            Some(looks) if is_step && !is_idle => {
                *looks -= 1;
                return Polled::Nothing;
            }
            _ if !is_idle => return Polled::Nothing,
            _ => {}
        }
        if player.core.subsystem.is_starting() {
            return Polled::Nothing;
        }
        player.check_answer();
        if matches!(player.acts.front(), Some(Act::End)) {
            (0..=KEEPER).for_each(|number| player.leave(number));
            player.core.subsystem.detach_all();
            self.is_over = true;
        } else if player.act() {
            self.serving.cut_power();
            self.is_over = true;
        }
        Polled::Nothing
    }

    fn arm(&mut self) -> Duration {
        Duration::ZERO
    }

    fn disarm(&mut self) {}
}

/// Powers the drive on, plays until its power is lost or the steps are over; returns what survived.
fn play(config: &Config, player: &mut Player, survivors: Option<Survivors>) -> Option<Survivors> {
    let server = ServerConfig { pace: Pace::Off, recorder: None };
    let build = served(config.clone(), survivors);
    let (namespace, serving, run) =
        power_on_beside(server, Arc::new(Bell::default()), TRANSFER_MAX_BYTES, build)
            .unwrap_or_else(|error| panic!("it does not come up: {error}"));
    player.begin(Box::new(namespace));
    let mut session = Session { player, serving: &serving, is_over: false };
    run(&mut [&mut session], &mut Awake, Box::new(|| ()));
    let survivors = serving.join().take_survivors();
    match survivors {
        Some(_) => player.lost_power(),
        None => player.check_nothing_left(),
    }
    survivors
}

/// Steps of two hosts, on the engine that the first byte selects.
pub fn parts(bytes: &[u8]) {
    let Some((engine, steps)) = bytes.split_first() else { return };
    let engine = format!("engine.name={}", ENGINES[usize::from(*engine) % ENGINES.len()].name);
    let config = document(&[&[&*engine], &LARGE[..]].concat()).config().expect("a small drive");
    let mut player = Player::new(steps.as_chunks().0);
    let mut survivors = None;
    loop {
        survivors = play(&config, &mut player, survivors);
        if survivors.is_none() {
            return;
        }
    }
}

/// A step that waits until the drive is idle.
fn step(kind: u8, host: u8, stream: u8, key: u8, first: u16, second: u16) -> Vec<u8> {
    let ([a, b], [c, d]) = (first.to_le_bytes(), second.to_le_bytes());
    vec![kind, host | stream << 1, key, 255, a, b, c, d]
}

/// For each engine: two hosts whose parts are mixed, a cut in the middle of a value, lies of every kind, and a value that
/// the connection divides.
pub fn part_seeds() -> Vec<Vec<u8>> {
    let next = |host, stream, key, bytes: u32| step(0, host, stream, key, (bytes / 64) as u16, 1023);
    // 64 KiB a part.
    let mixed: Vec<u8> =
        (0..5).flat_map(|_| [next(0, 0, 0, 3 * 65_536 + 64), next(1, 0, 0, 320_000)].concat()).collect();
    let looks = [step(3, 1, 0, 0, 8000, 0), step(4, 0, 1, 0, 0, 1000), step(4, 0, 1, 0, 1000, 1000)].concat();
    let half = [next(0, 2, 1, 300_000), next(1, 3, 2, 150_000), next(1, 3, 2, 0)].concat();
    let cut = |wait: u8| [[0, 4, 1, wait, 0, 0, 0, 0], [11, 0, 0, 255, 0, 0, 0, 0]].concat();
    let lies = [
        next(0, 0, 3, 100_000),
        step(1, 0, 0, 2, 4096, 1000),
        step(1, 0, 0, 3, 0, 8192),
        step(1, 0, 0, 2, 4096, 4300),
        next(0, 0, 3, 0),
        next(0, 0, 3, 100_000),
        step(1, 0, 0, 3, 4000, 100),
        step(1, 0, 0, 3, 0, 9000),
        step(9, 0, 0, 0, 56, 1),
        next(0, 0, 3, 0),
        step(2 | SLOW, 1, 0, 3, 1000, 0),
        step(7, 1, 0, 0, 0, 100),
        step(8, 1, 0, 0, 64, 4),
        step(6, 0, 0, 0, 0, 0),
        step(5, 0, 0, 3, 0, 0),
    ]
    .concat();
    // 2.2 MB, and its answer.
    let divided =
        [step(2, 0, 0, 0, 34_400, 0), step(3, 1, 0, 0, 65_535, 0), step(10, 0, 0, 0, 0, 0)].concat();
    let engines = 0..ENGINES.len() as u8;
    let of = |engine| {
        let first = [&mixed[..], &looks, &half, &cut(3), &looks].concat();
        let second = [&lies[..], &half, &step(12, 0, 0, 0, 4000, 0), &divided, &cut(9)].concat();
        [first, second].map(|steps| [vec![engine], steps].concat())
    };
    engines.flat_map(of).collect()
}
