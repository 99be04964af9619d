//! Verdicts: computed, held against what is expected, and wrong files said in one line.

use kvdrive_lab::claims::{self, Outcome, Planned, Verdict, parse};
use kvdrive_lab::config::Document;
use kvdrive_lab::experiments::figures;
use kvdrive_lab::experiments::runs::{Options, Plan};
use kvdrive_lab::report::{Latency, Named, Ops, Report};

const HEAD: &str = "suite = \"s\"\ntitle = \"t\"\n";

/// A claim about the response times below: 10 us piggybacked, 20 us by PRP.
fn claim(rest: &str) -> String {
    format!(
        "{HEAD}[[claim]]\nid = \"c\"\nsource = \"Fig. 1\"\ntitle = \"t\"\nstatement = \"s\"\nkind = \"modelled-check\"\n\
         quantity = \"latency_ns.store.mean\"\n{rest}"
    )
}

const RUNS: &str = "runs = { base = \"bandslim-8 / Baseline / *\", piggy = \"bandslim-8 / Piggyback / *\" }\neach = [\"4\", \"8\"]\n";
const RATIO: &str = "value = \"piggy / base\"\nshow = \"times\"\nrelation = \"=\"\ntolerance = 0.01\n";

fn made_up(document: &Document) -> Report {
    let config = document.config().unwrap();
    let mean = match (config.host.transfer.method.as_str(), config.workload.value_size) {
        ("piggyback", 8) => 11_000.0,
        ("piggyback", _) => 10_000.0,
        _ => 20_000.0,
    };
    Report {
        ops: Ops { store: 1, ..Ops::default() },
        latency_ns: Named::from_iter([("store", Latency { mean, ..Latency::default() })]),
        ..Report::default()
    }
}

fn judge_with(text: &str, options: Options) -> Outcome {
    let figures = figures().unwrap();
    let mut plan = Plan::new(options.clone());
    let claim = parse("c.toml", text).unwrap().claims.remove(0);
    let planned = Planned::new(claim, &figures, &mut plan, &options).unwrap();
    let results = plan.run(|documents, _| Ok(documents.iter().map(made_up).collect())).unwrap();
    planned.judge(&results).unwrap()
}

fn judge(rest: &str) -> Outcome {
    judge_with(&claim(rest), Options::default())
}

#[test]
fn a_number_must_be_right_at_every_point() {
    let near = judge(
        &format!("{RUNS}{RATIO}published = 0.525\ntolerance2 = 0")
            .replace("tolerance2 = 0", "")
            .replace("0.01", "0.03"),
    );
    assert_eq!((near.verdict, near.regressed), (Verdict::Reproduced, None));
    assert_eq!((near.values, near.ours.as_str()), (vec![0.5, 0.55], "0.500 .. 0.550 x"));
    let half = judge(&format!("{RUNS}{RATIO}published = 0.5\n"));
    assert_eq!(half.verdict, Verdict::NotReproduced);
    assert_eq!(half.regressed.as_deref(), Some("not reproduced; this came true before"));
}

#[test]
fn relations() {
    let verdict = |relation: &str, published: f64, tolerance: f64| {
        let text = format!(
            "{RUNS}value = \"piggy / base\"\nrelation = \"{relation}\"\npublished = {published:?}\ntolerance = {tolerance:?}\n"
        );
        judge(&text).verdict == Verdict::Reproduced
    };
    assert!(verdict("<=", 0.55, 0.0) && !verdict("<=", 0.52, 0.0) && verdict("<=", 0.52, 0.03));
    assert!(verdict(">=", 0.5, 0.0) && !verdict(">=", 0.52, 0.0));
    assert!(verdict("~", 0.525, 0.05) && !verdict("~", 0.525, 0.04));
}

#[test]
fn orders_hold_or_not() {
    let holds = judge(&format!("{RUNS}order = [\"piggy < base\", \"base < 3 * piggy\"]\n"));
    assert_eq!(
        (holds.verdict, holds.ours.as_str(), holds.published.as_str()),
        (Verdict::Holds, "at 2 of 2", "order")
    );
    let not = judge(&format!("{RUNS}order = [\"2 * piggy <= base\"]\n"));
    assert_eq!((not.verdict, not.ours.as_str()), (Verdict::NotReproduced, "at 1 of 2"));
}

#[test]
fn expected_failures_are_no_regressions_but_surprises_are() {
    let rest = format!(
        "{RUNS}{RATIO}published = 0.9\nexpect = \"not reproduced\"\nbecause = \"so\"\ndrift = 0.001\n"
    );
    let as_before = judge(&format!("{rest}ours = [0.5, 0.55]\n"));
    assert_eq!((as_before.verdict, as_before.regressed), (Verdict::NotReproduced, None));
    let moved = judge(&format!("{rest}ours = [0.5, 0.54]\n"));
    assert_eq!(moved.regressed.as_deref(), Some("0.550 x; this was 0.540 x before"));
    let other = Options { set: vec!["run.seed=2".into()], ..Options::default() };
    assert_eq!(judge_with(&claim(&format!("{rest}ours = [0.5, 0.54]\n")), other).regressed, None);
    let true_now = judge(
        &format!("{rest}ours = 0.5\n")
            .replace("published = 0.9", "published = 0.525")
            .replace("0.01", "0.03"),
    );
    assert_eq!(true_now.regressed.as_deref(), Some("reproduced; this was not reproduced before"));
    let table = claims::text(&[true_now]);
    assert!(table.contains("REGRESSED") && table.contains("1 REGRESSED"), "{table}");
}

