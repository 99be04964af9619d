//! A host's state of its window: where it places values, and the parts that it leaves to the drive.

use kvdrive_link::transfer::HostWindow;
use kvdrive_link::transfer::window::lined;
use kvdrive_nvme::window::Grant;
use kvdrive_nvme::{Cqe, Status};

const BYTES: u32 = 16_384;

fn answer(write_pointer: u32, generation: u32) -> Cqe {
    Cqe::new(0, Status::SUCCESS).with_result(write_pointer, generation)
}

#[test]
fn a_value_touches_no_more_lines_than_it_must() {
    for (at, bytes, place) in [
        (0, 35, 0),
        (35, 35, 64),
        (35, 29, 35),
        (1, 64, 64),
        (60, 4, 60),
        (61, 4, 64),
        (30, 100, 64),
        (28, 100, 28),
    ] {
        assert_eq!(lined(at, bytes), place, "{bytes} B at {at}");
        assert_eq!((place % 64 + bytes).div_ceil(64), bytes.div_ceil(64));
    }
}

/// Gaps that DMA leaves are filled, and DMA'd values are stepped over.
#[test]
fn small_values_fill_the_gaps_before_those_that_dma_brought() {
    let window = HostWindow::new(BYTES);
    let at = |bytes| window.place(bytes, bytes).map(|spot| spot.at);
    assert_eq!(at(8), None, "no window yet");
    assert_eq!(window.grant(8), None);
    window.adopt(&answer(0, 5));
    assert_eq!(at(64), Some(0));
    let first = window.grant(2_048).expect("there is room");
    assert_eq!(first, Grant { generation: 5, from: 4_096 });
    assert_eq!(at(4_096), None, "not beyond what is granted");
    assert_eq!(at(128), Some(64));
    window.end_grant(first, &answer(4_096, 5), 2_048);
    let second = window.grant(4_000).expect("there is room");
    assert_eq!(second.from, 8_192);
    window.end_grant(second, &answer(8_192, 5), 4_000);
    assert_eq!(at(3_000), Some(192));
    assert_eq!(at(1_000), Some(6_144), "after the first; the rest of the gap is lost");
    assert_eq!(at(1_500), Some(12_192), "after the second");
    assert_eq!(window.grant(4_097), None, "it would not fit");
    assert_eq!(at(3_000), None, "full");
    let spot = window.place(100, 100).expect("there is room");
    assert_eq!(spot.address, 5 * u64::from(BYTES) + u64::from(spot.at));
}

#[test]
fn what_the_drive_put_elsewhere_leaves_no_trace_and_old_news_neither() {
    let window = HostWindow::new(BYTES);
    window.adopt(&answer(100, 2));
    let grant = window.grant(4_096).expect("there is room");
    window.end_grant(grant, &answer(0, 0), 4_096);
    assert_eq!(window.place(15_000, 15_000).map(|spot| spot.at), Some(100));
    let late = window.grant(10);
    assert_eq!(late, None, "no boundary is left");
    window.adopt(&answer(0, 3));
    let grant = window.grant(10).expect("there is room");
    window.adopt(&answer(0, 2));
    assert_eq!(window.ask(), Some(3), "a completion that was overtaken");
    window.adopt(&answer(64, 4));
    // A grant of a replaced window has no effect.
    assert_eq!(window.place(16_000, 16_000).map(|spot| spot.at), Some(64));
    window.end_grant(grant, &answer(0, 3), 10);
    assert_eq!(window.place(100, 100).map(|spot| spot.at), Some(16_064));
    window.give_up();
    assert!(!window.holds(1));
}
