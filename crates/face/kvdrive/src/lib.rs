//! A key-value SSD in software, in your program.
//!
//! Applications store keys and values on such a drive instead of blocks. This one has the internals of a real
//! drive: NVMe queues and PCIe bytes, a controller with firmware cores and a power-protected page buffer, an
//! index over a value log, flash translation, dies and channels with time. It runs on a thread of your
//! program, as fast as your machine can or at the pace of the hardware it models, and counts every byte and
//! every page.
//!
//! ```
//! let drive = kvdrive::open("cosmos-plus")?;
//! drive.store(b"user17", b"some value")?;
//! assert_eq!(drive.get(b"user17")?.as_deref(), Some(&b"some value"[..]));
//! for pair in drive.pairs()? {
//!     let (key, value) = pair?;
//!     println!("{key:?}: {} bytes", value.len());
//! }
//! println!("{}", drive.numbers()?);
//! println!("{}", drive.close()?);
//! # Ok::<(), kvdrive::Error>(())
//! ```
//!
//! # What to read next
//!
//! | for | read |
//! |---|---|
//! | another drive: on a file, another engine, a key of the configuration | [`build`], [`Builder`] |
//! | a drive on a network | [`connect`] |
//! | which of several drives has a key | [`Spread`] |
//! | one thread, as fast as can be | [`Builder::in_this_thread`] |
//! | several threads; many commands at once; `async` | [`Drive::client`], [`Client::pipeline`], [`Drive::async_client`] |
//! | a pipeline in a struct or another language's object | [`Client::into_pipeline`], [`OwnedPipeline`] |
//! | keys without values, prefixes, how many there are | [`Drive::keys`], [`Drive::pairs_with_prefix`], [`Drive::count`] |
//! | a part of a value; a removal that says whether the pair was there | [`Drive::get_part`], [`Drive::remove`] |
//! | keys of any length | keys of more than 16 bytes are names, stored under a digest: [`key_of`] |
//! | objects larger than a value, whole or not at all | [`objects::Objects`] |
//! | capacity and use | [`Builder::capacity`], [`Drive::namespace`], [`Namespace`] |
//! | the parts of an error | [`Error`]: status, call, pair, setting, what is allowed |
//! | a power cut and recovery; faults on command | [`Drive::cut_power`], [`Drive::inject`] |
//! | which data survive the end of program or machine | [`Closed`], [`Lasting`] |
//! | counters, model times and measured times | [`Numbers`] |
//! | RocksDB on the host, over the blocks of a drive (feature `rocksdb`) | [`Builder::open_blocks`], [`BlockDrive`], on a network [`connect_blocks`] |
//! | a drive inside a simulator, whose time your program moves | [`stepped`], [`Builder::stepped`] |
//! | a packing policy of your own | [`packing`], [`Builder::packing`] |
//! | a rule of your own that chooses transfer methods | [`transfer`], [`Builder::transfer_choice`] |
//! | a workload of your own, in model time, with the report of `kvdrive run` | [`workload`], [`Builder::run`] |
//! | small writes in batches, small reads from memory | [`saker`], [`Drive::saker`] |
//!
//! `examples/` beside this crate has a program for each: `first`, `pipeline`, `futures`, `crash`, `own_packing`,
//! `own_transfer`, `own_workload`, `saker`, `stepped` (`cargo run --release -p kvdrive --example first`).
//!
//! # The crates it is made of
//!
//! In the order from the wire inwards; each crate has a page of its own: [`kvdrive_nvme`] (bytes on the
//! wire), [`kvdrive_host`] (drivers, also over NVMe/TCP), [`kvdrive_link`] (queues and transfer methods),
//! `kvdrive_device` (the controller), [`kvdrive_engines`] (indexes and packing), [`kvdrive_flash`]
//! (translation, media, faults), [`kvdrive_sim`] (time), [`kvdrive_run`] (runs and reports: studies in
//! virtual time, where the same seed gives the same report). The command `kvdrive` is in crate `kvdrive-cli`.

mod block_drive;
mod builder;
mod client;
mod context;
mod drive;
mod error;
mod granted;
mod image;
mod keys;
mod names;
mod namespace;
mod neighbour;
mod network;
pub mod numbers;
pub mod objects;
mod owned_pipeline;
mod pairs;
mod pipeline;
mod remote_blocks;
pub mod saker;
pub mod stepped;