#[test]
fn what_a_build_lacks_is_skipped() {
    let runs = "runs = { a = { profile = \"cosmos-plus\", ops = 1, full_ops = 1, set = [\"host.transfer=pigeon\"], needs = [\"transfer:pigeon\"] } }\n";
    let outcome = judge(&format!("{runs}order = [\"a > 0\"]\n"));
    assert_eq!(outcome.verdict, Verdict::Skipped("transfer:pigeon".into()));
    assert_eq!(outcome.regressed, None);
    assert!(claims::text(&[outcome]).contains("this build lacks transfer:pigeon"));
}

#[test]
fn other_conditions_stand_beside() {
    let beside = "beside = [{ name = \"another size\", set = [\"workload.value_size=16\"] }]\n";
    let outcome =
        judge(&format!("{RUNS}value = \"piggy / base\"\nrelation = \">=\"\npublished = 0.4\n{beside}"));
    assert_eq!(outcome.ours, "0.50 .. 0.55");
    assert_eq!(outcome.beside[0].ours, "0.50");
}

#[test]
fn what_is_set_for_all_runs_is_no_condition() {
    let beside = "beside = [{ name = \"seed 2\", set = [\"run.seed=2\"] }, { name = \"seed 3\", set = [\"run.seed=3\"] }, \
         { name = \"another size\", set = [\"workload.value_size=16\"] }]\n";
    let text =
        claim(&format!("{RUNS}value = \"piggy / base\"\nrelation = \">=\"\npublished = 0.4\n{beside}"));
    let outcome = judge_with(&text, Options { set: vec!["run.seed=9".into()], ..Options::default() });
    let names: Vec<_> = outcome.beside.iter().map(|beside| beside.name.as_str()).collect();
    assert_eq!(names, ["another size"]);
}

#[test]
fn another_profile_stands_beside() {
    let beside = "beside = [{ name = \"another drive\", profile = \"gen5-cxl\" }]\n";
    let claim = claim(&format!("{RUNS}order = [\"piggy < base\"]\n{beside}"));
    let claim = parse("c.toml", &claim).unwrap().claims.remove(0);
    let mut plan = Plan::new(Options::default());
    Planned::new(claim, &figures().unwrap(), &mut plan, &Options::default()).unwrap();
    let profiles: Vec<_> = plan.documents().iter().map(|document| document.profile_name()).collect();
    assert_eq!(profiles, ["cosmos-plus"; 4].into_iter().chain(["gen5-cxl"; 4]).collect::<Vec<_>>());
    let on_top = |document: &Document| document.config().unwrap().host.transfer;
    let (own, beside) = plan.documents().split_at(4);
    assert!(own.iter().map(on_top).eq(beside.iter().map(on_top)), "the run's own settings stay on top");
}

#[test]
fn a_wrong_claim_is_one_line() {
    let wrong = |rest: &str| {
        let error = parse("c.toml", &claim(rest)).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert!(
        wrong(&format!("{RUNS}order = [\"piggy < bass\"]\n"))
            .contains("claim c: no run bass; there are base, piggy")
    );
    assert!(wrong(&format!("{RUNS}order = [\"piggy\"]\n")).contains("compares nothing"));
    assert!(wrong(RUNS).contains("either value, published and relation, or order"));
    assert!(
        wrong(&format!("{RUNS}{RATIO}published = 1.0\norder = [\"piggy < base\"]\n")).contains("or order")
    );
    assert!(
        wrong(&format!("{RUNS}{RATIO}published = 1.0\nexpect = \"not reproduced\"\n"))
            .contains("needs because")
    );
    assert!(
        wrong(&format!("{RUNS}{RATIO}published = 1.0\nours = [0.5]\ndrift = 0.1\n"))
            .contains("as many values")
    );
    assert!(wrong(&format!("{RUNS}{RATIO}published = 1.0\nours = 0.5\n")).contains("drift belong together"));
    assert!(
        wrong("runs = { a = \"bandslim-8 / Baseline / *\" }\norder = [\"a > 0\"]\n")
            .contains("belong together")
    );
    assert!(wrong("runs = { a = \"bandslim-8\" }\norder = [\"a > 0\"]\n").contains("expected FIGURE"));
    let beside = |beside: &str| wrong(&format!("{RUNS}order = [\"piggy < base\"]\nbeside = [{beside}]\n"));
    let unknown = beside("{ name = \"other\", profile = \"kvvirtual\" }");
    let begins = "c.toml: claim c: beside \"other\": kvvirtual: no such profile; there are cosmos-plus, ";
    assert!(unknown.starts_with(begins), "{unknown}");
    assert!(beside("{ name = \"other\" }").ends_with("beside \"other\": expected a profile, or settings"));
    let twice = claim("runs = { a = \"bandslim-8 / Baseline / 4\" }\norder = [\"a > 0\"]\n");
    let twice = format!("{twice}{}", twice.strip_prefix(HEAD).unwrap());
    assert_eq!(parse("c.toml", &twice).unwrap_err().to_string(), "c.toml: claim c twice");
}
