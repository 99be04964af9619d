//! Authentication messages: DH-HMAC-CHAP over Authentication Send and Receive (Fabrics commands 05h and 06h).
//!
//! ```text
//!   host                                                         controller
//!   negotiate  ───────────────────────────────────────────────►              hashes and groups it would take
//!              ◄─────────────────────────────────────────────── challenge    C1, what was chosen, g^x
//!   reply      ───────────────────────────────────────────────►              response to C1; g^y, perhaps C2
//!              ◄─────────────────────────────────────────────── success1     perhaps the response to C2
//!   success2   ───────────────────────────────────────────────►              only if it sent C2
//!
//!   either end says failure1 (the controller) or failure2 (the host) instead, and the connection ends.
//!
//!  byte       0      1     2    4     6        7      8        9        10      12     16
//!           +------+----+-----+-----+--------+------+--------+--------+-------+------+------------------------+
//!  negotiate|  0   | 00 |  0  | TID | SC_C   | NAPD | protocols of 64 bytes                                   |
//!  challenge|  1   | 01 |  0  | TID | HL     |  0   | HASHID | DHGID  | DHVLEN| SEQ  | C1, HL; g^x, DHVLEN    |
//!  reply    |  1   | 02 |  0  | TID | HL     |  0   | CVALID |   0    | DHVLEN| SEQ  | R1, HL; C2, HL; g^y    |
//!  success1 |  1   | 03 |  0  | TID | HL     |  0   | RVALID |   0                     | R2, HL, if RVALID      |
//!  success2 |  1   | 04 |  0  | TID |   0                                              |                        |
//!  failure  |  0   | F1 |  0  | TID | RC 1   | RCE  |           (F0: failure2)
//!           +------+----+-----+-----+--------+------+
//!
//!  a protocol: 0 identifier 1, 1 zero, 2 HALEN, 3 DHLEN, 4 hashes of a byte, 34 groups of a byte, to 64
//! ```
//!
//! Layouts as in NVMe base specification 2.0, section 8.13; checked against SPDK's and Linux's structures.
//! Crate `auth` has the computations with them.

/// SECP of both commands: NVMe.
pub const SECURITY_PROTOCOL: u8 = 0xE9;
/// SPSP0 and SPSP1 of both commands.
pub const PROTOCOL_SPECIFIC: u8 = 1;
/// Dword 0 of a Connect that succeeded: the queue takes no command until its host has authenticated (ATR).
pub const REQUIRED: u32 = 1 << 17;
/// The same, over a secure channel that authentication makes (ASCR).
pub const SECURE_CHANNEL_REQUIRED: u32 = 1 << 18;
/// The longest message, bytes.
pub const MESSAGE_MAX_BYTES: usize = 4096;

/// Bytes of a message before its parts of variable length.
const HEADER_BYTES: usize = 16;
const PROTOCOL_BYTES: usize = 64;
const DH_HMAC_CHAP: u8 = 1;
const COMMON: u8 = 0;
/// Most hashes, or groups, in a protocol's list.
const LISTED_MAX: usize = 30;

mod id {
    pub const NEGOTIATE: u8 = 0x00;
    pub const CHALLENGE: u8 = 0x01;
    pub const REPLY: u8 = 0x02;
    pub const SUCCESS_1: u8 = 0x03;
    pub const SUCCESS_2: u8 = 0x04;
    pub const FAILURE_2: u8 = 0xF0;
    pub const FAILURE_1: u8 = 0xF1;
}

/// A hash function (HASHID).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

impl Hash {
    /// All of them, the strongest first.
    pub const ALL: [Hash; 3] = [Hash::Sha512, Hash::Sha384, Hash::Sha256];

    /// The hash with this identifier.
    pub fn of(id: u8) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| *hash as u8 == id)
    }

    /// Bytes of the result.
    pub fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }
}

/// A Diffie-Hellman group (DHGID): those of RFC 7919, or none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Group {
    /// No key agreement: the secret alone.
    Null = 0,
    /// ffdhe2048.
    Ffdhe2048 = 1,
    /// ffdhe3072.
    Ffdhe3072 = 2,
    /// ffdhe4096.
    Ffdhe4096 = 3,
    /// ffdhe6144.
    Ffdhe6144 = 4,
    /// ffdhe8192.
    Ffdhe8192 = 5,
}

impl Group {
    /// All of them, the strongest first.
    pub const ALL: [Group; 6] = [
        Group::Ffdhe8192,
        Group::Ffdhe6144,
        Group::Ffdhe4096,
        Group::Ffdhe3072,
        Group::Ffdhe2048,
        Group::Null,
    ];

    /// The group with this identifier.
    pub fn of(id: u8) -> Option<Group> {
        Group::ALL.into_iter().find(|group| *group as u8 == id)
    }

    /// Bits of the prime; 0 without a group.
    pub fn bits(self) -> u32 {
        match self {
            Group::Null => 0,
            Group::Ffdhe2048 => 2048,
            Group::Ffdhe3072 => 3072,
            Group::Ffdhe4096 => 4096,
            Group::Ffdhe6144 => 6144,
            Group::Ffdhe8192 => 8192,
        }
    }
}

