//! Key agreement in the finite fields of RFC 7919.
//!
//! The prime of `b` bits is 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1: 64 ones, the digits of e
//! shifted by X, 64 ones. It is computed here, once, because that is easier to check than typed-in digits.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};
use kvdrive_nvme::auth::Group;
use once_cell::race::OnceBox;

/// Bits of an exponent. RFC 7919 (section 5.2) asks for 400 in the largest group.
const EXPONENT_BITS: u32 = 512;
const GENERATOR: u8 = 2;
const LIMB_BITS: u32 = 64;

/// X of the groups' primes (RFC 7919, appendix A).
fn offset(group: Group) -> u64 {
    match group {
        Group::Null => 0,
        Group::Ffdhe2048 => 560_316,
        Group::Ffdhe3072 => 2_625_351,
        Group::Ffdhe4096 => 5_736_041,
        Group::Ffdhe6144 => 15_705_020,
        Group::Ffdhe8192 => 10_965_728,
    }
}

/// The prime of a group, highest byte first.
#[must_use]
pub fn prime(group: Group) -> Vec<u8> {
    // The sum of 1/k!, lowest limb first; 62 bits of the highest limb are after the binary point, and the
    // lowest limb absorbs rounding.
    let limbs = (group.bits() / LIMB_BITS).saturating_sub(1) as usize;
    let (mut e, mut term) = (vec![0u64; limbs], vec![0u64; limbs]);
    if let Some(highest) = term.last_mut() {
        *highest = 1 << 62;
    }
    for k in 1.. {
        if term.iter().all(|limb| *limb == 0) {
            break;
        }
        add(&mut e, &term);
        divide(&mut term, k);
    }
    let mut middle = e.split_off(limbs.min(1));
    let mut moved = vec![0; middle.len()];
    if let Some(lowest) = moved.first_mut() {
        // The subtracted 1 makes 64 ones below this limb, and is borrowed here.
        *lowest = offset(group) - 1;
    }
    add(&mut middle, &moved);
    let limbs = if middle.is_empty() { Vec::new() } else { [&[u64::MAX][..], &middle, &[u64::MAX]].concat() };
    limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect()
}

fn add(to: &mut [u64], other: &[u64]) {
    let mut carry = false;
    for (to, other) in to.iter_mut().zip(other) {
        let (sum, over) = to.overflowing_add(*other);
        let (sum, over_again) = sum.overflowing_add(u64::from(carry));
        (*to, carry) = (sum, over || over_again);
    }
}

fn divide(of: &mut [u64], by: u64) {
    let mut rest = 0u128;
    for limb in of.iter_mut().rev() {
        let wide = rest << LIMB_BITS | u128::from(*limb);
        (*limb, rest) = ((wide / u128::from(by)) as u64, wide % u128::from(by));
    }
}

/// Parameters of arithmetic modulo the group's prime; `None` without a group.
fn field(group: Group) -> Option<&'static BoxedMontyParams> {
    static FIELDS: [OnceBox<BoxedMontyParams>; 6] = [const { OnceBox::new() }; 6];
    let bits = group.bits();
    (bits > 0).then(|| {
        FIELDS[group as usize].get_or_init(|| {
            let prime = BoxedUint::from_be_slice(&prime(group), bits).expect("it has as many bits");
            let odd = Option::from(Odd::new(prime)).expect("it ends in ones");
            Box::new(BoxedMontyParams::new_vartime(odd))
        })
    })
}

/// One end's part of a key agreement. Without a group it is empty.
pub struct KeyPair {
    group: Group,
    exponent: BoxedUint,
    public: Vec<u8>,
}

/// A public value outside its group, or one that would reveal the secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an invalid public value")]
pub struct BadPublicValue;

impl KeyPair {
    /// A new key pair with a random exponent.
    #[must_use]
    pub fn new(group: Group) -> KeyPair {
        KeyPair::of(group, &crate::random(EXPONENT_BITS as usize / 8))
    }

    /// The key pair of an exponent of 64 bytes, highest first.
    ///
    /// # Panics
    /// The exponent has another length.
    #[must_use]
    pub fn of(group: Group, exponent: &[u8]) -> KeyPair {
        let exponent = BoxedUint::from_be_slice(exponent, EXPONENT_BITS).expect("an exponent has 64 bytes");
        let public = field(group).map_or_else(Vec::new, |field| {
            let generator = BoxedUint::from(GENERATOR).resize(group.bits());
            power(field, generator, &exponent)
        });
        KeyPair { group, exponent, public }
    }

    /// The value sent to the other end, as long as the prime.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Can `other` be the other end's public value? The check is cheap.
    ///
    /// # Errors
    /// The value is not between 1 and the prime less 1, or there is no group.
    pub fn check(&self, other: &[u8]) -> Result<(), BadPublicValue> {
        self.public_of(other).map(drop)
    }

    /// The shared secret that both ends compute from the other's public value, as long as the prime; empty
    /// without a group.
    ///
    /// # Errors
    /// Those of [`KeyPair::check`].
    pub fn agree(&self, other: &[u8]) -> Result<Vec<u8>, BadPublicValue> {
        let Some((field, other)) = self.public_of(other)? else { return Ok(Vec::new()) };
        Ok(power(field, other, &self.exponent))
    }

    /// The other end's public value as a number of its field; `None` without a group.
    fn public_of(
        &self,
        other: &[u8],
    ) -> Result<Option<(&'static BoxedMontyParams, BoxedUint)>, BadPublicValue> {
        let Some(field) = field(self.group) else {
            return if other.is_empty() { Ok(None) } else { Err(BadPublicValue) };
        };
        let bits = self.group.bits();
        // Some implementations leave out leading zeros.
        let other = BoxedUint::from_be_slice(&padded(other, bits)?, bits).map_err(|_| BadPublicValue)?;
        let one = BoxedUint::one_with_precision(bits);
        let last = field.modulus().as_ref().wrapping_sub(&one);
        if other <= one || other >= last { Err(BadPublicValue) } else { Ok(Some((field, other))) }
    }
}

fn padded(value: &[u8], bits: u32) -> Result<Vec<u8>, BadPublicValue> {
    let zeros = (bits as usize / 8).checked_sub(value.len()).ok_or(BadPublicValue)?;
    Ok([&vec![0; zeros][..], value].concat())
}

fn power(field: &BoxedMontyParams, base: BoxedUint, exponent: &BoxedUint) -> Vec<u8> {
    BoxedMontyForm::new(base, field).pow(exponent).retrieve().to_be_bytes().to_vec()
}
