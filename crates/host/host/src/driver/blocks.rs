//! The blocks of a drive (NVM command set) as threads of a program use them, over any transport: a call is one
//! command. A driver is also the pages of a store whose callers wait.
//!
//! A drive of blocks answers a write when it is durable, so no page is ever torn, and a flush has nothing to
//! do.

use std::sync::Arc;

use kvdrive_content::Piece;
use kvdrive_link::transfer::prp;
use kvdrive_nvme::nvm::{BLOCK_BYTES, Blocks, NvmCommand};
use kvdrive_nvme::{DRIVE_NSID, Status};
use kvdrive_store::{Page, PageError, PageId, PageStore, Purpose, Thread, Writing};

use super::calls::Home;
use super::port::Port;
use super::wait::block_on;
use crate::Error;
use crate::blocks::{self, Block, BlockCall};
use crate::conversation::course::done;
use crate::conversation::slot::IteratorUse;
use crate::conversation::{CommandSlot, Submission};
use crate::hostkv::error_of;

/// A queue pair to a drive of blocks. Several threads may use it at once: up to `depth` commands are under
/// way, and further calls wait for a slot.
pub struct BlockDriver {
    port: Arc<Port>,
    blocks: u64,
    most_blocks: u32,
    home: Option<Home>,
}

impl BlockDriver {
    /// The driver of a port to a drive of `blocks` blocks, of which a command moves at most `most_blocks`. `home` is
    /// called when it is dropped.
    pub(crate) fn new(port: Arc<Port>, blocks: u64, most_blocks: u32, home: Option<Home>) -> BlockDriver {
        BlockDriver { port, blocks, most_blocks, home }
    }

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
        block_on(self.carry_out(call))
    }

    /// As [`BlockDriver::call`], as a future.
    pub(crate) async fn carry_out(&self, call: BlockCall<'_>) -> Result<Vec<Block>, Error> {
        call.check(self.most_blocks)?;
        let mut slot = self.port.slot().await?;
        let (cid, transport) = (slot.cid(), self.port.transport());
        slot.clear();
        let (command, bytes) = blocks::command_of(&call);
        let mut sqe = command.encode(cid, DRIVE_NSID);
        let mut beside = Vec::new();
        match transport.buffer(cid) {
            Some((memory, buffer)) => {
                blocks::stage(memory, buffer, &call);
                prp::point_at(&mut sqe, buffer, transport.offer(cid).list, bytes);
            }
            None => {
                beside.resize(bytes as usize, 0);
                blocks::put_data(&call, &mut |at, piece| {
                    piece.expand(&mut beside[at as usize..(at + piece.bytes()) as usize]);
                });
            }
        }
        let read_blocks = if let NvmCommand::Read(range) = command { range.count } else { 0 };
        slot.outbox.push(sqe);
        let (iterator_use, room) = (IteratorUse::None, read_blocks * BLOCK_BYTES);
        slot.submit(Submission { completions: 1, iterator_use, value: Piece::Bytes(&beside), room })?;
        done(slot.completed().await?.status())?;
        let mut found = Vec::new();
        transport.answer(cid, &mut |arrived| {
            let (memory, address) = arrived.memory();
            found = blocks::take_blocks(memory, address, read_blocks);
        });
        Ok(found)
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
        if let Some(home) = self.home.take() {
            home();
        }
    }
}
