//! The documents that follow from options, files and single keys, and the options that are refused.

use kvdrive_config::{Config, Naming, RunOptions, option_rows, settings};
use kvdrive_engines::hash::SCHEMES;

fn of(options: &[(&str, &str)]) -> RunOptions {
    options.iter().fold(RunOptions::default(), |all, (name, value)| all.with(name, value))
}

fn with_sets(sets: &[&str]) -> RunOptions {
    let mut options = RunOptions::default();
    sets.iter().for_each(|set| options.set(*set));
    options
}

fn error(options: &RunOptions) -> String {
    options.document_of_run().map(|_| ()).unwrap_err().to_string()
}

fn config(options: &RunOptions) -> Config {
    options.document_of_run().unwrap().config().unwrap()
}

#[test]
fn an_option_that_the_workload_or_the_engine_does_not_look_at_is_refused_by_its_name() {
    for (begin, options) in [
        ("--value-size: workload.name=w-m does not ", &[("value-size", "33")][..]),
        ("--num: workload.name=fillseq does not ", &[("workload", "fillseq"), ("num", "33")]),
        (
            "--distribution: workload.name=fillseq does not ",
            &[("workload", "fillseq"), ("distribution", "zipfian")],
        ),
        ("--io-threads: controller.dispatch=context does not ", &[("workload", "w-a"), ("io-threads", "2")]),
        ("--dram: engine.name=lsm does not ", &[("workload", "w-a"), ("dram", "total-128")]),
        (
            "--packing: engine.name=plus does not ",
            &[("workload", "plus-a"), ("engine", "plus"), ("packing", "block")],
        ),
    ] {
        let error = error(&of(options));
        assert!(error.starts_with(begin), "{begin}: {error}");
    }
}

#[test]
fn messages_name_an_option_as_it_was_given() {
    let mut asked = of(&[("value-size", "33")]);
    assert!(error(&asked).starts_with("--value-size: "));
    asked.naming = Naming::Keyword;
    assert!(error(&asked).starts_with("value_size: "));
    let mut asked = with_sets(&["hash.max_probes=3"]);
    assert!(error(&asked).starts_with("--set hash.max_probes=3: "));
    asked.naming = Naming::Keyword;
    assert!(error(&asked).starts_with("hash.max_probes=\"3\": "), "{}", error(&asked));
    let unknown = RunOptions::default().give("valeu-size", "3").unwrap_err().to_string();
    assert_eq!(unknown, "--valeu-size: there is no such option; did you mean value-size?");
}

#[test]
fn a_value_that_could_only_mean_nothing_is_refused_with_what_to_do_instead() {
    for (name, value) in [("ops", "0"), ("rate", "0"), ("rate", "0k/s"), ("duration", "0ms"), ("batch", "0")]
    {
        let begin = format!("--{name} {value}: allowed: above 0; ");
        let error = error(&of(&[(name, value)]));
        assert!(error.starts_with(&begin), "{error}");
    }
    let bare = error(&of(&[("duration", "10")]));
    assert_eq!(bare, "--duration 10: allowed: a time with its unit, as 100ms or 10s");
}

/// A default of the caller is overridden by an option, a file and a key, and overrides a profile.
#[test]
fn a_default_is_below_what_is_given() {
    let with_default = |mut asked: RunOptions| {
        asked.set_default("host.depth=32");
        config(&asked).host.depth
    };
    let mut by_file = RunOptions::default();
    by_file.file("a.toml".into(), "host.depth = 7\n".into());
    assert_eq!(with_default(RunOptions::default()), 32);
    assert_eq!(with_default(of(&[("profile", "nvmevirt-970pro")])), 32);
    assert_eq!(with_default(of(&[("depth", "5")])), 5);
    assert_eq!(with_default(with_sets(&["host.depth=6"])), 6);
    assert_eq!(with_default(by_file), 7);
}

