//! Feature 20h, log pages, Flush, and Format NVM.

use kvdrive_nvme::log::lid;
use kvdrive_nvme::opcode::{self, admin};
use kvdrive_nvme::{Sqe, Status, feature};
use zerocopy::little_endian::U32;

use super::{Clause, Group, pass};
use crate::ask::{Ask, Outcome, Why, ensure, is, is_one, value};
use crate::target::{Answer, Data, Target};

const fn row(
    section: &'static str,
    id: &'static str,
    asks: &'static str,
    check: fn(&mut Ask<'_>) -> Outcome,
) -> Clause {
    Clause::of(Group::Features, section, id, asks, check)
}

const WHO_HAS: &str = "mandatory (2.2); FEMU has it, QEMU's KV device reads EDNEK from it";

pub(super) static CLAUSES: &[Clause] = &[
    row("4.1.3.1", "ednek-get", "Get of feature 20h: bit 0, EDNEK, in DW0; other bits 0", get).who(WHO_HAS),
    row("4.1.3.1", "ednek-set", "EDNEK 1: a Delete of a missing key is 87h; 0: success", set).who(WHO_HAS),
    row("4.1.3.1", "ednek-reserved", "Set of a reserved bit: Invalid Field (02h), or ignored", reserved),
    row(
        "4.1.3.1",
        "ednek-no-namespace",
        "Get and Set of NSID FFFFFFFEh: Invalid Namespace (0Bh)",
        no_namespace,
    ),
    row("4.1.3.1", "ednek-scope", "what one host sets, another one reads: scope is the namespace", scope),
    row("4.1.3.1", "ednek-reset", "the value survives the end of the controller", reset),
    row("4.1.3.1", "ednek-power", "the value survives a power cycle", power),
    row("B 5.16.1", "log-list", "log page 00h lists pages, and each of them is there", log_list)
        .who("mandatory from base 2.0 on; SPDK's target and Linux' have it"),
    row("B 5.16.1", "log-health", "log page 02h has 512 bytes", |ask| log(ask, lid::HEALTH, 512)),
    row("B 5.16.1", "log-errors", "log page 01h has entries of 64 bytes", |ask| log(ask, lid::ERRORS, 64)),
    row("B 5.16.1", "log-effects", "log page 05h of command set 1 has the five commands", effects)
        .who("Linux creates no device for a KV namespace without it"),
    row("4.1.4", "log-unknown", "an unknown log page fails: 02h, or Invalid Log Page (109h)", log_unknown)
        .who("KV 1.0d: should be 02h; base 2.0: 109h, as kvdrive and SPDK answer"),
    row("B 5.15", "feature-unknown", "Get of an unknown feature: Invalid Field (02h)", feature_unknown),
    row("B 7.1", "flush", "Flush succeeds, or is an invalid opcode where no cache is volatile", flush),
    row("4.1.2", "format-index", "Format NVM with a format beyond NKVF is refused", format_index)
        .who("the specification: Invalid Format (10Ah)"),
    row("4.1.2", "format-erases", "Format NVM with the present format leaves no pair", format_erases)
        .destructive(),
];

/// Restores feature 20h when a clause is over, whatever came of it.
fn restoring(ask: &mut Ask<'_>, check: impl FnOnce(&mut Ask<'_>) -> Outcome) -> Outcome {
    let before = ask.key_value_feature(0)?;
    is(&before, Status::SUCCESS, "Get Features 20h")?;
    let outcome = check(ask);
    let restored = ask.set_key_value_feature(before.dw0)?;
    if outcome.is_ok() {
        is(&restored, Status::SUCCESS, "Set Features of the value before")?;
    }
    outcome
}

fn get(ask: &mut Ask<'_>) -> Outcome {
    let answer = ask.key_value_feature(0)?;
    is(&answer, Status::SUCCESS, "Get Features 20h")?;
    ensure(answer.dw0 & !feature::ERROR_ON_MISSING_KEY == 0, || format!("DW0 is {:08X}h", answer.dw0))?;
    Ok(format!("EDNEK is {}", answer.dw0))
}

/// Sets EDNEK, and looks at what is told and done.
fn set_and_delete(ask: &mut Ask<'_>, on: u32) -> Result<(), Why> {
    is(&ask.set_key_value_feature(on)?, Status::SUCCESS, &format!("Set Features 20h to {on}"))?;
    told_and_done(ask, on)
}

