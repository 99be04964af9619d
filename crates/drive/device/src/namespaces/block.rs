//! A namespace of blocks: 4 KiB each, directly on logical pages of the flash translation layer.
//!
//! * A write is acknowledged after its pages are programmed, so it is durable then, and Flush has nothing to
//!   do. Pages of one command are written and read in parallel, on all units of the flash.
//! * If a page has several blocks, writing some of them reads the page and writes all of it again; commands
//!   take turns at a page.
//! * Deallocated blocks read as zeros, and so do blocks that were never written. Power-protected memory records which
//!   pages are deallocated ([`kvdrive_flash::ftl::away`]); the protected image has nothing else. A deallocated page
//!   that is written again exists when its program is done; after a power cut before that it still reads as zeros, as
//!   acknowledged last.

use std::rc::Rc;

use kvdrive_content::{Piece, Region, zeros};
use kvdrive_declare::{Counters, Counts};
use kvdrive_engines::EngineConfig;
use kvdrive_engines::Parts;
use kvdrive_engines::{Memcpy, Utilization};
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::away::{AwayChange, AwayPages};
use kvdrive_flash::ftl::{Ftl, Lpa, logical_pages};
use kvdrive_flash::power::PowerOnError;
use kvdrive_flash::power::{self, Journal, Owner};
use kvdrive_flash::spare::TAG_BYTES;
use kvdrive_link::Request;
use kvdrive_nvme::identify::{CSI_NVM, IDENTIFY_BYTES, cns};
use kvdrive_nvme::nvm::{BLOCK_BYTES, BLOCK_BYTES_LOG2, Blocks, NvmCommand, NvmNamespace, Range};
use kvdrive_nvme::{Cqe, Key, Sqe, Status};
use kvdrive_sim::{KeyedLock, Sim, TaskCell, join_all};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Decoded, Namespace, Pairs};
use crate::answers::{Answer, completion_of, send};
use crate::config::ControllerConfig;

/// Kind of a page of blocks, for the translation layer.
const PAGE_KIND: u8 = 1;
/// Most data of one command, as a power of two of 4096 bytes: 2 MiB.
const TRANSFER_MAX_LOG2: u8 = 9;
const TRANSFER_MAX_BYTES: u32 = 4096 << TRANSFER_MAX_LOG2;

/// The blocks of a drive.
pub struct BlockNamespace {
    sim: Sim,
    ftl: Ftl,
    journal: Journal,
    owner: Owner,
    page_bytes: u32,
    away: TaskCell<AwayPages>,
    /// Locks pages while a command writes a part of a page, or a whole page that has parts.
    pages: KeyedLock<u32>,
}

/// The part of a command that lies in one page.
#[derive(Clone, Copy)]
struct InPage {
    page: u32,
    /// Offset of the first byte within the page; `data_at`: within the command's data.
    at: u32,
    data_at: u32,
    bytes: u32,
}

/// Checks that such a drive of blocks can be made; an error is a line that begins with the key at fault.
pub fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
    let fail = |line| Err(PowerOnError::Config(line));
    let geometry = config.flash.geometry();
    config.engines.ftl.check(&geometry).or_else(|error| fail(format!("ftl.{error}")))?;
    if !config.flash.enabled {
        return fail("nand.enabled: false; a drive of blocks has nothing but flash".into());
    }
    if !geometry.page_bytes.is_multiple_of(BLOCK_BYTES) {
        let bytes = geometry.page_bytes;
        return fail(format!("flash.page_bytes: {bytes}; blocks need a multiple of {BLOCK_BYTES}"));
    }
    let needed = AwayPages::bytes(logical_pages(&geometry, config.engines.ftl.over_provisioning)) as u64;
    if needed > config.protected_bytes {
        let has = config.protected_bytes;
        return fail(format!("power.protected_bytes: {has}; a bit for each page needs {needed}"));
    }
    Ok(())
}

fn pages_of(config: &EngineConfig) -> u32 {
    logical_pages(&config.flash.geometry(), config.engines.ftl.over_provisioning)
}

fn open(config: &EngineConfig, image: &[u8]) -> Result<(Owner, AwayPages), PowerOnError> {
    let (owner, away) = power::open::<AwayPages>(image)?;
    away.check(pages_of(config))?;
    Ok((owner, away))
}

/// Folds journal records into a protected image.
pub fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError> {
    let (owner, mut away) = open(config, image)?;
    power::replay(records, |change: AwayChange| away.apply(change, pages_of(config)))?;
    Ok(power::seal(&owner, &away))
}