/// Each option that a declaration names exists, and sets that key.
#[test]
fn a_declared_option_is_short_for_its_key() {
    for setting in settings() {
        let Some(option) = setting.option else { continue };
        let row = option_rows().iter().find(|row| row.name == option).expect(option);
        assert_eq!((row.key, row.help.is_empty()), (setting.key, false));
    }
    let names: std::collections::BTreeSet<_> = option_rows().iter().map(|row| row.name).collect();
    assert_eq!(names.len(), option_rows().len(), "two options of one name");
}

/// The option is the size of SAKER's cache, or of the cache of a store on the host.
#[test]
fn a_cache_is_that_of_the_layer_that_answers_reads_on_the_host() {
    let with = |side: &str, store: &str, saker: &str| {
        of(&[("side", side), ("store", store), ("saker", saker), ("cache", "64MiB")])
    };
    let sizes = |options: &RunOptions| {
        let config = config(options);
        (config.engines.stored.options.lsmtree.row_cache_bytes, config.saker.cache_bytes)
    };
    assert_eq!(sizes(&with("host", "lsmtree", "off")), (64 << 20, 0));
    assert_eq!(sizes(&with("disk", "lsmtree", "on")), (0, 64 << 20));
    for (options, line) in [
        (with("host", "hashlog", "off"), "--cache: store hashlog has no cache of pairs; lsmtree has one"),
        (with("host", "btree", "off"), "--cache: store btree has no cache of pairs; lsmtree has one"),
        (
            with("disk", "lsmtree", "off"),
            "--cache: saker.enabled=false does not look at it; saker.enabled=true does",
        ),
        (of(&[("saker", "off"), ("cache", "64MiB")]), "--cache: saker.enabled=false "),
    ] {
        let error = error(&options);
        assert!(error.starts_with(line) && error.lines().count() == 1, "{error}");
    }
    // By keys alone the option still means the cache of SAKER.
    let keys = error(&with_sets(&["engine.name=block", "host.store=lsmtree"]).with("cache", "64MiB"));
    assert!(keys.starts_with("--cache: saker.enabled=false "), "{keys}");
}

#[test]
fn settings_that_contradict_each_other_are_refused_with_both_named() {
    let seed = with_sets(&["run.seed=3"]).with("seed", "2");
    let size = with_sets(&["workload.value_size=4095"]).with("value-size", "4KiB").with("workload", "w-a");
    let dram = with_sets(&["hash.dram_bytes=1MiB"]).with("dram", "total-128").with("engine", "plus");
    let presets = ["workload.preset=all_random", "workload.preset=all_dist"];
    for (options, first, second) in [
        (seed, "--seed 2", "--set run.seed=3"),
        (size, "--value-size 4KiB", "--set workload.value_size=4095"),
        (dram, "--dram total-128", "--set hash.dram_bytes=1MiB"),
        (with_sets(&["run.seed=2", "run.seed=3"]), "--set run.seed=2", "--set run.seed=3"),
        (with_sets(&presets), "--set workload.preset=all_random", "--set workload.preset=all_dist"),
        (of(&[("verify", ""), ("verify-only", "")]), "--verify", "--verify-only"),
    ] {
        let error = error(&options);
        assert!(error.starts_with(&format!("{second}: {first} sets ")), "{error}");
    }
    // One value, however it is written.
    config(&with_sets(&["workload.value_size=4096"]).with("value-size", "4KiB").with("workload", "w-a"));
}

#[test]
fn a_side_is_that_of_a_store_and_a_store_is_an_engine() {
    let side = error(&of(&[("side", "host")]));
    assert_eq!(side, "--side: says where a store runs; add --store STORE");
    let unknown = error(&of(&[("side", "nowhere"), ("store", "btree")]));
    assert_eq!(unknown, "--side: no side \"nowhere\"; there are host, disk");
    let store = error(&of(&[("store", "btre")]));
    assert!(store.starts_with("--store: no store \"btre\" with --side disk; there are "), "{store}");
    let both = error(&of(&[("store", "btree"), ("engine", "lsm")]));
    assert_eq!(both, "--store: a store is an engine itself; leave out --engine");
}

