//! Published claims as data, and whether they are reproduced here.
//!
//! A claim is a row of a TOML file of `files/`: its place in the source, its statement, its runs, how its
//! number is computed from their reports, and how the number has to compare with the published one. Runs are
//! named by their place in a figure, so that a claim and its figure share them.
//!
//! The verdict is always computed. The *expected* verdict is in the file: some claims cannot be reproduced
//! from what their papers say, and contain the reason and our value. A claim [regresses](Outcome::regressed)
//! when its verdict, or our value of it, differs from the expected one.
//!
//! ```toml
//! [[claim]]
//! id = "traffic-32"
//! source = "Fig. 8"
//! title = "Piggyback saves traffic, 4 to 32 B"
//! statement = "Inside the command, values of 4 to 32 B take 97.9 % less traffic than by PRP."
//! kind = "counted"
//! runs = { base = "bandslim-8 / Baseline / *", piggy = "bandslim-8 / Piggyback / *" }
//! each = ["4", "8", "16", "32"]                               # in place of the stars, one after the other
//! quantity = "traffic.payload_bytes.total / ops.store"        # of each run
//! value = "1 - piggy / base"                                  # of the claim
//! show = "percent"
//! published = 0.979
//! relation = "="
//! tolerance = 0.0005
//! ours = 0.97897                                              # what we get; a drift from it is a regression
//! drift = 0.00001
//! ```
//!
//! `published = [0.17, 0.25]` without a relation is a range of the source, both ends included.
//!
//! `standing = "set"` says that a constant or a switch was chosen by this claim, if its kind does not say so.
//!
//! `order = ["piggy < base"]` in place of `value` and its keys either holds or does not; the distance of its
//! sides is shown. `reading` and `because` contain numbers of the run between braces ([`prose`]); `also`
//! names quantities for them that the test does not use. A name that begins with `full.` is the same number at the
//! published size, if a script has computed it ([`full_size`]). With `seeds = [2, 3]` the claim is also run with
//! these seeds: its verdict is that of the mean, and its spread is shown. `emulator = "PROFILE"` is for
//! claims about times whose source was measured on an emulator that leaves costs out: a claim that fails here
//! and is reproduced with that profile gets a verdict of its own.
//!
//! A quick run leaves a claim open ([`Verdict::NeedsMore`]) if its verdict with so few operations is not the
//! expected one, or if its runs need more operations than a quick suite has ([`plan_suite`]); a quick run has no further
//! seeds and no other conditions.

mod claim;
mod full_size;
mod judge;
pub mod mutants;
mod names;
mod parse;
mod plan;
mod points;
mod prose;
mod show;
mod standing;
mod table;

use kvdrive_text::names::meant;

pub use claim::{Claim, Expected, Relation, Suite, Test};
pub use judge::{Compared, OtherCondition, Outcome, Verdict};
pub use names::Name;
pub use parse::parse;
pub use plan::{Planned, QUICK_OPERATIONS, plan_suite};
pub use points::AtPoint;
pub use show::Show;
pub use standing::Standing;
pub use table::{counts, text};

/// The embedded files with their names.
pub static FILES: &[(&str, &str)] = &[
    ("anykey.toml", include_str!("../files/anykey.toml")),
    ("bandslim.toml", include_str!("../files/bandslim.toml")),
    ("bandslim-cxl.toml", include_str!("../files/bandslim-cxl.toml")),
    ("kvcache.toml", include_str!("../files/kvcache.toml")),
    ("pink.toml", include_str!("../files/pink.toml")),
    ("plus.toml", include_str!("../files/plus.toml")),
    ("plus2.toml", include_str!("../files/plus2.toml")),
    ("pm983.toml", include_str!("../files/pm983.toml")),
    ("saker.toml", include_str!("../files/saker.toml")),
];

/// Names of all suites.
///
/// # Errors
/// An embedded file is wrong (a test reads them all).
pub fn suite_names() -> anyhow::Result<Vec<String>> {
    Ok(names(&parsed()?))
}

/// Every embedded file.
fn parsed() -> anyhow::Result<Vec<Suite>> {
    FILES.iter().map(|(file, text)| parse(file, text)).collect()
}

/// Names of the suites that these are parts of, each once.
fn names(files: &[Suite]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for suite in files {
        if !names.contains(&suite.name) {
            names.push(suite.name.clone());
        }
    }
    names
}

/// The suite of that name, from every embedded file that belongs to it.
///
/// # Errors
/// There is no such suite, or an embedded file is wrong (a test reads them all).
pub fn suite(name: &str) -> anyhow::Result<Suite> {
    let mut files = parsed()?;
    let names = names(&files);
    files.retain(|suite| suite.name == name);
    let mut files = files.into_iter();
    let Some(mut suite) = files.next() else {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        anyhow::bail!(
            "{name}: no such suite of claims; there are {}{}",
            names.join(", "),
            meant(name, &names)
        )
    };
    for more in files {
        suite.titles.extend(more.titles);
        suite.notes.extend(more.notes);
        suite.claims.extend(more.claims);
    }
    Ok(suite)
}