/// The namespace of an empty drive, or of the state in `image` and flash.
pub fn start(
    parts: Parts,
    _: &ControllerConfig,
    image: Option<&[u8]>,
) -> Result<Rc<dyn Namespace>, PowerOnError> {
    let Parts { sim, flash, journal, owner, config, .. } = parts;
    check(&config)?;
    let (ftl, away) = match image {
        None => (Ftl::new(flash, &config.engines.ftl), AwayPages::none(pages_of(&config))),
        Some(image) => {
            let (_, away) = open(&config, image)?;
            (Ftl::recover(flash, &config.engines.ftl, &mut |_, _, _| {}), away)
        }
    };
    away.iter().for_each(|page| ftl.trim(Lpa(page)));
    Ok(Rc::new(BlockNamespace {
        pages: KeyedLock::new(&sim),
        sim,
        page_bytes: ftl.page_bytes(),
        ftl,
        journal,
        owner,
        away: TaskCell::new(away),
    }))
}

impl BlockNamespace {
    fn blocks(&self) -> u64 {
        u64::from(self.ftl.logical_pages()) * u64::from(self.page_bytes / BLOCK_BYTES)
    }

    /// The blocks of a command that moves or clears them, if they exist.
    fn in_range(&self, blocks: Blocks) -> Result<Blocks, Status> {
        if blocks.fit(self.blocks()) { Ok(blocks) } else { Err(Status::LBA_OUT_OF_RANGE) }
    }

    /// Bytes of a command that moves blocks, if the blocks exist and are not too many.
    fn data_bytes(&self, blocks: Blocks) -> Result<u32, Status> {
        let bytes = self.in_range(blocks)?.count.checked_mul(BLOCK_BYTES);
        bytes.filter(|bytes| *bytes <= TRANSFER_MAX_BYTES).ok_or(Status::INVALID_FIELD)
    }

    /// Splits a command's blocks into pages.
    fn by_page(&self, blocks: Blocks) -> impl Iterator<Item = InPage> + use<> {
        let page_bytes = u64::from(self.page_bytes);
        let begin = blocks.first * u64::from(BLOCK_BYTES);
        let end = begin + u64::from(blocks.count) * u64::from(BLOCK_BYTES);
        (begin / page_bytes..end.div_ceil(page_bytes)).map(move |page| {
            let (from, to) = ((page * page_bytes).max(begin), ((page + 1) * page_bytes).min(end));
            InPage {
                page: page as u32,
                at: (from % page_bytes) as u32,
                data_at: (from - begin) as u32,
                bytes: (to - from) as u32,
            }
        })
    }

    fn answer_to(&self, request: &dyn Request, command: &NvmCommand) -> Answer {
        if self.journal.is_protected() && command.changes_content() {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        match *command {
            NvmCommand::Flush | NvmCommand::Hint => {}
            NvmCommand::Read(blocks) => {
                let bytes = self.data_bytes(blocks)?;
                let data = self.read(blocks)?;
                send(request, bytes, &data, bytes)?;
            }
            NvmCommand::Write(blocks) => {
                let bytes = self.data_bytes(blocks)?;
                let mut data = Region::new();
                let mut at = 0;
                request.pull(bytes, &mut |piece| {
                    data.write(at, piece);
                    at += piece.bytes();
                })?;
                self.write(blocks, &data)?;
            }
            NvmCommand::WriteZeroes(blocks) => self.clear(self.in_range(blocks)?)?,
            NvmCommand::Deallocate { ranges } => self.deallocate(request, ranges)?,
        }
        Ok((0, 0))
    }

    /// The content of a page; `None`: zeros.
    fn page(&self, page: u32) -> Result<Option<Rc<Region>>, Status> {
        if !self.ftl.is_mapped(Lpa(page)) {
            return Ok(None);
        }
        let read = self.ftl.read(Lpa(page), Purpose::Data);
        read.map(Some).map_err(|_| Status::UNRECOVERED_READ_ERROR)
    }

    fn read(&self, blocks: Blocks) -> Result<Region, Status> {
        let parts: Vec<InPage> = self.by_page(blocks).collect();
        let pages = join_all(&self.sim, parts.iter().map(|part| || self.page(part.page)));
        let mut data = Region::new();
        for (part, page) in parts.iter().zip(pages) {
            copy(page?.as_deref(), part.at, part.bytes, &mut data, part.data_at);
        }
        Ok(data)
    }

    fn write(&self, blocks: Blocks, data: &Region) -> Result<(), Status> {
        let parts: Vec<InPage> = self.by_page(blocks).collect();
        let writes = parts.iter().map(|part| || self.write_page(*part, Some(data)));
        join_all(&self.sim, writes).into_iter().collect()
    }

    /// Writes a command's part of a page; without data, writes zeros.
    fn write_page(&self, part: InPage, data: Option<&Region>) -> Result<(), Status> {
        let InPage { page, at, data_at, bytes } = part;
        let _turn = (self.page_bytes > BLOCK_BYTES).then(|| self.pages.lock(page));
        if data.is_none() && bytes == self.page_bytes {
            self.note_away(page, true);
            self.ftl.trim(Lpa(page));
            return Ok(());
        }
        let mut content = Region::new();
        if bytes < self.page_bytes {
            copy(self.page(page)?.as_deref(), 0, self.page_bytes, &mut content, 0);
        }
        copy(data, data_at, bytes, &mut content, at);
        self.ftl.write(Lpa(page), Rc::new(content), PAGE_KIND, [0; TAG_BYTES], Purpose::Data);
        if self.away.borrow().has(page) {
            self.note_away(page, false);
        }
        Ok(())
    }

    fn note_away(&self, page: u32, is_away: bool) {
        self.away.borrow_mut().set(page, is_away);
        self.journal.append(&AwayChange { first: page, pages: 1, is_away });
    }

    /// Makes blocks read as zeros: whole pages are deallocated, parts of pages are written.
    fn clear(&self, blocks: Blocks) -> Result<(), Status> {
        self.by_page(blocks).try_for_each(|part| self.write_page(part, None))
    }

    fn deallocate(&self, request: &dyn Request, ranges: u32) -> Result<(), Status> {
        let mut bytes = vec![0; ranges as usize * Range::BYTES];
        let mut at = 0;
        request.pull(bytes.len() as u32, &mut |piece: Piece<'_>| {
            let end = at + piece.bytes() as usize;
            piece.expand(&mut bytes[at..end]);
            at = end;
        })?;
        let ranges = <[Range]>::ref_from_bytes(&bytes).expect("bytes need no alignment");
        // All or nothing: a command that names blocks out of range changes nothing.
        let blocks: Result<Vec<Blocks>, Status> =
            ranges.iter().map(|range| self.in_range(range.blocks())).collect();
        blocks?.into_iter().filter(|blocks| blocks.count > 0).try_for_each(|blocks| self.clear(blocks))
    }

