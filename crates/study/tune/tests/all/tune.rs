//! Thresholds found by exploratory runs, compared with the times computed in the profiles.

use kvdrive_config::Document;
use kvdrive_tune::{Tolerances, tune};

const STRICT: Tolerances = Tolerances { value: 0.0, tail: 0.02 };

/// cosmos-plus, NAND off, in us: PRP 20.0 a page; a write 9.86 + 0.3 + 0.02 a byte, a transfer 9.08 + 0.3 +
/// 0.02 a byte. So 35 B, all that a write carries, take 10.86 and 36 B 20.26; a tail of 20 B takes 9.78,
/// where a page takes 9.2 of 29.2: 1.99 % more, and 21 B 2.05 %.
#[test]
fn thresholds_are_where_the_profiles_times_cross() {
    let document = Document::profile("cosmos-plus").expect("the profile exists");
    let tuning = tune(&document, 50, STRICT, 2).expect("it runs");
    assert_eq!((tuning.threshold1_bytes, tuning.threshold2_bytes), (36, 21));
    // 64 B take 20.82 us, almost the time of a page to the paper, which goes on to 128 B; 73 B take 5 % more than a page.
    let loose = tune(&document, 50, Tolerances { value: 0.05, tail: 0.05 }, 2).expect("it runs");
    assert_eq!(
        (loose.threshold1_bytes, loose.threshold2_bytes),
        (74, 57),
        "57 B need a second transfer command"
    );
    assert!(loose.to_text().contains("at most 5 % slower than prp; by powers of two, as in the paper: 128"));
    let mut taken = Document::profile("cosmos-plus").expect("the profile exists");
    taken.merge_text("tuned.toml", &tuning.to_toml()).expect("--config takes it");
    let host = taken.config().expect("valid").host;
    let transfer = &host.transfer;
    assert_eq!(
        (transfer.method.as_str(), transfer.threshold1_bytes, transfer.threshold2_bytes),
        ("adaptive", 36, 21)
    );
    let text = tuning.to_text();
    assert!(text.contains("20.00 / 4 184") && text.contains("by beta"), "{text}");
}

/// Over Gen5 a page takes 2.45 us of 13.25 us: one command pays off, a tail never does.
#[test]
fn a_fast_link_leaves_nothing_to_hybrid() {
    let document = Document::profile("gen5-cxl").expect("the profile exists");
    let tuning = tune(&document, 50, STRICT, 2).expect("it runs");
    assert_eq!((tuning.threshold1_bytes, tuning.threshold2_bytes), (36, 0));
    // 12 us of overhead and 1.3 us of CXL.mem, where a page takes 13.25 us.
    assert_eq!(tuning.threshold_cxl_bytes, Some(0));
    assert!(tuning.to_text().contains("cxl us / B") && tuning.to_toml().contains("threshold1_bytes is 0"));
    let document = Document::profile("gen5-cxl-300ns").expect("the profile exists");
    let fast = tune(&document, 50, STRICT, 2).expect("it runs").threshold_cxl_bytes.expect("a window");
    assert_eq!(fast, 4097, "CXL.mem of 300 ns is faster than a page for every value of up to one");
}

#[test]
fn settings_that_the_exploratory_runs_have_themselves_are_refused() {
    for setting in
        ["workload.name=fillseq", "workload.value_size=100", "host.transfer=hybrid", "nand.enabled=false"]
    {
        let mut document = Document::profile("cosmos-plus").expect("an embedded profile");
        document.set(setting).expect("a key");
        let refused = tune(&document, 50, STRICT, 2).expect_err("it would be ignored").to_string();
        assert!(refused.starts_with(setting.split('=').next().unwrap()), "{refused}");
    }
}

/// The engine finds its pairs on flash, so the exploratory runs have flash, too.
#[test]
fn a_hash_engine_is_tuned_with_flash_on() {
    let mut document = Document::profile("kvvirt").expect("an embedded profile");
    document.set("engine.name=plus").expect("an engine");
    document.set("flash.blocks_per_die=64").expect("a small drive");
    let tuning = tune(&document, 20, STRICT, 2).expect("it runs");
    assert!(tuning.threshold1_bytes > 0, "{}", tuning.threshold1_bytes);
    assert_eq!(tuning.threshold_cxl_bytes, None, "it exposes no buffer");
}