#[test]
fn a_preset_is_where_settings_begin_wherever_it_stands() {
    let workload = |sets: &[&str]| config(&with_sets(sets)).workload;
    let (key, preset) = ("workload.key_dist_a=0.5", "workload.preset=all_dist");
    assert_eq!(workload(&[key, preset]), workload(&[preset, key]));
    assert_eq!(workload(&[key, preset]).key_dist_a, 0.5);
}

#[test]
fn a_setting_that_the_run_does_not_look_at_is_refused_by_its_name() {
    for (sets, line) in [
        (&["host.transfer=piggyback", "host.alpha=2"][..], "--set host.alpha=2: host.transfer=piggyback "),
        (
            &["packing.policy=all", "packing.dlt_entries=4"],
            "--set packing.dlt_entries=4: packing.policy=all ",
        ),
        (&["workload.scan_length_max=4"], "--set workload.scan_length_max=4: workload.name=w-m "),
    ] {
        let error = error(&with_sets(sets));
        assert!(error.starts_with(line), "{error}");
    }
    let error = error(&with_sets(&["flash.channels"]));
    assert_eq!(error, "flash.channels: expected KEY=VALUE");
}

#[test]
fn a_setting_of_work_is_refused_where_work_comes_from_elsewhere() {
    let refused = |options: &RunOptions| {
        let document = options.document_without_work("serve", "hosts bring the work");
        document.map(|_| ()).unwrap_err().to_string()
    };
    for set in ["workload.ops=3", " host.transfer=prp", "saker.batch=4", "run.clock=wall"] {
        let line = format!("--set {set}: serve does not look at it; hosts bring the work");
        assert_eq!(refused(&with_sets(&[set])), line);
    }
    let ops = refused(&of(&[("ops", "3")]));
    assert_eq!(ops, "--ops: serve does not look at it; hosts bring the work");
    let error = refused(&with_sets(&["packing.policy=all", "packing.dlt_entries=4"]));
    assert!(error.starts_with("--set packing.dlt_entries=4: packing.policy=all "), "{error}");
    with_sets(&["packing.policy=all", "run.seed=3"]).document_without_work("serve", "").unwrap();
}

#[test]
fn a_drive_without_the_power_protected_memory_it_needs_is_refused_with_what_that_is() {
    let refused = |sets: &[&str]| error(&with_sets(sets));
    let lsm = refused(&["buffer.entries=1024"]);
    let needed = lsm.split("set power.protected_bytes to at least ").nth(1).expect(&lsm);
    with_sets(&["buffer.entries=1024", &format!("power.protected_bytes={needed}")]).document().unwrap();
    for scheme in SCHEMES {
        let hash = refused(&[&format!("engine.name={}", scheme.name), "power.protected_bytes=1MiB"]);
        assert!(hash.contains("set power.protected_bytes to at least "), "{hash}");
    }
}

#[test]
fn an_image_file_is_for_the_medium_that_has_one() {
    for (set, line) in
        [("media.path=a.img", "media.path: \"a.img\""), ("media.sync=true", "media.sync: true")]
    {
        let error = error(&with_sets(&[set]).with("media", "ram"));
        assert!(error.starts_with(line) && error.contains("set media.kind to file"), "{error}");
    }
}

/// However the medium is named.
#[test]
fn a_command_that_makes_images_names_one_for_a_drive_on_a_file() {
    let mut by_file = RunOptions::default();
    by_file.file("a.toml".into(), "media.kind = \"file\"\n".into());
    let path = |options: &RunOptions| {
        let mut options = options.clone();
        options.make_images();
        options.document().unwrap().config().unwrap().media.path
    };
    for options in [of(&[("media", "file")]), with_sets(&["media.kind=file"]), by_file.clone()] {
        assert!(path(&options).is_some_and(|path| path.starts_with(std::env::temp_dir())));
        assert!(error(&options).starts_with("media.path: empty;"));
    }
    by_file.set("media.path=a.img");
    assert_eq!(path(&by_file), Some("a.img".into()));
    assert_eq!(path(&of(&[("media", "ram")])), None);
}

