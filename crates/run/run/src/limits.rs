//! The limit of a run, computed from how long each resource was busy and each thread of the controller was occupied. No
//! event, no model: shares of times that were counted.
//!
//! ```text
//!   a resource is busy nearly all of the time      it limits: more of it, or a faster one, helps
//!   one die of many is                             the busiest die limits: operations meet on it
//!   the controller's contexts or threads are,      they wait for parts that have time left: more of them help
//!     and the host asks for more at once
//!   neither is, but the host asks for more, and    they wait for each other: the host's core limits while
//!     its core and they together are                 they are idle, and more of it helps
//!   nothing is                                     the host does not ask for more at once
//! ```

use kvdrive_config::Config;
use kvdrive_device::dispatch::{CONTEXTS, DISPATCHER, IO_THREADS};
use kvdrive_sim::{Ns, OccupationStatistics};
use serde_json::Value;

use crate::report::{Limit, Named, Occupied, Resource};
use crate::snapshot::DriveSnapshot;
use kvdrive_text::with_decimals;

/// From this share of the time on, a resource or thread has no time left worth mentioning.
const NEARLY_ALL: f64 = 0.9;

/// The key that gives more of a resource, by the beginning of its name.
const KEYS: [(&str, &str); 14] = [
    ("host.core.background", "lsmtree.background"),
    ("host.core.", "host.threads"),
    ("host.core", "host.cores"),
    ("link.dma", "link.dma_page_ns"),
    ("link.", "link.lanes"),
    ("firmware.cores", "controller.cores"),
    ("firmware.io-", "controller.io_threads"),
    ("firmware.dispatcher", "controller.deal_ns"),
    ("firmware.background", "lsmtree.background"),
    ("firmware.", "controller.roles"),
    ("die", "flash.dies_per_channel"),
    ("channel", "flash.channels"),
    ("flash.reads", "flash.flat.read_mib_s"),
    ("flash.writes", "flash.flat.write_mib_s"),
];

/// Cores of the host.
const HOST_CORE: &str = "host.core";

fn key_of(resource: &str) -> &'static str {
    KEYS.iter().find(|(name, _)| resource.starts_with(name)).map_or("", |(_, key)| *key)
}

/// How long each resource was busy between two snapshots.
pub(crate) fn resources(began: &DriveSnapshot, ended: &DriveSnapshot) -> Named<Resource> {
    let span_ns = (ended.at - began.at).max(1) as f64;
    let pairs = began.resources.iter().zip(&ended.resources);
    pairs
        .map(|((name, before), (_, after))| {
            let servers = f64::from(after.servers.max(1));
            let uses = (after.uses - before.uses).max(1) as f64;
            let resource = Resource {
                busy_fraction: (after.busy_ns - before.busy_ns) as f64 / (span_ns * servers),
                busiest_fraction: busiest_ns(name, began, ended).map(|ns| ns as f64 / span_ns),
                queue_ns_mean: (after.queue_ns - before.queue_ns) as f64 / uses,
            };
            (name.clone(), resource)
        })
        .collect()
}

/// How long the busiest of a resource's parts was busy, if it has several.
fn busiest_ns(name: &str, began: &DriveSnapshot, ended: &DriveSnapshot) -> Option<Ns> {
    let parts = |snapshot: &DriveSnapshot| {
        let of = snapshot.parts.iter().find(|(of, _)| of == name);
        of.map_or_else(Vec::new, |(_, busy_ns)| busy_ns.clone())
    };
    let (mut before, after) = (parts(began), parts(ended));
    before.resize(after.len(), 0);
    let busy = after.iter().zip(before).map(|(after, before)| after - before);
    busy.max().filter(|_| after.len() > 1)
}

/// What the time of the controller's contexts and threads went to between two snapshots.
pub(crate) fn occupied(began: &DriveSnapshot, ended: &DriveSnapshot) -> Named<Occupied> {
    let span_ns = (ended.at - began.at).max(1) as f64;
    let of = |after: &OccupationStatistics| {
        let since = after.since(&began.occupations);
        let all = since.occupied_ns() as f64;
        let occupied = Occupied {
            tasks: since.tasks,
            occupied_fraction: all / (span_ns * f64::from(since.tasks.max(1))),
            spent: since.spent().map(|(cause, ns)| (cause, ns as f64 / all)).collect(),
        };
        (after.name, occupied)
    };
    ended.occupations.iter().map(of).collect()
}

