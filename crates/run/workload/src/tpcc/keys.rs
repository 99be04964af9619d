//! Rows of TPC-C's tables under keys of 8 bytes.
//!
//! ```text
//!   bit 63   60 59            40 39   36 35                                  0
//!      +-------+----------------+-------+-------------------------------------+
//!      | table |   warehouse    | dist. |  what tells rows apart              |
//!      +-------+----------------+-------+-------------------------------------+
//!   1  WAREHOUSE       w           0      0
//!   2  DISTRICT        w           d      0
//!   3  CUSTOMER        w           d      c
//!   4  its names       w           d      number of the last name
//!   5  HISTORY         w           d      number of the payment
//!   6  NEW-ORDER       w           d      o
//!   7  ORDER           w           d      o
//!   8  ORDER-LINE      w           d      o << 4 | number of the line, 1 to 15
//!   9  ITEM            0           0      i
//!  10  STOCK           w           0      i
//! ```
//!
//! The highest byte comes first, so that a table's rows, and within it a district's rows, are contiguous in
//! the order of keys. Warehouses, districts, customers, orders and items count from 1, as in the
//! specification. HISTORY has no key there; here its rows have the number of the transaction that wrote them.
//! Table 4 is the index that finds customers by last name (clause 2.5.2.2).

use kvdrive_nvme::Key;

/// A table, by its number in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Table {
    Warehouse = 1,
    District = 2,
    Customer = 3,
    Names = 4,
    History = 5,
    NewOrder = 6,
    Order = 7,
    OrderLine = 8,
    Item = 9,
    Stock = 10,
}

/// Most warehouses that 20 bits number.
pub(super) const MOST_WAREHOUSES: u64 = (1 << 20) - 1;

/// A district of a warehouse; district 0 stands for the warehouse's own rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DistrictId {
    pub warehouse: u32,
    pub district: u8,
}

fn key(table: Table, place: DistrictId, row: u64) -> Key {
    assert!(row < 1 << 36 && place.district < 16);
    let DistrictId { warehouse, district } = place;
    let head = (table as u64) << 60 | u64::from(warehouse) << 40 | u64::from(district) << 36;
    Key::from_u64_be(head | row)
}

/// The rows of a warehouse that belong to none of its districts.
pub(super) const fn whole(warehouse: u32) -> DistrictId {
    DistrictId { warehouse, district: 0 }
}

pub(super) fn warehouse(warehouse: u32) -> Key {
    key(Table::Warehouse, whole(warehouse), 0)
}

pub(super) fn district(place: DistrictId) -> Key {
    key(Table::District, place, 0)
}

pub(super) fn customer(place: DistrictId, customer: u32) -> Key {
    key(Table::Customer, place, customer.into())
}

pub(super) fn names(place: DistrictId, name: u32) -> Key {
    key(Table::Names, place, name.into())
}

pub(super) fn history(place: DistrictId, number: u64) -> Key {
    key(Table::History, place, number)
}

pub(super) fn new_order(place: DistrictId, order: u32) -> Key {
    key(Table::NewOrder, place, order.into())
}

pub(super) fn order(place: DistrictId, order: u32) -> Key {
    key(Table::Order, place, order.into())
}

pub(super) fn order_line(place: DistrictId, order: u32, line: u8) -> Key {
    key(Table::OrderLine, place, u64::from(order) << 4 | u64::from(line))
}

pub(super) fn item(item: u32) -> Key {
    key(Table::Item, whole(0), item.into())
}

pub(super) fn stock(warehouse: u32, item: u32) -> Key {
    key(Table::Stock, whole(warehouse), item.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_keys_that_are_drawn() {
        let place = DistrictId { warehouse: 0xABCDE, district: 10 };
        let number = |key: Key| {
            let (high, low) = key.halves();
            assert_eq!((key.len(), low), (8, 0));
            high
        };
        assert_eq!(number(warehouse(0xABCDE)), 0x1ABC_DE00_0000_0000);
        assert_eq!(number(district(place)), 0x2ABC_DEA0_0000_0000);
        assert_eq!(number(order_line(place, 0xFFFF_FFFF, 15)), 0x8ABC_DEAF_FFFF_FFFF);
        assert_eq!(number(stock(1, 100_000)), 0xA000_0100_0001_86A0);
        assert_eq!(number(item(1)), 0x9000_0000_0000_0001);
    }
}
