//! Sections of settings as their declarations make them.

mod counters;

use kvdrive_declare::{Section, Unit, Value, Values, When, Words, default_of, image_keys, read, settings};
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Words)]
enum Timing {
    Flat,
    RoundRobin,
    #[word("as_published")]
    Published,
}

/// A section with one of each kind of field.
#[derive(Debug, PartialEq, Section)]
#[section("flash", default)]
struct Flash {
    /// Channels (buses) that
    /// move data at the same time.
    #[setting(is = Integer(1, 256), image)]
    channels: u32,
    #[setting(key = "timing")]
    named: Timing,
    #[setting(key = "nand.enabled", default = true)]
    enabled: bool,
    #[setting(is = Integers(2, 3, 9))]
    rings: Vec<u32>,
    #[setting(part, when = &[When::one_of("flash.timing", &["flat"])])]
    flat: Flat,
    #[setting(skip)]
    own: Option<u8>,
}

#[derive(Debug, PartialEq, Section)]
#[section("flash.flat")]
struct Flat {
    #[setting(is = TIME, option = "latency", shrinks)]
    latency_ns: u64,
    #[setting(is = Number(0.5, 2.0), unit = Unit::Bytes, when = &[When::on("nand.enabled")], image)]
    share: f64,
}

fn values() -> Value {
    json!({
        "flash": {"channels": 8, "timing": "as_published", "rings": [3, 4], "flat": {"latency_ns": 7, "share": 1.5}},
        "nand": {"enabled": false},
    })
}

#[test]
fn a_section_is_read_from_its_keys_and_written_to_them() {
    let flash: Flash = read(&Values::new(&values())).unwrap();
    let flat = Flat { latency_ns: 7, share: 1.5 };
    let expected =
        Flash { channels: 8, named: Timing::Published, enabled: false, rings: vec![3, 4], flat, own: None };
    assert_eq!(flash, expected);
    let mut given = kvdrive_declare::GivenValues::default();
    flash.give(&mut given);
    assert_eq!(Value::from(given), values());
}

#[test]
fn a_value_that_cannot_be_is_refused_with_its_key_and_what_can() {
    for (pointer, wrong, line) in [
        ("/flash/channels", json!(0), "flash.channels: 0; allowed: 1 to 256"),
        ("/flash/channels", json!("8"), "flash.channels: \"8\"; allowed: 1 to 256"),
        ("/flash/timing", json!("flap"), "flash.timing: \"flap\"; allowed: flat, round-robin, as_published"),
        ("/flash/rings", json!([3]), "flash.rings: [3]; allowed: 2 integers, each 3 to 9"),
        ("/flash/flat", json!({}), "flash.flat.latency_ns: is missing"),
        ("/nand/enabled", json!(1), "nand.enabled: 1; allowed: true, false"),
    ] {
        let mut values = values();
        *values.pointer_mut(pointer).unwrap() = wrong;
        assert_eq!(read::<Flash>(&Values::new(&values)).unwrap_err().to_string(), line);
    }
}

#[test]
fn a_setting_has_what_its_field_declares() {
    let all = settings(Flash::ENTRIES);
    let keys: Vec<_> = all.iter().map(|(setting, _)| setting.key).collect();
    let expected = ["flash.channels", "flash.timing", "nand.enabled", "flash.rings"];
    assert_eq!(keys, [&expected[..], &["flash.flat.latency_ns", "flash.flat.share"]].concat());
    assert_eq!(all[0].0.help, "Channels (buses) that move data at the same time.");
    assert_eq!((all[4].0.unit, all[5].0.unit), (Unit::Ns, Unit::Bytes), "by the end of the key, or declared");
    assert_eq!((all[4].0.option, all[5].0.option), (Some("latency"), None));
    assert_eq!((all[4].0.shrinks, all[5].0.shrinks), (true, false));
    let conditions: Vec<_> = all[5].1.iter().flat_map(|when| when.keys()).collect();
    assert_eq!(conditions, ["flash.timing", "nand.enabled"], "those of its part, and its own");
}

#[test]
fn the_default_is_what_is_declared_or_the_least() {
    let flat = Flat { latency_ns: 0, share: 0.5 };
    let expected =
        Flash { channels: 1, named: Timing::Flat, enabled: true, rings: vec![3, 3], flat, own: None };
    assert_eq!(default_of::<Flash>(), expected);
    assert_eq!(Flash::default(), expected);
}

#[test]
fn an_image_has_the_keys_that_are_declared_for_it() {
    let keys = image_keys(&default_of::<Flash>());
    assert_eq!(keys, [("flash.channels", "1".to_owned()), ("flash.flat.share", "0.5".to_owned())]);
}

#[test]
fn a_condition_holds_for_words_rows_and_what_is_on() {
    let timing = &settings(Flash::ENTRIES)[1].0.rule;
    let nand = &settings(Flash::ENTRIES)[2].0.rule;
    let rules = |key: &str| match key {
        "flash.timing" => Some(timing),
        "nand.enabled" => Some(nand),
        _ => None,
    };
    let values = json!({"flash": {"timing": "round-robin"}, "nand": {"enabled": false}, "gc": {"low": 0}});
    let why = |when: When| when.fails("flash.share", &Values::new(&values), &rules);
    const SHARE: When = When::row("flash.timing", |word, key| word == "flat" && key == "flash.share");
    let share = "flash.timing=round-robin does not look at it; flash.timing=flat does";
    assert_eq!(why(SHARE).as_deref(), Some(share));
    assert_eq!(why(When::one_of("flash.timing", &["flat"])).as_deref(), Some(share));
    assert_eq!(why(When::one_of("flash.timing", &["flat", "round-robin"])), None);
    let nand = "nand.enabled=false does not look at it; nand.enabled=true does";
    assert_eq!(why(When::on("nand.enabled")).as_deref(), Some(nand));
    assert_eq!(why(When::off("nand.enabled")), None);
    assert_eq!(why(When::on("gc.low")).as_deref(), Some("gc.low=0 does not look at it; gc.low above 0 does"));
    const EITHER: [When; 2] = [SHARE, When::off("gc.low")];
    assert_eq!(why(When::Any(&EITHER)), None, "one of both");
    let both = "flash.timing=round-robin and nand.enabled=false does not look at it; \
                flash.timing=flat or nand.enabled=true does";
    const NEITHER: [When; 2] = [SHARE, When::on("nand.enabled")];
    assert_eq!(why(When::Any(&NEITHER)).as_deref(), Some(both));
}
