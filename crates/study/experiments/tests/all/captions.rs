//! Captions of embedded figures agree with the configurations of the runs.

use kvdrive_experiments::figure;
use kvdrive_experiments::runs::{Extent, Options, StudyPlan};

#[test]
fn a_cache_holds_the_share_of_the_pairs_that_its_panel_names() {
    let figure = figure("beyond-saker-cache").unwrap();
    assert_eq!(figure.grids.len(), 3);
    for grid in &figure.grids {
        let [panel] = grid.panels.as_slice() else { panic!("{}: one panel", grid.name) };
        let percent = panel.title.split(' ').find_map(|word| word.parse::<u64>().ok()).unwrap();
        let mut plan = StudyPlan::new(Options::default());
        grid.plan(&mut plan).unwrap();
        assert_eq!(plan.runs().documents().len(), grid.series.len() * grid.points.len());
        for document in plan.runs().documents() {
            let config = document.config().unwrap();
            let (workload, saker) = (&config.workload, &config.saker);
            let pair = u64::from(workload.key_size + workload.value_size + saker.cache_pair_bytes);
            assert_eq!(100 * saker.cache_bytes, percent * workload.num * pair, "{}", panel.title);
            let note = &figure.notes[0];
            assert!(note.contains(&format!("The cache charges {pair} B for a pair")), "{note}");
        }
    }
}

#[test]
fn a_figure_over_as_many_keys_as_writes_has_as_many() {
    let figure = figure("beyond-saker-traffic").unwrap();
    assert!(figure.notes[0].contains("over as many keys as writes"), "{}", figure.notes[0]);
    for extent in [Extent::Usual, Extent::Full] {
        let mut plan = StudyPlan::new(Options { extent, ..Options::default() });
        for grid in &figure.grids {
            grid.plan(&mut plan).unwrap();
        }
        for document in plan.runs().documents() {
            let workload = document.config().unwrap().workload;
            assert_eq!(workload.num, workload.ops, "{extent:?}");
        }
    }
}
