//! Packing `blend` in whole runs, compared with the better of `all` and `backfill`, over costs of copying and
//! of flash.

use kvdrive_config::Document;

fn throughput(workload: &str, policy: &str, memcpy_ns_per_kib: u64, program_ns: u64) -> f64 {
    let mut document = Document::profile("cosmos-plus").expect("the profile exists");
    for setting in [
        format!("workload.name={workload}"),
        format!("packing.policy={policy}"),
        format!("controller.memcpy_ns_per_kib={memcpy_ns_per_kib}"),
        format!("flash.program_ns={program_ns}"),
        // Pages are evicted from the beginning, as in a long run.
        "buffer.entries=16".into(),
        "workload.ops=3000".into(),
    ] {
        document.set(&setting).expect("a valid setting");
    }
    kvdrive_run::run(&document, &|_, _| ()).expect("it runs").throughput_ops_per_s
}

#[test]
fn blend_is_never_far_below_the_better_and_above_both_somewhere() {
    let mut most = 0.0;
    for workload in ["w-b", "w-c", "w-d", "w-m"] {
        for memcpy_ns_per_kib in [5_120, 51_200, 204_800] {
            for program_ns in [100_000, 600_000, 2_000_000] {
                let of = |policy| throughput(workload, policy, memcpy_ns_per_kib, program_ns);
                let gain = of("blend") / f64::max(of("all"), of("backfill"));
                let costs = format!("{memcpy_ns_per_kib} ns a KiB, {program_ns} ns a program");
                assert!(gain > 0.98, "{workload}, {costs}: {gain:.3}");
                most = f64::max(most, gain);
            }
        }
    }
    assert!(most > 1.1, "{most:.3}");
}