#[test]
fn an_engine_brings_its_drive_wherever_it_is_named() {
    let mut by_file = RunOptions::default();
    by_file.file("a.toml".into(), "engine.name = \"plus2\"\n".into());
    for options in [with_sets(&["engine.name=plus"]), by_file, of(&[("engine", "original")])] {
        assert_eq!(options.document_of_run().unwrap().profile_name(), "kvvirt");
    }
    assert_eq!(RunOptions::default().document().unwrap().profile_name(), "cosmos-plus");
}

#[test]
fn the_message_about_an_options_value_has_every_value_that_the_option_takes() {
    let refused = |name, value| error(&of(&[(name, value)]));
    assert_eq!(refused("batch", "many"), "--batch many: allowed: a whole number, or adaptive");
    assert_eq!(refused("saker", "yes"), "--saker yes: allowed: on, off");
    assert_eq!(refused("nand", "0"), "--nand 0: allowed: on, off");
    for allowed in [&[("saker", "on"), ("batch", "adaptive")][..], &[("saker", "true"), ("batch", "64")]] {
        config(&of(allowed));
    }
}

#[test]
fn a_drive_that_is_too_small_for_the_scale_names_the_engines_that_are_not() {
    for scale in ["1", "1/64", "1/256"] {
        let refused = error(&of(&[("scale", scale)]));
        let begin = "--scale: the pairs of the Plus paper, 100 GB, do not fit on cosmos-plus, 68 GB; \
                     the drive of the paper is profile kvvirt, the default of engines original, plus, ";
        assert!(refused.starts_with(begin), "{refused}");
        config(&of(&[("scale", scale), ("engine", "lsm"), ("profile", "kvvirt")]));
    }
    config(&of(&[("scale", "1/128"), ("engine", "plus")]));
    let refused = error(&of(&[("scale", "1/256"), ("engine", "plus")]));
    let begin = "--scale: 1/256 leaves plus 64 superblocks, 8 of them free or open";
    assert!(
        refused.starts_with(begin) && refused.contains("the smallest scale of this engine is 1/128"),
        "{refused}"
    );
    config(&of(&[("scale", "1/64"), ("num", "1000")]));
    assert!(error(&of(&[("scale", "1/3")])).starts_with("--scale: \"1/3\": expected 1, or 1/2, "));
}

/// Levels have sizes in memtables. With a budget of DRAM the memtable shrinks as the budget does, so that the same levels
/// fit; without one a scaled run has the memtable of the drive.
#[test]
fn levels_of_an_index_with_a_budget_of_dram_shrink_with_it() {
    let of_profile = |profile, scale| {
        let config =
            config(&of(&[("scale", scale), ("num", "1000"), ("profile", profile), ("engine", "lsm")]));
        let index = config.engines.lsm.index;
        (index.memtable_entries, index.dram_bytes, index.rings)
    };
    let rings = vec![3, 59, 1109, 22000];
    assert_eq!(of_profile("pink", "1"), (1024, 64 << 20, rings.clone()));
    assert_eq!(of_profile("pink", "1/16"), (64, 4 << 20, rings.clone()));
    assert_eq!(of_profile("pink", "1/64"), (16, 1 << 20, rings));
    assert_eq!(of_profile("cosmos-plus", "1/64").0, 4096);
}

#[test]
fn a_file_is_blamed_with_the_line_of_the_key() {
    let mut options = RunOptions::default();
    options.file("a.toml".into(), "# a drive\n\n[flash]\nchannels = 4\nsense_ns = \"fast\"\n".into());
    let wrong = error(&options);
    assert!(wrong.starts_with("a.toml:5: flash.sense_ns: "), "{wrong}");
}

