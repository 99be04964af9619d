//! Inputs of a transaction, drawn from its number alone (clauses 2.4.1 and 2.5.1).

use kvdrive_sim::Rng;

use super::keys::DistrictId;
use super::nurand::NuRand;
use super::size::Size;

/// A in NURand of last names, customers and items (clause 2.1.6).
const NAME_A: u64 = 255;
const CUSTOMER_A: u64 = 1023;
const ITEM_A: u64 = 8191;
/// Lines of an order, at least and at most (clause 2.4.1.3).
const LINES_LEAST: u64 = 5;
pub(super) const LINES_MOST: u64 = 15;
/// Difference of the constant C of last names between the load and the run: 65 to 119, except 96 and 112
/// (clause 2.1.6.1).
const NAME_C_DELTA: u64 = 100;

/// Weights of New Order and Payment: of 100 transactions of all five kinds, 45 and 43.
const NEW_ORDERS: u64 = 45;
const PAYMENTS: u64 = 43;

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub item: u32,
    pub supplier: u32,
    pub quantity: u8,
}

/// Inputs of a New Order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewOrderInputs {
    pub place: DistrictId,
    pub customer: u32,
    pub lines: Vec<Line>,
}

/// How a payment finds its customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CustomerBy {
    Number(u32),
    Name(u32),
}

/// Inputs of a Payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PaymentInputs {
    pub place: DistrictId,
    /// The customer's district.
    pub home: DistrictId,
    pub whose: CustomerBy,
    /// Amount in cents.
    pub amount: u32,
}

/// A transaction's inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Transaction {
    NewOrder(NewOrderInputs),
    Payment(PaymentInputs),
}

/// Draws inputs.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    seed: u64,
    size: Size,
    names: NuRand,
    names_of_load: NuRand,
    customers: NuRand,
    items: NuRand,
}

impl Draws {
    pub fn new(seed: u64, size: Size) -> Draws {
        let mut rng = Rng::stream(seed, "tpcc.constants");
        let of_load = rng.below(NAME_A + 1);
        let of_run =
            if of_load + NAME_C_DELTA <= NAME_A { of_load + NAME_C_DELTA } else { of_load - NAME_C_DELTA };
        let mut constant = |a: u64| rng.below(a + 1);
        let (of_customers, of_items) = (constant(CUSTOMER_A), constant(ITEM_A));
        let draws = |a, c, numbers| NuRand::new(a, c, numbers, size.shrink, seed);
        Draws {
            seed,
            size,
            names: draws(NAME_A, of_run, (0, Size::NAMES)),
            names_of_load: draws(NAME_A, of_load, (0, Size::NAMES)),
            customers: draws(CUSTOMER_A, of_customers, (1, Size::CUSTOMERS)),
            items: draws(ITEM_A, of_items, (1, Size::ITEMS)),
        }
    }

    /// The last name of a loaded customer after the first ones, which have every name once.
    pub fn name_of_load(&self, rng: &mut Rng) -> u32 {
        self.names_of_load.draw(rng)
    }

    fn customer(&self, rng: &mut Rng) -> u32 {
        self.customers.draw(rng) + 1
    }

    fn place(&self, rng: &mut Rng) -> DistrictId {
        let warehouse = rng.below(self.size.warehouses.into()) as u32 + 1;
        DistrictId { warehouse, district: rng.below(Size::DISTRICTS.into()) as u8 + 1 }
    }

    /// Another warehouse than `than`, if there is more than one.
    fn other(&self, rng: &mut Rng, than: u32) -> u32 {
        if self.size.warehouses == 1 {
            return than;
        }
        let other = rng.below(u64::from(self.size.warehouses) - 1) as u32 + 1;
        other + u32::from(other >= than)
    }

