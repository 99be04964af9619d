//! Verdicts: computed, and compared with the expected ones; and errors of files, each reported in one line.

use kvdrive_claims::{self as claims, Outcome, Planned, Standing, Verdict, mutants, parse};
use kvdrive_config::Document;
use kvdrive_declare::{Counters, Sections};
use kvdrive_experiments::figures;
use kvdrive_experiments::runs::{Extent, Options, Results, StudyPlan};
use kvdrive_link::Meter;
use kvdrive_run::report::{Latency, Named, Ops, Report};

const HEAD: &str = "suite = \"s\"\ntitle = \"t\"\n";

fn results_of(plan: StudyPlan, report: impl Fn(&Document) -> Report) -> Results {
    plan.run(|runs| Ok(runs.documents().iter().map(|of| Some(report(of))).collect())).unwrap()
}

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
        counts: Sections::default().with("traffic", Meter::default().counts()),
        ..Report::default()
    }
}

fn judge_with(text: &str, options: Options) -> Outcome {
    let figures = figures().unwrap();
    let mut plan = StudyPlan::new(options.clone());
    let claim = parse("c.toml", text).unwrap().claims.remove(0);
    let planned = Planned::new(claim, &figures, &mut plan, &options).unwrap();
    let results = results_of(plan, made_up);
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
    assert_eq!(half.regressed.as_deref(), Some("not reproduced; this held before"));
}