/// What limited the throughput of a run. `is_behind`: operations had due times, and began later than those.
pub(crate) fn limit(
    resources: &Named<Resource>,
    occupied: &Named<Occupied>,
    (config, values): (&Config, &Value),
    is_behind: bool,
) -> Option<Limit> {
    let (name, share) = most(resources.iter(), |resource| resource.busy_fraction)?;
    let limit = |key: &str, because| {
        // A store on the host and SAKER have one thread where the setting is 0.
        let value = match key {
            "host.threads" => config.threads().map(Value::from),
            _ => values.pointer(&format!("/{}", key.replace('.', "/"))).cloned(),
        };
        Some(Limit { key: key.to_owned(), value: value.unwrap_or_default(), because })
    };
    if share >= NEARLY_ALL {
        return limit(key_of(name), format!("{name} is busy {} of the time", percent(share)));
    }
    let part = |resource: &Resource| resource.busiest_fraction.unwrap_or(0.0);
    if let Some((name, share)) = most(resources.iter(), part).filter(|(_, share)| *share >= NEARLY_ALL) {
        let mean = resources.get(name).map_or(0.0, |all| all.busy_fraction);
        let because =
            format!("one {name} is busy {} of the time, all together {}", percent(share), percent(mean));
        return limit(key_of(name), because);
    }
    let (asked_by, at_once) = host_limit(config, is_behind);
    let threads = most(occupied.iter(), |threads| threads.occupied_fraction);
    let has_more =
        |name: &str| at_once.is_none_or(|at_once| occupied.get(name).is_some_and(|of| at_once > of.tasks));
    if let Some((name, share)) = threads.filter(|(name, share)| *share >= NEARLY_ALL && has_more(name)) {
        let key = match name {
            CONTEXTS => "controller.contexts",
            IO_THREADS => "controller.io_threads",
            DISPATCHER => "controller.deal_ns",
            _ => "",
        };
        let spent = occupied.get(name).and_then(|occupied| most(occupied.spent.iter(), |share| *share));
        let on = spent
            .map_or_else(String::new, |(cause, share)| format!(", {} of it {}", percent(share), on(cause)));
        return limit(key, format!("{} occupied {} of the time{on}", subject(name), percent(share)));
    }
    let cores = resources.iter().filter(|(name, _)| name.starts_with(HOST_CORE));
    let core = most(cores, |resource| resource.busy_fraction).filter(|_| at_once.is_some());
    if let (Some((core, busy)), Some((name, share))) = (core, threads.filter(|(name, _)| has_more(name)))
        && busy + share >= NEARLY_ALL
    {
        let (busy, occupied) = (percent(busy), percent(share));
        let because = format!(
            "{core} is busy {busy} of the time; in turn with it, {} occupied {occupied}",
            subject(name)
        );
        return limit(key_of(core), because);
    }
    let said = |(name, share)| format!("{} occupied {}, ", subject(name), percent(share));
    let threads = threads.map_or_else(String::new, said);
    limit(asked_by, format!("{threads}no resource is busy more than {} of the time", percent(share)))
}

/// Contexts or threads with their verb: there are several of all but the dispatcher.
fn subject(name: &str) -> String {
    if name == DISPATCHER { format!("the {name} is") } else { format!("{name} are") }
}

/// The key by which the host asks for more, and how much it asks for at once; none where operations begin
/// when they are due. If they begin later, all clients are busy, as without due times.
fn host_limit(config: &Config, is_behind: bool) -> (&'static str, Option<u32>) {
    if config.workload.rate_per_s > 0 && !is_behind {
        return ("workload.rate_per_s", None);
    }
    if config.workload.arrivals == "trace" && !is_behind {
        return ("workload.arrivals", None);
    }
    match config.has_store_on_host() || config.saker.enabled {
        true => ("host.threads", config.threads()),
        false => ("host.depth", Some(config.host.depth)),
    }
}

/// The cause of a share of occupied time.
fn on(cause: &str) -> &'static str {
    match cause {
        "core" => "on a firmware core",
        "link" => "on the link",
        "read" => "on flash reads",
        "program" => "on flash programs",
        "erase" => "on flash erases",
        "room" => "waiting for room in buffers",
        _ => "waiting for other commands or the host",
    }
}

/// The first of the largest.
fn most<'a, T: 'a>(
    all: impl Iterator<Item = (&'a str, &'a T)>,
    share: impl Fn(&T) -> f64,
) -> Option<(&'a str, f64)> {
    let shares = all.map(|(name, one)| (name, share(one)));
    shares.reduce(|first, next| if next.1 > first.1 { next } else { first })
}

fn percent(share: f64) -> String {
    with_decimals(100.0 * share, 1) + " %"
}
