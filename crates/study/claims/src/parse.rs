//! Parses a file of `files/` into a [`Suite`]; each error is reported in one line.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail, ensure};
use serde::Deserialize;

use super::claim::{Claim, Condition, Expected, Relation, Source, Suite, Test};
use super::full_size;
use super::prose::Prose;
use super::show::Show;
use super::standing::Standing;
use kvdrive_config::Document;
use kvdrive_experiments::expression::{Expression, Order};
use kvdrive_experiments::runs::{Asked, Counts};
use kvdrive_experiments::{Kind, PlacedRun, RunPlace, assignments, check_needs, from_toml};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSuite {
    suite: String,
    title: String,
    #[serde(default)]
    notes: Vec<String>,
    claim: Vec<RawClaim>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClaim {
    id: String,
    source: String,
    title: String,
    statement: String,
    kind: Kind,
    /// The standing of the verdict, if it does not follow from kind and source: a switch was chosen for this
    /// count.
    standing: Option<Standing>,
    runs: BTreeMap<String, RawRun>,
    #[serde(default)]
    each: Vec<String>,
    quantity: Quantity,
    /// Quantities that only texts name.
    #[serde(default)]
    also: BTreeMap<String, String>,
    value: Option<String>,
    #[serde(default)]
    show: Show,
    published: Option<Published>,
    relation: Option<Relation>,
    tolerance: Option<f64>,
    #[serde(default)]
    order: Vec<String>,
    #[serde(default)]
    reading: String,
    #[serde(default)]
    expect: Expect,
    #[serde(default)]
    because: String,
    ours: Option<OneOrMany>,
    drift: Option<f64>,
    #[serde(default)]
    seeds: Vec<u64>,
    /// Profile that charges the same work as the source's own emulator.
    emulator: Option<String>,
    #[serde(default)]
    beside: Vec<RawBeside>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawRun {
    Place(String),
    On(RawOn),
    Own(RawOwn),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOn {
    place: String,
    set: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOwn {
    profile: String,
    ops: u64,
    full_ops: u64,
    set: Vec<String>,
    #[serde(default)]
    needs: Vec<String>,
}

/// One quantity, or several by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity {
    One(String),
    Many(BTreeMap<String, String>),
}

/// A number, or a range from one to another.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Published {
    One(f64),
    Range(f64, f64),
}

#[derive(Default, Deserialize)]
enum Expect {
    #[default]
    #[serde(rename = "holds")]
    Holds,
    #[serde(rename = "not reproduced")]
    NotReproduced,
    #[serde(rename = "emulator's accounting")]
    Emulated,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(f64),
    Many(Vec<f64>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBeside {
    name: String,
    profile: Option<String>,
    #[serde(default)]
    set: Vec<String>,
}

/// Parses one file; `name` is the file's, for messages.
///
/// # Errors
/// One line: the text is not TOML, or a key is unknown, missing or contradictory.
pub fn parse(name: &str, text: &str) -> anyhow::Result<Suite> {
    let raw: RawSuite = from_toml(name, text)?;
    let mut claims: Vec<Claim> = Vec::new();
    for claim in raw.claim {
        let id = claim.id.clone();
        ensure!(claims.iter().all(|known| known.id != id), "{name}: claim {id} twice");
        claims.push(claim.check().map_err(|problem| anyhow!("{name}: claim {id}: {problem}"))?);
    }
    Ok(Suite { name: raw.suite, titles: vec![raw.title], notes: raw.notes, claims })
}

const EITHER: &str = "expected either value, published and relation, or order";

impl RawClaim {
    fn check(self) -> anyhow::Result<Claim> {
        let expression = |text: &String| Expression::parse(text).map_err(anyhow::Error::msg);
        let named = |many: &BTreeMap<String, String>| {
            let one = |(name, text): (&String, &String)| Ok((name.clone(), expression(text)?));
            many.iter().map(one).collect::<anyhow::Result<Vec<_>>>()
        };
        let mut quantities = match &self.quantity {
            Quantity::One(text) => vec![(String::new(), expression(text)?)],
            Quantity::Many(many) => named(many)?,
        };
        let test = self.test()?;
        let expected = self.expected(&test)?;
        let check = |what: &[&str], quantities: &[(String, Expression)]| {
            let names = names(self.runs.keys(), quantities);
            let unknown = what.iter().find(|name| !names.iter().any(|known| known == *name));
            match unknown {
                Some(name) => bail!("no run {name}; there are {}", names.join(", ")),
                None => Ok(()),
            }
        };
        check(&test.names(), &quantities)?;
        quantities.extend(named(&self.also)?);
        let prose = |what: &str, text: &str| {
            let prose = Prose::parse(text).map_err(|problem| anyhow!("{what}: {problem}"))?;
            let own = |name| full_size::own_name(name).unwrap_or(name);
            let names: Vec<&str> = prose.names().into_iter().map(own).collect();
            check(&names, &quantities).map_err(|problem| anyhow!("{what}: {problem}"))?;
            let mut points = prose.points().into_iter();
            match points.find(|point| !self.each.iter().any(|known| known == point)) {
                Some(point) => bail!("{what}: no point {point}; each has {}", self.each.join(", ")),
                None => Ok(prose),
            }
        };
        let (reading, because) = (prose("reading", &self.reading)?, prose("because", &self.because)?);
        ensure!(
            self.kind != Kind::Modelled,
            "kind: modelled is for figures; say modelled-fit, -set or -check"
        );
        let runs = self.runs.into_iter().map(|(name, run)| Ok((name, run.check()?)));
        let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
        let open =
            runs.iter().any(|(_, source)| matches!(source, Source::Place(place, _) if place.is_open()));
        ensure!(open != self.each.is_empty(), "each and runs that end in * belong together");
        let beside = self.beside.into_iter().map(RawBeside::check);
        let emulator = self.emulator.map(|profile| {
            ensure!(self.kind != Kind::Counted, "emulator: a count has no accounting of time");
            Document::profile(&profile).map_err(|problem| anyhow!("emulator: {problem}"))?;
            let name = format!("the accounting of the source's emulator ({profile})");
            Ok(Condition { name, profile: Some(profile), set: Vec::new() })
        });
        let emulator = emulator.transpose()?;
        Ok(Claim {
            standing: self.standing.unwrap_or_else(|| Standing::of(self.kind, &self.source)),
            beside: beside.collect::<anyhow::Result<_>>()?,
            id: self.id,
            source: self.source,
            title: self.title,
            statement: self.statement,
            kind: self.kind,
            test,
            reading,
            because,
            emulator,
            seeds: self.seeds.iter().map(|seed| Condition::seed(*seed)).collect(),
            expected,
            runs,
            each: self.each,
            quantities,
        })
    }

    fn test(&self) -> anyhow::Result<Test> {
        match (&self.value, self.published, self.relation, self.tolerance, self.order.is_empty()) {
            (Some(value), Some(published), relation, tolerance, true) => {
                let (published, relation) = match (published, relation) {
                    (Published::One(number), Some(relation)) => (number, relation),
                    (Published::Range(least, most), None) if least < most => (least, Relation::UpTo(most)),
                    (Published::Range(..), None) => bail!("published: a range ends above its start"),
                    (Published::Range(..), Some(_)) => bail!("a published range has no relation"),
                    (Published::One(_), None) => bail!("{EITHER}"),
                };
                let is_near = matches!(relation, Relation::Equal | Relation::About);
                ensure!(!is_near || tolerance.is_some(), "relation = or ~ without a tolerance");
                let value = Expression::parse(value).map_err(anyhow::Error::msg)?;
                Ok(Test::Value {
                    value,
                    show: self.show,
                    published,
                    relation,
                    tolerance: tolerance.unwrap_or(0.0),
                })
            }
            (None, None, None, None, false) => {
                let order = self.order.iter().map(|text| Order::parse(text).map_err(anyhow::Error::msg));
                Ok(Test::Order(order.collect::<anyhow::Result<_>>()?))
            }
            _ => bail!("{EITHER}"),
        }
    }

    fn expected(&self, test: &Test) -> anyhow::Result<Expected> {
        let holds = matches!(self.expect, Expect::Holds);
        let is_emulated = matches!(self.expect, Expect::Emulated);
        let ours = match &self.ours {
            None => Vec::new(),
            Some(OneOrMany::One(value)) => vec![*value; self.each.len().max(1)],
            Some(OneOrMany::Many(values)) => values.clone(),
        };
        ensure!(holds || !self.because.is_empty(), "not reproduced needs because");
        ensure!(holds || !ours.is_empty() || matches!(test, Test::Order(_)), "not reproduced needs ours");
        ensure!(
            ours.is_empty() || ours.len() == self.each.len().max(1),
            "ours: as many values as each has points"
        );
        ensure!(ours.is_empty() != self.drift.is_some(), "ours and drift belong together");
        Ok(Expected { holds, is_emulated, ours, drift: self.drift.unwrap_or(0.0) })
    }
}

/// Names that expressions of a claim may use: `run` with one quantity, `run.quantity` with several.
fn names<'a>(runs: impl Iterator<Item = &'a String>, quantities: &[(String, Expression)]) -> Vec<String> {
    runs.flat_map(|run| {
        quantities.iter().map(move |(quantity, _)| match quantity.as_str() {
            "" => run.clone(),
            quantity => format!("{run}.{quantity}"),
        })
    })
    .collect()
}

impl Test {
    fn names(&self) -> Vec<&str> {
        match self {
            Test::Value { value, .. } => value.names(),
            Test::Order(orders) => orders.iter().flat_map(Order::names).collect(),
        }
    }
}

impl RawBeside {
    fn check(self) -> anyhow::Result<Condition> {
        let RawBeside { name, profile, set } = self;
        let checked = || {
            ensure!(profile.is_some() || !set.is_empty(), "expected a profile, or settings");
            profile.as_deref().map(Document::profile).transpose()?;
            assignments(&set)
        };
        let set = checked().map_err(|problem| anyhow!("beside \"{name}\": {problem}"))?;
        Ok(Condition { name, profile, set })
    }
}

impl RawRun {
    fn check(self) -> anyhow::Result<Source> {
        Ok(match self {
            RawRun::Place(place) => Source::Place(RunPlace::parse(&place)?, Vec::new()),
            RawRun::On(RawOn { place, set }) => Source::Place(RunPlace::parse(&place)?, assignments(&set)?),
            RawRun::Own(RawOwn { profile, ops, full_ops, set, needs }) => {
                check_needs(&needs)?;
                let counts = Counts { usual: ops, full: full_ops };
                let asked = Asked { profile, counts, settings: assignments(&set)?, scale: None, own: vec![] };
                Source::Own(PlacedRun { session: vec![asked], place: 0, needs })
            }
        })
    }
}