/// A store on the host has no SAKER, and a SAKER that is off has no batches: such runs occur once.
#[test]
fn options_of_saker_are_for_the_runs_that_have_it() {
    let lists = of(&[
        ("profile", "saker-mid"),
        ("side", "host,disk"),
        ("store", "hashlog"),
        ("saker", "on,off"),
        ("batch", "4,64"),
        ("workload", "fillrandom"),
        ("value-size", "16,256"),
    ]);
    let seen = |options: &RunOptions| {
        let runs = options.documents().unwrap().into_iter().map(|document| {
            let config = document.config().unwrap();
            let batch = config.saker.enabled.then_some(config.saker.batch);
            (config.has_store_on_host(), batch, config.workload.value_size)
        });
        let mut runs: Vec<_> = runs.collect();
        runs.sort_unstable();
        runs
    };
    let sizes = |host, batch| [16, 256].map(move |bytes| (host, batch, bytes));
    let expected = [sizes(true, None), sizes(false, Some(4)), sizes(false, None), sizes(false, Some(64))];
    let mut expected = expected.concat();
    expected.sort_unstable();
    assert_eq!(seen(&lists), expected);
    // A store on the host may have a cache of the same size.
    let cached =
        lists.clone().with("store", "hashlog,lsmtree").with("saker", "on").with("cache", "1MiB,2MiB");
    let cached = cached.without("batch").without("value-size");
    let caches = cached.documents().unwrap().into_iter().map(|document| {
        let config = document.config().unwrap();
        let store = if config.has_store_on_host() { config.host.store } else { config.engine.name };
        (store, config.engines.stored.options.lsmtree.row_cache_bytes >> 20, config.saker.cache_bytes >> 20)
    });
    let mut caches: Vec<_> = caches.collect();
    caches.sort_unstable();
    let of = |store: &str, rows, saker| (store.to_owned(), rows, saker);
    let hashlog = [of("hashlog", 0, 0), of("hashlog", 0, 1), of("hashlog", 0, 2)];
    let lsmtree = [of("lsmtree", 0, 1), of("lsmtree", 0, 2), of("lsmtree", 1, 0), of("lsmtree", 2, 0)];
    assert_eq!(caches, [&hashlog[..], &lsmtree[..]].concat());
    // It is refused for a run on the host alone, and also if SAKER is off in all runs.
    let host = lists.clone().with("side", "host").with("saker", "on");
    assert!(
        host.documents()
            .unwrap_err()
            .to_string()
            .starts_with("saker.enabled: true; SAKER needs a drive of pairs")
    );
    let off = lists.with("side", "disk").with("saker", "off");
    assert!(off.documents().unwrap_err().to_string().starts_with("--batch: saker.enabled=false "));
}

#[test]
fn every_option_and_every_key_takes_a_list() {
    let lists = with_sets(&["flash.channels=4,8"])
        .with("profile", "cosmos-plus,nvmevirt-970pro")
        .with("depth", "1,8")
        .with("seed", "1,2");
    let runs = lists.documents().unwrap().into_iter().map(|document| {
        let config = document.config().unwrap();
        (document.profile_name(), config.flash.channels, config.host.depth, config.run.seed)
    });
    let runs: Vec<_> = runs.collect();
    assert_eq!(runs.len(), 16);
    assert_eq!(runs[..3], [("cosmos-plus", 4, 1, 1), ("cosmos-plus", 4, 1, 2), ("cosmos-plus", 4, 8, 1),]);
    assert_eq!(lists.first_list().unwrap(), "--profile cosmos-plus,nvmevirt-970pro");
    assert_eq!(with_sets(&["workload.trace=a,b.csv"]).first_list(), None, "a path is one text");
}

#[test]
fn a_missing_option_is_named_by_what_lacks_it() {
    let error = |options: RunOptions| options.document_of_run().unwrap_err().to_string();
    let arrivals = error(RunOptions::default().with("arrivals", "poisson"));
    assert!(arrivals.starts_with("--arrivals: ") && arrivals.contains("add --rate N/s"), "{arrivals}");
    let side = error(RunOptions::default().with("side", "disk"));
    assert_eq!(side, "--side: says where a store runs; add --store STORE");
    let image = error(with_sets(&["media.path=image", "media.read_only=true"]).with("media", "file"));
    assert!(image.starts_with("media.read_only: true; ") && image.contains("check and dump"), "{image}");
}

