//! Authentication messages, byte for byte, typed in from the drawing.

use kvdrive_nvme::auth::{Content, Group, Hash, Message, Offer, Reason};
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn one_exchange() {
    let offer = Offer { hashes: &[1, 2, 3], groups: &[0, 1, 5] };
    let (c1, r1, c2, r2) = ([0xC1; 48], [0xA1; 48], [0xC2; 48], [0xA2; 48]);
    let (gx, gy) = ([0x11; 256], [0x22; 256]);
    let cases = [
        (
            Content::Negotiate { concatenation: 0, offer: Some(offer) },
            [hex("00 00 0000 3412 00 01  01 00 03 03 010203"), vec![0; 27], hex("000105"), vec![0; 27]]
                .concat(),
        ),
        (
            Content::Challenge {
                hash: Hash::Sha384,
                group: Group::Ffdhe2048,
                sequence: 0x0A0B_0C0D,
                challenge: &c1,
                public: &gx,
            },
            [&hex("01 01 0000 3412 30 00  02 01 0001 0d0c0b0a")[..], &c1, &gx].concat(),
        ),
        (
            Content::Reply { response: &r1, challenge: Some(&c2), sequence: 7, public: &gy },
            [&hex("01 02 0000 3412 30 00  01 00 0001 07000000")[..], &r1, &c2, &gy].concat(),
        ),
        (
            Content::Reply { response: &r1, challenge: None, sequence: 0, public: &[] },
            [&hex("01 02 0000 3412 30 00  00 00 0000 00000000")[..], &r1, &[0; 48]].concat(),
        ),
        (
            Content::Success1 { hash_bytes: 48, response: Some(&r2) },
            [&hex("01 03 0000 3412 30 00  01 00 0000 00000000")[..], &r2].concat(),
        ),
        (
            Content::Success1 { hash_bytes: 48, response: None },
            hex("01 03 0000 3412 30 00  00 00 0000 00000000"),
        ),
        (Content::Success2, hex("01 04 0000 3412 00 00  00 00 0000 00000000")),
        (Content::Failure1(Reason::Failed), hex("00 f1 0000 3412 01 01")),
        (Content::Failure2(Reason::Payload), hex("00 f0 0000 3412 01 06")),
    ];
    for (content, bytes) in cases {
        let message = Message { transaction: 0x1234, content };
        assert_eq!(message.encode(), bytes, "{message:?}");
        assert_eq!(Message::decode(&bytes), Ok((message, &[][..])));
        let longer = [&bytes[..], &[0; 3]].concat();
        assert_eq!(Message::decode(&longer), Ok((message, &[0; 3][..])));
        for cut in 0..bytes.len() {
            assert_eq!(Message::decode(&bytes[..cut]), Err(Reason::Payload), "{message:?} cut to {cut}");
        }
    }
}

#[test]
fn what_contradicts_itself_is_told_so() {
    let decode = |text: &str, more: usize| Message::decode(&[hex(text), vec![0; more]].concat()).unwrap_err();
    assert_eq!(decode("02 00 0000 3412 00 00", 0), Reason::Message, "an unknown type");
    assert_eq!(decode("01 09 0000 3412 00 00", 0), Reason::Message, "an unknown identifier");
    assert_eq!(decode("00 00 0000 3412 00 01  01 00 1f 00", 60), Reason::Payload, "31 hashes");
    assert_eq!(
        decode("01 01 0000 3412 20 00  02 01 0000 01000000", 64),
        Reason::Payload,
        "32 bytes of SHA-384"
    );
    assert_eq!(decode("01 01 0000 3412 30 00  04 01 0000 01000000", 64), Reason::Payload, "hash 4");
    assert_eq!(decode("01 01 0000 3412 30 00  02 06 0000 01000000", 64), Reason::Payload, "group 6");
    assert_eq!(decode("01 02 0000 3412 20 00  02 00 0000 01000000", 64), Reason::Payload, "CVALID 2");
    assert_eq!(decode("01 02 0000 3412 20 00  01 00 0000 00000000", 64), Reason::Payload, "S2 0 with C2");
    // An unknown protocol is skipped and is no error.
    let other = hex("00 00 0000 0000 01 00");
    let (message, rest) = Message::decode(&other).unwrap();
    assert_eq!(message.content, Content::Negotiate { concatenation: 1, offer: None });
    assert!(rest.is_empty());
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_are_none(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u8..2, id in 0u8..5) {
        let mut bytes = bytes;
        if bytes.len() > 2 {
            (bytes[0], bytes[1]) = (kind, id);
        }
        if let Ok((message, _)) = Message::decode(&bytes) {
            let encoded = message.encode();
            prop_assert_eq!(Message::decode(&encoded), Ok((message, &[][..])));
        }
    }
}
