//! For tests: every byte of a value or record is altered, and the bytes are cut off at every length. A reader must
//! refuse the result, or read another value whose encoding it is, and must never panic.

use std::fmt::Debug;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::{Form, decode, encode};

/// Tries every byte of a value's encoding.
///
/// # Panics
/// A reader accepts bytes that are not the encoding of the value that it returns.
pub fn every_byte<T: BorshSerialize + BorshDeserialize>(value: &T) {
    let good = encode(value);
    let accepted = |bytes: &[u8]| decode::<T>(bytes).ok().map(|read| encode(&read));
    assert_eq!(accepted(&good).as_ref(), Some(&good), "a value is read as it was written");
    for at in 0..good.len() {
        assert_eq!(accepted(&good[..at]), None, "{at} of {} bytes", good.len());
        let mut altered = good.clone();
        for change in 1..=u8::MAX {
            altered[at] = good[at] ^ change;
            assert!(
                accepted(&altered).is_none_or(|again| again == altered),
                "byte {at} changed by {change:#x}"
            );
        }
    }
    assert_eq!(accepted(&[&good[..], &[0]].concat()), None, "a byte follows it");
}

/// Alters every byte of a record: each result must be refused.
///
/// # Panics
/// A reader accepts an altered record.
pub fn every_byte_of_a_record<T>(form: &Form, value: &T)
where
    T: BorshSerialize + BorshDeserialize + PartialEq + Debug,
{
    let good = form.seal(value);
    assert_eq!(form.open::<T>(&good).as_ref(), Ok(value));
    for at in 0..good.len() {
        assert!(form.open::<T>(&good[..at]).is_err(), "{at} of {} bytes", good.len());
        let mut altered = good.clone();
        for change in 1..=u8::MAX {
            altered[at] = good[at] ^ change;
            assert!(form.open::<T>(&altered).is_err(), "byte {at} changed by {change:#x}");
        }
    }
    assert!(form.open::<T>(&[&good[..], &[0]].concat()).is_err(), "a byte follows it");
}