    /// Transaction `number`.
    pub fn transaction(&self, number: u64) -> Transaction {
        let mut rng = Rng::stream(self.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)), "tpcc");
        let place = self.place(&mut rng);
        if rng.below(NEW_ORDERS + PAYMENTS) < NEW_ORDERS {
            Transaction::NewOrder(self.new_order(&mut rng, place))
        } else {
            Transaction::Payment(self.payment(&mut rng, place))
        }
    }

    fn new_order(&self, rng: &mut Rng, place: DistrictId) -> NewOrderInputs {
        let customer = self.customer(rng);
        let count = LINES_LEAST + rng.below(LINES_MOST - LINES_LEAST + 1);
        let is_wrong = rng.one_in(100);
        let mut lines = Vec::with_capacity(count as usize);
        for line in 1..=count {
            let item = match is_wrong && line == count {
                // No such item: the order is rolled back.
                true => self.size.items() + 1,
                false => self.items.draw(rng) + 1,
            };
            let is_remote = rng.one_in(100);
            let supplier = if is_remote { self.other(rng, place.warehouse) } else { place.warehouse };
            lines.push(Line { item, supplier, quantity: rng.below(10) as u8 + 1 });
        }
        NewOrderInputs { place, customer, lines }
    }

    fn payment(&self, rng: &mut Rng, place: DistrictId) -> PaymentInputs {
        let home = match rng.below(100) < 15 {
            true => DistrictId {
                warehouse: self.other(rng, place.warehouse),
                district: rng.below(Size::DISTRICTS.into()) as u8 + 1,
            },
            false => place,
        };
        let whose = match rng.below(100) < 60 {
            true => CustomerBy::Name(self.names.draw(rng)),
            false => CustomerBy::Number(self.customer(rng)),
        };
        PaymentInputs { place, home, whose, amount: 100 + rng.below(499_901) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Size = Size { warehouses: 10, shrink: 1 };

    /// The shares of the specification, over enough transactions for a wrong share to show.
    #[test]
    fn inputs_have_the_shares_that_the_specification_asks_for() {
        let draws = Draws::new(1, FULL);
        let (mut orders, mut lines, mut remote, mut wrong) = (0.0, 0.0, 0.0, 0.0);
        let (mut payments, mut away, mut named) = (0.0, 0.0, 0.0);
        for number in 0..40_000 {
            match draws.transaction(number) {
                Transaction::NewOrder(order) => {
                    orders += 1.0;
                    lines += order.lines.len() as f64;
                    let home = order.place.warehouse;
                    remote += order.lines.iter().filter(|line| line.supplier != home).count() as f64;
                    wrong += f64::from(u8::from(order.lines.iter().any(|line| line.item > FULL.items())));
                    assert!((5..=15).contains(&order.lines.len()), "{order:?}");
                    assert!((1..=FULL.customers()).contains(&order.customer), "{order:?}");
                    assert!(order.lines.iter().all(|line| (1..=10).contains(&line.quantity)), "{order:?}");
                }
                Transaction::Payment(payment) => {
                    payments += 1.0;
                    away += f64::from(u8::from(payment.home.warehouse != payment.place.warehouse));
                    named += f64::from(u8::from(matches!(payment.whose, CustomerBy::Name(_))));
                    assert!((100..=500_000).contains(&payment.amount), "{payment:?}");
                }
            }
        }
        let near = |found: f64, published: f64, of: &str| {
            assert!((found / published - 1.0).abs() < 0.06, "{of}: {found}, published {published}");
        };
        near(orders / payments, 45.0 / 43.0, "New Orders to Payments");
        near(lines / orders, 10.0, "lines");
        near(remote / lines, 0.01, "remote lines");
        near(wrong / orders, 0.01, "rolled back");
        near(away / payments, 0.15, "remote payments");
        near(named / payments, 0.60, "by name");
    }

    /// NURand is far from uniform: with A = 8191 over 100 000, the most popular tenth of items has more than
    /// a quarter of the draws.
    #[test]
    fn popular_items_are_popular() {
        let popular_share = |size: Size| {
            let draws = Draws::new(1, size);
            let mut counts = vec![0u32; size.items() as usize + 2];
            for number in 0..40_000 {
                if let Transaction::NewOrder(order) = draws.transaction(number) {
                    order.lines.iter().for_each(|line| counts[line.item as usize] += 1);
                }
            }
            let all: u32 = counts.iter().sum();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let tenth: u32 = counts[..counts.len() / 10].iter().sum();
            f64::from(tenth) / f64::from(all)
        };
        let (full, shrunk) = (popular_share(FULL), popular_share(Size { shrink: 16, ..FULL }));
        assert!(full > 0.35, "{full}");
        assert!((shrunk / full - 1.0).abs() < 0.05, "{shrunk} for {full}");
    }

    #[test]
    fn a_number_asks_for_the_same_every_time() {
        let draws = Draws::new(7, FULL);
        assert_eq!(draws.transaction(5), draws.clone().transaction(5));
        assert_ne!(draws.transaction(5), draws.transaction(6));
        assert_ne!(draws.transaction(5), Draws::new(8, FULL).transaction(5));
    }
}
