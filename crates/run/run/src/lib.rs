//! One run, or several in sequence: a drive, a host and workloads, and the reports.
//!
//! ```text
//!   power on ─► connect ─► load ─► drain ─► ┌ measured: tasks take operations, each waits for its own ┐ ─► drain ─► report
//!                                            └──────────────── a session: once for each of its runs ◄──────────────────┘
//! ```
//!
//! Counters of the report cover the measured operations and the drain after them; latency, throughput and the
//! utilisation of resources cover the operations alone. The host ([`places`]) decides the number of tasks and the
//! client to which they send operations. A task begins its next operation when its last one has completed and the
//! host's work between two operations is done. The same tasks first load the pairs of the workload and overwrite them
//! as often as it asks; if `workload.timed_load` is off, loading takes no time. The report contains the cost of
//! loading, too.
//!
//! | module | what it is |
//! |---|---|
//! | [`modelled`](crate::run) | a run in model time: drive, link and host on one executor |
//! | [`wall`] | a run by the machine's clock: a drive of this program, or one on a network |
//! | `stream`, `scan`, `units` | the application: one loop for both clocks and every client |
//! | `work`, `arrivals`, `verify` | what tasks of all threads share: operations, their times, what was stored |
//! | `places` | the host: cores, and the client of each task |
//! | `seen`, `tally`, `intervals`, `series` | what applications saw, in all and over time |
//! | `snapshot`, `outcome`, `limits` | the counters of a run, and the report that is made of them |
//! | [`report`], [`cumulative`], [`declared`] | the report, as data, text and JSON; the counters that it can have |
//! | [`plan`] | several runs: which there are, and which share a drive |
//! | [`memory`] | memory of this machine and of this program; a run that ends before it is used up |
//! | [`watch`](Watch) | progress, intervals and a stop from outside |

mod arrivals;
mod content;
pub mod cumulative;
pub mod declared;
mod histogram_log;
mod history;
mod intervals;
mod kinds;
mod limits;
pub mod memory;
mod modelled;
mod outcome;
mod places;
pub mod plan;
pub mod report;
pub mod revision;
mod scan;
mod seen;
mod series;
mod snapshot;
mod stream;
mod tally;
mod units;
pub(crate) mod verify;
pub mod wall;
mod watch;
mod work;

pub use content::{content, is_content};
pub use histogram_log::HistogramLog;
pub use history::{History, Reading, Writing};
pub use intervals::Interval;
pub use modelled::{
    FinishedRun, operations, operations_of_session, run, run_counted, run_faulty, run_session,
    run_session_watched, run_watched,
};
pub use scan::answered;
pub use snapshot::DriveSnapshot;
pub use watch::{OnInterval, Progress, RunProgress, Stopped, Watch};
