//! The commands of a hash engine: the steps of store, lookup, delete and list on section, pair and space.
//! [`super::core`] finds the section of a key.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_declare::{Counters, Counts};
use kvdrive_flash::power::PowerOnError;
use kvdrive_flash::power::{self, ImageError, Owner};
use kvdrive_flash::{FlashPort, Purpose};
use kvdrive_link::transfer::{Exposing, NoWindow};
use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::identify::AtomicLimits;
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{Ns, TaskCell, join_all};

use super::config::HashConfig;
use super::core::{HashState, Lookup, LookupPurpose, PairRead, Probed};
use super::cursor::HashCursor;
use super::fit::{self, of_config};
use super::gc;
use super::image::Protected;
use super::journal;
use super::layout::Grain;
use super::pair::PairHeader;
use super::recovery::recover;
use super::scheme::SchemeRow;
use super::section::Entry;
use super::space::{Content, Part, ReadHold, Stream};
use crate::config::{EngineConfig, Parts};
use crate::divided::{Dividing, Issued};
use crate::firmware::{Cores, Role};
use crate::{Engine, GiveUpCursor, PairChange, Utilization};

/// Regions kept for reuse.
const SPARE_REGIONS: usize = 64;

/// A hash engine. Clones are the same engine.
#[derive(Clone)]
pub struct HashEngine(pub(super) Rc<HashState>);

/// A value that is arriving, in the write buffer.
pub struct PairPlace {
    header: PairHeader,
    /// The pair's bytes; the header is put in front when the probe is known.
    region: TaskCell<Region>,
    room_bytes: u64,
    /// Bytes of it that the host has yet to send.
    unfinished_bytes: Cell<u64>,
}

impl PairPlace {
    /// Bytes that it takes of the write buffer.
    pub(super) fn room_bytes(&self) -> u64 {
        self.room_bytes
    }

    /// Bytes of the pair.
    pub(super) fn pair_bytes(&self) -> u32 {
        self.header.pair_bytes()
    }
}

/// A pair that stays readable while this is held.
pub struct Found {
    header: PairHeader,
    /// Offset of the pair in its page.
    at: u32,
    page: u32,
    first: Part,
    /// End of the bytes in `first`, as an offset in the page.
    first_end: u32,
    /// The pair's other read units, page by page, after they were read.
    rest: TaskCell<Vec<Part>>,
    _reader: ReadHold,
}

/// A core with as much power-protected memory as needed.
fn core_of_test(
    scheme: &'static SchemeRow,
    config: &HashConfig,
    flash: &FlashPort,
    cores: Cores,
) -> Rc<HashState> {
    let core =
        HashState::new(scheme, config, flash, cores, Owner::default(), power::Journal::default(), u64::MAX);
    core.expect("everything fits")
}

impl HashEngine {
    /// The engine of an empty drive, and its collection.
    pub fn new(
        scheme: &'static SchemeRow,
        config: &HashConfig,
        flash: &FlashPort,
        cores: Cores,
    ) -> HashEngine {
        HashEngine::of(core_of_test(scheme, config, flash, cores))
    }

    /// The engine that `image` and the flash contain, and its collection. For tests without a drive.
    ///
    /// Errors: an image that is damaged or of another layout.
    pub fn recover(
        scheme: &'static SchemeRow,
        config: &HashConfig,
        flash: &FlashPort,
        cores: Cores,
        image: &[u8],
    ) -> Result<HashEngine, ImageError> {
        let core = core_of_test(scheme, config, flash, cores);
        recover(&core, power::open::<Protected>(image)?.1)?;
        Ok(HashEngine::of(core))
    }

    fn of(core: Rc<HashState>) -> HashEngine {
        let collected = core.clone();
        core.sim.spawn(move || gc::run(collected));
        HashEngine(core)
    }

