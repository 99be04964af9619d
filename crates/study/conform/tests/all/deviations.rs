//! A proxy between the clauses and a drive that changes one thing. Each deviation is found, by the name of its clause.

use kvdrive_conform::in_process::InProcess;
use kvdrive_conform::target::{Answer, Data, Lost, NoAnswer, Target};
use kvdrive_conform::{Wanted, check};
use kvdrive_nvme::identify::cns;
use kvdrive_nvme::log::lid;
use kvdrive_nvme::opcode::{self, admin};
use kvdrive_nvme::{Sqe, Status, feature};

use super::rig::{checked, config};

/// A command on its way: is it of the admin queue, the entry, and the answer that may be changed.
type Change = fn(&mut Seen, bool, &Sqe, &mut Answer);

/// What a deviation has seen so far.
#[derive(Default)]
struct Seen {
    lists: u32,
}

/// One planted deviation, and clauses that have to find it.
struct Deviation {
    name: &'static str,
    change: Change,
    found_by: &'static [&'static str],
}

struct Proxy {
    inner: Box<dyn Target>,
    change: Change,
    seen: Seen,
}

impl Target for Proxy {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn nsid(&self) -> u32 {
        self.inner.nsid()
    }

    fn admin(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        let mut answer = self.inner.admin(sqe, data)?;
        (self.change)(&mut self.seen, true, &sqe, &mut answer);
        Ok(answer)
    }

