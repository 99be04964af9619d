//! A setting that only tests use. It shows that a new setting takes one field and one line of a profile.

use kvdrive_declare::{Section, Values, image_keys, read};

use super::{Assigned, Config, Document, reference, rules};

/// The line of the profile.
pub(super) const PROFILE: &str = "\n[probe]\n# [choice] How far it reaches.\nreach_bytes = 4096\n";

/// The declaration.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("probe")]
pub struct Probe {
    /// How far it reaches.
    #[setting(is = Integer(1, 1 << 20), option = "reach", image, shrinks, when = &[When::on("gc.enabled")])]
    pub reach_bytes: u32,
}

fn document() -> Document {
    Document::profile("cosmos-plus").unwrap()
}

#[test]
fn a_new_setting_is_a_field_and_a_line_of_a_profile() {
    let mut document = document();
    assert_eq!(document.config().unwrap().probe.reach_bytes, 4096, "read from the profile");
    document.set("probe.reach_bytes=8KiB").unwrap();
    let config = document.config().unwrap();
    assert_eq!(config.probe.reach_bytes, 8192, "set with a unit");
    assert_eq!(document.user_settings(), [("probe.reach_bytes".to_owned(), "8192".to_owned())]);
    assert!(document.to_string().contains("reach_bytes = 8192 # [user] instead of 4096"));
    assert_eq!(Config::of_values(&config.values()).unwrap(), config, "written and read");
    let values = config.values();
    assert_eq!(read::<Probe>(&Values::new(&values)).unwrap(), config.probe);

    let error = |set: &str| self::document().set(set).unwrap_err().to_string();
    assert_eq!(error("probe.reach_bytes=0"), "probe.reach_bytes: 0; allowed: 1 to 1048576");
    assert_eq!(error("probe.reach_byte=1"), "probe.reach_byte: unknown key; did you mean probe.reach_bytes?");

    assert_eq!(config.ignores("probe.reach_bytes"), None);
    document.set("gc.enabled=false").unwrap();
    let why = "gc.enabled=false does not look at it; gc.enabled=true does";
    assert_eq!(document.config().unwrap().ignores("probe.reach_bytes").as_deref(), Some(why));
    let asked = [("--reach 1".to_owned(), "probe.reach_bytes=1".to_owned())];
    let asked = Assigned::lay_over(&mut document, asked).unwrap();
    let refused = asked.check_looked_at([&document.config().unwrap()]).unwrap_err();
    assert_eq!(refused.to_string(), format!("--reach 1: {why}"));

    assert_eq!(image_keys(&config.probe), [("probe.reach_bytes", "8192".to_owned())]);
    assert!(rules::setting("probe.reach_bytes").is_some_and(|setting| setting.shrinks));
    let row = "| `probe.reach_bytes` | B | 1 to 1048576 | 4096 | How far it reaches. Option `--reach`. \
               Applies when `gc.enabled=true`. |";
    assert!(reference().contains(row), "{}", reference());
}
