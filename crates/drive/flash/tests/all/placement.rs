//! Pages that are freed together: what collection copies of them.

use std::collections::BTreeSet;

use kvdrive_flash::ftl::{Ftl, FtlConfig, Lpa, Placement};
use kvdrive_flash::{FlashConfig, FlashPort, Purpose};
use kvdrive_sim::{Rng, Sim};

use super::ftl::{config, flash_config, fresh_media, put, tag};

/// Pages that collection copies while segments of 8 pages, three of which are written at a time beside pages that are
/// freed one by one, are freed and written again in random order, on a drive of 8 dies whose segments are all in use.
fn copies_for_segments(placement_dies: u32) -> u64 {
    const SEGMENT_PAGES: u32 = 8;
    let sim = Sim::new();
    let flash = FlashConfig { dies_per_channel: 4, blocks_per_die: 48, ..flash_config() };
    let port = FlashPort::new(&sim, flash.clone(), fresh_media("tags", &flash));
    let ftl = Ftl::new(port, &FtlConfig { over_provisioning: 0.25, placement_dies, ..config("greedy") });
    let segments = ftl.logical_pages() / SEGMENT_PAGES - 4;
    let singles = segments * SEGMENT_PAGES..ftl.logical_pages();
    let mut rng = Rng::stream(3, "segments");
    let mut opening = 0;
    sim.block_on(|| {
        for round in 0..800 {
            let three: BTreeSet<u32> = match round {
                0..10 => BTreeSet::new(),
                _ => (0..3).map(|_| rng.below(segments.into()) as u32).collect(),
            };
            // The first rounds fill the drive.
            let three: Vec<u32> = match round {
                0..10 => (0..segments).filter(|segment| segment % 10 == round).collect(),
                _ => three.into_iter().collect(),
            };
            let pages = |segment: u32| segment * SEGMENT_PAGES..(segment + 1) * SEGMENT_PAGES;
            three.iter().flat_map(|segment| pages(*segment)).for_each(|lpa| ftl.trim(Lpa(lpa)));
            for together in three.chunks(3) {
                for page in 0..SEGMENT_PAGES {
                    for (segment, number) in together.iter().zip(opening..) {
                        let (lpa, placement) = (segment * SEGMENT_PAGES + page, Placement::Together(number));
                        ftl.write_placed(
                            Lpa(lpa),
                            super::ftl::page(lpa, 1),
                            1,
                            tag(1),
                            Purpose::Value,
                            placement,
                        );
                    }
                }
                opening += together.len() as u64;
            }
            put(&ftl, singles.start + rng.below(singles.len() as u64) as u32, 1);
        }
    });
    ftl.statistics().copied_pages
}

#[test]
fn a_freed_segment_leaves_blocks_without_a_live_page() {
    let (placed, spread) = (copies_for_segments(2), copies_for_segments(0));
    assert!(spread > 1000, "{spread} pages were copied without placement");
    assert!(placed * 100 < spread, "{placed} pages were copied with placement, {spread} without");
}