/// A range does not say which point has which value, nor which of them fails.
#[test]
fn every_point_has_its_value_below_the_table() {
    let below = |outcome: &Outcome| claims::text(std::slice::from_ref(outcome), false, usize::MAX);
    let half = judge(&format!("{RUNS}{RATIO}published = 0.5\n"));
    assert!(below(&half).contains("t: by point, 4: 0.500 x, 8: 0.550 x (fails).\n"), "{}", below(&half));
    let json = serde_json::to_value(&half).unwrap();
    assert_eq!(json["at_points"][1], serde_json::json!({"point": "8", "ours": "0.550 x", "holds": false}));
    let rows: Vec<String> = below(&half).lines().take(3).map(str::to_owned).collect();
    assert!(rows[0].find("verdict") == rows[2].find("not reproduced"), "{rows:?}");

    let beside = "beside = [{ name = \"seed 2\", set = [\"run.seed=2\"] }]\n";
    let beside = judge(&format!("{RUNS}{RATIO}published = 0.5\n{beside}"));
    let line = "t: 0.500 .. 0.550 x with seed 2; 4: 0.500 x, 8: 0.550 x (fails).\n";
    assert!(below(&beside).contains(line), "{}", below(&beside));

    let order = judge(&format!("{RUNS}order = [\"2 * piggy <= base\"]\n"));
    assert!(below(&order).contains("t: by point, 4: equal, 8: by -9.1 % (fails).\n"), "{}", below(&order));

    let alike = format!("{RUNS}{RATIO}published = 20000.0\n").replace("piggy / base", "base");
    let of_one = "runs = { base = \"bandslim-8 / Baseline / 4\", piggy = \"bandslim-8 / Piggyback / 4\" }\n";
    for nothing_open in
        [alike, format!("{RUNS}order = [\"piggy < base\"]\n"), format!("{of_one}{RATIO}published = 0.9\n")]
    {
        let outcome = judge(&nothing_open);
        assert!(!below(&outcome).contains("by point"), "{}", below(&outcome));
    }
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
fn a_tolerance_is_given_in_the_unit_of_its_number() {
    let tolerance = |relation: &str, show: &str, tolerance: f64| {
        let text = format!(
            "{RUNS}value = \"piggy / base\"\nshow = \"{show}\"\nrelation = \"{relation}\"\npublished = 0.5\ntolerance = {tolerance:?}\n"
        );
        judge(&text).tolerance
    };
    assert_eq!(tolerance("~", "times", 0.1), "10 %", "relative");
    assert_eq!(tolerance("=", "times", 0.15), "0.15 x");
    assert_eq!(tolerance("=", "percent", 0.015), "1.5 points");
    assert_eq!(tolerance("<=", "plain", 0.25), "0.25");
    assert_eq!(tolerance(">=", "percent", 0.0), "");
    assert_eq!(judge(&format!("{RUNS}order = [\"piggy < base\"]\n")).tolerance, "");
}

#[test]
fn a_published_range_has_two_ends() {
    let of = |range: &str| {
        judge(&format!("{RUNS}value = \"piggy / base\"\nshow = \"times\"\npublished = {range}\n"))
    };
    assert_eq!(of("[0.5, 0.55]").verdict, Verdict::Reproduced, "both ends are in it");
    assert_eq!(of("[0.51, 0.6]").verdict, Verdict::NotReproduced);
    assert_eq!(of("[0.4, 0.54]").verdict, Verdict::NotReproduced);
    assert_eq!(of("[0.4, 0.54]\ntolerance = 0.01").verdict, Verdict::Reproduced);
    assert_eq!(
        (of("[0.4, 0.54]").published.as_str(), of("[0.4, 0.54]").published_value),
        ("0.4 to 0.54 x", Some(0.4))
    );
    let wrong = |rest: &str| {
        let text = claim(&format!("{RUNS}value = \"piggy / base\"\n{rest}\n"));
        parse("c.toml", &text).unwrap_err().to_string()
    };
    assert!(wrong("published = [0.6, 0.5]").ends_with("claim c: published: a range ends above its start"));
    assert!(
        wrong("published = [0.5, 0.6]\nrelation = \"<=\"").ends_with("a published range has no relation")
    );
    assert!(wrong("published = 0.5").contains("expected either value, published and relation"));
}

#[test]
fn orders_hold_or_not() {
    let holds = judge(&format!("{RUNS}order = [\"piggy < base\", \"base < 3 * piggy\"]\n"));
    assert_eq!(
        (&holds.verdict, holds.ours.as_str(), holds.published.as_str()),
        (&Verdict::Holds, "by 33.3 %", "order")
    );
    let tightest = holds.tightest().unwrap();
    assert_eq!(tightest.to_string(), "at 4, base = 20 000 < 3 * piggy = 30 000, by 33.3 %");
    assert_eq!(holds.comparisons.len(), 4, "two signs at two points");
    // A reader of a comparison has to find out what was compared.
    let names: Vec<_> = holds.names.iter().map(|name| format!("{}: {}", name.name, name.is)).collect();
    let expected = [
        "base: bandslim-8 / Baseline / *",
        "piggy: bandslim-8 / Piggyback / *",
        "each: latency_ns.store.mean",
    ];
    assert_eq!(names, expected);
    let json = serde_json::to_value(&holds).unwrap();
    assert_eq!(json["comparisons"][0]["at"], "4");
    assert_eq!(json["comparisons"][0]["left"], serde_json::json!(["piggy", 10_000.0]));
    assert_eq!((&json["comparisons"][0]["margin"], &json["standing"]), (&0.5.into(), &"evidence".into()));
    let holds = [holds];
    let table = claims::text(&holds, false, usize::MAX);
    assert!(table.contains("t: at 4, base = 20 000 < 3 * piggy = 30 000, by 33.3 %."), "{table}");
    let narrow = claims::text(&holds, false, 60);
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");

    let not = judge(&format!("{RUNS}order = [\"2 * piggy <= base\"]\n"));
    assert_eq!((not.verdict, not.ours.as_str()), (Verdict::NotReproduced, "at 1 of 2, by -9.1 %"));
}

#[test]
fn texts_have_the_numbers_of_the_run() {
    let also = "also = { stores = \"ops.store\" }\n";
    let text = "reading = \"{piggy / 1000 at 8 | 1} us of {base / 1000 | 0}\"\n";
    let not = "expect = \"not reproduced\"\ndrift = 1\nours = 0.5\nbecause = \"{base.stores | 0} store, {1 - piggy / base | 0 %}\"\n";
    let outcome = judge(&format!("{RUNS}{RATIO}published = 0.9\n{also}{text}{not}"));
    assert_eq!(outcome.reading, "11.0 us of 20");
    assert_eq!(outcome.because, "1 store, 45 to 50 %");
}

#[test]
fn the_tally_keeps_evidence_apart() {
    let of = |kind: &str, source: &str| {
        let text = claim(&format!("{RUNS}order = [\"piggy < base\"]\n")).replace("Fig. 1", source);
        judge_with(&text.replace("modelled-check", kind), Options::default())
    };
    let failed = judge(&format!("{RUNS}order = [\"piggy > base\"]\n"));
    let outcomes = [
        of("counted", "Fig. 1"),
        of("modelled-check", "Fig. 1"),
        of("modelled-fit", "Fig. 1"),
        of("modelled-set", "Fig. 1"),
        of("counted", "ours"),
        failed,
    ];
    assert_eq!(
        claims::counts(&outcomes),
        "6 claims; evidence: 2 of 3 hold (1 of 1 counted, 1 of 2 modelled); fit: 1 of 1 hold; \
         set: 1 of 1 hold; ours: 1 of 1 hold; 1 REGRESSED"
    );
    let (plain, painted) =
        (claims::text(&outcomes, false, usize::MAX), claims::text(&outcomes, true, usize::MAX));
    assert!(!plain.contains('\u{1b}'));
    let colours: Vec<&str> =
        painted.split("\u{1b}[").skip(1).map(|rest| rest.split('m').next().unwrap()).collect();
    let each = |index: usize| colours[2 * index];
    assert!(each(0) == each(1) && each(2) == each(3), "{colours:?}");
    assert!(each(0) != each(2) && each(2) != each(4) && each(0) != each(4), "{colours:?}");
}

#[test]
fn several_seeds_are_judged_by_their_mean() {
    let of_seed = |document: &Document| {
        let config = document.config().unwrap();
        let mut report = made_up(document);
        if config.host.transfer.method == "piggyback" {
            let mean = if config.workload.value_size == 8 { 11_000.0 } else { 10_000.0 };
            let mean = mean * config.run.seed as f64;
            report.latency_ns = Named::from_iter([("store", Latency { mean, ..Latency::default() })]);
        }
        report
    };
    let judge_of = |rest: &str| {
        let figures = figures().unwrap();
        let mut plan = StudyPlan::new(Options::default());
        let claim = parse("c.toml", &claim(rest)).unwrap().claims.remove(0);
        let planned = Planned::new(claim, &figures, &mut plan, &Options::default()).unwrap();
        let results = results_of(plan, of_seed);
        planned.judge(&results).unwrap()
    };
    let mean = judge_of(&format!("{RUNS}{RATIO}published = 1.05\nseeds = [2, 3]\n").replace("0.01", "0.06"));
    assert_eq!(mean.verdict, Verdict::Reproduced);
    assert!((mean.values[0] - 1.0).abs() < 1e-9 && (mean.values[1] - 1.1).abs() < 1e-9, "{:?}", mean.values);
    let table = claims::text(std::slice::from_ref(&mean), false, usize::MAX);
    assert!(table.contains("t: means by point, 4: 1.000 x, 8: 1.100 x.\n"), "{table}");
    assert!(mean.seeds.contains("0.500 .. 0.550 x, 1.000 .. 1.100 x, 1.500 .. 1.650 x"), "{}", mean.seeds);
    let order = judge_of(&format!("{RUNS}order = [\"piggy < base\"]\nseeds = [2]\n"));
    assert_eq!(order.verdict, Verdict::NotReproduced, "with seed 2 it is 20 to 20");
    assert!(order.tightest().unwrap().to_string().starts_with("at 8 run.seed = 2, "));
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
    let table = claims::text(&[true_now], false, usize::MAX);
    assert!(table.contains("REGRESSED") && table.contains("1 REGRESSED"), "{table}");
}

#[test]
fn a_count_that_a_switch_was_chosen_for_is_no_evidence() {
    let text = claim(&format!("{RUNS}order = [\"piggy < base\"]\n")).replace("modelled-check", "counted");
    let set = text.replace("kind = ", "standing = \"set\"\nkind = ");
    let [counted, set] = [text, set].map(|text| judge_with(&text, Options::default()).standing);
    assert_eq!((counted, set), (Standing::Evidence, Standing::Set));
    let stairs = claims::suite("bandslim").unwrap().claims;
    let stairs = stairs.iter().find(|claim| claim.id == "flash-pages-stairs").unwrap();
    assert_eq!(stairs.standing(), Standing::Set);
}

/// A quick suite has as many operations as two cores do in about a minute, and what it has no room for is open.
#[test]
fn a_quick_suite_leaves_out_the_claims_that_take_longest() {
    let options = Options { extent: Extent::Quick, ..Options::default() };
    let figures = figures().unwrap();
    for (name, leaves_out) in [("bandslim", false), ("plus", true)] {
        let suite = claims::suite(name).unwrap();
        let (mut plan, count) = (StudyPlan::new(options.clone()), suite.claims.len());
        let planned = claims::plan_suite(suite.claims, &figures, &mut plan, &options).unwrap();
        assert!(plan.operations() <= claims::QUICK_OPERATIONS, "{name}: {}", plan.operations());
        let left_out = planned.iter().filter(|claim| claim.is_left_out()).count();
        assert!((left_out > 0) == leaves_out && left_out < count / 2, "{name}: {left_out} of {count}");
        println!("{name}: {} operations, {left_out} of {count} claims are left out", plan.operations());
    }
}

#[test]
fn a_quick_run_leaves_open_what_comes_out_otherwise() {
    let quick = || Options { extent: Extent::Quick, ..Options::default() };
    let open = judge_with(&claim(&format!("{RUNS}{RATIO}published = 0.9\n")), quick());
    assert_eq!((&open.verdict, &open.regressed), (&Verdict::NeedsMore, &None));
    assert!(open.because.contains("the usual number"), "{}", open.because);
    let same = judge_with(&claim(&format!("{RUNS}order = [\"piggy < base\"]\nseeds = [2]\n")), quick());
    assert_eq!((&same.verdict, same.seeds.as_str()), (&Verdict::Holds, ""));
    assert_eq!(
        claims::counts(&[open, same]),
        "2 claims; evidence: 1 of 1 hold (0 of 0 counted, 1 of 1 modelled); 1 needs more operations; none regressed"
    );
    let failing = "expect = \"not reproduced\"\nbecause = \"so\"\nours = 0.7\ndrift = 0.001\n";
    let failing = judge_with(&claim(&format!("{RUNS}{RATIO}published = 0.9\n{failing}")), quick());
    assert_eq!((&failing.verdict, &failing.regressed), (&Verdict::NotReproduced, &None), "as expected");
}

#[test]
fn what_a_build_lacks_is_skipped() {
    let runs = "runs = { a = { profile = \"cosmos-plus\", ops = 1, full_ops = 1, set = [\"host.transfer=pigeon\"], needs = [\"transfer:pigeon\"] } }\n";
    let outcome = judge(&format!("{runs}order = [\"a > 0\"]\n"));
    assert_eq!(outcome.verdict, Verdict::Skipped("transfer:pigeon".into()));
    assert_eq!(outcome.regressed, None);
    assert!(claims::text(&[outcome], false, usize::MAX).contains("this build lacks transfer:pigeon"));
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
    let mut plan = StudyPlan::new(Options::default());
    Planned::new(claim, &figures().unwrap(), &mut plan, &Options::default()).unwrap();
    let profiles: Vec<_> = plan.runs().documents().iter().map(|document| document.profile_name()).collect();
    assert_eq!(profiles, ["cosmos-plus"; 4].into_iter().chain(["gen5-cxl"; 4]).collect::<Vec<_>>());
    let on_top = |document: &Document| document.config().unwrap().host.transfer.method;
    let (own, beside) = plan.runs().documents().split_at(4);
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
    let said = |what: &str| wrong(&format!("{RUNS}order = [\"piggy < base\"]\nreading = \"{what}\"\n"));
    assert!(said("{bass | 1}").ends_with("reading: no run bass; there are base, piggy"));
    assert!(said("{base at 5 | 1}").ends_with("reading: no point 5; each has 4, 8"));
    assert!(said("{base}").contains("reading: {base}: no | and decimals"));
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

#[test]
fn what_only_the_emulator_gives_is_a_verdict_of_its_own() {
    // The emulator's piggybacked stores take twice as long: 0.5 here, 1.0 there.
    let run = |document: &Document| {
        let mut report = made_up(document);
        if document.profile_name() == "gen5-cxl" {
            report.latency_ns =
                Named::from_iter([("store", Latency { mean: 20_000.0, ..Latency::default() })]);
        }
        report
    };
    let judge_of = |kind: &str, published: f64, expected: &str| {
        let runs =
            "runs = { base = \"bandslim-8 / Baseline / 4\", piggy = \"bandslim-8 / Piggyback / 4\" }\n";
        let expect = format!(
            "expect = \"{expected}\"\nbecause = \"so\"\nours = 0.5\ndrift = 0.001\nemulator = \"gen5-cxl\"\n"
        );
        let text = claim(&format!("{runs}{RATIO}published = {published:?}\n{expect}"));
        let text = text.replace("modelled-check", kind);
        let mut plan = StudyPlan::new(Options::default());
        let claim = parse("c.toml", &text).unwrap().claims.remove(0);
        let planned = Planned::new(claim, &figures().unwrap(), &mut plan, &Options::default()).unwrap();
        let results = results_of(plan, run);
        planned.judge(&results).unwrap()
    };
    let there = judge_of("modelled-check", 1.0, "emulator's accounting");
    assert_eq!((&there.verdict, &there.regressed), (&Verdict::Emulated, &None));
    assert_eq!((there.beside[0].ours.as_str(), there.ours.as_str()), ("1.000 x", "0.500 x"));
    assert!(
        claims::counts(&[there]).contains("0 of 1 hold (0 of 0 counted, 0 of 1 modelled), 1 more under the")
    );
    let surprise = judge_of("modelled-check", 1.0, "not reproduced");
    assert_eq!(surprise.regressed.as_deref(), Some("emulator's accounting; this was not reproduced before"));
    let lost = judge_of("modelled-check", 2.0, "emulator's accounting");
    assert_eq!(
        lost.regressed.as_deref(),
        Some("not reproduced; this held under the emulator's accounting before")
    );
}

/// Every mutant of a suite with the claims that could notice it, planned.
fn trials(suite: &str, plan: &mut StudyPlan) -> Vec<mutants::Trial> {
    let (suite, mutants) = (claims::suite(suite).unwrap(), mutants::mutants(suite).unwrap());
    mutants::plan(&suite, mutants, &figures().unwrap(), plan, &Options::default()).unwrap()
}

#[test]
fn every_mutant_is_in_runs_of_claims() {
    for (file, text) in mutants::FILES {
        let (suite, _) = mutants::parse(file, text).unwrap();
        let mut plan = StudyPlan::new(Options::default());
        for trial in trials(&suite, &mut plan) {
            assert!(trial.published() > 0, "{file}: {} is in no run of a published claim", trial.id());
        }
        plan.check().unwrap();
    }
}

#[test]
fn a_mutant_has_its_settings_under_the_name_of_another() {
    let head = "suite = \"bandslim\"\n[[mutant]]\nid = \"m\"\nwhat = \"w\"\n";
    let rows = "where = [\"host.transfer=piggyback\"]\nset = [\"host.transfer=prp\"]\n";
    let (_, mutants) = mutants::parse("m.toml", &format!("{head}{rows}")).unwrap();
    let order = claim(&format!("{RUNS}order = [\"piggy < base\"]\n"));
    let both = format!(
        "{order}{}",
        claim("runs = { base = \"bandslim-8 / Baseline / 4\" }\norder = [\"base > 0\"]\n")
            .replace("\"c\"", "\"d\"")
            .strip_prefix(HEAD)
            .unwrap()
    );
    let suite = parse("c.toml", &both).unwrap();
    let mut plan = StudyPlan::new(Options::default());
    let trials = mutants::plan(&suite, mutants, &figures().unwrap(), &mut plan, &Options::default()).unwrap();
    let transfers: Vec<_> =
        plan.runs().documents().iter().map(|it| it.config().unwrap().host.transfer.method).collect();
    assert_eq!(
        transfers,
        ["prp", "prp", "prp", "prp", "piggyback", "piggyback"],
        "of the claim that has both"
    );
    let results = results_of(plan, made_up);
    let noticed = trials[0].judge(&results).unwrap();
    assert_eq!((noticed.looked_at_by, noticed.by_published()), (1, true));
    assert_eq!(
        (noticed.claims[0].claim.as_str(), noticed.claims[0].verdict.as_str()),
        ("c", "not reproduced, at 0 of 2, equal")
    );
    let text = mutants::text(&[noticed]);
    assert!(text.contains("m (w): noticed by 1 of 1: c\n"), "{text}");
    assert!(text.ends_with("1 wrong implementations: 1 noticed by evidence\n"), "{text}");

    let wrong = |rows: &str| mutants::parse("m.toml", &format!("{head}{rows}")).unwrap_err().to_string();
    assert!(wrong("set = []\n").ends_with("mutant m: sets nothing"));
    assert!(wrong("set = [\"host.transfers=prp\"]\n").contains("host.transfers: unknown key"));
    assert!(wrong("set = [\"host.transfer=pigeon\"]\n").contains("mutant m: host.transfer: "));
}

#[test]
fn a_mutant_that_changes_nothing_is_not_noticed() {
    let head = "suite = \"bandslim\"\n[[mutant]]\nid = \"m\"\nwhat = \"w\"\n";
    let (_, mutants) = mutants::parse("m.toml", &format!("{head}set = [\"host.think_ns=1\"]\n")).unwrap();
    let suite = parse("c.toml", &claim(&format!("{RUNS}order = [\"piggy < base\"]\n"))).unwrap();
    let mut plan = StudyPlan::new(Options::default());
    let trials = mutants::plan(&suite, mutants, &figures().unwrap(), &mut plan, &Options::default()).unwrap();
    let results = results_of(plan, made_up);
    let noticed = trials[0].judge(&results).unwrap();
    assert!(!noticed.by_published());
    let text = mutants::text(&[noticed]);
    assert!(
        text.contains("NOT NOTICED by any of 1") && text.ends_with(": 1 by no published claim\n"),
        "{text}"
    );
}

#[test]
fn seeds_that_are_asked_for_take_the_place_of_a_claims_own() {
    let options = Options { seeds: vec![4, 5], ..Options::default() };
    let mut plan = StudyPlan::new(options.clone());
    let text = claim(&format!("{RUNS}order = [\"piggy < base\"]\nseeds = [2, 3]\n"));
    let claim = parse("c.toml", &text).unwrap().claims.remove(0);
    let planned = Planned::new(claim, &figures().unwrap(), &mut plan, &options).unwrap();
    let seeds: Vec<_> =
        plan.runs().documents().iter().map(|document| document.config().unwrap().run.seed).collect();
    assert_eq!(seeds, [4, 4, 4, 4, 5, 5, 5, 5]);
    let results = results_of(plan, made_up);
    let outcome = planned.judge(&results).unwrap();
    assert!(outcome.seeds.ends_with("with seed 4 and 5"), "{}", outcome.seeds);
    let options = Options { seeds: vec![4, 5, 6], ..Options::default() };
    let mut plan = StudyPlan::new(options.clone());
    let claim = parse("c.toml", &text).unwrap().claims.remove(0);
    let planned = Planned::new(claim, &figures().unwrap(), &mut plan, &options).unwrap();
    let results = results_of(plan, made_up);
    let of_three = planned.judge(&results).unwrap().seeds;
    assert!(of_three.ends_with("with seed 4, 5 and 6"), "{of_three}");
    assert_eq!(outcome.regressed, None, "no verdict is known for seeds of one's own");
}

#[test]
fn a_figure_of_several_seeds_has_their_mean_and_spread() {
    let of_seed = |document: &Document| {
        let mut report = made_up(document);
        let mean = 1000.0 * document.config().unwrap().run.seed as f64;
        report.latency_ns = Named::from_iter([("store", Latency { mean, ..Latency::default() })]);
        report
    };
    let mut plan = StudyPlan::new(Options { seeds: vec![1, 2, 6], ..Options::default() });
    let figure = kvdrive_experiments::figure("bandslim-8").unwrap();
    let planned = kvdrive_figures::Planned::new(figure, &mut plan).unwrap();
    let results = results_of(plan, of_seed);
    let charts = planned.charts(&results).unwrap();
    let is_response = |chart: &&kvdrive_figures::Chart| chart.unit == "us";
    let chart = charts.iter().find(is_response).expect("a panel of response times");
    assert_eq!(chart.series[0].values[0], Some(3.0));
    assert_eq!(chart.series[0].spread[0], Some((1.0, 6.0)));
    assert!(chart.counts.contains("mean of the seeds 1, 2, 6, farthest apart"), "{}", chart.counts);
    assert!(chart.counts.ends_with(": 1 to 6, 166.7 %"), "{}", chart.counts);
}

/// A quick run of profile `pm983` takes less than a minute; its smallest runs of each kind are done here.
#[test]
fn a_quick_run_of_pm983_is_small_and_can_be_judged() {
    let options = Options { extent: Extent::Quick, ..Options::default() };
    let figures = figures().unwrap();
    let mut plan = StudyPlan::new(options.clone());
    let suite = claims::suite("pm983").unwrap();
    for claim in suite.claims.clone() {
        Planned::new(claim, &figures, &mut plan, &options).unwrap();
    }
    assert_eq!(plan.scales().iter().map(ToString::to_string).collect::<Vec<_>>(), ["1/128"]);
    let config = |document: &Document| document.config().unwrap();
    // A run until the drive is full ends with the drive's last grain.
    let ends = |document: &&Document| !config(document).workload.until_full;
    let of = |document| kvdrive_run::operations(&config(document)).unwrap();
    let operations: u64 = plan.runs().documents().iter().filter(ends).map(of).sum();
    assert!(operations < 10_000_000, "{operations} operations: some 5 us each");

    let mut plan = StudyPlan::new(options.clone());
    let small =
        ["mean-1mi", "p999-1mi", "get-1mi", "put-1mi", "block-8", "insert-1024", "update-2048", "mix-4096"];
    let claims = suite.claims.into_iter().filter(|claim| small.contains(&claim.id.as_str()));
    let planned: Vec<_> =
        claims.map(|claim| Planned::new(claim, &figures, &mut plan, &options).unwrap()).collect();
    assert_eq!(planned.len(), small.len());
    let results = results_of(plan, |document| kvdrive_run::run(document, &|_, _| ()).unwrap());
    for planned in &planned {
        let outcome = planned.judge(&results).unwrap();
        assert!(outcome.values.iter().all(|value| *value > 0.0), "{}: {:?}", outcome.id, outcome.values);
        assert_ne!(outcome.verdict, Verdict::NotReproduced, "{}: {}", outcome.id, outcome.ours);
    }
}
