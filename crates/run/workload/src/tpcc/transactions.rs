//! New Order and Payment, as plain code (clauses 2.4.2 and 2.5.2).
//!
//! | | reads | writes |
//! |---|---|---|
//! | New Order | W, D, C; of each line I, S | D, O, NO; of each line OL, and S with `stock_update` |
//! | Payment | W, D, C; 60 %: the index of names | W, D, C, H |
//!
//! A row that is read and then written is locked from before the read until after the write: D and the lines'
//! S of a New Order; W, D and C of a Payment. So no update is lost. Rows that are only read (taxes,
//! discounts, prices) never change. A New Order writes after all reads: if it meets an unknown item, it ends
//! there, and has nothing to undo.

use kvdrive_nvme::Key;
use zerocopy::FromZeros;

use super::draws::{CustomerBy, Line, NewOrderInputs, PaymentInputs};
use super::keys::{self, DistrictId};
use super::rows::{Customer, District, History, Item, NewOrder, Order, OrderLine, Row, Stock, Warehouse};
use super::size::Size;
use crate::units::{Failed, Pairs};

/// Bytes of a customer's number in the index of names.
const NUMBER_BYTES: usize = 4;
/// Bytes of the note that a payment by a customer with bad credit adds to C_DATA.
const NOTE_BYTES: usize = 21;

/// Rows that are locked while this lives.
struct Locked<'a>(&'a mut dyn Pairs);