fn told_and_done(ask: &mut Ask<'_>, on: u32) -> Result<(), Why> {
    let told = ask.key_value_feature(0)?;
    is(&told, Status::SUCCESS, "Get Features 20h")?;
    ensure(told.dw0 == on, || format!("Get Features tells {}; expected {on}", told.dw0))?;
    let key = ask.usual_key()?;
    let expected = if on == 1 { Status::KEY_NOT_FOUND } else { Status::SUCCESS };
    is(&ask.delete(&key)?, expected, &format!("Delete of a missing key with EDNEK {on}"))?;
    ask.stored(&key, b"value")?;
    is(&ask.delete(&key)?, Status::SUCCESS, "Delete of a stored key")
}

fn set(ask: &mut Ask<'_>) -> Outcome {
    restoring(ask, |ask| {
        [1, 0, 1, 1, 0].into_iter().try_for_each(|on| set_and_delete(ask, on))?;
        pass()
    })
}

fn reserved(ask: &mut Ask<'_>) -> Outcome {
    restoring(ask, |ask| {
        let before = ask.key_value_feature(0)?.dw0;
        let answer = ask.set_key_value_feature(before | 1 << 7)?;
        is_one(&answer, &[Status::INVALID_FIELD, Status::SUCCESS], "Set Features 20h with bit 7")?;
        let after = ask.key_value_feature(0)?.dw0;
        ensure(after == before, || format!("the value was {before} and is {after}"))?;
        Ok(if answer.status.is_success() { "ignored".to_owned() } else { String::new() })
    })
}

fn no_namespace(ask: &mut Ask<'_>) -> Outcome {
    for opcode in [admin::GET_FEATURES, admin::SET_FEATURES] {
        let mut sqe = Sqe::new(opcode, 0, u32::MAX - 1);
        sqe.cdw10 = U32::new(feature::KEY_VALUE.into());
        let answer = ask.admin(sqe, Data::None)?;
        is_one(&answer, &[Status::INVALID_NAMESPACE, Status::INVALID_FIELD], "NSID FFFFFFFEh")?;
    }
    pass()
}

fn another(ask: &mut Ask<'_>) -> Result<Box<dyn Target>, Why> {
    let other = ask.target().another()?;
    other.ok_or_else(|| Why::NotOffered("there is one host on this way to the namespace".to_owned()))
}

fn scope(ask: &mut Ask<'_>) -> Outcome {
    let mut other = another(ask)?;
    restoring(ask, |ask| {
        for on in [1, 0] {
            is(&ask.set_key_value_feature(on)?, Status::SUCCESS, "Set Features 20h")?;
            ask.by(&mut *other, |by| told_and_done(by, on))?;
        }
        pass()
    })
}

fn reset(ask: &mut Ask<'_>) -> Outcome {
    if !ask.target().owns_controller() {
        return Err(Why::NotOffered(
            "others may use the controller, so it is not ended from here".to_owned(),
        ));
    }
    restoring(ask, |ask| {
        for on in [1, 0] {
            set_and_delete(ask, on)?;
            ask.target().reconnect()?;
            told_and_done(ask, on)?;
        }
        pass()
    })
}

fn power(ask: &mut Ask<'_>) -> Outcome {
    restoring(ask, |ask| {
        for on in [1, 0] {
            set_and_delete(ask, on)?;
            if !ask.target().power_cycle()? {
                return Err(Why::NotOffered("the power cannot be cut from here".to_owned()));
            }
            told_and_done(ask, on)?;
        }
        pass()
    })
}

fn log_list(ask: &mut Ask<'_>) -> Outcome {
    let answer = ask.log(lid::SUPPORTED, 1024, 0)?;
    if !answer.status.is_success() {
        return Err(Why::NotOffered(format!("log page 00h: {}", answer.status)));
    }
    let listed: Vec<u8> = (0..=u8::MAX).filter(|page| answer.data[4 * usize::from(*page)] & 1 == 1).collect();
    ensure(listed.contains(&lid::HEALTH), || "page 02h is mandatory, and not listed".to_owned())?;
    for page in &listed {
        let answer = ask.log(*page, 64, if *page == lid::EFFECTS { 1 } else { 0 })?;
        is(&answer, Status::SUCCESS, &format!("log page {page:02X}h, which is listed"))?;
    }
    Ok(listed.iter().map(|page| format!("{page:02X}h")).collect::<Vec<_>>().join(" "))
}

fn log(ask: &mut Ask<'_>, page: u8, bytes: u32) -> Outcome {
    let answer = ask.log(page, bytes, 0)?;
    is(&answer, Status::SUCCESS, "Get Log Page")?;
    let came = answer.data.len();
    ensure(came == bytes as usize, || format!("{came} B came; {bytes} were asked for"))?;
    pass()
}

