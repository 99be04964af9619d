//! Targets for arbitrary input bytes, as functions of those bytes: every input gets an answer, and all invariants hold.
//!
//! A [`Target`] takes any bytes and panics on a defect. Targets run in two ways: `cargo test -p kvdrive-fuzz`
//! changes the seeds some hundred times, in the same way each time; `scripts/fuzz NAME` lets cargo-fuzz
//! search for inputs that reach new code, for as long as it runs (folder `fuzz`, a workspace of its own).
//! Inputs that it finds are added to the seeds.
//!
//! ```text
//!   seeds ──► altered by `mutate` (tests), or by libFuzzer ──► Target::run ──► a panic is a defect
//! ```
//!
//! A new target is one function in one file, one row of [`TARGETS`], and two lines in `fuzz`, which a test
//! checks. Drives and connections are those of crate `rigs`.

pub mod mutate;

mod authentication;
mod controllers;
mod drives;
mod guests;
mod ioctls;
mod network;
mod parts;
mod recordings;
mod texts;
mod wire;

/// A consumer of bytes from outside.
pub struct Target {
    /// Its name, which is also that of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// The meaning of the bytes, and the invariants, in one line.
    pub about: &'static str,
    /// Initial inputs: valid ones, and those that once revealed a defect.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Processes the bytes.
    ///
    /// # Panics
    /// An invariant does not hold.
    pub run: fn(&[u8]),
    /// Number of inputs in an ordinary test: more for fast targets.
    pub rounds: u32,
}

/// Every target.
pub static TARGETS: &[Target] = &[
    Target {
        name: "entries",
        about: "submission entries of 64 B: each is refused, or reads back as it was written",
        seeds: wire::entry_seeds,
        run: wire::entries,
        rounds: 20_000,
    },
    Target {
        name: "batch",
        about: "a structured value: refused with the reason, or equal to one that a host would build",
        seeds: wire::batch_seeds,
        run: wire::batch,
        rounds: 20_000,
    },
    Target {
        name: "connection",
        about: "an NVMe/TCP connection, in pieces: a status, a termination or a close, and memory is given back",
        seeds: network::connection_seeds,
        run: network::connection,
        rounds: 1_500,
    },
    Target {
        name: "initiator",
        about: "bytes of a controller to our initiator, in pieces: an answer or a line of error, in bounded memory",
        seeds: controllers::initiator_seeds,
        run: controllers::initiator,
        rounds: 3_000,
    },
    Target {
        name: "commands",
        about: "entries to a small drive of any engine: one completion for each, and stored pairs stay",
        seeds: drives::command_seeds,
        run: drives::commands,
        rounds: 60,
    },
    Target {
        name: "parts",
        about: "values in parts of two hosts with wrong lengths, and power cuts: no partial value, other keys stay",
        seeds: parts::part_seeds,
        run: parts::parts,
        rounds: 60,
    },
    Target {
        name: "ioctls",
        about: "ioctls of a device node, with wrong pointers and lengths: a status or an errno, and no stray write",
        seeds: ioctls::ioctl_seeds,
        run: ioctls::ioctls,
        rounds: 600,
    },
    Target {
        name: "guests",
        about: "a vfio-user client and its guest's memory: an error, a status or an end, and no byte of another host",
        seeds: guests::guest_seeds,
        run: guests::guests,
        rounds: 1_000,
    },
    Target {
        name: "survivors",
        about: "altered survivors of a power cut: a pair, 88h, or a drive that does not start and says why",
        seeds: drives::survivor_seeds,
        run: drives::survivors,
        rounds: 150,
    },
    Target {
        name: "recording",
        about: "a recording, with correct checksums: replayed on a small drive, or one line that names the byte",
        seeds: recordings::recording_seeds,
        run: recordings::recording,
        rounds: 300,
    },
    Target {
        name: "authentication",
        about: "a message of DH-HMAC-CHAP: refused with a reason, or reads back as it was written",
        seeds: authentication::message_seeds,
        run: authentication::message,
        rounds: 20_000,
    },
    Target {
        name: "secret",
        about: "a secret in the interchange format: refused, or reads back as it was written",
        seeds: authentication::secret_seeds,
        run: authentication::secret,
        rounds: 20_000,
    },
    Target {
        name: "psk",
        about: "a PSK in the interchange format: refused, or reads back as it was written",
        seeds: authentication::psk_seeds,
        run: authentication::psk,
        rounds: 20_000,
    },
    Target {
        name: "configuration",
        about: "a TOML file over a profile: accepted, or one line that names the file",
        seeds: texts::configuration_seeds,
        run: texts::configuration,
        rounds: 300,
    },
    Target {
        name: "faults",
        about: "a TOML file of fault rules: accepted, or one line that names the place",
        seeds: texts::fault_seeds,
        run: texts::faults,
        rounds: 2_000,
    },
    Target {
        name: "trace",
        about: "a trace of any format, compressed or not: operations, or one line that names the place",
        seeds: texts::trace_seeds,
        run: texts::trace,
        rounds: 1_500,
    },
    Target {
        name: "requests",
        about: "requests to a language model: operations of its cache, or one line that names the place",
        seeds: texts::request_seeds,
        run: texts::requests,
        rounds: 500,
    },
];

/// The target of that name.
///
/// # Panics
/// There is no such target: the caller's file has a wrong name.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target {name:?}"))
}
