//! Fabrics commands, NVMe/TCP units and log pages, byte for byte, typed in from the drawings.

use kvdrive_nvme::discovery::{DiscoveryEntry, DiscoveryHeader};
use kvdrive_nvme::fabrics::{self, Connect, ConnectData, Fabrics};
use kvdrive_nvme::log::{LogRequest, lid};
use kvdrive_nvme::property::{Capabilities, Configuration, ControllerStatus};
use kvdrive_nvme::tcp::{self, Header, flag, kind};
use kvdrive_nvme::{Cqe, SglDescriptor, Sqe, Status, feature, opcode};
use proptest::prelude::*;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Parses hexadecimal bytes and skips everything else; dots fill up with zeros to `bytes`.
fn hex(text: &str, bytes: usize) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let mut all: Vec<u8> = digits.chunks(2).map(byte).collect();
    all.resize(bytes, 0);
    all
}

#[test]
fn fabrics_commands() {
    let connect = Connect {
        record_format: 0,
        queue_id: 0x0102,
        entries_z: 127,
        attributes: Connect::NO_FLOW_CONTROL,
        keep_alive_ms: 0x0001_E848,
    };
    let cases = [
        (Fabrics::Connect(connect), "7f003412 01000000", "0000 0201 7f00 04 00 48e80100"),
        (Fabrics::PropertyGet { wide: true, offset: 0 }, "7f003412 04000000", "01000000 00000000"),
        (Fabrics::PropertyGet { wide: false, offset: 0x1C }, "7f003412 04000000", "00000000 1c000000"),
        (
            Fabrics::PropertySet { wide: false, offset: 0x14, value: 0x0046_0061 },
            "7f003412 00000000",
            "00000000 14000000 61004600",
        ),
        (Fabrics::AuthenticationSend { bytes: 72 }, "7f003412 05000000", "00 01 01 e9 48000000"),
        (Fabrics::AuthenticationReceive { bytes: 4096 }, "7f003412 06000000", "00 01 01 e9 00100000"),
        (Fabrics::Disconnect, "7f003412 08000000", ""),
    ];
    for (command, head, tail) in cases {
        let bytes = [hex(head, 40), hex(tail, 24)].concat();
        assert_eq!(command.encode(0x1234).as_bytes()[..], bytes, "{command:?}");
        let sqe = Sqe::from_bytes(bytes.try_into().unwrap());
        assert_eq!(Fabrics::decode(&sqe), Ok(command));
    }
    let unknown = Sqe::new(opcode::FABRICS, 1, 0x0C);
    assert_eq!(Fabrics::decode(&unknown), Err(Status::INVALID_OPCODE));
    let mut odd_size = Fabrics::PropertyGet { wide: true, offset: 0 }.encode(1);
    odd_size.cdw10.set(2);
    assert_eq!(Fabrics::decode(&odd_size), Err(Status::INVALID_FIELD));
    let mut other_protocol = Fabrics::AuthenticationSend { bytes: 72 }.encode(1);
    other_protocol.cdw10.set(0x0001_01EA);
    assert_eq!(Fabrics::decode(&other_protocol), Err(Status::INVALID_FIELD));
    assert_eq!(fabrics::invalid_parameter(256, true), 0x0001_0100);
}

#[test]
fn names_end_and_begin_as_names_do() {
    let field = fabrics::nqn_field("nqn.2014-08.org.example:x").unwrap();
    assert_eq!(fabrics::nqn(&field), Some("nqn.2014-08.org.example:x"));
    let mut data = ConnectData::new_zeroed();
    data.subsystem_nqn = field;
    assert_eq!(&data.as_bytes()[256..260], b"nqn.");
    assert!(fabrics::nqn_field(&"n".repeat(224)).is_none());
    assert_eq!(fabrics::nqn(&[b'n'; 256]), None, "it has no end");
    assert_eq!(fabrics::nqn(&[0; 256]), None);
    assert_eq!(fabrics::nqn(&fabrics::nqn_field("iqn.x").unwrap()), None);
    let mut no_text = field;
    no_text[5] = 0xFF;
    assert_eq!(fabrics::nqn(&no_text), None);
}

#[test]
fn properties() {
    let capabilities = Capabilities::new()
        .with_entries_max_z(0x03FF)
        .with_contiguous(true)
        .with_ready_500ms(10)
        .with_command_sets(Capabilities::CSS_NVM | Capabilities::CSS_IO_SETS);
    assert_eq!(capabilities.into_bits(), 1 << 43 | 1 << 37 | 10 << 24 | 1 << 16 | 0x03FF);
    let enabled = Configuration::from_bits(0x0046_0061);
    assert!(enabled.enable() && enabled.sqe_log2() == 6 && enabled.cqe_log2() == 4);
    assert_eq!((enabled.command_set(), enabled.shutdown()), (0b110, 0));
    assert_eq!(Configuration::from_bits(0x0046_4061).shutdown(), 0b01);
    let down = ControllerStatus::new().with_ready(true).with_shutdown(ControllerStatus::SHUTDOWN_DONE);
    assert_eq!(down.into_bits(), 0x9);
}