    fn io(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Answer, NoAnswer> {
        let mut answer = self.inner.io(sqe, data)?;
        (self.change)(&mut self.seen, false, &sqe, &mut answer);
        Ok(answer)
    }

    fn transfer_max_bytes(&self) -> u64 {
        self.inner.transfer_max_bytes()
    }

    fn owns_controller(&self) -> bool {
        self.inner.owns_controller()
    }

    fn reconnect(&mut self) -> Result<(), Lost> {
        self.inner.reconnect()
    }

    fn another(&self) -> Result<Option<Box<dyn Target>>, Lost> {
        let another = self.inner.another()?;
        let proxy =
            |inner| Box::new(Proxy { inner, change: self.change, seen: Seen::default() }) as Box<dyn Target>;
        Ok(another.map(proxy))
    }

    fn power_cycle(&mut self) -> Result<bool, Lost> {
        self.inner.power_cycle()
    }
}

fn key_bytes(sqe: &Sqe) -> u32 {
    sqe.cdw11.get() & 0xFF
}

fn is_identify(is_admin: bool, sqe: &Sqe, structure: u8) -> bool {
    is_admin && sqe.opcode == admin::IDENTIFY && sqe.cdw10.get() as u8 == structure
}

/// Changes bytes of the KV namespace of Identify.
fn in_namespace(is_admin: bool, sqe: &Sqe, answer: &mut Answer, change: impl FnOnce(&mut [u8])) {
    if is_identify(is_admin, sqe, cns::CSI_NAMESPACE) && answer.data.len() == 4096 {
        change(&mut answer.data);
    }
}

/// Is it this I/O command?
fn is_io(is_admin: bool, sqe: &Sqe, opcode: u8) -> bool {
    !is_admin && sqe.opcode == opcode
}

/// Writes the keys of a List anew, each entry with as many bytes as `entry_bytes` has for its length.
fn padded(answer: &mut Answer, entry_bytes: fn(usize) -> usize) {
    let Some(keys) = kvdrive_conform::ask::Padding::Entry.keys(&answer.data) else { return };
    let room = answer.data.len();
    let mut data = (keys.len() as u32).to_le_bytes().to_vec();
    for key in keys {
        let end = data.len() + entry_bytes(key.len());
        data.extend((key.len() as u16).to_le_bytes());
        data.extend(key);
        data.resize(end, 0);
    }
    data.resize(room.max(data.len()), 0);
    answer.data = data;
}

const DEVIATIONS: &[Deviation] = &[
    Deviation {
        name: "86h for long keys",
        change: |_, is_admin, sqe, answer| {
            if !is_admin && key_bytes(sqe) > 16 {
                answer.status = Status::INVALID_KEY_SIZE;
            }
        },
        found_by: &["key-17-store", "key-17-retrieve", "key-17-list", "key-17-delete", "key-17-exist"],
    },
    Deviation {
        name: "statuses of SCT 1",
        change: |_, is_admin, _, answer| {
            if !is_admin && answer.status.sct() == 0 && (0x85..=0x89).contains(&answer.status.sc()) {
                answer.status = Status::new(1, answer.status.sc());
            }
        },
        found_by: &["generic", "exist-missing"],
    },
    Deviation {
        name: "DW0 of Retrieve is the transferred length",
        change: |_, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::RETRIEVE) {
                answer.dw0 = answer.dw0.min(sqe.cdw10.get());
            }
        },
        found_by: &["retrieve-short", "retrieve-one", "retrieve-none"],
    },
    Deviation {
        name: "DW0 of Retrieve is 0",
        change: |_, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::RETRIEVE) {
                answer.dw0 = 0;
            }
        },
        found_by: &["retrieve-exact", "retrieve-short", "store-new"],
    },
    Deviation {
        name: "a byte of a value",
        change: |_, is_admin, sqe, answer| {
            if let (true, Some(last)) = (is_io(is_admin, sqe, opcode::RETRIEVE), answer.data.get_mut(512)) {
                *last ^= 1;
            }
        },
        found_by: &["value-sizes", "store-over"],
    },
    Deviation {
        name: "List pads the key alone",
        change: |_, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::LIST) {
                padded(answer, |bytes| 2 + bytes.next_multiple_of(4));
            }
        },
        found_by: &["list-padding"],
    },
    Deviation {
        name: "List pads by n + n mod 4",
        change: |_, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::LIST) {
                padded(answer, |bytes| 2 + bytes + (2 + bytes) % 4);
            }
        },
        found_by: &["list-padding"],
    },
    Deviation {
        name: "List does not pad",
        change: |_, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::LIST) {
                padded(answer, |bytes| 2 + bytes);
            }
        },
        found_by: &["list-padding"],
    },
    Deviation {
        name: "padding of a List is not zero",
        change: |_, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::LIST) && answer.data.get(4) == Some(&1) {
                answer.data[7] = 0xFF;
            }
        },
        found_by: &["list-padding"],
    },
    Deviation {
        name: "every second List is in another order",
        change: |seen, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::LIST) {
                seen.lists += 1;
                if let (0, Some(mut keys)) =
                    (seen.lists % 2, kvdrive_conform::ask::Padding::Entry.keys(&answer.data))
                {
                    keys.reverse();
                    let mut data = (keys.len() as u32).to_le_bytes().to_vec();
                    for key in keys {
                        let end = data.len() + (2 + key.len()).next_multiple_of(4);
                        data.extend((key.len() as u16).to_le_bytes());
                        data.extend(key);
                        data.resize(end, 0);
                    }
                    answer.data = data;
                }
            }
        },
        found_by: &["list-order-constant", "list-starts-there"],
    },
    Deviation {
        name: "a List counts one key too many",
        change: |_, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::LIST) && answer.data.len() > 4 {
                answer.data[0] = answer.data[0].wrapping_add(1);
            }
        },
        found_by: &["list-padding", "list-pages"],
    },
    Deviation {
        name: "a List begins after the named key",
        change: |_, is_admin, sqe, answer| {
            let named = (is_io(is_admin, sqe, opcode::LIST) && key_bytes(sqe) > 0)
                .then(|| kvdrive_conform::ask::Padding::Entry.keys(&answer.data))
                .flatten();
            if let Some(keys) = named.filter(|keys| !keys.is_empty()) {
                let room = answer.data.len();
                let first = (2 + keys[0].len()).next_multiple_of(4);
                answer.data.drain(4..4 + first);
                answer.data.resize(room, 0);
                answer.data[..4].copy_from_slice(&(keys.len() as u32 - 1).to_le_bytes());
            }
        },
        found_by: &["list-starts-there", "list-pages"],
    },
    Deviation {
        name: "Exist of any key",
        change: |seen, is_admin, sqe, answer| {
            // Not the probe for a free key, which comes first.
            if is_io(is_admin, sqe, opcode::DELETE) {
                seen.lists = 1;
            } else if is_io(is_admin, sqe, opcode::EXIST) && std::mem::take(&mut seen.lists) == 1 {
                answer.status = Status::SUCCESS;
            }
        },
        found_by: &["delete-removes"],
    },
    Deviation {
        name: "a Delete of a missing key fails",
        change: |_, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::DELETE) && answer.status.is_success() {
                answer.status = Status::KEY_NOT_FOUND;
            }
        },
        found_by: &["delete-missing", "delete-removes", "ednek-set"],
    },
    Deviation {
        name: "Store ignores option bit 9",
        change: |_, is_admin, sqe, answer| {
            if is_io(is_admin, sqe, opcode::STORE) && answer.status == Status::KEY_EXISTS {
                answer.status = Status::SUCCESS;
            }
        },
        found_by: &["store-if-absent", "store-refused-keeps", "hosts-one-adds"],
    },
    Deviation {
        name: "NKVF is a count",
        change: |_, is_admin, sqe, answer| in_namespace(is_admin, sqe, answer, |page| page[25] += 1),
        found_by: &["format-count"],
    },
    Deviation {
        name: "NUSE is above NSZE",
        change: |_, is_admin, sqe, answer| {
            in_namespace(is_admin, sqe, answer, |page| page[16..24].fill(0xFF))
        },
        found_by: &["size-and-use"],
    },
    Deviation {
        name: "KVKML is 255",
        change: |_, is_admin, sqe, answer| in_namespace(is_admin, sqe, answer, |page| page[72] = 255),
        found_by: &["format-key"],
    },
    Deviation {
        name: "NMIC differs from CNS 08h",
        change: |_, is_admin, sqe, answer| in_namespace(is_admin, sqe, answer, |page| page[26] ^= 1),
        found_by: &["independent"],
    },
    Deviation {
        name: "NGUID differs from CNS 03h",
        change: |_, is_admin, sqe, answer| in_namespace(is_admin, sqe, answer, |page| page[48] ^= 1),
        found_by: &["nguid"],
    },
    Deviation {
        name: "a reserved byte",
        change: |_, is_admin, sqe, answer| in_namespace(is_admin, sqe, answer, |page| page[328] = 1),
        found_by: &["reserved"],
    },
    Deviation {
        name: "no descriptor of the command set",
        change: |_, is_admin, sqe, answer| {
            if is_identify(is_admin, sqe, cns::NAMESPACE_DESCRIPTORS) && !answer.data.is_empty() {
                answer.data.fill(0);
            }
        },
        found_by: &["descriptor-of-set"],
    },
    Deviation {
        name: "NCAP is 0",
        change: |_, is_admin, sqe, answer| {
            if is_identify(is_admin, sqe, cns::NAMESPACE) && answer.data.len() == 4096 {
                answer.data[8..16].fill(0);
            }
        },
        found_by: &["as-blocks"],
    },
    Deviation {
        name: "feature 20h is forgotten",
        change: |_, is_admin, sqe, answer| {
            if is_admin && sqe.opcode == admin::GET_FEATURES && sqe.cdw10.get() as u8 == feature::KEY_VALUE {
                answer.dw0 = 0;
            }
        },
        found_by: &["ednek-set", "ednek-scope", "ednek-reset", "ednek-power"],
    },
    Deviation {
        name: "feature 20h is not changeable",
        change: |_, is_admin, sqe, answer| {
            if is_admin && sqe.opcode == admin::SET_FEATURES && sqe.cdw11.get() == 1 {
                answer.status = Status::FEATURE_NOT_CHANGEABLE;
            }
        },
        found_by: &["ednek-set"],
    },
    Deviation {
        name: "the effects log lacks List",
        change: |_, is_admin, sqe, answer| {
            if is_admin && sqe.opcode == admin::GET_LOG_PAGE && sqe.cdw10.get() as u8 == lid::EFFECTS {
                answer
                    .data
                    .iter_mut()
                    .skip(1024 + 4 * usize::from(opcode::LIST))
                    .take(4)
                    .for_each(|it| *it = 0);
            }
        },
        found_by: &["log-effects"],
    },
    Deviation {
        name: "a listed log page is not there",
        change: |_, is_admin, sqe, answer| {
            if is_admin && sqe.opcode == admin::GET_LOG_PAGE && sqe.cdw10.get() as u8 == lid::SUPPORTED {
                answer.data[4 * 0x0D] = 1;
            }
        },
        found_by: &["log-list"],
    },
    Deviation {
        name: "Invalid Opcode is Invalid Field",
        change: |_, is_admin, _, answer| {
            if !is_admin && answer.status == Status::INVALID_OPCODE {
                answer.status = Status::INVALID_FIELD;
            }
        },
        found_by: &["opcode-unknown", "opcode-of-blocks"],
    },
    Deviation {
        name: "a namespace that is none",
        change: |_, is_admin, _, answer| {
            if !is_admin && answer.status == Status::INVALID_NAMESPACE {
                answer.status = Status::SUCCESS;
            }
        },
        found_by: &["namespace-missing", "namespace-zero"],
    },
];

#[test]
fn each_deviation_is_found_by_the_name_of_its_clause() {
    let mut missed = Vec::new();
    for Deviation { name, change, found_by } in DEVIATIONS {
        let inner = Box::new(InProcess::power_on(name, config("lsm", &[])).unwrap());
        let mut proxy = Proxy { inner, change: *change, seen: Seen::default() };
        let report = check(&mut proxy, &Wanted::default(), &mut |_| ()).unwrap();
        let failed = report.failed();
        let blind = found_by.iter().filter(|clause| !failed.contains(clause));
        missed.extend(blind.map(|clause| format!("{name}: {clause} did not find it; {failed:?} failed")));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn without_a_deviation_nothing_is_found_through_the_proxy() {
    let inner = Box::new(InProcess::power_on("lsm", config("lsm", &[])).unwrap());
    let mut proxy = Proxy { inner, change: |_, _, _, _| (), seen: Seen::default() };
    assert_eq!(checked(&mut proxy, &Wanted::default()).failed(), [""; 0]);
}
