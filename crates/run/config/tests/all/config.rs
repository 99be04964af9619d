//! Every profile is complete; every wrong input is one line that names the key and the allowed values.

use std::rc::Rc;

use kvdrive_config::{Config, Document, Origin, PROFILES, default_profile};
use kvdrive_device::engines::{BLOCK, ENGINES};
use kvdrive_device::{Drive, DriveConfig};
use kvdrive_link::transfer::METHODS;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_sim::Sim;
use kvdrive_text::input::read_text;
use kvdrive_workload as workload;

fn document() -> Document {
    Document::profile("cosmos-plus").unwrap()
}

fn config(sets: &[&str]) -> Config {
    let mut document = document();
    for set in sets {
        document.set(set).unwrap();
    }
    document.config().unwrap()
}

/// Number of values, also in sections within sections.
fn fields(json: &serde_json::Value) -> usize {
    json.as_object().map_or(1, |section| section.values().map(fields).sum())
}

#[test]
fn profiles_have_the_same_keys_and_every_value_an_origin() {
    let keys =
        |document: &Document| -> Vec<String> { document.origins().into_iter().map(|(key, _)| key).collect() };
    let first = keys(&document());
    for profile in PROFILES {
        let document = Document::profile(profile.name).unwrap();
        let config = document.config().unwrap();
        assert_eq!(keys(&document), first, "{}", profile.name);
        // A value without an origin would be missing in `keys`.
        assert_eq!(fields(&document.values()), first.len(), "{}", profile.name);
        assert!(document.origins().iter().all(|(_, origin)| *origin != Origin::User));
        workload::build(&config.workload, 1).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn every_engine_has_a_profile_that_it_runs_on() {
    for row in ENGINES.iter().chain([&BLOCK]) {
        let mut document = Document::profile(default_profile(row.name)).unwrap();
        document.set(&format!("engine.name={}", row.name)).unwrap();
        if row.name == BLOCK.name {
            document.set("host.store=hashlog").unwrap();
        }
        document.config().unwrap();
    }
    assert_eq!(default_profile("no such engine"), PROFILES[0].name);
}

/// Fuzzing found texts on which the parser panicked (toml_edit up to 0.23).
#[test]
fn a_text_that_is_far_from_toml_is_one_line_of_error() {
    let found = "==media = \"pdus\"\n.draia = \"pdus\"\n.dram_bytes 1 M\"6=iB\"\n \"10k\"\n0[k&\n";
    for text in ["==\n[._[._", "={=<=u==", found] {
        let error = document().merge_text("file.toml", text).unwrap_err().to_string();
        assert!(error.starts_with("file.toml:") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn every_profile_value_obeys_its_rule() {
    for profile in PROFILES {
        let document = Document::profile(profile.name).unwrap();
        // Applying a document to another one sets, and so checks, every key of it.
        let mut copy = self::document();
        copy.merge_text(profile.name, &document.to_string()).unwrap();
        assert_eq!(copy.config().unwrap(), document.config().unwrap());
    }
}

/// The parts of the fitted times are guesses, their sums are not.
#[test]
fn fitted_sums_hold_with_the_line_time_of_the_link() {
    for (profile, prp_ns) in [("cosmos-plus", 20_000), ("gen5-cxl", 13_250)] {
        let c = Document::profile(profile).unwrap().config().unwrap();
        let (link, host, costs) = (&c.link, c.host.costs, c.controller.costs);
        let around = host.submit_ns
            + link.doorbell_ns
            + link.line_ns(link.write_wire_bytes(4))
            + link.sqe_fetch_ns
            + link.line_ns(link.read_wire_bytes(64))
            + costs.complete_ns
            + link.cqe_write_ns
            + link.line_ns(link.write_wire_bytes(16))
            + host.complete_ns;
        let store = around + costs.decode_store_ns + c.engines.lsm.index.memtable_insert_ns;
        assert_eq!(store + costs.copy.copy_ns(32), 10_800, "{profile}: a store of 32 B in one command");
        assert_eq!(
            around + costs.decode_transfer_ns + costs.copy.copy_ns(56),
            10_500,
            "{profile}: a transfer"
        );
        let page = host.pin_page_ns + link.dma_page_ns + link.line_ns(link.read_wire_bytes(4096));
        assert_eq!(store + host.dma_setup_ns + page, prp_ns, "{profile}: a store by PRP");
    }
    let flash = config(&[]).flash;
    let channel_ns = u64::from(flash.page_bytes + flash.spare_bytes) * flash.transfer_ns_per_kib / 1024;
    assert_eq!(flash.program_ns + channel_ns, 600_000);
    assert_eq!(flash.geometry().data_bytes(), 64 << 30);
}

#[test]
fn what_one_timing_or_dispatch_looks_at_the_other_ignores() {
    let looked_at = |sets: &[&str], keys: &[&str]| {
        let config = config(sets);
        keys.iter().map(|key| config.ignores(key).is_none()).collect::<Vec<_>>()
    };
    let flash = ["flash.sense_ns", "flash.flat.read_mib_s", "flash.timing", "flash.channels"];
    assert_eq!(looked_at(&[], &flash), [true, false, true, true]);
    assert_eq!(looked_at(&["flash.timing=flat"], &flash), [false, true, true, true]);
    assert_eq!(looked_at(&["nand.enabled=false"], &flash), [false, false, false, true]);
    let why = config(&[]).ignores("flash.flat.write_latency_ns").unwrap();
    assert_eq!(why, "flash.timing=dies does not look at it; flash.timing=flat does");
    let controller =
        ["controller.contexts", "controller.cores", "controller.io_threads", "controller.deal_ns"];
    assert_eq!(looked_at(&[], &controller), [true, true, false, false]);
    let round_robin = ["controller.dispatch=round-robin", "controller.roles=own"];
    assert_eq!(looked_at(&round_robin, &controller), [false, false, true, true]);
}

#[test]
fn settings_take_units_and_leave_a_trace() {
    let mut document = document();
    document.set("flash.program_ns = 0.5ms").unwrap();
    document.set("flash.channels=8").unwrap();
    document.set("flash.channels=16").unwrap();
    document.set("buffer.entries=512").unwrap();
    document.set("host.transfer=prp").unwrap();
    document.set("host.alpha=2").unwrap();
    document.set("lsm.rings=[4, 8, 16, 32]").unwrap();
    document.set("power.protected_bytes=32MiB").unwrap();
    document.set("media.path=/tmp/1").unwrap();
    let config = document.config().unwrap();
    assert_eq!(config.flash.program_ns, 500_000);
    assert_eq!(config.flash.channels, 16);
    assert_eq!(config.host.transfer.method, "prp");
    assert_eq!(config.host.transfer.alpha, 2.0);
    assert_eq!(config.engines.lsm.index.rings, [4, 8, 16, 32]);
    assert_eq!(config.power.protected_bytes, 32 << 20);
    assert_eq!(config.media.path, Some("/tmp/1".into()));
    let text = document.to_string();
    assert!(text.contains("\nchannels = 16 # [user] instead of 4\n"), "{text}");
    assert!(text.contains("\nentries = 512\n"), "setting a value to itself is no override");
    assert!(text.contains("\ntransfer = \"prp\" # [user] instead of \"adaptive\"\n"));
    assert_eq!(document.time_sources(), "fit set guess user");
    let mut set = document.user_settings();
    set.sort();
    assert_eq!(set.len(), 7, "{set:?}");
    assert_eq!(set[0], ("flash.channels".to_owned(), "16".to_owned()));
    assert_eq!(set[3], ("host.transfer".to_owned(), "prp".to_owned()));
    // The printed document can be read again.
    let mut again = self::document();
    again.merge_text("printed", &text).unwrap();
    assert_eq!(again.config().unwrap(), config);
}

#[test]
fn a_file_holds_any_part_and_is_taken_whole_or_not_at_all() {
    let mut document = document();
    document.merge_text("a.toml", "host.depth = 32\n[flash]\nchannels = 8\nsense_ns = \"45us\"\n").unwrap();
    let config = document.config().unwrap();
    assert_eq!((config.host.depth, config.flash.channels), (32, 8));
    assert_eq!(config.flash.sense_ns, 45_000);
    let before = document.to_string();
    document.merge_text("b.toml", "[flash]\nchannels = 2\nplane = 2\n").unwrap_err();
    assert_eq!(document.to_string(), before);
    let mut text = "[workload]\nkeyrange_num = 7\npreset = \"prefix_dist\"\n";
    document.merge_text("c.toml", text).unwrap();
    let workload = document.config().unwrap().workload;
    assert_eq!((workload.name.as_str(), workload.keyrange_num), ("mixgraph", 7));
    assert_eq!((workload.key_dist_b, workload.keyrange_dist_a), (0.3467, 14.18));
    text = "[flash\n";
    let error = document.merge_text("d.toml", text).unwrap_err().to_string();
    assert!(error.starts_with("d.toml:1: ") && !error.contains('\n'), "{error}");
    let missing = read_text("no/such/file.toml".as_ref()).unwrap_err().to_string();
    assert!(missing.starts_with("no/such/file.toml: No such file"), "{missing}");
    let endless = read_text("/dev/zero".as_ref()).unwrap_err().to_string();
    assert_eq!(endless, "/dev/zero: longer than 4 MiB; expected a TOML file");
}

#[test]
fn a_wrong_setting_is_one_line_that_says_what_is_allowed() {
    // Tables grow: their own names are the expected ones.
    let methods: Vec<_> = METHODS.iter().map(|row| row.name).collect();
    let engines: Vec<_> = ENGINES.iter().chain([&BLOCK]).map(|row| row.name).collect();
    let engines = format!("engine.name: \"zzz\"; allowed: {}", engines.join(", "));
    let methods = format!("host.transfer: \"ppr\"; allowed: {}; did you mean prp?", methods.join(", "));
    let cases = [
        ("flash.chanels=8", "flash.chanels: unknown key; did you mean flash.channels?"),
        ("chanels=8", "chanels: unknown key; did you mean flash.channels?"),
        ("nand.channels=8", "nand.channels: unknown key; did you mean flash.channels?"),
        ("power.zzz=8", "power.zzz: unknown key; [power] has protected_bytes"),
        (
            "qqq.www=8",
            "qqq.www: unknown key; the sections are link, controller, host, engine, lsm, flash, nand, ftl, buffer, packing, gc, anykey, hash, store, hashlog, btree, lsmtree, power, rated, media, run, saker, workload",
        ),
        ("flash.channels", "flash.channels: expected KEY=VALUE"),
        ("=8", "=8: expected KEY=VALUE"),
        ("flash.channels=", "flash.channels: expected an integer, got \"\"; allowed: 1 to 256"),
        ("flash.channels=many", "flash.channels: expected an integer, got \"many\"; allowed: 1 to 256"),
        ("flash.channels=1.5", "flash.channels: expected an integer, got 1.5"),
        ("flash.channels=0", "flash.channels: 0; allowed: 1 to 256"),
        (
            "flash.erase_ns=5min",
            "flash.erase_ns: unknown unit \"min\"; units: ns, us, µs, ms, s; allowed: 0 to 1000000000000",
        ),
        ("flash.page_bytes=10KiB", "flash.page_bytes: 10240; allowed: a multiple of 4096, 4096 to 262144"),
        (
            "run.seed=9223372036854775808",
            "run.seed: \"9223372036854775808\" is too large; allowed: 0 to 9223372036854775807",
        ),
        ("engine.name=zzz", engines.as_str()),
        ("link.lanes=3", "link.lanes: 3; allowed: a power of two, 1 to 16"),
        ("host.queue_entries=1", "host.queue_entries: 1; allowed: 2 to 65536"),
        ("host.alpha=0", "host.alpha: 0.0; allowed: a number above 0"),
        ("host.alpha=nan", "host.alpha: nan; allowed: a number above 0"),
        ("host.transfer=ppr", methods.as_str()),
        ("gc.enabled=1", "gc.enabled: expected true or false, got 1"),
        ("lsm.rings=[4, 8]", "lsm.rings: [4, 8]; allowed: 4 integers, each 3 to 1048576"),
        ("controller.dma_granularity_bytes=8", "controller.dma_granularity_bytes: 8; allowed: 1, 4, 4096"),
        ("controller.roles=each", "controller.roles: \"each\"; allowed: any, own"),
        (
            "workload.preset=all",
            "workload.preset: \"all\"; allowed: all_random, all_dist, prefix_random, prefix_dist, plus",
        ),
    ];
    for (set, expected) in cases {
        let mut document = document();
        let before = document.to_string();
        let error = document.set(set).expect_err(set).to_string();
        assert_eq!(error, expected);
        assert_eq!(document.to_string(), before);
    }
    let profiles: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
    assert_eq!(
        Document::profile("cosmos").unwrap_err().to_string(),
        format!("cosmos: no such profile; there are {}; did you mean cosmos-plus?", profiles.join(", "))
    );
}

#[test]
fn conditions_between_keys_are_one_line_too() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["engine.name=plus", "nand.enabled=false"],
            "nand.enabled: false; engine.name = \"plus\" keeps its pairs on flash only",
        ),
        (
            &["nand.enabled=false", "media.kind=file", "media.path=drive.img"],
            "nand.enabled: false; media.kind = \"file\" keeps pages: set media.kind to tags",
        ),
        (&["host.depth=256"], "host.depth: 256; host.queues and host.queue_entries hold 255"),
        (&["media.kind=file"], "media.path: empty; media.kind = \"file\" needs the path of an image"),
        (
            &["gc.free_segments_reserved=8"],
            "gc.free_segments_reserved: 8; must be below gc.free_segments_low, 8",
        ),
        (&["controller.roles=own"], "controller.cores: 1; controller.roles = \"own\" takes 4, one a role"),
        (
            &["flash.blocks_per_die=1048576"],
            "flash.blocks_per_die: gives 4295049216 pages, must be less than 2^32 - 1 in all",
        ),
        (&["ftl.gc_low_blocks=1023"], "ftl.gc_low_blocks: is 1023, must be 2 to 1022 (blocks of a unit - 2)"),
        (
            &["flash.page_bytes=12KiB"],
            "flash.page_bytes: 12288; allowed with engine.name = \"lsm\": a power of two, 4096 to 65536",
        ),
        (
            &["flash.blocks_per_die=32768", "lsm.layout=published"],
            "lsm.layout: \"published\" reaches 1099511627776 B; the drive has 1979120926720 B of logical pages",
        ),
        (
            &["flash.blocks_per_die=4", "gc.segment_pages=1024", "ftl.gc_low_blocks=2"],
            "gc.segment_pages: 1024 pages make 16 segments of the drive; at least 16 (twice gc.free_segments_low)",
        ),
    ];
    let ((least, _), refused) = cases.split_last().unwrap();
    for (sets, expected) in refused {
        let mut document = document();
        sets.iter().for_each(|set| document.set(set).unwrap());
        assert_eq!(document.config().unwrap_err().to_string(), *expected);
    }
    // The smallest drive of the last case is valid; a slightly larger segment is not.
    let mut document = document();
    least.iter().for_each(|set| document.set(set).unwrap());
    document.config().unwrap();
    document.set("gc.segment_pages=1025").unwrap();
    assert_eq!(
        document.config().unwrap_err().to_string(),
        "gc.segment_pages: 1025 pages make 15 segments of the drive; at least 16 (twice gc.free_segments_low)"
    );
}

/// The check is public: not every drive comes from a document.
#[test]
fn a_drive_names_the_key_that_it_cannot_be_made_with() {
    type Change = fn(&mut DriveConfig);
    let whole = config(&[]).drive();
    let cases: [(Change, &str); 4] = [
        (|drive| drive.flash.page_bytes = 12288, "flash.page_bytes: 12288; "),
        (|drive| drive.engines.ftl.gc_low_blocks = 1023, "ftl.gc_low_blocks: is 1023, "),
        (|drive| drive.engines.lsm.index.rings.clear(), "lsm.rings: "),
        (
            |drive| {
                (drive.flash.blocks_per_die, drive.engines.lsm.index.layout) = (32768, "published".into())
            },
            "lsm.layout: \"published\" reaches ",
        ),
    ];
    for (change, expected) in cases {
        let sim = Sim::new();
        let link = Link::new(&sim, config(&[]).link, Rc::new(LocalMemory::new()));
        let mut drive = whole.clone();
        change(&mut drive);
        let refused = sim.block_on(|| Drive::power_on(&sim, &link, &drive, None)).err();
        let line = refused.expect("there is no such drive").to_string();
        assert!(line.starts_with(expected) && line.lines().count() == 1, "{line}");
    }
    // A combination that one engine cannot have may be valid for another.
    let plus = ["engine.name=plus", "power.protected_bytes=4GiB"];
    config(&[&plus[..], &["flash.page_bytes=12KiB"]].concat());
    config(&[&plus[..], &["flash.blocks_per_die=32768", "lsm.layout=published"]].concat());
}

#[test]
fn every_profile_says_what_its_brackets_mean() {
    for profile in PROFILES {
        let text = Document::profile(profile.name).unwrap().to_string();
        for line in ["#   [guess]  ours, no source ", "#   [user]   set by --config or --set\n"] {
            assert!(text.contains(&format!("\n{line}")), "{}: {line}", profile.name);
        }
    }
}

#[test]
fn generations_are_those_that_the_link_has_a_rate_for() {
    let mut document = document();
    document.set("link.generation=5").unwrap();
    let error = document.set("link.generation=6").unwrap_err().to_string();
    assert_eq!(error, "link.generation: 6; allowed: 1 to 5");
}

/// `kvdrive config --reference > docs/settings.md` generates it.
#[test]
fn the_page_of_settings_is_what_is_declared() {
    let page = include_str!("../../../../../docs/settings.md");
    let declared = kvdrive_config::reference();
    let differs = declared.lines().zip(page.lines()).find(|(declared, written)| declared != written);
    if declared != page {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/settings.md");
        std::fs::write(path, &declared).unwrap();
        panic!("docs/settings.md is not {path}, which is what is declared; the first line: {differs:?}");
    }
}

/// A help text must be complete by itself: it is shown on a page and in messages.
#[test]
fn every_setting_says_what_it_is() {
    for setting in kvdrive_config::settings() {
        assert!(setting.help.ends_with(['.', '?']), "{}: {:?}", setting.key, setting.help);
        assert!(!setting.help.contains("::"), "{}: {:?} names Rust", setting.key, setting.help);
    }
}

/// A condition names existing settings, and values that they can have.
#[test]
fn every_condition_can_hold() {
    let rule = |key: &str| kvdrive_config::setting(key).map(|setting| &setting.rule);
    for setting in kvdrive_config::settings() {
        for condition in kvdrive_config::conditions(setting.key) {
            assert!(
                condition.keys().into_iter().all(|key| rule(key).is_some()),
                "{}: {condition:?}",
                setting.key
            );
            assert!(!condition.in_words(setting.key, &rule).is_empty(), "{}: {condition:?}", setting.key);
        }
    }
}

/// A recording has 0.1 where the profile has 0.10: nobody has set it.
#[test]
fn a_number_that_is_written_otherwise_is_no_setting_of_the_user() {
    let mut document = Document::profile("cosmos-plus").unwrap();
    document.set("ftl.over_provisioning=0.1").unwrap();
    assert_eq!(document.user_settings(), []);
    document.set("ftl.over_provisioning=0.11").unwrap();
    assert_eq!(document.user_settings(), [("ftl.over_provisioning".to_owned(), "0.11".to_owned())]);
}
