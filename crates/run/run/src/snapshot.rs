//! The counts at one moment of a run.

use std::rc::Rc;

use kvdrive_declare::{Counters, Sections};
use kvdrive_device::Drive;
use kvdrive_flash::faults::FaultCount;
use kvdrive_link::Link;
use kvdrive_sim::{Ns, OccupationStatistics, Resource, Sim};

/// Everything of which a report takes a difference: counted or modelled, since power-on.
#[derive(Clone, Debug, Default)]
pub struct DriveSnapshot {
    /// Model time, ns.
    pub at: Ns,
    /// The counts of drive, link and host, by section.
    pub counts: Sections,
    /// Statistics of host cores, link, firmware cores, channels and dies.
    pub resources: Vec<(String, kvdrive_sim::ResourceStatistics)>,
    /// How long each die and each channel was busy, by the name of their resource, ns.
    pub parts: Vec<(String, Vec<Ns>)>,
    /// How the controller's contexts and threads spent their time.
    pub occupations: Vec<OccupationStatistics>,
    /// Fault rules, with how often each matched and struck.
    pub faults: Vec<FaultCount>,
}

impl DriveSnapshot {
    /// The present state of link, drive and the host's cores, if those are modelled.
    pub(crate) fn of(sim: &Sim, link: &Link, drive: &Drive, cores: &[Rc<Resource>]) -> DriveSnapshot {
        let mut resources: Vec<_> =
            cores.iter().map(|core| (core.name().to_owned(), core.statistics())).collect();
        resources.extend(link.resources().map(|r| (r.name().to_owned(), r.statistics())));
        resources.extend(drive.resources());
        DriveSnapshot {
            at: sim.now(),
            counts: drive.counts().with("traffic", link.meter().counts()),
            resources,
            parts: drive.busy_parts(),
            occupations: sim.occupations(),
            faults: drive.faults().counts(),
        }
    }
}