    /// Which hash FTL it is.
    pub fn scheme(&self) -> &'static SchemeRow {
        self.0.scheme
    }

    fn memcpy_ns(&self, bytes: u32) -> Ns {
        self.0.config.costs.copy.copy_ns(bytes)
    }

    /// Spends the firmware time of moving bytes of a value between DMA and a flash page.
    fn stage(&self, bytes: u32) {
        let ns = (u64::from(bytes) * self.0.config.costs.staging_ns_per_kib).div_ceil(1024);
        if ns > 0 {
            self.0.work(Role::Copy, ns, "stage");
        }
    }

    /// Stores the pair of `place` under `probed`, replacing `old`, which was found in a slot there; returns its
    /// address. `None` if space or slot is no longer available.
    fn put(&self, place: &PairPlace, probed: &Probed, old: Option<&(u32, PairHeader)>) -> Option<Grain> {
        let slot = old.map(|(slot, _)| *slot).or_else(|| probed.pin.outlook(probed.tag).vacancy)?;
        let grain = self.append(place, probed)?;
        self.point(probed, slot, grain, place, old.map(|(_, old)| old));
        Some(grain)
    }

    /// Appends the pair of `place`, to be found under `probed`; returns its address. `None` if there is no
    /// space.
    #[inline]
    pub(super) fn append(&self, place: &PairPlace, probed: &Probed) -> Option<Grain> {
        let header = PairHeader { probe: probed.probe, ..place.header };
        let mut region = place.region.borrow_mut();
        header.write(&mut region);
        self.0.space.append(Stream::Data, Content::Stored(&region, 0), header.pair_bytes())
    }

    /// Points a slot at the pair of `place`, at `grain`, instead of at `old`.
    #[inline]
    pub(super) fn point(
        &self,
        probed: &Probed,
        slot: u32,
        grain: Grain,
        place: &PairPlace,
        old: Option<&PairHeader>,
    ) {
        let core = &*self.0;
        let replaced = old.map(|old| (probed.pin.get(slot), old));
        if old.is_none() && !core.snapshots.is_empty() {
            let _nothing_held = core.snapshots.note((probed.section, slot), None);
            core.drop_released(core.snapshots.give_up_large());
        }
        probed.pin.set(slot, probed.tag, grain);
        core.live_bytes.set(core.live_bytes.get() + u64::from(place.header.value_bytes));
        if let Some((Entry::At(grain), old)) = replaced {
            core.drop_pair(old, grain, probed.section, slot);
        }
    }

    /// Removes the pair of this header from its slot.
    pub(super) fn empty(&self, probed: &Probed, slot: u32, header: &PairHeader) {
        let Entry::At(grain) = probed.pin.get(slot) else {
            unreachable!("a key's slot changes under the key's lock alone")
        };
        probed.pin.remove(slot);
        self.0.drop_pair(header, grain, probed.section, slot);
    }

    /// Refuses a value that is too large: beside a key of more than 16 B less room is left for it.
    #[inline]
    pub(super) fn check_bytes(&self, key: &Key, value_bytes: u32) -> Result<(), Status> {
        let beside = u32::from(key.is_long()) + key.tail_bytes() as u32;
        let room_bytes = self.0.max_value_bytes.saturating_sub(beside);
        if value_bytes > room_bytes { Err(Status::INVALID_VALUE_SIZE) } else { Ok(()) }
    }

    /// A place for a value, without room in the write buffer.
    pub(super) fn place(&self, key: Key, value_bytes: u32) -> PairPlace {
        let layout = &self.0.layout;
        let header = PairHeader { key, value_bytes, probe: 0 };
        let room_bytes = u64::from(layout.grains_of(header.pair_bytes()) * layout.grain_bytes);
        let region = TaskCell::new(self.0.regions.borrow_mut().pop().unwrap_or_default());
        PairPlace { header, region, room_bytes, unfinished_bytes: Cell::new(0) }
    }

    /// Recycles a place whose pair has been appended.
    pub(super) fn recycle_place(&self, place: PairPlace) {
        self.recycle(place.region.into_inner());
    }

    /// The host has sent all bytes of the value.
    fn end_unfinished(&self, place: &PairPlace) {
        self.0.space.end_unfinished(place.unfinished_bytes.take());
    }

    fn recycle(&self, mut region: Region) {
        let mut regions = self.0.regions.borrow_mut();
        if regions.len() < SPARE_REGIONS {
            region.clear();
            regions.push(region);
        }
    }

    fn try_commit(&self, key: &Key, place: &PairPlace, options: StoreOptions) -> Result<(), Status> {
        let core = &*self.0;
        let grains = core.layout.grains_of(place.header.pair_bytes());
        loop {
            core.admit()?;
            let (probed, old) = match core.walk(key, LookupPurpose::Store)? {
                Lookup::Found(..) if options.add_only => return Err(Status::KEY_EXISTS),
                // The bytes that were read are not needed any more, so their superblock may be erased.
                Lookup::Found(probed, slot, PairRead { header, .. }) => (probed, Some((slot, header))),
                Lookup::Absent(_) if options.update_only => return Err(Status::KEY_NOT_FOUND),
                Lookup::Absent(Some(probed)) => (probed, None),
                Lookup::Absent(None) => return Err(Status::CAPACITY_EXCEEDED),
            };
            core.space.map_room();
            let old_grains = old.map_or(0, |(_, old)| core.layout.grains_of(old.pair_bytes()));
            core.check_room(grains, old_grains)?;
            if let Some(grain) = self.put(place, &probed, old.as_ref()) {
                if core.config.omissions.wait_for_program {
                    core.space.page_programmed(core.layout.page(grain));
                }
                return Ok(());
            }
        }
    }

    /// Reads the pair's read units after the first, up to byte `until` of its value.
    fn read_rest(&self, found: &Found, until: u32) -> Result<(), Status> {
        let layout = &self.0.layout;
        let page_bytes = layout.page_bytes();
        let end = found.at + found.header.bytes() + until;
        let pages = end.div_ceil(page_bytes);
        let read = |index: u32| {
            let from = if index == 0 { found.first_end } else { 0 };
            let to = (end - index * page_bytes).next_multiple_of(layout.unit_bytes).min(page_bytes);
            self.0.space.read(found.page + index, from, to - from, Purpose::Data)
        };
        let wanted: Vec<u32> =
            (0..pages).filter(|index| *index > 0 || found.first_end < page_bytes.min(end)).collect();
        let parts = join_all(&self.0.sim, wanted.iter().map(|index| || read(*index)));
        let mut parts: Vec<Part> = parts.into_iter().collect::<Result<_, _>>()?;
        if wanted.first() != Some(&0) {
            parts.insert(0, found.first.clone());
        }
        *found.rest.borrow_mut() = parts;
        Ok(())
    }

    fn found(&self, pair: PairRead) -> Found {
        let layout = &self.0.layout;
        let at = layout.byte_in_page(pair.grain);
        Found {
            header: pair.header,
            at,
            page: layout.page(pair.grain),
            first: pair.part,
            first_end: layout.unit_begin(at) + layout.unit_bytes,
            rest: TaskCell::default(),
            _reader: pair.reader,
        }
    }
}

