//! The initial rows of a database (clause 4.3.3.1), each computed from its number.
//!
//! ```text
//!   number   | items | warehouse 1 | warehouse 2 | ...
//!   of each    its row | stock | 10 districts: row | customers | names | history | orders | lines | new orders
//! ```
//!
//! Differences from the specification, none of which affects the two transactions or the checks: orders have
//! 5 to 15 lines in turn, not at random; customers buy in the order of their numbers; unused columns are
//! zero.

use zerocopy::{FromZeros, IntoBytes};

use kvdrive_nvme::Key;
use kvdrive_sim::Rng;

use super::draws::Draws;
use super::keys::{self, DistrictId, whole};
use super::rows::{Customer, District, History, Item, NewOrder, Order, OrderLine, Stock, Warehouse};
use super::size::Size;

/// H_AMOUNT at first, and the sum that every customer has paid, cents.
const FIRST_PAYMENT: u64 = 1000;

/// D_YTD at first: the sum that its customers have paid, 30 000.00 at full size.
pub(super) fn district_ytd(size: &Size) -> u64 {
    FIRST_PAYMENT * u64::from(size.customers())
}

/// Lines of the first orders: 5 to 15 in turn.
fn lines_of(order: u32) -> u8 {
    5 + ((order - 1) % 11) as u8
}

/// Lines of all first orders before `order`.
fn lines_before(order: u32) -> u64 {
    let before = u64::from(order - 1);
    let (rounds, rest) = (before / 11, before % 11);
    // 5 + 6 + ... + 15 lines in each round of orders.
    rounds * 110 + rest * 5 + rest * rest.saturating_sub(1) / 2
}

/// The rows at the beginning.
pub(super) struct Loaded {
    size: Size,
    /// Customers of each last name, in the order of their first names; the same in every district.
    by_name: Vec<Vec<u32>>,
    seed: u64,
}

impl Loaded {
    pub fn new(seed: u64, size: Size, draws: &Draws) -> Loaded {
        let mut rng = Rng::stream(seed, "tpcc.names");
        let mut by_name = vec![Vec::new(); size.names() as usize];
        for customer in 1..=size.customers() {
            let name = if customer <= size.names() { customer - 1 } else { draws.name_of_load(&mut rng) };
            by_name[name as usize].push((rng.next_u32(), customer));
        }
        let sorted = by_name.into_iter().map(|mut of_name: Vec<(u32, u32)>| {
            of_name.sort_unstable();
            of_name.into_iter().map(|(_, customer)| customer).collect()
        });
        Loaded { size, by_name: sorted.collect(), seed }
    }

    fn lines(&self) -> u64 {
        lines_before(self.size.orders() + 1)
    }

    /// Rows of each kind in a district, in their order.
    fn of_district(&self) -> [u64; 7] {
        let size = &self.size;
        let (customers, orders) = (u64::from(size.customers()), u64::from(size.orders()));
        [1, customers, size.names().into(), customers, orders, self.lines(), size.new_orders().into()]
    }

    fn of_warehouse(&self) -> u64 {
        1 + u64::from(self.size.items()) + u64::from(Size::DISTRICTS) * self.of_district().iter().sum::<u64>()
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        u64::from(self.size.items()) + u64::from(self.size.warehouses) * self.of_warehouse()
    }

