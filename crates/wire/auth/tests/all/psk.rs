//! PSKs: numbers of libnvme, Linux and another implementation.

use kvdrive_auth::psk::{Derivation, LongNames, Version};
use kvdrive_auth::{BadSecret, Psk};
use kvdrive_nvme::auth::Hash;

use super::hex;

/// The PSKs that libnvme tests with (`test/psk.c`).
const SHORT: &str = "VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ";
const LONG: &str = "VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==";
const HOST: &str = "nqn.psk-test-host";
const SUBSYSTEM: &str = "nqn.psk-test-subsys";

#[test]
fn a_psk_is_checked_and_never_shown() {
    for (hash, encoded, bytes, suite) in [
        ("00", SHORT, 32, Hash::Sha256),
        ("00", LONG, 48, Hash::Sha384),
        ("01", SHORT, 32, Hash::Sha256),
        ("02", LONG, 48, Hash::Sha384),
    ] {
        let text = format!("NVMeTLSkey-1:{hash}:{encoded}:");
        let psk: Psk = text.parse().unwrap();
        assert_eq!((psk.to_interchange(), psk.suite_hash()), (text, suite));
        assert_eq!(format!("{psk:?}"), format!("PSK of {bytes} bytes"));
        let made = psk.for_tls(HOST, SUBSYSTEM, Version::One, Derivation::Rfc8446).unwrap();
        assert!(!format!("{made:?}").contains(&hex(&made.secret)[..8]));
    }
    for (text, error) in [
        (String::new(), BadSecret::PskForm),
        (format!("DHHC-1:01:{SHORT}:"), BadSecret::PskForm),
        (format!("NVMeTLSkey-1:01:{SHORT}"), BadSecret::PskForm),
        (format!("NVMeTLSkey-1:03:{SHORT}:"), BadSecret::PskHash),
        (format!("NVMeTLSkey-1:1:{SHORT}:"), BadSecret::PskHash),
        (format!("NVMeTLSkey-1:02:{SHORT}:"), BadSecret::PskSize),
        (format!("NVMeTLSkey-1:01:{LONG}:"), BadSecret::PskSize),
        (format!("NVMeTLSkey-1:01:{}:", &SHORT[4..]), BadSecret::PskSize),
        (format!("NVMeTLSkey-1:01:{}:", &SHORT[1..]), BadSecret::Base64),
        (format!("NVMeTLSkey-1:01:W{}:", &SHORT[1..]), BadSecret::Checksum),
    ] {
        assert_eq!(text.parse::<Psk>(), Err(error), "{text}");
        assert!(!error.to_string().contains("nN9AQ"));
    }
    assert_eq!(Psk::new(Some(Hash::Sha512), &[7; 64]), Err(BadSecret::PskHash));
}

/// Identities of version 1, which depend on the retained PSK and its digest, are those of libnvme's
/// `test/psk.c`, in both derivations; keys, and identities of version 0, were computed with Python's `hmac`.
#[test]
fn identities_and_keys_are_those_of_others() {
    for (hash, encoded, derivation, digest, keys) in [
        (
            "01",
            SHORT,
            Derivation::Rfc8446,
            "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
            [
                "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68",
                "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca",
            ],
        ),
        (
            "01",
            SHORT,
            Derivation::Libnvme,
            "66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
            [
                "09fb1983ac6d6d0353e7cae4f23daddd651c367fa347c59d9cf6936f5a83eafb",
                "b9f5ab2a41ba6e72a23a12066302a2f775fa6c0942c8e0b18ca8ac07edf305e2",
            ],
        ),
        (
            "02",
            LONG,
            Derivation::Rfc8446,
            "QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a",
            [
                "f42ba63824cdfe421914c582921f85b5b5b7e2d4df084caeedc9be20b212e8bb0fe8a23e9d59a1c8fc6449da4970a78d",
                "a2b2f943f479fc682555cec89857c80ed004ce92f32a973d5764155bb7e36b17a85368a0666d250afac9282dda2e62ca",
            ],
        ),
        (
            "02",
            LONG,
            Derivation::Libnvme,
            "RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz",
            [
                "2ee4754186a625b28a3936ef4a40d839c3ad958b2e017562ee07e2501f172ce999dc9c29033ea7ee33f814f192c13f47",
                "fcefe2e2a2e682b1447dcabf1ec268f78f08c63cd075753abcc8bda2c5c34d48d3014aa8d76ad80107e4f5c9f27e2149",
            ],
        ),
    ] {
        let psk: Psk = format!("NVMeTLSkey-1:{hash}:{encoded}:").parse().unwrap();
        let zero = psk.for_tls(HOST, SUBSYSTEM, Version::Zero, derivation).unwrap();
        let one = psk.for_tls(HOST, SUBSYSTEM, Version::One, derivation).unwrap();
        assert_eq!(zero.identity, format!("NVMe0R{hash} {HOST} {SUBSYSTEM}"));
        assert_eq!(one.identity, format!("NVMe1R{hash} {HOST} {SUBSYSTEM} {digest}"));
        assert_eq!([hex(&zero.secret), hex(&one.secret)], keys);
        assert_eq!(
            (&one.host_nqn[..], &one.subsystem_nqn[..], one.hash),
            (HOST, SUBSYSTEM, psk.suite_hash())
        );
    }
}

/// Numbers of Linux (the KUnit tests of its NVMe authentication): a retained PSK, its digest and the key made
/// of both.
#[test]
fn keys_of_retained_psks_are_those_of_linux() {
    for (retained, digest, key) in [
        (
            "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
            "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
            "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
        ),
        (
            "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e118749001ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
            "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
            "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d80939d0898fff15bb8b77119d2be0aac423e7590",
        ),
    ] {
        let bytes: Vec<u8> = (0..retained.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&retained[at..at + 2], 16).unwrap())
            .collect();
        let psk = Psk::new(None, &bytes).unwrap();
        let made = psk.for_tls("hostnqn", "subsysnqn", Version::One, Derivation::Rfc8446).unwrap();
        assert!(made.identity.ends_with(digest), "{made:?}");
        assert_eq!(hex(&made.secret), key);
    }
}

/// An identity of version 0 is a context of at most 255 bytes; one of version 1 has no such limit.
#[test]
fn long_names_have_version_1_alone() {
    let psk: Psk = format!("NVMeTLSkey-1:01:{SHORT}:").parse().unwrap();
    let subsystem = format!("nqn.{}", "s".repeat(219));
    let made = |host: &str, version| psk.for_tls(host, &subsystem, version, Derivation::Rfc8446);
    let fits = format!("nqn.{}", "h".repeat(255 - "NVMe0R01 ".len() - 1 - subsystem.len() - 4));
    assert_eq!(made(&fits, Version::Zero).unwrap().identity.len(), 255);
    assert_eq!(made(&format!("{fits}h"), Version::Zero), Err(LongNames));
    assert!(made(&format!("nqn.{}", "h".repeat(219)), Version::One).is_ok());
}
