//! [`Size`]: how large a database is.

/// How many rows there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub warehouses: u32,
    /// Divisor of the number of rows that the specification gives the tables of a warehouse.
    pub shrink: u64,
}

impl Size {
    pub const DISTRICTS: u8 = 10;
    /// Rows of a whole database: items, customers of a district, last names.
    pub const ITEMS: u64 = 100_000;
    pub const CUSTOMERS: u64 = 3000;
    pub const NAMES: u64 = 1000;

    const fn part(&self, full: u64) -> u32 {
        (full / self.shrink) as u32
    }

    pub const fn items(&self) -> u32 {
        self.part(Self::ITEMS)
    }

    /// Customers of a district.
    pub const fn customers(&self) -> u32 {
        self.part(Self::CUSTOMERS)
    }

    /// Last names.
    pub const fn names(&self) -> u32 {
        self.part(Self::NAMES)
    }

    /// Orders of a district at the beginning.
    pub const fn orders(&self) -> u32 {
        self.part(3000)
    }

    /// Those of the first orders that are not delivered.
    pub const fn new_orders(&self) -> u32 {
        self.part(900)
    }
}