impl<'a> Locked<'a> {
    fn new(pairs: &'a mut dyn Pairs, mut rows: Vec<Key>) -> Locked<'a> {
        rows.sort_unstable();
        rows.dedup();
        pairs.lock(&rows);
        Locked(pairs)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Enters an order; `false`: one of its items does not exist.
pub(super) fn new_order(
    inputs: &NewOrderInputs,
    stock_update: bool,
    pairs: &mut dyn Pairs,
) -> Result<bool, Failed> {
    let place = inputs.place;
    let mut rows = vec![keys::district(place)];
    if stock_update {
        rows.extend(inputs.lines.iter().map(|line| keys::stock(line.supplier, line.item)));
    }
    let locked = Locked::new(pairs, rows);
    let (pairs, buffer) = (&mut *locked.0, &mut Vec::new());
    Warehouse::read(pairs, keys::warehouse(place.warehouse), buffer)?;
    let mut district = District::read(pairs, keys::district(place), buffer)?;
    Customer::read(pairs, keys::customer(place, inputs.customer), buffer)?;
    let mut lines: Vec<(OrderLine, Key, Stock)> = Vec::with_capacity(inputs.lines.len());
    for line in &inputs.lines {
        let Some(item) = Item::find(pairs, keys::item(line.item), buffer)? else { return Ok(false) };
        let key = keys::stock(line.supplier, line.item);
        let before = lines.iter().rposition(|(_, other, _)| *other == key);
        let mut stock = Stock::read(pairs, key, buffer)?;
        if let Some(before) = before {
            // The order names the item twice: the change of the earlier line is not written yet.
            stock = lines[before].2;
        }
        take_from(&mut stock, line, line.supplier != place.warehouse);
        lines.push((entered(line, &item, &stock, place), key, stock));
    }
    let order = district.next_order.get();
    district.next_order.set(order + 1);
    district.write(pairs, keys::district(place))?;
    let is_all_local = inputs.lines.iter().all(|line| line.supplier == place.warehouse).into();
    let head = Order {
        customer: inputs.customer.into(),
        lines: lines.len() as u8,
        is_all_local,
        ..Order::new_zeroed()
    };
    head.write(pairs, keys::order(place, order))?;
    NewOrder { order: order.into(), ..NewOrder::new_zeroed() }.write(pairs, keys::new_order(place, order))?;
    for (number, (line, stock_key, stock)) in (1..).zip(&lines) {
        if stock_update {
            stock.write(pairs, *stock_key)?;
        }
        line.write(pairs, keys::order_line(place, order, number))?;
    }
    pairs.commit()?;
    Ok(true)
}

/// Subtracts the quantity of a line from a stock, and refills the stock if it is low.
fn take_from(stock: &mut Stock, line: &Line, is_remote: bool) {
    let (quantity, taken) = (stock.quantity.get(), u16::from(line.quantity));
    stock.quantity.set(if quantity >= taken + 10 { quantity - taken } else { quantity + 91 - taken });
    stock.ytd += u32::from(line.quantity);
    stock.orders += 1;
    stock.remote_orders += u32::from(is_remote);
}

fn entered(line: &Line, item: &Item, stock: &Stock, place: DistrictId) -> OrderLine {
    OrderLine {
        item: line.item.into(),
        supplier: line.supplier.into(),
        quantity: line.quantity,
        amount: (u32::from(line.quantity) * item.price.get()).into(),
        district: stock.districts[usize::from(place.district) - 1],
        ..OrderLine::new_zeroed()
    }
}

/// Records a customer's payment.
pub(super) fn payment(inputs: &PaymentInputs, number: u64, pairs: &mut dyn Pairs) -> Result<(), Failed> {
    let PaymentInputs { place, home, amount, .. } = *inputs;
    let buffer = &mut Vec::new();
    let customer = match inputs.whose {
        CustomerBy::Number(customer) => customer,
        CustomerBy::Name(name) => middle_of(pairs, home, name, buffer)?,
    };
    let (of_warehouse, of_district, of_customer) =
        (keys::warehouse(place.warehouse), keys::district(place), keys::customer(home, customer));
    let locked = Locked::new(pairs, vec![of_warehouse, of_district, of_customer]);
    let pairs = &mut *locked.0;
    let mut warehouse = Warehouse::read(pairs, of_warehouse, buffer)?;
    warehouse.ytd += u64::from(amount);
    warehouse.write(pairs, of_warehouse)?;
    let mut district = District::read(pairs, of_district, buffer)?;
    district.ytd += u64::from(amount);
    district.write(pairs, of_district)?;
    let mut row = Customer::read(pairs, of_customer, buffer)?;
    row.balance -= i64::from(amount);
    row.ytd_payment += u64::from(amount);
    row.payments += 1;
    if row.is_bad_credit != 0 {
        note_payment(&mut row.data, customer, inputs);
    }
    row.write(pairs, of_customer)?;
    let history = History {
        amount: amount.into(),
        customer: customer.into(),
        warehouse: home.warehouse.into(),
        district: home.district,
        ..History::new_zeroed()
    };
    history.write(pairs, keys::history(place, number))?;
    pairs.commit()
}

/// The middle one, rounded up, of the customers with a last name, in the order of their first names.
fn middle_of(
    pairs: &mut dyn Pairs,
    home: DistrictId,
    name: u32,
    buffer: &mut Vec<u8>,
) -> Result<u32, Failed> {
    let key = keys::names(home, name);
    let numbers = if pairs.read(key, buffer)? { &buffer[..] } else { &[] };
    let count = numbers.len() / NUMBER_BYTES;
    let at = count.div_ceil(2).checked_sub(1).map(|middle| middle * NUMBER_BYTES);
    let number = at.and_then(|at| numbers[at..].first_chunk::<NUMBER_BYTES>());
    number
        .map(|number| u32::from_le_bytes(*number))
        .ok_or_else(|| Failed::Wrong(format!("row {key}: a last name in use has no customer")))
}

/// Inserts the payment before the customer's other data (clause 2.5.2.2).
fn note_payment(data: &mut [u8; 500], customer: u32, inputs: &PaymentInputs) {
    let (place, home) = (inputs.place, inputs.home);
    let mut note = [0; NOTE_BYTES];
    let numbers = [customer, home.warehouse, place.warehouse, inputs.amount].map(u32::to_le_bytes);
    note[..16].copy_from_slice(numbers.as_flattened());
    (note[16], note[17]) = (home.district, place.district);
    data.copy_within(..500 - NOTE_BYTES, NOTE_BYTES);
    data[..NOTE_BYTES].copy_from_slice(&note);
}

/// Districts of every warehouse.
pub(super) fn places(size: &Size) -> impl Iterator<Item = DistrictId> + use<> {
    (1..=size.warehouses)
        .flat_map(|warehouse| (1..=Size::DISTRICTS).map(move |district| DistrictId { warehouse, district }))
}
