//! Controllers on a network that answer a retrieve otherwise than the drive does: with less data than they say, or without
//! a response.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use kvdrive_host::tcp::{Error, Options, Queue};
use kvdrive_nvme::tcp::flag;
use kvdrive_nvme::{Key, Status};

/// C2HData for command 0: bytes from `at` on.
fn data(at: u32, bytes: &[u8], flags: u8) -> Vec<u8> {
    let [unit_bytes, length] = [24 + bytes.len() as u32, bytes.len() as u32].map(u32::to_le_bytes);
    [&[7, flags, 24, 24][..], &unit_bytes, &[0; 4], &at.to_le_bytes(), &length, &[0; 4], bytes].concat()
}

/// CapsuleResp of command 0: success, with this dword 0.
fn response(dw0: u32) -> Vec<u8> {
    [&[5, 0, 24, 0][..], &24_u32.to_le_bytes(), &dw0.to_le_bytes(), &[0; 12]].concat()
}

/// A retrieve with room for 4096 bytes that a controller answers with these bytes.
fn retrieve(answer: Vec<u8>) -> Result<(u32, Vec<u8>), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let controller = std::thread::spawn(move || {
        let mut host = listener.accept().unwrap().0;
        host.read_exact(&mut [0; 128]).unwrap();
        let mut accepted = [0; 128];
        (accepted[0], accepted[2], accepted[4]) = (1, 128, 128);
        accepted[12..16].copy_from_slice(&4096_u32.to_le_bytes());
        host.write_all(&accepted).unwrap();
        host.read_exact(&mut [0; 72]).unwrap();
        host.write_all(&answer).unwrap();
        host
    });
    let mut queue = Queue::on(TcpStream::connect(at).unwrap(), "nqn.of.it", &Options::default()).unwrap();
    let retrieved = queue.retrieve(Key::from_u32_be(1), 4096);
    drop(controller.join().unwrap());
    retrieved
}

#[test]
fn a_part_of_a_value_is_not_taken_for_the_value() {
    let value = [7; 3000];
    let whole = retrieve([data(0, &value, flag::LAST), response(3000)].concat());
    assert_eq!(whole, Ok((3000, value.to_vec())));
    for came in [0, 1, 1500, 2999] {
        let units = if came > 0 { data(0, &value[..came], flag::LAST) } else { Vec::new() };
        let part = retrieve([units, response(3000)].concat());
        assert_eq!(part, Err(Error::Status(Status::TRANSIENT_TRANSPORT_ERROR)), "{came} of 3000 bytes");
    }
    let longer = retrieve([data(0, &[7; 4096], flag::LAST), response(9000)].concat());
    assert_eq!(longer.map(|(bytes, data)| (bytes, data.len())), Ok((9000, 4096)), "its room is full");
}

/// C2HData with SUCCESS: no response follows. A host that waits for it waits until its patience ends.
#[test]
fn data_with_success_end_the_command() {
    let value = [7; 3000];
    let last = flag::LAST | flag::SUCCESS;
    assert_eq!(retrieve(data(0, &value, last)), Ok((3000, value.to_vec())));
    let two = [data(0, &value[..1000], 0), data(1000, &value[1000..], last)].concat();
    assert_eq!(retrieve(two), Ok((3000, value.to_vec())));
    // The size of a value that fills its room came with the response that there is not.
    assert!(matches!(retrieve(data(0, &[7; 4096], last)), Err(Error::Protocol(_))));
}
