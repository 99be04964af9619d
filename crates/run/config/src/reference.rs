//! The reference page of all settings, `docs/settings.md`, from their declarations.

use std::fmt::Write;

use kvdrive_declare::Setting;

use super::{Document, PROFILES, rules};

const HEAD: &str = "\
# Settings

Every key of a configuration, from its declaration in the source: `kvdrive config --reference` writes this page. A key is set with
`--set KEY=VALUE`, in a file (`--config FILE`) or by its option; integers take units (`600us`, `16KiB`, `100k/s`, `1M`). The default is
that of profile";

/// The page, as Markdown.
pub fn reference() -> String {
    let profile = PROFILES[0].name;
    let document = Document::profile(profile).expect("the first profile is there (tested)");
    let mut page = format!("{HEAD} `{profile}`; `kvdrive config` shows each value with its source.\n");
    let mut section = "";
    for setting in rules::all() {
        let (of, _) = setting.key.rsplit_once('.').expect("a key has a section");
        if of != section && !page.contains(&format!("\n## {of}\n")) {
            write!(
                page,
                "\n## {of}\n\n| key | unit | allowed | default | what it is |\n|---|---|---|---|---|\n"
            )
            .expect("text takes all");
        }
        section = of;
        page = with_row(page, of, &row(setting, &document));
    }
    page
}

/// The page with a row at the end of its section: a crate may declare keys in the section of another one.
fn with_row(mut page: String, section: &str, row: &str) -> String {
    let begin = page.find(&format!("\n## {section}\n")).expect("the section was begun");
    let end = page[begin + 1..].find("\n\n## ").map_or(page.len(), |at| begin + 1 + at + 1);
    page.insert_str(end, row);
    page
}

fn row(setting: &Setting, document: &Document) -> String {
    let Setting { key, rule, unit, help, option, .. } = setting;
    let default = document.plain(key).unwrap_or_default();
    let option = option.map_or_else(String::new, |option| format!(" Option `--{option}`."));
    let conditions: Vec<_> = rules::conditions(key)
        .iter()
        .map(|condition| condition.in_words(key, &rules::rule))
        // Half of the table of workloads would be less clear than the comment.
        .filter(|condition| !condition.is_empty() && condition.len() < 100)
        .map(|condition| format!("`{condition}`"))
        .collect();
    let conditions = match conditions.is_empty() {
        true => String::new(),
        false => format!(" Applies when {}.", conditions.join(" and ")),
    };
    let what = format!("{}{option}{conditions}", plain(help)).replace('|', "\\|");
    let allowed = rule.allowed().replace('|', "\\|");
    format!("| `{key}` | {} | {allowed} | {default} | {what} |\n", unit.name())
}

/// A comment without the brackets of its links.
fn plain(help: &str) -> String {
    help.replace("[`", "`").replace("`]", "`")
}