/// Why authentication failed (RCE).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[repr(u8)]
pub enum Reason {
    /// A response is wrong.
    #[error("authentication failed")]
    Failed = 1,
    /// None of the offered protocols is usable.
    #[error("authentication protocol not usable")]
    Protocol = 2,
    /// One end asks for a secure channel and the other does not.
    #[error("secure channel concatenation mismatch")]
    Concatenation = 3,
    /// None of the offered hashes is usable.
    #[error("hash function not usable")]
    Hash = 4,
    /// None of the offered groups is usable.
    #[error("Diffie-Hellman group not usable")]
    Group = 5,
    /// A message that contradicts itself.
    #[error("incorrect payload")]
    Payload = 6,
    /// A message that is not the expected one.
    #[error("incorrect protocol message")]
    Message = 7,
}

impl Reason {
    const ALL: [Reason; 7] = [
        Reason::Failed,
        Reason::Protocol,
        Reason::Concatenation,
        Reason::Hash,
        Reason::Group,
        Reason::Payload,
        Reason::Message,
    ];

    /// The reason with this code; an unknown code counts as [`Reason::Failed`].
    pub fn of(code: u8) -> Reason {
        Reason::ALL.into_iter().find(|reason| *reason as u8 == code).unwrap_or(Reason::Failed)
    }
}

/// The hashes and groups that a host accepts, as it lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer<'a> {
    /// HASHIDs.
    pub hashes: &'a [u8],
    /// DHGIDs.
    pub groups: &'a [u8],
}

/// The content of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// The host begins.
    Negotiate {
        /// SC_C: the secure channel that the host wants; 0: none.
        concatenation: u8,
        /// DH-HMAC-CHAP, if it is offered.
        offer: Option<Offer<'a>>,
    },
    /// The controller's challenge.
    Challenge {
        /// Which hash was chosen.
        hash: Hash,
        /// Which group.
        group: Group,
        /// S1: a sequence number that is never used twice with one secret.
        sequence: u32,
        /// C1.
        challenge: &'a [u8],
        /// The controller's public value; empty without a group.
        public: &'a [u8],
    },
    /// The host's response, and perhaps a challenge of its own.
    Reply {
        /// R1.
        response: &'a [u8],
        /// C2, if the controller is to authenticate as well.
        challenge: Option<&'a [u8]>,
        /// S2; not 0 with a challenge.
        sequence: u32,
        /// The host's public value; empty without a group.
        public: &'a [u8],
    },
    /// The host is authenticated.
    Success1 {
        /// Bytes of the hash; Linux reads them without a response, too.
        hash_bytes: u8,
        /// R2, if the host sent a challenge.
        response: Option<&'a [u8]>,
    },
    /// The controller is authenticated.
    Success2,
    /// The controller ends the exchange.
    Failure1(Reason),
    /// The host ends the exchange.
    Failure2(Reason),
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// T_ID: the exchange that the message belongs to, as the host counts them.
    pub transaction: u16,
    /// The content.
    pub content: Content<'a>,
}

/// Takes the first `count` bytes of `rest`.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Reason> {
    let (taken, left) = rest.split_at_checked(count).ok_or(Reason::Payload)?;
    *rest = left;
    Ok(taken)
}

fn flag(byte: u8) -> Result<bool, Reason> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Reason::Payload),
    }
}

impl<'a> Message<'a> {
    /// The message at the start of `bytes`, and the bytes after it.
    ///
    /// # Errors
    /// The reason that the other end is to be told, if the bytes are no message.
    pub fn decode(bytes: &'a [u8]) -> Result<(Message<'a>, &'a [u8]), Reason> {
        let mut rest = bytes;
        let head = take(&mut rest, 8)?;
        let transaction = u16::from_le_bytes([head[4], head[5]]);
        let (a, b) = (head[6], head[7]);
        let content = match (head[0], head[1]) {
            (COMMON, id::NEGOTIATE) => {
                let mut offer = None;
                for protocol in take(&mut rest, usize::from(b) * PROTOCOL_BYTES)?.chunks(PROTOCOL_BYTES) {
                    if protocol[0] == DH_HMAC_CHAP && offer.is_none() {
                        offer = Some(Offer::decode(protocol)?);
                    }
                }
                Content::Negotiate { concatenation: a, offer }
            }
            (COMMON, id::FAILURE_1) => Content::Failure1(Reason::of(b)),
            (COMMON, id::FAILURE_2) => Content::Failure2(Reason::of(b)),
            (DH_HMAC_CHAP, id::CHALLENGE) => {
                let more = take(&mut rest, HEADER_BYTES - 8)?;
                let hash = Hash::of(more[0]).ok_or(Reason::Payload)?;
                let group = Group::of(more[1]).ok_or(Reason::Payload)?;
                if usize::from(a) != hash.bytes() {
                    return Err(Reason::Payload);
                }
                let challenge = take(&mut rest, hash.bytes())?;
                let public = take(&mut rest, length(more))?;
                Content::Challenge { hash, group, sequence: sequence(more), challenge, public }
            }
            (DH_HMAC_CHAP, id::REPLY) => {
                let more = take(&mut rest, HEADER_BYTES - 8)?;
                let response = take(&mut rest, usize::from(a))?;
                let challenge = take(&mut rest, usize::from(a))?;
                let public = take(&mut rest, length(more))?;
                let challenge = flag(more[0])?.then_some(challenge);
                let sequence = sequence(more);
                if challenge.is_some() && sequence == 0 {
                    return Err(Reason::Payload);
                }
                Content::Reply { response, challenge, sequence, public }
            }
            (DH_HMAC_CHAP, id::SUCCESS_1) => {
                let more = take(&mut rest, HEADER_BYTES - 8)?;
                let has_response = flag(more[0])?;
                let response = has_response.then(|| take(&mut rest, usize::from(a))).transpose()?;
                Content::Success1 { hash_bytes: a, response }
            }
            (DH_HMAC_CHAP, id::SUCCESS_2) => {
                take(&mut rest, HEADER_BYTES - 8)?;
                Content::Success2
            }
            _ => return Err(Reason::Message),
        };
        Ok((Message { transaction, content }, rest))
    }