#[test]
fn a_list_that_has_a_value_twice_is_refused() {
    let refused = |options: RunOptions| options.documents().unwrap_err().to_string();
    let transfers = RunOptions::default().with("transfer", "prp,adaptive, prp");
    assert!(refused(transfers).ends_with(": prp twice"), "an option");
    let mut options = RunOptions::default();
    options.set("flash.channels=2,4,2".to_owned());
    assert!(refused(options).ends_with(": 2 twice"), "a key");
}

#[test]
fn help_does_not_offer_a_zero_that_the_option_refuses() {
    for name in ["rate", "duration", "ops", "batch"] {
        let row = option_rows().iter().find(|row| row.name == name).unwrap();
        assert!(!row.help.contains("; 0: "), "--{name}: {}", row.help);
        assert!(RunOptions::default().with(name, "0").document_of_run().is_err(), "--{name} 0");
    }
    let rate = option_rows().iter().find(|row| row.name == "rate").unwrap();
    assert!(rate.help.contains("[default: each client"), "{}", rate.help);
    // The profiles' batches are of 64: the word is a choice, and no default.
    let batch = option_rows().iter().find(|row| row.name == "batch").unwrap();
    assert_eq!(batch.help, "Most requests of a batch, or adaptive");
}

#[test]
fn more_bytes_than_there_is_flash_are_refused_before_the_run() {
    let refused =
        |options: &[(&str, &str)]| config(&of(options)).check_room().map_err(|error| error.to_string());
    let much = [("ops", "100000000"), ("value-size", "1000000")];
    let with = |more: &[(&'static str, &'static str)]| refused(&[&much[..], more].concat());
    for (key, at_least, more) in [
        ("ops", "100 000 000", &[("workload", "fillseq")][..]),
        ("num", "100 000 000", &[("workload", "readrandom"), ("num", "100000000")]),
        ("num", "100 000 000", &[("workload", "ycsb-a"), ("num", "100000000")]),
        // Keys repeat, but not so often.
        ("num", "500 000", &[("workload", "fillrandom"), ("num", "1000000")]),
        ("ops", "50 000 000", &[("workload", "fillrandom"), ("num", "200000000")]),
    ] {
        let error = with(more).unwrap_err();
        let begin = format!("workload.{key}: at least {at_least} values of 1 000 000 B are ");
        assert!(error.starts_with(&begin) && error.ends_with(" of flash"), "{more:?}: {error}");
    }
    // What may end before is run: few keys, keys of which few are popular, a run of a second.
    with(&[("workload", "fillrandom"), ("num", "1000")]).unwrap();
    with(&[("workload", "fillrandom"), ("num", "1000000"), ("distribution", "zipfian")]).unwrap();
    with(&[("workload", "fillrandom"), ("num", "1000000"), ("duration", "1s")]).unwrap();
}

/// A comma separates values, and may stand in the name of a trace.
#[test]
fn the_path_of_a_trace_may_have_commas() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a,b, c.csv");
    std::fs::write(&path, "0,store,a,1\n").unwrap();
    let named = format!("trace:{}", path.display());
    let names = |list: &str| -> Vec<String> {
        let documents = RunOptions::default().with("workload", list).documents().unwrap();
        let config = documents.iter().map(|document| document.config().unwrap().workload);
        config
            .map(|workload| if workload.trace.is_empty() { workload.name } else { workload.trace })
            .collect()
    };
    let path = path.display().to_string();
    assert_eq!(names(&named), std::slice::from_ref(&path));
    assert!(RunOptions::default().with("workload", &named).first_list().is_none());
    assert_eq!(names(&format!("ycsb-a,{named},w-m")), ["ycsb-a", &path, "w-m"]);
}