    /// Writes row `number` to `value`; returns its key.
    pub fn row(&self, number: u64, value: &mut Vec<u8>) -> Key {
        let items = u64::from(self.size.items());
        // Any constant numbers: their values do not matter.
        let mut rng = Rng::stream(self.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15), "tpcc.row");
        value.clear();
        if number < items {
            let row = Item { price: (100 + rng.below(9901) as u32).into(), ..Item::new_zeroed() };
            value.extend_from_slice(row.as_bytes());
            return keys::item(number as u32 + 1);
        }
        let (warehouse, number) =
            ((number - items) / self.of_warehouse(), (number - items) % self.of_warehouse());
        let warehouse = warehouse as u32 + 1;
        if number == 0 {
            let ytd = district_ytd(&self.size) * u64::from(Size::DISTRICTS);
            let tax = (rng.below(2001) as u16).into();
            value.extend_from_slice(Warehouse { ytd: ytd.into(), tax, ..Warehouse::new_zeroed() }.as_bytes());
            return keys::warehouse(warehouse);
        }
        if number <= items {
            let quantity = (10 + rng.below(91) as u16).into();
            value.extend_from_slice(Stock { quantity, ..Stock::new_zeroed() }.as_bytes());
            return keys::stock(warehouse, number as u32);
        }
        let (each, number) = (self.of_district().iter().sum::<u64>(), number - items - 1);
        let place = DistrictId { warehouse, district: (number / each) as u8 + 1 };
        self.row_of_district(place, number % each, &mut rng, value)
    }

    fn row_of_district(&self, place: DistrictId, mut number: u64, rng: &mut Rng, value: &mut Vec<u8>) -> Key {
        let mut kind = 0;
        for count in self.of_district() {
            if number < count {
                break;
            }
            number -= count;
            kind += 1;
        }
        let nth = number as u32 + 1;
        let mut put = |bytes: &[u8]| value.extend_from_slice(bytes);
        match kind {
            0 => {
                let (ytd, tax) = (district_ytd(&self.size).into(), (rng.below(2001) as u16).into());
                let next_order = (self.size.orders() + 1).into();
                put(District { ytd, tax, next_order, ..District::new_zeroed() }.as_bytes());
                keys::district(place)
            }
            1 => {
                let (discount, is_bad_credit) = ((rng.below(5001) as u16).into(), rng.one_in(10).into());
                let (balance, ytd_payment) = ((-(FIRST_PAYMENT as i64)).into(), FIRST_PAYMENT.into());
                let row = Customer {
                    balance,
                    ytd_payment,
                    payments: 1.into(),
                    discount,
                    is_bad_credit,
                    ..Customer::new_zeroed()
                };
                put(row.as_bytes());
                keys::customer(place, nth)
            }
            2 => {
                let customers = &self.by_name[number as usize];
                customers.iter().for_each(|customer| put(&customer.to_le_bytes()));
                keys::names(place, number as u32)
            }
            3 => {
                let DistrictId { warehouse, district } = place;
                let (amount, customer) = ((FIRST_PAYMENT as u32).into(), nth.into());
                put(History {
                    amount,
                    customer,
                    warehouse: warehouse.into(),
                    district,
                    ..History::new_zeroed()
                }
                .as_bytes());
                // Above the number of any payment, however long a run is.
                keys::history(place, (1 << 35) + number)
            }
            4 => {
                let (customer, lines) = (nth.into(), lines_of(nth));
                put(Order { customer, lines, is_all_local: 1, ..Order::new_zeroed() }.as_bytes());
                keys::order(place, nth)
            }
            5 => {
                let order = self.order_of_line(number);
                let item = (rng.below(self.size.items().into()) as u32 + 1).into();
                let supplier = whole(place.warehouse).warehouse.into();
                put(OrderLine { item, supplier, quantity: 5, ..OrderLine::new_zeroed() }.as_bytes());
                keys::order_line(place, order, (number - lines_before(order)) as u8 + 1)
            }
            _ => {
                let order = self.size.orders() - self.size.new_orders() + nth;
                put(NewOrder { order: order.into(), ..NewOrder::new_zeroed() }.as_bytes());
                keys::new_order(place, order)
            }
        }
    }

    /// The first order that line `number`, counted from 0 over all of them, belongs to.
    fn order_of_line(&self, number: u64) -> u32 {
        let (mut low, mut high) = (1, self.size.orders());
        while low < high {
            let middle = (low + high).div_ceil(2);
            if lines_before(middle) <= number { low = middle } else { high = middle - 1 }
        }
        low
    }
}
