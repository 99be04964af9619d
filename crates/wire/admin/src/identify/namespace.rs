//! 00h: a namespace as one of blocks. One of pairs answers, too: SPDK and xNVMe consider it inactive without this
//! structure, or without capacity in it.

use kvdrive_nvme::Status;
use kvdrive_nvme::identify::{CSI_NVM, KvNamespaceAsBlocks};
use zerocopy::{FromZeros, IntoBytes};

use super::{Asked, IdentifyAnswer};

/// Bytes of a block in this structure of a namespace of pairs: KV has no blocks, and hosts show sizes in units of 512 B.
const BLOCK_LOG2: u8 = 9;

pub(super) fn page(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    let namespace = asked.of.namespace(asked.nsid)?;
    if namespace.command_set == CSI_NVM {
        return Ok(IdentifyAnswer::OfNamespace(asked.nsid));
    }
    let blocks = namespace.size_bytes.div_ceil(1 << BLOCK_LOG2).max(1);
    let mut answer = KvNamespaceAsBlocks::new_zeroed();
    answer.size_blocks.set(blocks);
    answer.capacity_blocks.set(blocks);
    answer.used_blocks.set(namespace.used_bytes.div_ceil(1 << BLOCK_LOG2));
    answer.block_log2 = BLOCK_LOG2;
    Ok(IdentifyAnswer::Page(answer.as_bytes().to_vec()))
}