impl Landing for HashEngine {
    type Place = PairPlace;

    fn reserve(&self, key: &Key, bytes: u32, _arrival: Arrival) -> Result<PairPlace, Status> {
        self.check_bytes(key, bytes)?;
        let place = self.place(*key, bytes);
        self.0.space.host_room(place.room_bytes);
        Ok(place)
    }

    fn copy_in(&self, place: &PairPlace, at: u32, bytes: &[u8]) {
        self.dma_in(place, at, Piece::Bytes(bytes));
        let (core, ns) = (&*self.0, self.memcpy_ns(bytes.len() as u32));
        core.memcpy.add(bytes.len() as u32, ns);
        core.cores.of(Role::Copy).run_noted(ns, "controller", "memcpy");
    }

    fn dma_in(&self, place: &PairPlace, at: u32, piece: Piece<'_>) {
        place.region.borrow_mut().write(place.header.bytes() + at, piece);
    }

    /// Where DMA and flash share the buffer, the flash controller gathers a page from it and nothing is copied.
    fn settle(&self, place: &PairPlace) {
        self.end_unfinished(place);
        self.stage(place.header.value_bytes);
    }

    fn abandon(&self, place: PairPlace) {
        self.end_unfinished(&place);
        self.0.space.return_room(place.room_bytes);
        self.recycle(place.region.into_inner());
    }
}

/// The write buffer is not exposed: the place of a pair in a page is known only when the pair is complete.
impl Exposing for HashEngine {
    type Window = NoWindow;
}

impl Engine for HashEngine {
    type Found = Found;
    type Cursor = HashCursor;
    const ORDERED: bool = false;

    fn atomic_batches(&self) -> Option<AtomicLimits> {
        self.batch_limits()
    }

    fn commit_all(&self, changes: Vec<PairChange>) -> Result<(), Status> {
        self.commit_batch(changes)
    }

    fn on_held(&self, give_up: GiveUpCursor) {
        self.0.held_by_cursors.set(give_up);
    }

    fn commit(&self, key: Key, place: PairPlace, options: StoreOptions) -> Result<(), Status> {
        assert!(place.header.key == key, "a place is committed under the key it was reserved for");
        self.end_unfinished(&place);
        let _key = self.0.locks.lock(key);
        let result = self.0.without_held(|| self.try_commit(&key, &place, options));
        match result {
            // The room is freed when the page is programmed.
            Ok(()) => self.recycle_place(place),
            Err(_) => self.abandon(place),
        }
        result
    }

    fn begin_unfinished(&self, place: &PairPlace) -> Result<(), Status> {
        if !self.0.space.begin_unfinished(place.room_bytes) {
            return Err(Status::COMMAND_INTERRUPTED);
        }
        place.unfinished_bytes.set(place.room_bytes);
        Ok(())
    }

    fn expect(&self, keys: &mut dyn Iterator<Item = Key>) {
        let replaced = self.0.cache.expect_pairs(keys.map(|key| self.0.probe(&key, 0)));
        self.0.space.expect(&replaced, &mut |_, _| ());
        self.0.space.expect_invalid(replaced.iter().copied());
        self.0.records.iter().for_each(|records| records.expect(&replaced));
    }

