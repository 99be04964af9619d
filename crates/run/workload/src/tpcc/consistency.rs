//! Checks at the end: the consistency conditions of clause 3.3.2 that New Order and Payment touch, and that
//! no update was lost.
//!
//! | | |
//! |---|---|
//! | 1 | W_YTD is the sum of its districts' D_YTD |
//! | 2 | D_NEXT_O_ID - 1 is the last order, and the last new order, of its district |
//! | 3 | new orders follow each other without a gap: there are no deliveries |
//! | 4 | the orders' O_OL_CNT are their lines, none more and none less |
//! | 8, 9 | W_YTD and D_YTD are the sums of H_AMOUNT there |
//! | lost updates | D_NEXT_O_ID has grown by the New Orders that were committed there; S_ORDER_CNT by the lines of all |
//!
//! Conditions 2 to 4 also cover orders that were loaded, at both ends of their range. The inputs of the
//! transactions are drawn again, each by its number, so the check needs only the drive and no other state of
//! the run.

use std::collections::BTreeMap;

use super::draws::{Draws, Transaction};
use super::keys::{self, DistrictId};
use super::rows::{District, History, NewOrder, Order, OrderLine, Row, Stock, Warehouse};
use super::size::Size;
use super::{loaded, transactions};
use crate::units::{Failed, Pairs};
use kvdrive_text::grouped;

/// Effects of committed transactions on a district.
#[derive(Default)]
struct Done {
    orders: u32,
    paid: u64,
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(Failed::Wrong(what())) }
}

fn name(place: DistrictId) -> String {
    format!("district {} of warehouse {}", place.district, place.warehouse)
}

/// The state that the committed transactions must have left.
#[derive(Default)]
struct Expected {
    districts: BTreeMap<DistrictId, Done>,
    payments: u64,
    /// Lines that ordered an item, by warehouse and item.
    lines_of_stock: BTreeMap<(u32, u32), u32>,
}

/// Checks a drive on which transactions below `units` have ended against the table above.
pub(super) fn check(
    size: &Size,
    draws: &Draws,
    stock_update: bool,
    units: u64,
    pairs: &mut dyn Pairs,
) -> Result<String, Failed> {
    let buffer = &mut Vec::new();
    let expected = expected(size, draws, stock_update, units, pairs, buffer)?;
    let orders = check_districts(size, &expected.districts, pairs, buffer)?;
    check_stock(&expected.lines_of_stock, pairs, buffer)?;
    Ok(format!(
        "TPC-C's consistency conditions 1 to 4, 8 and 9 hold, no update is lost: {} orders and {} payments of {} \
         districts were read back",
        grouped(orders),
        grouped(expected.payments),
        expected.districts.len()
    ))
}

/// Draws the transactions again, and reads the history row of each payment.
fn expected(
    size: &Size,
    draws: &Draws,
    stock_update: bool,
    units: u64,
    pairs: &mut dyn Pairs,
    buffer: &mut Vec<u8>,
) -> Result<Expected, Failed> {
    let districts = transactions::places(size).map(|place| (place, Done::default())).collect();
    let mut expected = Expected { districts, ..Expected::default() };
    for number in 0..units {
        match draws.transaction(number) {
            Transaction::NewOrder(order) if order.lines.iter().all(|line| line.item <= size.items()) => {
                expected.districts.entry(order.place).or_default().orders += 1;
                if stock_update {
                    for line in &order.lines {
                        *expected.lines_of_stock.entry((line.supplier, line.item)).or_default() += 1;
                    }
                }
            }
            Transaction::NewOrder(_) => {}
            Transaction::Payment(payment) => {
                let place = payment.place;
                let row = History::read(pairs, keys::history(place, number), buffer)?;
                ensure(row.amount.get() == payment.amount, || {
                    format!(
                        "payment {number} in {}: H_AMOUNT {}, paid were {}",
                        name(place),
                        row.amount,
                        payment.amount
                    )
                })?;
                expected.districts.entry(place).or_default().paid += u64::from(payment.amount);
                expected.payments += 1;
            }
        }
    }
    Ok(expected)
}

