//! Bytes as a socket brings them to `kvdrive serve`.

use kvdrive_nvme::Key;
use kvdrive_subsystem::subsystem::Options;
use kvdrive_subsystem::tcp::connection::{Connection, Limits};

use kvdrive_rigs::wire::{Pair, address, connect, data, ic_req, retrieve, set_cc, settle, store, units};

/// Memory of all connections here.
const MEMORY_BYTES: usize = 1 << 20;
/// Bit of the first byte: the bytes go to the I/O queue instead of the admin queue; another bit selects a
/// connection that has sent nothing yet.
const ON_IO: u8 = 1;
const FRESH: u8 = 2;

/// Bytes that hosts send: the first byte selects the connection, the second the sizes of pieces.
pub fn connection_seeds() -> Vec<Vec<u8>> {
    let key = b"a key";
    let io = [
        store(1, key, &[5; 200], true),
        store(2, key, &[6; 900], false),
        data(2, 0, 0, &[6; 900], true),
        retrieve(3, key, 4096),
    ]
    .concat();
    let admin = [set_cc(4, "61004600"), connect(5, 0, 31, [0xFF, 0xFF])].concat();
    let fresh = [ic_req(), connect(1, 0, 31, [0xFF, 0xFF]), set_cc(2, "61004600")].concat();
    [(ON_IO, 200, io.clone()), (ON_IO, 7, io), (0, 90, admin), (FRESH, 64, fresh)]
        .map(|(first, piece, bytes)| [vec![first, piece], bytes].concat())
        .to_vec()
}

/// Delivers the bytes in pieces, decodes the answers, and ends all connections.
pub fn connection(bytes: &[u8]) {
    let Some((&[first, piece], bytes)) = bytes.split_first_chunk() else { return };
    let mut pair = Pair::new(Options::default(), MEMORY_BYTES);
    if first & FRESH != 0 {
        pair.io = Connection::new(1, Limits::default(), address(), &pair.core);
    }
    let Pair { core, memory, admin, io } = &mut pair;
    let asked = if first & (ON_IO | FRESH) != 0 { &mut *io } else { &mut *admin };
    let mut rest = bytes;
    // Bytes that are not accepted at once are delivered again, as by a socket. If a connection accepts no more bytes,
    // delivery ends.
    for _ in 0..4 * bytes.len() {
        let taken = asked.receive(core, &rest[..rest.len().min(1 + usize::from(piece))]);
        rest = &rest[taken..];
        settle(core, asked);
        units(&asked.output().take_all());
        assert!(core.used_bytes() <= core.limit_bytes(), "more memory than there is");
        if rest.is_empty() || (taken == 0 && !asked.wants_input()) {
            break;
        }
    }
    assert!(memory.state.borrow().pairs.keys().all(|key| key.len() <= Key::IDENTITY_BYTES));
    io.end(core);
    settle(core, io);
    admin.end(core);
    settle(core, admin);
    assert_eq!((core.used_bytes(), core.subsystem.controllers()), (0, 0), "something is left");
    assert_eq!((memory.state.borrow().sessions, memory.state.borrow().under_way), (0, 0));
}
