//! The one integration test binary of the crate: comparisons with numbers that other implementations
//! computed.

mod psk;
#[cfg(feature = "tls")]
mod tls;

use kvdrive_auth::{BadSecret, KeyPair, Response, Role, Secret, agreement};
use kvdrive_nvme::auth::{Group, Hash};

/// The example of the specification, as Linux and libnvme test with it.
const EXAMPLE: &str = "ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n";
const HOST: &str = "nqn.2014-08.org.example:host";
const DRIVE: &str = "nqn.2014-08.org.example:drive";

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn example(hash: u8) -> Secret {
    format!("DHHC-1:{hash:02}:{EXAMPLE}:").parse().unwrap()
}

#[test]
fn a_secret_is_checked_and_never_shown() {
    for hash in 0..=3 {
        let text = format!("DHHC-1:{hash:02}:{EXAMPLE}:");
        let secret: Secret = text.parse().unwrap();
        assert_eq!(secret.to_interchange(), text);
        assert_eq!(format!("{secret:?}"), "Secret of 32 bytes");
    }
    let long = Secret::new(Some(Hash::Sha512), &[7; 64]).unwrap();
    assert_eq!(long.to_interchange().parse(), Ok(long));
    for (text, error) in [
        ("", BadSecret::Form),
        ("DHHC-1:00:", BadSecret::Form),
        ("DHHC-1:00::", BadSecret::Size),
        ("DHHC-1:04:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", BadSecret::Hash),
        ("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n", BadSecret::Form),
        ("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2:", BadSecret::Base64),
        ("DHHC-1:00:ja6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", BadSecret::Checksum),
        ("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6:", BadSecret::Size),
    ] {
        assert_eq!(text.parse::<Secret>(), Err(error), "{text}");
        assert!(!error.to_string().contains("aQ2n"));
    }
}

/// Computed with Python's `hmac`.
#[test]
fn responses_are_those_of_another_implementation() {
    let shared: Vec<u8> = (0..=255).collect();
    let cases = [
        (
            0,
            Hash::Sha256,
            Role::Host,
            &[][..],
            "8e1ef7b706e56655f571e451c82cc48e87afa11ea2cae1b2626f47ca98524429",
        ),
        (
            1,
            Hash::Sha384,
            Role::Host,
            &[],
            "1f723a4b71888901c166daa4dcf5c951d99377793947321deaa2959590eb2a907fa6b3bb71cf6654242374e27bcd15b8",
        ),
        (
            3,
            Hash::Sha512,
            Role::Controller,
            &shared,
            "6913e5b53ea98a2c8893838be70669c0dae5357d8017669c05c57581c849671fd79d7d9e429beee1350ab59cb0d73fc33465951bcda551f23a04ed3976b79675",
        ),
    ];
    for (of_secret, hash, role, shared, expected) in cases {
        let secret = example(of_secret);
        let (own_nqn, other_nqn) = if role == Role::Host { (HOST, DRIVE) } else { (DRIVE, HOST) };
        let (sequence, transaction) = (0x0102_0304, 0x0506);
        let response =
            Response { role, secret: &secret, own_nqn, other_nqn, hash, shared, sequence, transaction };
        let challenge: Vec<u8> = (0..hash.bytes() as u8).collect();
        let mut answer = response.to(&challenge);
        assert_eq!(hex(&answer), expected, "{hash:?}");
        assert!(response.is(&answer, &challenge));
        assert!(!response.is(&answer[1..], &challenge) && !response.is(&[], &challenge));
        answer[31] ^= 1;
        assert!(!response.is(&answer, &challenge));
    }
}

/// Their SHA-256 and their last bytes, from OpenSSL and the RFC.
#[test]
fn primes_are_those_of_the_rfc() {
    use sha2::Digest;
    for (group, digest, tail) in [
        (
            Group::Ffdhe2048,
            "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
            "886b423861285c97",
        ),
        (
            Group::Ffdhe3072,
            "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
            "25e41d2b66c62e37",
        ),
        (
            Group::Ffdhe4096,
            "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
            "c68a007e5e655f6a",
        ),
        (
            Group::Ffdhe6144,
            "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
            "a40e329cd0e40e65",
        ),
        (
            Group::Ffdhe8192,
            "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
            "d68c8bb7c5c6424c",
        ),
    ] {
        let prime = agreement::prime(group);
        assert_eq!(prime.len() * 8, group.bits() as usize);
        assert_eq!(hex(&sha2::Sha256::digest(&prime)), digest, "{group:?}");
        assert!(hex(&prime).ends_with(&format!("{tail}ffffffffffffffff")));
    }
    assert!(agreement::prime(Group::Null).is_empty());
}

#[test]
fn both_ends_agree_and_a_public_value_that_gives_the_secret_away_is_none() {
    for group in Group::ALL {
        let (host, controller) = (KeyPair::new(group), KeyPair::new(group));
        assert_eq!(host.public().len() * 8, group.bits() as usize);
        let shared = host.agree(controller.public()).unwrap();
        assert_eq!(controller.agree(host.public()), Ok(shared.clone()), "{group:?}");
        assert_eq!(shared.len() * 8, group.bits() as usize);
    }
    let pair = KeyPair::of(Group::Ffdhe2048, &[1; 64]);
    let prime = agreement::prime(Group::Ffdhe2048);
    let mut last = prime.clone();
    last[255] -= 1;
    for bad in [&[][..], &[0], &[1], &[0; 256], &prime[..], &last[..], &[1; 257]] {
        assert!(pair.agree(bad).is_err(), "{bad:?}");
    }
    // Leading zeros may be left out.
    let padded = [&[0; 255][..], &[2]].concat();
    assert_eq!(pair.agree(&[2]), pair.agree(&padded));
    assert_eq!(pair.agree(&[2]).unwrap(), pair.public(), "2 is the generator");
    assert!(KeyPair::new(Group::Null).agree(&[2]).is_err());
}
