//! The blocks of a drive as threads of a program use them: a call is one command and waits for it on its
//! thread. A driver is also the pages of a store.
//!
//! A drive of blocks answers a write when it is durable, so no page is ever torn, and a flush has nothing to
//! do.

use std::sync::Arc;

use kvdrive_link::transfer::prp;
use kvdrive_nvme::Status;
use kvdrive_nvme::identify::cns;
use kvdrive_nvme::nvm::{BLOCK_BYTES, Blocks, NvmCommand};
use kvdrive_store::{Page, PageError, PageId, PageStore, Purpose, Thread, Writing};

use super::blocking::block_on;
use super::connector::Connector;
use super::port::Port;
use crate::Error;
use crate::answers::NSID;
use crate::blocks::{self, Block, BlockCall};
use crate::conversation::course::done;
use crate::conversation::slot::IteratorUse;
use crate::hostkv::error_of;

/// A queue pair to a drive of blocks. Several threads may use it at once: up to `depth` commands are under
/// way, and further calls wait for a slot.
pub struct BlockDriver {
    connector: Connector,
    port: Option<Arc<Port>>,
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
        let port = self.port(entries, depth, most_blocks * BLOCK_BYTES)?;
        Ok(BlockDriver { connector: self.clone(), port: Some(port), blocks, most_blocks })
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
            let port = self.port.as_ref().expect("it is there until it is dropped");
            let mut slot = port.slot().await?;
            let offer = slot.slot_offer();
            slot.buffer().clear();
            let (command, bytes) = blocks::stage(slot.buffer(), offer.buffer, self.most_blocks, call);
            let mut sqe = command.encode(offer.cid, NSID);
            prp::point_at(&mut sqe, offer.buffer, offer.list, bytes);
            slot.outbox.push(sqe);
            slot.submit(1, IteratorUse::None)?;
            done(slot.completion().await?.status())?;
            let read_blocks = if let NvmCommand::Read(range) = command { range.count } else { 0 };
            Ok(blocks::take_blocks(slot.buffer(), offer.buffer, read_blocks))
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
        if let Some(port) = self.port.take() {
            self.connector.give_back(port);
        }
    }
}
