//! Rows as bytes: the columns that the two transactions read and write, padded to the size that the
//! specification gives for a row (clause 4.2.2). Numbers have their lowest byte first; money is in cents,
//! taxes and discounts in 1/10 000. Unused columns are zero.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use kvdrive_nvme::Key;

use crate::units::{Failed, Pairs};

/// W_YTD, W_TAX.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Warehouse {
    pub ytd: U64,
    pub tax: U16,
    pub rest: [u8; 79],
}

/// D_YTD, D_NEXT_O_ID, D_TAX.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct District {
    pub ytd: U64,
    pub next_order: U32,
    pub tax: U16,
    pub rest: [u8; 81],
}

/// C_BALANCE, C_YTD_PAYMENT, C_PAYMENT_CNT, C_DISCOUNT, C_CREDIT (is it "BC"?), C_DATA.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Customer {
    pub balance: I64,
    pub ytd_payment: U64,
    pub payments: U32,
    pub discount: U16,
    pub is_bad_credit: u8,
    pub data: [u8; 500],
    pub rest: [u8; 132],
}

/// H_AMOUNT, H_C_ID, H_C_W_ID, H_C_D_ID.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct History {
    pub amount: U32,
    pub customer: U32,
    pub warehouse: U32,
    pub district: u8,
    pub rest: [u8; 33],
}

/// NO_O_ID.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct NewOrder {
    pub order: U32,
    pub rest: [u8; 4],
}

/// O_C_ID, O_OL_CNT, O_ALL_LOCAL.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Order {
    pub customer: U32,
    pub lines: u8,
    pub is_all_local: u8,
    pub rest: [u8; 18],
}

/// OL_I_ID, OL_SUPPLY_W_ID, OL_QUANTITY, OL_AMOUNT, OL_DIST_INFO.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct OrderLine {
    pub item: U32,
    pub supplier: U32,
    pub quantity: u8,
    pub amount: U32,
    pub district: [u8; 24],
    pub rest: [u8; 17],
}

/// I_PRICE.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Item {
    pub price: U32,
    pub rest: [u8; 78],
}

/// S_QUANTITY, S_YTD, S_ORDER_CNT, S_REMOTE_CNT, S_DIST_01 to S_DIST_10.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Stock {
    pub quantity: U16,
    pub ytd: U32,
    pub orders: U32,
    pub remote_orders: U32,
    pub districts: [[u8; 24]; 10],
    pub rest: [u8; 52],
}

const _: () = {
    assert!(size_of::<Warehouse>() == 89);
    assert!(size_of::<District>() == 95);
    assert!(size_of::<Customer>() == 655);
    assert!(size_of::<History>() == 46);
    assert!(size_of::<NewOrder>() == 8);
    assert!(size_of::<Order>() == 24);
    assert!(size_of::<OrderLine>() == 54);
    assert!(size_of::<Item>() == 82);
    assert!(size_of::<Stock>() == 306);
};

/// A row as its bytes.
pub(super) trait Row: Sized + FromBytes + IntoBytes + KnownLayout + Immutable {
    /// The row of a key, if there is one.
    fn find(pairs: &mut dyn Pairs, key: Key, buffer: &mut Vec<u8>) -> Result<Option<Self>, Failed> {
        if !pairs.read(key, buffer)? {
            return Ok(None);
        }
        let row = Self::read_from_bytes(buffer).map_err(|_| {
            Failed::Wrong(format!("row {key} has {} B instead of {}", buffer.len(), size_of::<Self>()))
        })?;
        Ok(Some(row))
    }

    /// The row of a key that must be there.
    fn read(pairs: &mut dyn Pairs, key: Key, buffer: &mut Vec<u8>) -> Result<Self, Failed> {
        Self::find(pairs, key, buffer)?.ok_or_else(|| Failed::Wrong(format!("row {key} is not there")))
    }

    /// Writes the row.
    fn write(&self, pairs: &mut dyn Pairs, key: Key) -> Result<(), Failed> {
        pairs.write(key, self.as_bytes())
    }
}

impl<T: FromBytes + IntoBytes + KnownLayout + Immutable> Row for T {}
