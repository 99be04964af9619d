//! Values in MessagePack, from bytes of a file: texts and byte strings stay where they are, and no more memory is taken than
//! the bytes justify. Extension types are refused.

/// Lists and maps inside each other.
const DEPTH_MAX: u32 = 32;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Nothing,
    Flag(bool),
    Number(f64),
    /// A text or a byte string.
    Bytes(&'a [u8]),
    List(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
}

impl<'a> Value<'a> {
    /// The value that is all of `bytes`.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub(super) fn of(bytes: &'a [u8]) -> Result<Value<'a>, String> {
        let mut rest = bytes;
        let value = read(&mut rest, 0);
        let at = bytes.len() - rest.len();
        match value {
            Ok(value) if rest.is_empty() => Ok(value),
            Ok(_) => Err(format!("{} bytes after its value", rest.len())),
            Err(what) => Err(format!("byte {at}: {what}")),
        }
    }

    /// The value of a map under `name`.
    pub(super) fn get(&self, name: &str) -> Option<&Value<'a>> {
        let Value::Map(pairs) = self else { return None };
        pairs.iter().find(|(key, _)| *key == Value::Bytes(name.as_bytes())).map(|(_, value)| value)
    }

    pub(super) fn bytes(&self) -> Option<&'a [u8]> {
        if let Value::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// A whole number of 0 or more.
    pub(super) fn number(&self) -> Option<u64> {
        let Value::Number(number) = self else { return None };
        (*number >= 0.0 && *number <= 2f64.powi(53) && number.fract() == 0.0).then_some(*number as u64)
    }

    pub(super) fn list(&self) -> Option<&[Value<'a>]> {
        if let Value::List(list) = self { Some(list) } else { None }
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], String> {
    let (taken, left) = rest.split_at_checked(bytes).ok_or("the frame ends in the middle of a value")?;
    *rest = left;
    Ok(taken)
}

/// A number of `bytes` bytes, big endian.
fn unsigned(rest: &mut &[u8], bytes: usize) -> Result<u64, String> {
    Ok(take(rest, bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn list<'a>(rest: &mut &'a [u8], count: u64, depth: u32) -> Result<Value<'a>, String> {
    Ok(Value::List((0..count).map(|_| read(rest, depth + 1)).collect::<Result<_, _>>()?))
}

fn map<'a>(rest: &mut &'a [u8], count: u64, depth: u32) -> Result<Value<'a>, String> {
    let mut pair = |_| Ok((read(rest, depth + 1)?, read(rest, depth + 1)?));
    Ok(Value::Map((0..count).map(&mut pair).collect::<Result<_, String>>()?))
}

fn read<'a>(rest: &mut &'a [u8], depth: u32) -> Result<Value<'a>, String> {
    if depth > DEPTH_MAX {
        return Err(format!("more than {DEPTH_MAX} lists inside each other"));
    }
    let kind = take(rest, 1)?[0];
    // Of kinds in groups of 1, 2, 4 and 8 bytes.
    let width = |first: u8| 1usize << (kind - first);
    let bytes = |rest: &mut &'a [u8], count: u64| Ok(Value::Bytes(take(rest, count as usize)?));
    match kind {
        0x00..=0x7f => Ok(Value::Number(f64::from(kind))),
        0x80..=0x8f => map(rest, u64::from(kind & 15), depth),
        0x90..=0x9f => list(rest, u64::from(kind & 15), depth),
        0xa0..=0xbf => bytes(rest, u64::from(kind & 31)),
        0xc0 => Ok(Value::Nothing),
        0xc2 | 0xc3 => Ok(Value::Flag(kind == 0xc3)),
        0xc4..=0xc6 => {
            let count = unsigned(rest, width(0xc4))?;
            bytes(rest, count)
        }
        0xca => Ok(Value::Number(f32::from_bits(unsigned(rest, 4)? as u32).into())),
        0xcb => Ok(Value::Number(f64::from_bits(unsigned(rest, 8)?))),
        0xcc..=0xcf => Ok(Value::Number(unsigned(rest, width(0xcc))? as f64)),
        0xd0..=0xd3 => {
            let (bits, number) = (8 * width(0xd0), unsigned(rest, width(0xd0))?);
            // The sign is in the highest bit of its width.
            Ok(Value::Number(((number << (64 - bits)) as i64 >> (64 - bits)) as f64))
        }
        0xd9..=0xdb => {
            let count = unsigned(rest, width(0xd9))?;
            bytes(rest, count)
        }
        0xdc | 0xdd => {
            let count = unsigned(rest, 2 * width(0xdc))?;
            list(rest, count, depth)
        }
        0xde | 0xdf => {
            let count = unsigned(rest, 2 * width(0xde))?;
            map(rest, count, depth)
        }
        0xe0..=0xff => Ok(Value::Number(f64::from(kind as i8))),
        _ => Err(format!("{kind:#04x} begins no value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let text = |text: &'static str| Value::Bytes(text.as_bytes());
        let cases: [(&[u8], Value<'_>); 12] = [
            (b"\x07", Value::Number(7.0)),
            (b"\xff", Value::Number(-1.0)),
            (b"\xd1\xff\x00", Value::Number(-256.0)),
            (b"\xcd\x01\x00", Value::Number(256.0)),
            (b"\xcb\x3f\xf8\0\0\0\0\0\0", Value::Number(1.5)),
            (b"\xc3", Value::Flag(true)),
            (b"\xc0", Value::Nothing),
            (b"\xa2ab", text("ab")),
            (b"\xd9\x02ab", text("ab")),
            (b"\xc4\x01\xff", Value::Bytes(b"\xff")),
            (
                b"\x92\x01\xdc\0\x01\x02",
                Value::List(vec![Value::Number(1.0), Value::List(vec![Value::Number(2.0)])]),
            ),
            (b"\x81\xa1k\xde\0\0", Value::Map(vec![(text("k"), Value::Map(vec![]))])),
        ];
        for (bytes, value) in cases {
            assert_eq!(Value::of(bytes), Ok(value), "{bytes:?}");
            for cut in 0..bytes.len() {
                assert!(Value::of(&bytes[..cut]).is_err(), "{bytes:?} to {cut}");
            }
        }
        assert_eq!(Value::of(b"\x01\x02"), Err("1 bytes after its value".into()));
        assert_eq!(Value::of(b"\x91\xc1"), Err("byte 2: 0xc1 begins no value".into()));
        // Lengths that the bytes do not justify, and lists without end.
        assert!(Value::of(b"\xdd\xff\xff\xff\xff").is_err());
        assert!(Value::of(&[0x91; 1000]).unwrap_err().contains("inside each other"));
    }
}