fn effects(ask: &mut Ask<'_>) -> Outcome {
    let answer = ask.log(lid::EFFECTS, 4096, 1)?;
    is(&answer, Status::SUCCESS, "Get Log Page 05h")?;
    ensure(answer.data.len() == 4096, || format!("{} B came", answer.data.len()))?;
    for opcode in [opcode::STORE, opcode::RETRIEVE, opcode::LIST, opcode::DELETE, opcode::EXIST] {
        let bits = answer.data[1024 + 4 * usize::from(opcode)];
        ensure(bits & 1 == 1, || format!("opcode {opcode:02X}h is not supported"))?;
        let changes = matches!(opcode, opcode::STORE | opcode::DELETE);
        ensure((bits & 2 != 0) == changes, || {
            format!("opcode {opcode:02X}h: bit 1, content changes, is {}", u8::from(!changes))
        })?;
    }
    pass()
}

fn log_unknown(ask: &mut Ask<'_>) -> Outcome {
    let answer = ask.log(0xBF, 64, 0)?;
    is_one(&answer, &[Status::INVALID_FIELD, Status::INVALID_LOG_PAGE], "log page BFh")?;
    Ok(format!("answered with {}", answer.status))
}

fn feature_unknown(ask: &mut Ask<'_>) -> Outcome {
    let mut sqe = Sqe::new(admin::GET_FEATURES, 0, 0);
    sqe.cdw10 = U32::new(0xBF);
    is(&ask.admin(sqe, Data::None)?, Status::INVALID_FIELD, "Get Features BFh")?;
    pass()
}

fn flush(ask: &mut Ask<'_>) -> Outcome {
    let key = ask.usual_key()?;
    ask.stored(&key, &value(1, 64))?;
    let nsid = ask.nsid();
    let answer = ask.io(Sqe::new(opcode::FLUSH, 0, nsid), Data::None)?;
    let has_cache = ask.facts.controller.volatile_cache & 1 == 1;
    if !has_cache && answer.status == Status::INVALID_OPCODE {
        return Err(Why::NotOffered("no cache is volatile (VWC), and Flush is an invalid opcode".to_owned()));
    }
    is(&answer, Status::SUCCESS, "Flush")?;
    ask.has(&key, &value(1, 64), "Retrieve after Flush")?;
    pass()
}

/// Does the controller offer Format NVM (OACS bit 1)?
fn format(ask: &mut Ask<'_>, index: u32) -> Result<Answer, Why> {
    if ask.facts.controller.admin_commands.get() & 1 << 1 == 0 {
        return Err(Why::NotOffered("OACS bit 1 is clear".to_owned()));
    }
    let mut sqe = Sqe::new(admin::FORMAT, 0, ask.nsid());
    sqe.cdw10 = U32::new(index);
    ask.admin(sqe, Data::None)
}

fn format_index(ask: &mut Ask<'_>) -> Outcome {
    let last = u32::from(ask.facts.namespace.formats_z);
    if last == 15 {
        return Err(Why::NotOffered("all 16 formats exist".to_owned()));
    }
    let key = ask.usual_key()?;
    ask.stored(&key, b"value")?;
    let answer = format(ask, last + 1)?;
    is_one(&answer, &[Status::INVALID_FORMAT, Status::INVALID_FIELD], "Format NVM")?;
    ask.has(&key, b"value", "Retrieve after the refused Format")?;
    pass()
}

fn format_erases(ask: &mut Ask<'_>) -> Outcome {
    let keys: Vec<Vec<u8>> = (0..20).map(|_| ask.usual_key()).collect::<Result<_, _>>()?;
    for key in &keys {
        ask.stored(key, &value(1, 1000))?;
    }
    let current = u32::from(ask.facts.namespace.format_current & 0xF);
    is(&format(ask, current)?, Status::SUCCESS, "Format NVM")?;
    for key in &keys {
        is(&ask.exist(key)?, Status::KEY_NOT_FOUND, "Exist after Format")?;
    }
    let listed = ask.list(&[], 64)?;
    is(&listed, Status::SUCCESS, "List after Format")?;
    ensure(listed.data.get(..4) == Some(&[0; 4]), || "keys are listed after Format".to_owned())?;
    ask.stored(&keys[0], b"value")?;
    ask.has(&keys[0], b"value", "Retrieve of what was stored after Format")?;
    pass()
}