/// Checks warehouses, districts and their orders; returns the number of orders read.
fn check_districts(
    size: &Size,
    districts: &BTreeMap<DistrictId, Done>,
    pairs: &mut dyn Pairs,
    buffer: &mut Vec<u8>,
) -> Result<u64, Failed> {
    let (mut orders, mut sum_of_warehouse) = (0u64, 0u64);
    for (place, done) in districts {
        let row = District::read(pairs, keys::district(*place), buffer)?;
        let (ytd, paid) = (row.ytd.get(), loaded::district_ytd(size) + done.paid);
        ensure(ytd == paid, || format!("{}: D_YTD is {ytd}, its H_AMOUNT sum up to {paid}", name(*place)))?;
        let (next, expected) = (row.next_order.get(), size.orders() + 1 + done.orders);
        ensure(next == expected, || {
            format!("{}: D_NEXT_O_ID is {next}, the orders entered make it {expected}", name(*place))
        })?;
        orders += check_orders(size, *place, next, pairs, buffer)?;
        sum_of_warehouse += ytd;
        if place.district == Size::DISTRICTS {
            let warehouse = place.warehouse;
            let row = Warehouse::read(pairs, keys::warehouse(warehouse), buffer)?;
            let (ytd, sum) = (row.ytd.get(), std::mem::take(&mut sum_of_warehouse));
            ensure(ytd == sum, || {
                format!("warehouse {warehouse}: W_YTD is {ytd}, its D_YTD sum up to {sum}")
            })?;
        }
    }
    Ok(orders)
}

/// Checks that no line of an order is lost in its stock.
fn check_stock(
    lines_of_stock: &BTreeMap<(u32, u32), u32>,
    pairs: &mut dyn Pairs,
    buffer: &mut Vec<u8>,
) -> Result<(), Failed> {
    for ((warehouse, item), lines) in lines_of_stock {
        let row = Stock::read(pairs, keys::stock(*warehouse, *item), buffer)?;
        let counted = row.orders.get();
        ensure(counted == *lines, || {
            format!(
                "item {item} of warehouse {warehouse}: S_ORDER_CNT is {counted}, {lines} lines ordered it"
            )
        })?;
    }
    Ok(())
}

/// Checks conditions 2 to 4 of one district whose next order is `next`; returns the number of orders read.
fn check_orders(
    size: &Size,
    place: DistrictId,
    next: u32,
    pairs: &mut dyn Pairs,
    buffer: &mut Vec<u8>,
) -> Result<u64, Failed> {
    let of_run = size.orders() + 1;
    let oldest_new = of_run - size.new_orders();
    let is_there = |pairs: &mut dyn Pairs, order: u32, buffer: &mut Vec<u8>| -> Result<[bool; 2], Failed> {
        let order_row = Order::find(pairs, keys::order(place, order), buffer)?.is_some();
        Ok([order_row, NewOrder::find(pairs, keys::new_order(place, order), buffer)?.is_some()])
    };
    let ends =
        [(oldest_new - 1, [oldest_new > 1, false]), (oldest_new, [true, true]), (next, [false, false])];
    for (order, expected) in ends {
        let found = is_there(pairs, order, buffer)?;
        ensure(found == expected, || {
            format!(
                "{}, order {order}: ORDER and NEW-ORDER are there: {found:?}, should be {expected:?}",
                name(place)
            )
        })?;
    }
    let mut looked_at = 0;
    for order in of_run..next {
        let what = || format!("{}, order {order}", name(place));
        let row = Order::read(pairs, keys::order(place, order), buffer)?;
        let waiting = NewOrder::read(pairs, keys::new_order(place, order), buffer)?;
        ensure(waiting.order.get() == order, || format!("{}: NO_O_ID is {}", what(), waiting.order))?;
        for line in 1..=row.lines + 1 {
            let is_there = OrderLine::find(pairs, keys::order_line(place, order, line), buffer)?.is_some();
            ensure(is_there == (line <= row.lines), || {
                format!("{}: O_OL_CNT is {}, and line {line} is there: {is_there}", what(), row.lines)
            })?;
        }
        looked_at += 1;
    }
    Ok(looked_at)
}