    fn identify_namespace(&self, nguid: [u8; 16]) -> Vec<u8> {
        let mut answer = NvmNamespace::new_zeroed();
        answer.size_blocks.set(self.blocks());
        answer.capacity_blocks.set(self.blocks());
        answer.used_blocks.set(self.utilization().live_bytes / u64::from(BLOCK_BYTES));
        answer.deallocated = NvmNamespace::DEALLOCATED_READ_ZEROS;
        answer.nguid = nguid;
        answer.formats[0].block_bytes_log2 = BLOCK_BYTES_LOG2;
        answer.as_bytes().to_vec()
    }
}

/// Copies `bytes` bytes of a page, or of zeros, to byte `to` of `data`.
fn copy(page: Option<&Region>, at: u32, bytes: u32, data: &mut Region, to: u32) {
    let mut to = to;
    let mut put = |piece: Piece<'_>| {
        data.write(to, piece);
        to += piece.bytes();
    };
    match page {
        Some(page) => page.read(at, bytes, &mut put),
        None => zeros(bytes, &mut put),
    }
}

impl Namespace for BlockNamespace {
    fn command_set(&self) -> u8 {
        CSI_NVM
    }

    fn decode(&self, sqe: &Sqe) -> Decoded {
        NvmCommand::decode(sqe).map_or_else(Decoded::Nothing, Decoded::Blocks)
    }

    fn execute(&self, request: &dyn Request, decoded: &Decoded) -> Option<Cqe> {
        let answer = match decoded {
            Decoded::Blocks(command) => self.answer_to(request, command),
            Decoded::Nothing(status) => Err(*status),
            Decoded::Pairs(_) => unreachable!("a namespace decodes its own commands"),
        };
        Some(completion_of(request, answer))
    }

    fn identify(&self, structure: u8, nguid: [u8; 16]) -> Option<Vec<u8>> {
        match structure {
            cns::NAMESPACE => Some(self.identify_namespace(nguid)),
            // The NVM command set adds nothing that this drive supports.
            cns::CSI_NAMESPACE => Some(vec![0; IDENTIFY_BYTES]),
            _ => None,
        }
    }

    /// Deallocates every block, page by page.
    fn format(&self) -> Result<(), Status> {
        let in_page = (self.page_bytes / BLOCK_BYTES).max(1);
        let pages = (0..self.blocks()).step_by(in_page as usize);
        pages.map(|first| Blocks { first, count: in_page }).try_for_each(|blocks| self.clear(blocks))
    }

    fn transfer_max_log2(&self) -> u8 {
        TRANSFER_MAX_LOG2
    }

    fn load(&self, pairs: &mut Pairs<'_>) -> Result<(), (Key, Status)> {
        pairs.next().map_or(Ok(()), |(key, _)| Err((key, Status::INVALID_OPCODE)))
    }

    fn protected_image(&self) -> Vec<u8> {
        power::seal(&self.owner, &*self.away.borrow())
    }

    fn counts(&self) -> Counts {
        // Blocks are never copied. The counter of copies is 0, so that reports of all drives have it.
        Memcpy::default().counts().and(&self.ftl.statistics())
    }

    fn utilization(&self) -> Utilization {
        let page_bytes = u64::from(self.page_bytes);
        Utilization {
            live_bytes: self.ftl.statistics().live_pages * page_bytes,
            capacity_bytes: u64::from(self.ftl.logical_pages()) * page_bytes,
        }
    }
}