pub use block_drive::{BlockDrive, BlocksOff};
pub use builder::Builder;
pub use client::{AsyncClient, Client, Part};
pub use drive::{Closed, Drive, Lasting, PoweredOff};
pub use error::Error;
pub use image::Image;
pub use keys::{AsyncKeys, Keys, OwnedKeys};
pub use kvdrive_config::RunOptions;
pub use kvdrive_declare::{Count, Counter, Counts, Form, Kind, Sections};
pub use kvdrive_host::reach::Remote;
pub use kvdrive_host::spread::Spread;
pub use kvdrive_nvme::{Key, Status, StoreOptions};
pub use kvdrive_sim::ForkCount;
pub use kvdrive_sim::wall::Pace;
pub use namespace::Namespace;
pub use numbers::Numbers;
pub use owned_pipeline::OwnedPipeline;
pub use pairs::{AsyncPairs, OwnedPairs, Pair, Pairs};
pub use pipeline::{Done, Ended, Pipeline, Places};
pub use remote_blocks::RemoteBlocks;

/// RocksDB itself, on the blocks of a drive: `RocksDb::open(Arc::new(drive.blocks()?), ...)`.
#[cfg(feature = "rocksdb")]
pub use kvdrive_store::{lsmtree::LsmtreeOptions, rocksdb};

/// The types for a packing policy of your own: [`Builder::packing`].
pub mod packing {
    pub use kvdrive_engines::packing::*;
    pub use kvdrive_link::Arrival;
}

/// The types for a rule of your own that chooses transfer methods: [`Builder::transfer_choice`].
pub mod transfer {
    pub use kvdrive_link::transfer::byte_express::ByteExpress;
    pub use kvdrive_link::transfer::cxl::Cxl;
    pub use kvdrive_link::transfer::hybrid::Hybrid;
    pub use kvdrive_link::transfer::piggyback::Piggyback;
    pub use kvdrive_link::transfer::piggyback_cxl::PiggybackCxl;
    pub use kvdrive_link::transfer::piggyback_pipelined::PiggybackPipelined;
    pub use kvdrive_link::transfer::prp::Prp;
    pub use kvdrive_link::transfer::sgl::Sgl;
    pub use kvdrive_link::transfer::{Choice, METHODS, Method, MethodRow, TransferConfig};
}

/// The types for a workload of your own: [`Builder::run`].
pub mod workload {
    pub use kvdrive_run::report::Report;
    pub use kvdrive_sim::Rng;
    pub use kvdrive_workload::{KeyFormat, Keys, Op, Row, ValueSpec, Workload, WorkloadParams, Zipf};
}

/// Powers on a drive in memory with this profile (`kvdrive list profiles`): `kvdrive::build().profile(name).open()`.
///
/// # Errors
/// [`Error::Configuration`]: there is no such profile; the message lists those there are.
pub fn open(profile: &str) -> Result<Drive, Error> {
    build().profile(profile).open()
}

/// Starts the description of a drive.
pub fn build() -> Builder {
    Builder::default()
}

/// The key under which a drive has the pair of `given`: `given` itself up to 16 bytes; for a longer one the first 16
/// bytes of its SHA-256. The value of a longer one begins with `kvN1`, the length of the name in bytes (32 bits,
/// little-endian) and the name, so that the pair of another name with the same digest is refused
/// ([`Error::OtherName`]).
///
/// # Errors
/// [`Error::KeySize`].
pub fn key_of(given: &[u8]) -> Result<Key, Error> {
    names::Named::of(given).map(|named| named.key)
}

/// A drive that is not in this program, any with a namespace of pairs: on a network, `tcp://HOST:PORT` (`kvdrive serve`
/// is one), or behind a device of Linux, `/dev/ngXnY`.
///
/// ```no_run
/// let drive = kvdrive::connect("tcp://127.0.0.1:4420")?;
/// drive.store(b"user17", b"some value")?;
/// # Ok::<(), kvdrive::Error>(())
/// ```
///
/// Each [`Client`] is a connection. A thread that waits reads its socket for all callers; a future never waits in a
/// poll: a thread of the connection reads for it. The inside of the drive is for drives of this program.
///
/// # Errors
/// [`Error::Configuration`]: no such address; [`Error::Network`]: no answer there, no subsystem or several of them, no
/// pairs.
pub fn connect(at: &str) -> Result<Drive, Error> {
    let address = kvdrive_host::reach::address(at).map_err(|problem| Error::configuration(at, problem))?;
    connect_to(&Remote { address, ..Remote::default() })
}

/// The blocks of a drive that is not in this program, any with a namespace of 4 KiB blocks (`kvdrive serve --engine
/// block` is one): the pages of a store in the program.
///
/// # Errors
/// As [`connect`].
pub fn connect_blocks(at: &str) -> Result<RemoteBlocks, Error> {
    let address = kvdrive_host::reach::address(at).map_err(|problem| Error::configuration(at, problem))?;
    RemoteBlocks::connect(&Remote { address, ..Remote::default() })
}

/// As [`connect`], by name, namespace, secrets and digests.
///
/// # Errors
/// As [`connect`].
pub fn connect_to(remote: &Remote) -> Result<Drive, Error> {
    Drive::on_network(network::Network::new(remote)?)
}