#[test]
fn units_of_nvme_tcp() {
    let mut request = tcp::InitializeRequest::new_zeroed();
    request.header = Header::new(kind::IC_REQ, 128);
    request.digests = 3;
    assert_eq!(request.as_bytes(), hex("00 00 80 00 80000000 0000 00 03 00000000", 128));

    let mut response = tcp::InitializeResponse::new_zeroed();
    response.header = Header::new(kind::IC_RESP, 128);
    response.data_max_bytes.set(0x2_0000);
    assert_eq!(response.as_bytes(), hex("01 00 80 00 80000000 0000 00 00 00000200", 128));

    let mut sqe = Sqe::new(opcode::RETRIEVE, 0x0203, 1);
    sqe.set_sgl(SglDescriptor::transport(4096));
    let capsule = tcp::CommandCapsule { header: Header::new(kind::CAPSULE_CMD, 72), sqe };
    let head = hex("04 00 48 00 48000000  02 40 0302 01000000", 32);
    let tail = hex("0000000000000000 00100000 000000 5a", 40);
    assert_eq!(capsule.as_bytes(), [head, tail].concat());
    sqe.set_sgl(SglDescriptor::in_capsule(5));
    assert_eq!(sqe.as_bytes()[24..40], hex("0000000000000000 05000000 000000 01", 16));

    let cqe = Cqe::new(0x0203, Status::KEY_NOT_FOUND).with_result(5, 6).with_queue(0, 9);
    let answer = tcp::ResponseCapsule { header: Header::new(kind::CAPSULE_RESP, 24), cqe };
    assert_eq!(answer.as_bytes(), hex("05 00 18 00 18000000 05000000 06000000 0900 0000 0302 0e81", 24));

    let mut data = tcp::Transfer::new_zeroed();
    data.header = Header::new(kind::H2C_DATA, 24);
    data.header.flags = flag::LAST;
    data.header.data_at = 24;
    data.header.bytes.set(24 + 10);
    data.cid.set(0x0203);
    data.tag.set(0x0405);
    data.offset.set(0x1000);
    data.length.set(10);
    assert_eq!(data.as_bytes(), hex("06 04 18 18 22000000 0302 0504 00100000 0a000000", 24));

    let mut ending = tcp::Termination::new_zeroed();
    ending.header = Header::new(kind::C2H_TERM_REQ, 24);
    ending.reason.set(tcp::fatal::INVALID_HEADER);
    ending.information.set(4);
    assert_eq!(ending.as_bytes(), hex("03 00 18 00 18000000 0100 04000000", 24));
    for (kind, bytes) in [(0x00, 128), (0x04, 72), (0x05, 24), (0x07, 24), (0x09, 24)] {
        assert_eq!(tcp::header_bytes(kind), Some(bytes));
    }
    assert_eq!([0x08, 0x0A, 0xFF].map(tcp::header_bytes), [None; 3]);
}

#[test]
fn log_pages() {
    let request = LogRequest {
        page: lid::DISCOVERY,
        retain_event: true,
        bytes: 1024,
        offset: 0x1_0000_0400,
        command_set: 1,
    };
    let mut sqe = Sqe::new(opcode::admin::GET_LOG_PAGE, 1, 0);
    request.put(&mut sqe);
    let dwords = hex("7080ff00 00000000 00040000 01000000 00000001", 24);
    assert_eq!(sqe.as_bytes()[40..], dwords);
    assert_eq!(LogRequest::of(&sqe), request);

    let mut header = DiscoveryHeader::new_zeroed();
    header.generation.set(2);
    header.entries.set(1);
    assert_eq!(header.as_bytes(), hex("0200000000000000 0100000000000000", 1024));
    let mut entry = DiscoveryEntry::empty();
    entry.transport = DiscoveryEntry::TCP;
    entry.address_family = DiscoveryEntry::IPV4;
    entry.subsystem_type = DiscoveryEntry::NVM_SUBSYSTEM;
    entry.port_id.set(1);
    entry.controller_id.set(0xFFFF);
    entry.admin_entries_max.set(32);
    assert_eq!(entry.as_bytes(), hex("03 01 02 00 0100 ffff 2000", 1024));
    assert_eq!(feature::event::dword(2, 0xF0, 0x70), 0x0070_F002);
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused_and_what_is_decoded_is_encoded_alike(bytes in any::<[u8; 32]>(), fctype in 0u8..10) {
        let mut entry = [0; 64];
        entry[..32].copy_from_slice(&bytes);
        entry[32..].copy_from_slice(&bytes);
        entry[0] = opcode::FABRICS;
        entry[4] = fctype;
        let sqe = Sqe::from_bytes(entry);
        if let Ok(command) = Fabrics::decode(&sqe) {
            prop_assert_eq!(Fabrics::decode(&command.encode(7)), Ok(command));
        }
        let request = LogRequest::of(&sqe);
        let mut again = Sqe::new(2, 0, 0);
        request.put(&mut again);
        prop_assert_eq!(LogRequest::of(&again), request);
        let mut field = [0; 256];
        field[..32].copy_from_slice(&bytes);
        let _ = fabrics::nqn(&field);
        let _ = tcp::Header::read_from_bytes(&bytes[..8]).map(|header| tcp::header_bytes(header.kind));
    }
}
