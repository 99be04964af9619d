//! Every embedded figure and claim is valid: the files exist, can be parsed, and request only possible runs.

use std::collections::BTreeSet;

use kvdrive_claims::{self as claims, Planned as PlannedClaim, Standing, Verdict};
use kvdrive_config::Document;
use kvdrive_declare::{Counter, Counters, Counts, Form, Kind, Sections, Unit};
use kvdrive_engines::dram::DramBytes;
use kvdrive_experiments::runs::{Extent, Options, Results, StudyPlan};
use kvdrive_experiments::{self as experiments, Figure, RunPlace, parse};
use kvdrive_figures::{Chart, Planned, number, numbers, svg, terminal};
use kvdrive_flash::{NandCounters, Purpose};
use kvdrive_link::{Class, Meter};
use kvdrive_page as html;
use kvdrive_run::report::{Latency, Named, Ops, Report, Resource, Series, ValueBytes};

fn results_of(plan: StudyPlan, report: impl Fn(&Document) -> Report) -> Results {
    plan.run(|runs| Ok(runs.documents().iter().map(|of| Some(report(of))).collect())).unwrap()
}

fn files_of(folder: &str) -> BTreeSet<String> {
    let path = format!("{}/../{folder}/files", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_file_is_embedded() {
    let names =
        |files: &[(&str, &str)]| files.iter().map(|(name, _)| name.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(names(experiments::FILES), files_of("experiments"));
    assert_eq!(names(claims::FILES), files_of("claims"));
}

#[test]
fn figures_are_named_as_their_files_and_can_be_planned() {
    let extents = [Extent::Quick, Extent::Usual, Extent::Full];
    for ((file, text), extent) in experiments::FILES.iter().zip(extents.into_iter().cycle()) {
        let figure = parse(file, text).unwrap();
        assert_eq!(format!("{}.toml", figure.id), *file);
        let mut plan = StudyPlan::new(Options { extent, ..Options::default() });
        let planned = Planned::new(figure, &mut plan).unwrap();
        assert!(!planned.runs().is_empty());
        let panels: Vec<_> =
            planned.figure().grids.iter().flat_map(|grid| &grid.panels).map(|panel| &panel.id).collect();
        assert_eq!(panels.iter().collect::<BTreeSet<_>>().len(), panels.len(), "{file}: a letter twice");
    }
}

/// Counters of these names, each with the value 100.
fn hundreds(names: &[&'static str]) -> Counts {
    let mut counts = Counts::default();
    for name in names {
        let (unit, kind, form) = (Unit::None, Kind::Counted, Form::Sum);
        counts.put(Box::leak(Box::new(Counter { name, unit, kind, form, by: None, help: "" })), &100_u64);
    }
    counts
}

/// A report with the same simple numbers for every run: enough for drawings and verdicts.
fn made_up(document: &Document) -> Report {
    let config = document.config().unwrap();
    let inline = config.host.transfer.method == "piggyback";
    let store = Latency { mean: if inline { 10_000.0 } else { 20_000.0 }, ..Latency::default() };
    let retrieve = Latency { mean: 20_000.0, p50: 20_000, p95: 30_000, p99: 40_000, ..Latency::default() };
    let mut report = Report {
        profile: document.profile_name().into(),
        ops: Ops { store: config.workload.ops, retrieve: config.workload.ops, ..Ops::default() },
        value_bytes: ValueBytes { stored: config.workload.ops * 32, retrieved: config.workload.ops * 16 },
        throughput_ops_per_s: 1e9 / store.mean,
        latency_ns: Named::from_iter([("store", store), ("retrieve", retrieve)]),
        ..Report::default()
    };
    let sqe = 64 * config.workload.ops;
    let link = Meter::default();
    link.count(Class::Sqe, sqe, 0);
    link.count(Class::Mmio, sqe / 8, 0);
    let flash = NandCounters::default();
    flash.programs[Purpose::Value.index()].set(config.workload.ops / 4);
    report.config = document.values();
    let counted = [
        "lookups",
        "probes",
        "comparisons",
        "section_hits",
        "section_misses",
        "invalid_written_bytes",
        "memcpy_ns",
    ];
    let blocks = [
        "requests",
        "blocks_asked",
        "blocks_prefix_hits",
        "blocks_any_hits",
        "blocks_stored",
        "tokens_stored",
        "trace_ms",
        "prefill_gflop",
        "prefill_saved_gflop",
    ];
    let cached = ["cache_hits", "cache_misses", "pending_hits", "row_cache_hits", "row_cache_misses"];
    report.counts = Sections::default()
        .with("traffic", link.counts())
        .with("nand", flash.counts())
        .with("engine", hundreds(&counted))
        .with("workload", hundreds(&blocks))
        .with("saker", hundreds(&cached))
        .with("store", hundreds(&cached))
        .with("dram", hundreds(&["section_cache", "validity", "directory"]).and(&DramBytes::default()));
    let roles = kvdrive_engines::firmware::Role::ALL;
    report.resources = Named::from_iter(roles.map(|(_, name)| (name, Resource::default())));
    let interval_ns = config.run.interval_ns;
    report.time.virtual_ns = (60 * interval_ns).max(1_000_000);
    report.series = (interval_ns > 0).then(|| Series { interval_ns, ops: vec![100; 60], transactions: None });
    report.amplification.traffic = Some(130.75);
    report.amplification.write = Some(129.0);
    report
}

/// A figure in a terminal, as numbers and as a file.
fn check_drawings(figure: &Figure, charts: &[Chart]) {
    assert!(!charts.is_empty());
    for chart in charts {
        let text = terminal::text(chart);
        assert!(
            text.lines().all(|line| line.chars().count() <= 100 || line.contains("published:")),
            "{text}"
        );
        assert!(text.contains(&numbers::text(chart)));
    }
    let file = svg::file("a & b", charts);
    assert!(file.starts_with("<svg xmlns=") && file.contains("a &amp; b"));
    for tag in ["g", "text", "svg", "title"] {
        let (open, close) =
            (file.matches(&format!("<{tag}")).count(), file.matches(&format!("</{tag}>")).count());
        assert_eq!(open, close, "<{tag}>");
    }
    assert!(!file.contains("NaN") && !file.contains("inf"), "{}", figure.id);
}

#[test]
fn every_figure_is_drawn_three_ways() {
    let mut plan = StudyPlan::new(Options::default());
    let figures = experiments::figures().unwrap();
    let planned: Vec<_> =
        figures.iter().map(|figure| Planned::new(figure.clone(), &mut plan).unwrap()).collect();
    let results = results_of(plan, made_up);
    let (plus, bandslim) = (claims::suite("plus").unwrap(), claims::suite("bandslim").unwrap());
    let mut content = html::Content {
        titles: plus.titles,
        notes: plus.notes,
        revision: "r<1>",
        facts: vec![("a".into(), "b & c".into())],
        outcomes: vec![],
        figures: vec![],
        so_far: None,
    };
    for figure in &planned {
        let charts = figure.charts(&results).unwrap();
        check_drawings(figure.figure(), &charts);
        content.figures.push((figure, charts));
    }
    let page = html::page(&content);
    assert!(page.contains("r&lt;1&gt;") && page.contains("b &amp; c"));
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
    }
    assert!(
        page.contains("<title>Plus, claim by claim</title>")
            && page.contains("the experiments of Plus and states")
    );
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is on the page"));
    assert!(at("<figure>") < at("id=\"claims\"") && at("id=\"claims\"") < at("id=\"run\""));
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    ids.sort();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "a link finds one place: {ids:?}");
    for figure in &planned {
        let (id, title) = (&figure.figure().id, &figure.figure().title);
        let link =
            page.lines().flat_map(|line| line.split("<a ")).find(|link| link.contains(&format!("\"#{id}\"")));
        assert!(link.is_some_and(|link| link.contains(title.as_str())), "{id}");
    }
    let say_best = planned.iter().filter(|figure| figure.figure().chapter.says_best).count();
    assert_eq!(page.matches("What to build, by these numbers").count(), say_best);
    assert!(
        page.matches(" is never below ").count() >= 7,
        "two panels of blend, one of whole drives, one of SAKER, three of its cache"
    );
    assert_eq!(page, html::page(&content), "the same runs are the same page");
    assert!(
        page.contains("No constant was fitted to a claim of the Plus paper")
            && !page.contains("fitted to six")
    );
    assert!(!page.contains("interrupted"));
    content.so_far = Some("1 of 2 claims".into());
    let so_far = html::page(&content);
    assert!(
        so_far.contains("of an interrupted call: </strong>1 of 2 claims.")
            && !so_far.contains("What to build")
    );
    content.so_far = None;
    content.titles.extend(bandslim.titles);
    content.notes.extend(bandslim.notes);
    let both = html::page(&content);
    assert!(both.contains("<h1>Plus, BandSlim and BandSlim over CXL, claim by claim</h1>"));
    assert!(both.contains("fitted to six published ratios"));
}

#[test]
fn published_values_stand_where_the_source_puts_them() {
    let mut plan = StudyPlan::new(Options::default());
    let planned = Planned::new(experiments::figure("bandslim-8").unwrap(), &mut plan).unwrap();
    let results = results_of(plan, made_up);
    let charts = planned.charts(&results).unwrap();
    let response = charts.iter().find(|chart| chart.letter == "b").unwrap();
    let halves: Vec<f64> =
        response.marks.iter().filter(|mark| mark.says.contains("half")).map(|mark| mark.value).collect();
    assert_eq!(halves, [10.0; 4], "half of the baseline's 20 us");
    assert_eq!(number(halves[0]), "10");
    assert_eq!(response.series[1].values[0], Some(10.0));
}

#[test]
fn claims_share_the_runs_of_figures() {
    let options = Options::default();
    let figures = experiments::figures().unwrap();
    let mut plan = StudyPlan::new(options.clone());
    for figure in &figures {
        Planned::new(figure.clone(), &mut plan).unwrap();
    }
    let drawn = plan.runs().documents().len();
    let suite = claims::suite("bandslim").unwrap();
    assert!(suite.claims.len() > 50);
    let ids: BTreeSet<_> = suite.claims.iter().map(|claim| claim.id.clone()).collect();
    assert_eq!(ids.len(), suite.claims.len(), "an id twice");
    for claim in suite.claims {
        PlannedClaim::new(claim, &figures, &mut plan, &options).unwrap();
    }
    let more = plan.runs().documents().len() - drawn;
    assert!(more < drawn / 2, "{more} runs that no figure has, beside {drawn}");
}

#[test]
fn claims_of_every_suite_can_be_planned() {
    for name in claims::suite_names().unwrap() {
        let plan = planned(&[&name]);
        assert!(!plan.runs().documents().is_empty(), "{name}");
    }
}

/// The runs that the claims of these suites need.
fn planned(suites: &[&str]) -> StudyPlan {
    let (figures, options) = (experiments::figures().unwrap(), Options::default());
    let mut plan = StudyPlan::new(options.clone());
    for suite in suites {
        for claim in claims::suite(suite).unwrap().claims {
            PlannedClaim::new(claim, &figures, &mut plan, &options).unwrap();
        }
    }
    plan
}

/// A claim that adds a drive adds minutes.
#[test]
fn claims_of_hash_engines_need_so_many_drives() {
    let plan = planned(&["plus", "plus2"]);
    // Plus: two drives for YCSB, as many with each of two more seeds and with the emulator's accounting; two
    // at each of three times of an erase; small values with both accountings, besides the existing larger
    // ones; two that are filled, one for invalid pages; two with each of four accountings of C, with each of
    // five of collection on top of none, and with each of five choices; two with the fitted time of
    // collection and each of three seeds; three of which only the DRAM is read; two for the space of 100 B. Plus2: two at each of three
    // budgets, two with each of two more seeds, and ten for the policies.
    let drives = std::cell::Cell::new(0);
    let _ = plan.run(|plan| {
        drives.set(plan.sessions().len());
        anyhow::bail!("planned, not run")
    });
    assert_eq!(drives.get(), (2 + 4 + 2 + 6 + 2 + 2 + 1 + 8 + 10 + 10 + 6 + 3 + 2) + (6 + 4 + 10));
}

#[test]
fn a_wrong_figure_is_one_line() {
    let (_, whole) = experiments::FILES.iter().find(|(name, _)| *name == "bandslim-8.toml").unwrap();
    let wrong = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        let error = parse("f.toml", &whole.replacen(from, to, 1)).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert!(wrong("group = ", "groop = ").starts_with("f.toml:"));
    assert!(wrong("kind = \"counted\"", "kind = \"guessed\"").contains("guessed"));
    assert!(wrong("y = \"traffic", "y = \"(traffic").contains("panel a"));
    assert!(wrong("series = \"Piggyback\"", "series = \"Piggy\"").contains("no such series"));
    assert!(wrong("points = [\"4\", \"8\"", "points = [\"5\", \"8\"").contains("no such point"));
    assert!(wrong("times = 0.021, of = \"Baseline\"", "times = 0.021").contains("times and of"));
    assert!(wrong("name = \"Piggyback\"", "name = \"Baseline\"").contains("twice"));
    assert!(wrong("\"nand.enabled=false\"", "\"nand.enabled\"").contains("expected KEY=VALUE"));
    assert!(
        wrong("\"nand.enabled=false\"", "\"workload.duration_ns=1s\"")
            .contains("panel a: kind = \"counted\"")
    );
    assert!(parse("f.toml", "id = ").unwrap_err().to_string().starts_with("f.toml:1: "));
}

#[test]
fn a_series_that_cannot_be_run_is_left_out_and_said() {
    let (_, whole) = experiments::FILES.iter().find(|(name, _)| *name == "bandslim-8.toml").unwrap();
    let needs = "name = \"Piggyback\", needs = [\"transfer:pigeon\"]";
    let figure = parse("f.toml", &whole.replacen("name = \"Piggyback\"", needs, 1)).unwrap();
    let mut plan = StudyPlan::new(Options::default());
    let planned = Planned::new(figure, &mut plan).unwrap();
    assert_eq!(planned.left_out(), [("Piggyback", "transfer:pigeon")]);
    let results = results_of(plan, made_up);
    let charts = planned.charts(&results).unwrap();
    assert!(charts[0].series[1].values.iter().all(Option::is_none));
    assert!(!terminal::text(&charts[0]).contains("■ Piggyback"));
    let unknown =
        whole.replacen("name = \"Piggyback\"", "name = \"Piggyback\", needs = [\"pigeon:post\"]", 1);
    assert!(parse("f.toml", &unknown).unwrap_err().to_string().contains("needs \"pigeon:post\""));
}

#[test]
fn a_series_is_drawn_when_all_its_runs_have_ended_and_a_panel_when_its_base_has() {
    let (_, text) = experiments::FILES.iter().find(|(name, _)| *name == "bandslim-8.toml").unwrap();
    let related = text.replacen("unit = \"us\"", "unit = \"us\"\nrelative_to = \"Baseline\"", 1);
    let figure = parse("f.toml", &related).unwrap();
    for (missing, unfinished, letters) in
        [("prp", 1, &["a"][..]), ("piggyback", 1, &["a", "b"]), ("all", 2, &[]), ("none", 0, &["a", "b"])]
    {
        let mut plan = StudyPlan::new(Options { seeds: vec![1, 2], ..Options::default() });
        let planned = Planned::new(figure.clone(), &mut plan).unwrap();
        let results = plan.run(|plan| {
            let documents = plan.documents();
            // The last run of a series is missing, with the second seed.
            let methods = documents.iter().map(|document| document.config().unwrap().host.transfer.method);
            let last = methods.collect::<Vec<_>>().iter().rposition(|method| *method == missing);
            let has_ended = |index: usize| missing != "all" && last != Some(index);
            let reports = documents.iter().enumerate();
            Ok(reports.map(|(index, document)| has_ended(index).then(|| made_up(document))).collect())
        });
        let results = results.unwrap();
        let charts = planned.charts(&results).unwrap();
        assert_eq!(planned.ended(&results), (2 - unfinished, 2), "{missing}");
        assert!(charts.iter().map(|chart| chart.letter.as_str()).eq(letters.iter().copied()), "{missing}");
        for chart in &charts {
            let empty = chart.series.iter().filter(|line| line.values.iter().all(Option::is_none)).count();
            assert_eq!(empty, unfinished, "{missing}: {}", chart.id);
        }
    }
}

#[test]
fn a_verdict_says_what_it_is_worth() {
    let (figures, options) = (experiments::figures().unwrap(), Options::default());
    let mut plan = StudyPlan::new(options.clone());
    let mut planned = Vec::new();
    for claim in claims::suite("bandslim").unwrap().claims {
        planned.push(PlannedClaim::new(claim, &figures, &mut plan, &options).unwrap());
    }
    let results = results_of(plan, made_up);
    // The invented reports lack some numbers.
    let mut outcomes: Vec<_> = planned.iter().filter_map(|claim| claim.judge(&results).ok()).collect();
    for outcome in &mut outcomes {
        outcome.regressed = None;
    }
    let of = |standing| outcomes.iter().filter(|one| one.standing == standing && one.verdict.holds()).count();
    assert!(of(Standing::Evidence) > 0 && of(Standing::Fit) > 0, "there is something to tell apart");
    let facts = Vec::new();
    let figures = Vec::new();
    let page = html::page(&html::Content {
        titles: vec![],
        notes: vec![],
        revision: "r",
        facts,
        outcomes: outcomes.clone(),
        figures,
        so_far: None,
    });
    for outcome in &outcomes {
        let row = page.split(&format!("<tr id=\"claim-{}\">", outcome.id)).nth(1).unwrap();
        let row = row.split("</tr>").next().unwrap();
        let is_evidence = outcome.standing == Standing::Evidence && outcome.verdict.holds();
        assert_eq!(row.contains("class=\"verdict evidence\""), is_evidence, "{row}");
        let failed = outcome.verdict == Verdict::NotReproduced;
        assert_eq!(row.contains("by a fit"), outcome.standing == Standing::Fit && !failed, "{row}");
        assert_eq!(row.contains("by construction"), outcome.standing == Standing::Set && !failed, "{row}");
        assert!(row.contains(&format!(">{}<", outcome.id)), "texts name claims by their ids: {row}");
        assert!(outcome.comparisons.is_empty() || row.contains("Tightest: "), "{row}");
        let tolerance = format!("\u{b1} {}", outcome.tolerance).replace(' ', "\u{a0}");
        assert_eq!(row.contains(&tolerance), !outcome.tolerance.is_empty(), "{row}");
        assert!(outcome.names.iter().all(|name| row.contains(&format!("<dt>{}</dt>", name.name))), "{row}");
        let is_bare = outcome.verdict == Verdict::NotReproduced && outcome.because.is_empty();
        assert!(!is_bare || row.contains("Published is ") || row.contains("Tightest: "), "{row}");
    }
}

/// Below its statement a claim has the value of each point; those at which it fails stand out.
#[test]
fn a_range_over_points_has_its_values_on_the_page() {
    let (figures, options) = (experiments::figures().unwrap(), Options::default());
    let mut plan = StudyPlan::new(options.clone());
    let mut claims = claims::suite("bandslim").unwrap().claims.into_iter();
    let claim = claims.find(|claim| claim.id == "response-32").unwrap();
    let planned = PlannedClaim::new(claim, &figures, &mut plan, &options).unwrap();
    let slower_at_8 = |document: &Document| {
        let mut report = made_up(document);
        let config = document.config().unwrap();
        if (config.host.transfer.method.as_str(), config.workload.value_size) == ("piggyback", 8) {
            let mean = 2.0 * report.latency_ns.get("store").unwrap().mean;
            report.latency_ns = Named::from_iter([("store", Latency { mean, ..Latency::default() })]);
        }
        report
    };
    let results = results_of(plan, slower_at_8);
    let outcomes = vec![planned.judge(&results).unwrap()];
    let (titles, notes, facts, figures) = (vec![], vec![], vec![], vec![]);
    let page =
        html::page(&html::Content { titles, notes, revision: "r", facts, outcomes, figures, so_far: None });
    let line = "By point: 4: 0.500 x, <b>8: 1.000 x (fails)</b>, 16: 0.500 x, 32: 0.500 x.</div>";
    assert!(page.contains(line), "{page}");
}

/// A text of a claim may name others by their ids, which are links on the page.
#[test]
fn a_claim_that_another_one_names_is_linked() {
    let (figures, options) = (experiments::figures().unwrap(), Options::default());
    let mut plan = StudyPlan::new(options.clone());
    let named = ["piggyback-worst", "piggyback-worst-response"];
    let claims = claims::suite("bandslim").unwrap().claims.into_iter();
    let planned: Vec<_> = claims
        .filter(|claim| named.contains(&claim.id.as_str()))
        .map(|claim| PlannedClaim::new(claim, &figures, &mut plan, &options).unwrap())
        .collect();
    let results = results_of(plan, made_up);
    let outcomes: Vec<_> = planned.iter().map(|claim| claim.judge(&results).unwrap()).collect();
    let (titles, notes, facts, figures) = (vec![], vec![], vec![], vec![]);
    let page =
        html::page(&html::Content { titles, notes, revision: "r", facts, outcomes, figures, so_far: None });
    let link = "for the reason in claim <a href=\"#claim-piggyback-worst\">piggyback-worst</a>.";
    assert!(page.contains(link), "{page}");
    assert_eq!(page.matches("href=\"#claim-").count(), 1, "no claim is a link to itself");
}

#[test]
fn places_are_found_or_said_not_to_be() {
    let figures = experiments::figures().unwrap();
    let find = |text: &str| RunPlace::parse(text).and_then(|place| place.find(&figures));
    assert_eq!(find("bandslim-8 / Piggyback / 32").unwrap().asked().counts.usual, 20_000);
    assert!(find("bandslim-8 / Piggyback").unwrap_err().to_string().contains("expected FIGURE"));
    assert!(find("bandslim-7 / Piggyback / 32").unwrap_err().to_string().contains("no such figure"));
    assert!(find("bandslim-8 / Piggyback / 33").unwrap_err().to_string().contains("no such series or point"));
    assert!(find("bandslim-3 / Baseline / 1K").unwrap_err().to_string().contains("several grids"));
    assert!(find("bandslim-3 / small / Baseline / 1K").is_ok());
}

#[test]
fn what_a_figure_is_about_cannot_be_set() {
    let figures = experiments::figures().unwrap();
    let plan = |id: &str, set: &str| {
        let mut plan = StudyPlan::new(Options { set: vec![set.into()], ..Options::default() });
        Planned::new(experiments::figure(id).unwrap(), &mut plan).map(|_| ()).map_err(|e| e.to_string())
    };
    let refused = |id: &str, set: &str| plan(id, set).unwrap_err();
    assert_eq!(
        refused("bandslim-8", "workload.value_size=7"),
        "bandslim-8: workload.value_size is the axis of bandslim-8, and cannot be set for all runs"
    );
    assert_eq!(
        refused("bandslim-8", "host.transfer=hybrid"),
        "bandslim-8: host.transfer is what makes series Baseline of bandslim-8, and cannot be set for all runs"
    );
    assert!(refused("plus-2", "workload.preset=plus").contains("workload.name is the axis of plus-2"));
    assert_eq!(plan("bandslim-8", "host.cores=2"), Ok(()));

    let claim = |id: &str, set: &str| {
        let options = Options { set: vec![set.into()], ..Options::default() };
        let mut suite = claims::suite("bandslim").unwrap();
        suite.claims.retain(|claim| claim.id == id);
        let claim = suite.claims.remove(0);
        let planned = PlannedClaim::new(claim, &figures, &mut StudyPlan::new(options.clone()), &options);
        planned.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(
        claim("response-32", "workload.value_size=4").unwrap_err(),
        "claim response-32: workload.value_size is the axis of bandslim-8, and cannot be set for all runs"
    );
    assert_eq!(claim("response-32", "host.cores=2"), Ok(()));
}
