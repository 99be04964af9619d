//! The blocks of a drive as threads of a program use them: a call is one command and waits for it on its
//! thread. A driver is also the pages of a store.
//!
//! A drive of blocks answers a write when it is durable, so no page is ever torn, and a flush has nothing to
//! do.

use kvdrive_content::Piece;
use kvdrive_link::transfer::prp;
use kvdrive_nvme::Status;
use kvdrive_nvme::identify::cns;
use kvdrive_nvme::nvm::{BLOCK_BYTES, Blocks, NvmCommand};
use kvdrive_store::{Page, PageError, PageId, PageStore, Purpose, Thread, Writing};

use super::connector::{Connector, QueuePair};
use crate::Error;
use crate::answers::NSID;
use crate::blocks::{self, Block, BlockCall};
use crate::conversation::course::done;
use crate::conversation::slot::IteratorUse;
use crate::conversation::{CommandSlot, Submission};
use crate::driver::block_on;
use crate::hostkv::error_of;

/// A queue pair to a drive of blocks. Several threads may use it at once: up to `depth` commands are under
/// way, and further calls wait for a slot.
pub struct BlockDriver {
    connector: Connector,
    pair: Option<QueuePair>,
    blocks: u64,
    most_blocks: u32,
}

impl Connector {
    /// A queue pair of `entries` slots for up to `depth` commands at once to a drive of blocks; see
    /// [`Connector::connect`].
    ///
    /// # Errors
    /// As there; [`Status::INVALID_FIELD`] if the drive's namespace is of pairs.
    pub fn connect_blocks(&self, entries: u32, depth: u32) -> Result<BlockDriver, Error> {
        let namespace = |cid, buffer| blocks::identify(cid, cns::NAMESPACE, buffer);
        let controller = |cid, buffer| blocks::identify(cid, cns::CONTROLLER, buffer);
        let blocks = blocks::blocks_of(&block_on(self.admin(namespace, blocks::take_identified))?)?;
        let most_blocks = blocks::most_blocks_of(&block_on(self.admin(controller, blocks::take_identified))?);
        let pair = self.pair(entries, depth, most_blocks * BLOCK_BYTES)?;
        Ok(BlockDriver { connector: self.clone(), pair: Some(pair), blocks, most_blocks })
    }
}

impl BlockDriver {
    /// How many blocks there are.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Most blocks of one command that reads or writes.
    pub fn most_blocks(&self) -> u32 {
        self.most_blocks
    }

    /// Has the drive carry a command out; returns the blocks that it read.
    ///
    /// # Errors
    /// [`Error::Count`]: more blocks than [`BlockDriver::most_blocks`], or none; the status that the drive
    /// answered; the drive is off.
    pub fn call(&self, call: BlockCall<'_>) -> Result<Vec<Block>, Error> {
        call.check(self.most_blocks)?;
        block_on(async {
            let port = &self.pair.as_ref().expect("it is there until it is dropped").port;
            let mut slot = port.slot().await?;
            let cid = slot.cid();
            let (memory, buffer) = port.transport().buffer(cid).expect("rings have buffers");
            let list = port.transport().offer(cid).list;
            slot.clear();
            let (command, bytes) = blocks::stage(memory, buffer, self.most_blocks, call);
            let mut sqe = command.encode(cid, NSID);
            prp::point_at(&mut sqe, buffer, list, bytes);
            slot.outbox.push(sqe);
            let (iterator_use, value) = (IteratorUse::None, Piece::Bytes(&[]));
            slot.submit(Submission { completions: 1, iterator_use, value, room: 0 })?;
            done(slot.completed().await?.status())?;
            let read_blocks = if let NvmCommand::Read(range) = command { range.count } else { 0 };
            Ok(blocks::take_blocks(memory, buffer, read_blocks))
        })
    }

    /// As [`BlockDriver::call`], with the errors of a page store.
    fn ask(&self, page: PageId, call: BlockCall<'_>) -> Result<Vec<Block>, PageError> {
        self.call(call).map_err(|error| {
            let status = error.status().unwrap_or(Status::ABORTED_POWER_LOSS);
            error_of(page, status)
        })
    }
}

/// A page is a block. Any thread may call, and several at once. A write is done when the call that starts it
/// returns.
impl PageStore for BlockDriver {
    fn page_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn pages(&self) -> u64 {
        self.blocks
    }

    fn read(
        &self,
        _: Thread,
        first: PageId,
        count: u32,
        _: Purpose,
        out: &mut Vec<Page>,
    ) -> Result<(), PageError> {
        for from in (0..count).step_by(self.most_blocks as usize) {
            let page = first.plus(from.into());
            let range = Blocks { first: page.0, count: self.most_blocks.min(count - from) };
            out.extend(self.ask(page, BlockCall::Read(range))?);
        }
        Ok(())
    }

    fn start_write(&self, _: Thread, first: PageId, run: &[Page], _: Purpose) -> Result<Writing, PageError> {
        let mut page = first;
        for blocks in run.chunks(self.most_blocks as usize) {
            self.ask(page, BlockCall::Write { first: page.0, blocks })?;
            page = page.plus(blocks.len() as u64);
        }
        Ok(Writing(0))
    }

    fn finish_write(&self, _: Thread, _: Writing) -> Result<(), PageError> {
        Ok(())
    }

    fn trim(&self, _: Thread, first: PageId, count: u32, _: Purpose) -> Result<(), PageError> {
        self.ask(first, BlockCall::Deallocate(&[Blocks { first: first.0, count }])).map(drop)
    }

    fn flush(&self, _: Thread, _: Purpose) -> Result<(), PageError> {
        self.ask(PageId(0), BlockCall::Flush).map(drop)
    }
}

impl Drop for BlockDriver {
    fn drop(&mut self) {
        if let Some(pair) = self.pair.take() {
            self.connector.give_back(pair);
        }
    }
}