    fn find(&self, key: Key) -> Result<Option<Found>, Status> {
        Ok(match self.0.walk(&key, LookupPurpose::Read)? {
            Lookup::Found(_, _, pair) => Some(self.found(pair)),
            Lookup::Absent(_) => None,
        })
    }

    fn value_bytes(&self, found: &Found) -> u32 {
        found.header.value_bytes
    }

    fn order_on_flash(&self, found: &Found) -> u64 {
        u64::from(found.page) << 32 | u64::from(found.at)
    }

    fn load(
        &self,
        found: &Found,
        at: u32,
        bytes: u32,
        until: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        let begin = found.at + found.header.bytes() + at;
        let end = begin + bytes;
        self.stage(bytes);
        if end <= found.first_end || bytes == 0 {
            found.first.read(begin, bytes, sink);
            return Ok(());
        }
        if found.rest.borrow().is_empty() {
            self.read_rest(found, until)?;
        }
        let rest = found.rest.borrow();
        let page_bytes = self.0.layout.page_bytes();
        let mut here = begin;
        while here < end {
            let (index, in_page) = (here / page_bytes, here % page_bytes);
            let mut stop = end.min((index + 1) * page_bytes);
            if here < found.first_end {
                stop = stop.min(found.first_end);
                found.first.read(here, stop - here, sink);
            } else {
                rest[index as usize].read(in_page, stop - here, sink);
            }
            here = stop;
        }
        Ok(())
    }

    fn delete(&self, key: Key) -> Result<(), Status> {
        match self.delete_existing(key) {
            Err(Status::KEY_NOT_FOUND) => Ok(()),
            deleted => deleted,
        }
    }

    fn delete_existing(&self, key: Key) -> Result<(), Status> {
        let core = &*self.0;
        let _key = core.locks.lock(key);
        let Lookup::Found(probed, slot, PairRead { header, .. }) = core.walk(&key, LookupPurpose::Read)?
        else {
            return Err(Status::KEY_NOT_FOUND);
        };
        core.space.map_room();
        self.empty(&probed, slot, &header);
        Ok(())
    }

    fn open_cursor(&self, from: Option<Key>) -> Result<HashCursor, Status> {
        HashCursor::open(&self.0, from)
    }

    fn next(&self, cursor: &mut HashCursor) -> Result<Option<(Key, Found)>, Status> {
        Ok(cursor.next()?.map(|pair| (pair.header.key, self.found(pair))))
    }

    fn drain(&self) {
        self.0.cache.write_all();
        self.0.space.drain();
    }

    fn utilization(&self) -> Utilization {
        let core = &*self.0;
        Utilization {
            live_bytes: core.live_bytes.get(),
            capacity_bytes: core.space.limit_grains() * u64::from(core.layout.grain_bytes),
        }
    }

    fn max_value_bytes(&self) -> u32 {
        self.0.max_value_bytes
    }

    fn power_on(parts: Parts, image: Option<&[u8]>) -> Result<HashEngine, PowerOnError> {
        let config = &parts.config;
        let (scheme, hash) = of_config(config)?;
        let Parts { flash, cores, journal, .. } = &parts;
        let (owner, protected_bytes) = (parts.owner.clone(), config.protected_bytes);
        let core =
            HashState::new(scheme, &hash, flash, cores.clone(), owner, journal.clone(), protected_bytes)
                .map_err(|what| PowerOnError::Config(format!("power.protected_bytes: {what}")))?;
        if let Some(image) = image {
            recover(&core, power::open::<Protected>(image)?.1)?;
        }
        Ok(HashEngine::of(core))
    }

    fn protected_image(&self) -> Vec<u8> {
        power::seal(&self.0.owner, &Protected::of(&self.0))
    }

    fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError> {
        let (scheme, hash) = of_config(config)?;
        Ok(journal::fold(scheme, &hash, &config.flash.geometry(), image, records)?)
    }

    fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
        fit::check(config)
    }

    fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)> {
        fit::image_settings(config)
    }

    fn counts(&self) -> Counts {
        let core = &*self.0;
        let records = core.records.as_ref().map(|records| records.statistics()).unwrap_or_default();
        let counts = core.memcpy.counts().and(&core.moved).and(&core.counters);
        counts.and(&core.cache.statistics()).and(&records).and(&core.room())
    }

    fn dram(&self) -> Counts {
        self.0.dram().counts()
    }
}

impl Dividing for HashEngine {
    fn issued(&self) -> Issued {
        self.0.issued.get()
    }

    fn remember(&self, issued: Issued) {
        self.0.remember(issued);
    }
}