    /// The message as bytes.
    ///
    /// # Panics
    /// The offer has more than 30 hashes or groups, or the public value has more than 65535 bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = |kind, id, a, b| {
            let [low, high] = self.transaction.to_le_bytes();
            vec![kind, id, 0, 0, low, high, a, b]
        };
        // Bytes 8 to 15 of messages that have them.
        let more = |a, b, length: usize, sequence: u32| {
            let length = u16::try_from(length).expect("a public value has at most 65535 bytes");
            let mut bytes = vec![a, b];
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&sequence.to_le_bytes());
            bytes
        };
        match self.content {
            Content::Negotiate { concatenation, offer } => {
                let mut bytes = head(COMMON, id::NEGOTIATE, concatenation, u8::from(offer.is_some()));
                bytes.extend(offer.iter().flat_map(Offer::encode));
                bytes
            }
            Content::Challenge { hash, group, sequence, challenge, public } => [
                &head(DH_HMAC_CHAP, id::CHALLENGE, hash.bytes() as u8, 0)[..],
                &more(hash as u8, group as u8, public.len(), sequence),
                challenge,
                public,
            ]
            .concat(),
            Content::Reply { response, challenge, sequence, public } => [
                &head(DH_HMAC_CHAP, id::REPLY, response.len() as u8, 0)[..],
                &more(u8::from(challenge.is_some()), 0, public.len(), sequence),
                response,
                challenge.unwrap_or(&vec![0; response.len()]),
                public,
            ]
            .concat(),
            Content::Success1 { hash_bytes, response } => [
                &head(DH_HMAC_CHAP, id::SUCCESS_1, hash_bytes, 0)[..],
                &more(u8::from(response.is_some()), 0, 0, 0),
                response.unwrap_or_default(),
            ]
            .concat(),
            Content::Success2 => [head(DH_HMAC_CHAP, id::SUCCESS_2, 0, 0), more(0, 0, 0, 0)].concat(),
            Content::Failure1(reason) => head(COMMON, id::FAILURE_1, 1, reason as u8),
            Content::Failure2(reason) => head(COMMON, id::FAILURE_2, 1, reason as u8),
        }
    }
}

/// DHVLEN in bytes 8 to 15.
fn length(more: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([more[2], more[3]]))
}

/// S1 or S2 in bytes 8 to 15.
fn sequence(more: &[u8]) -> u32 {
    u32::from_le_bytes([more[4], more[5], more[6], more[7]])
}

impl<'a> Offer<'a> {
    const HASHES_AT: usize = 4;
    const GROUPS_AT: usize = Offer::HASHES_AT + LISTED_MAX;

    fn decode(protocol: &'a [u8]) -> Result<Offer<'a>, Reason> {
        let (hashes, groups) = (usize::from(protocol[2]), usize::from(protocol[3]));
        if hashes > LISTED_MAX || groups > LISTED_MAX {
            return Err(Reason::Payload);
        }
        Ok(Offer {
            hashes: &protocol[Offer::HASHES_AT..][..hashes],
            groups: &protocol[Offer::GROUPS_AT..][..groups],
        })
    }

    fn encode(&self) -> [u8; PROTOCOL_BYTES] {
        let mut protocol = [0; PROTOCOL_BYTES];
        assert!(
            self.hashes.len() <= LISTED_MAX && self.groups.len() <= LISTED_MAX,
            "an offer lists at most 30"
        );
        protocol[0] = DH_HMAC_CHAP;
        protocol[2] = self.hashes.len() as u8;
        protocol[3] = self.groups.len() as u8;
        protocol[Offer::HASHES_AT..][..self.hashes.len()].copy_from_slice(self.hashes);
        protocol[Offer::GROUPS_AT..][..self.groups.len()].copy_from_slice(self.groups);
        protocol
    }
}
