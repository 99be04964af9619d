//! Values passed in and out. A pattern stays a pattern: nothing here expands it.

use kvdrive_content::{Pattern, Piece, Region};

use crate::pages::Page;
use std::rc::Rc;

/// A value passed to a store, borrowed for the call.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// One piece.
    Piece(Piece<'a>),
    /// `bytes` bytes of a buffer from `at` on.
    Part {
        /// The buffer.
        region: &'a Region,
        /// First byte.
        at: u32,
        /// Length in bytes.
        bytes: u32,
    },
    /// A value kept by a store.
    Kept(&'a Kept),
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Value<'a> {
        Value::Piece(Piece::Bytes(bytes))
    }
}

impl From<Pattern> for Value<'_> {
    fn from(pattern: Pattern) -> Self {
        Value::Piece(Piece::Pattern(pattern))
    }
}

impl Value<'_> {
    /// Length in bytes.
    #[inline]
    pub fn bytes(&self) -> u32 {
        match self {
            Value::Piece(piece) => piece.bytes(),
            Value::Part { bytes, .. } => *bytes,
            Value::Kept(kept) => kept.bytes(),
        }
    }

    /// Passes `bytes` bytes from `from` on to `sink`, in order.
    #[inline]
    pub fn read(&self, from: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        match self {
            _ if bytes == 0 => {}
            Value::Piece(piece) => sink(piece.slice(from, bytes)),
            Value::Part { region, at, .. } => region.read(at + from, bytes, sink),
            Value::Kept(kept) => kept.read(from, bytes, sink),
        }
    }
}

/// Some bytes of a page.
#[derive(Clone, Debug)]
pub struct Part {
    /// The page.
    pub page: Page,
    /// First byte in it.
    pub at: u32,
    /// Length in bytes.
    pub bytes: u32,
}

/// A value as a store keeps it in memory or has found it in its pages. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Kept {
    /// By description.
    Pattern(Pattern),
    /// Real bytes.
    Bytes(Rc<[u8]>),
    /// In one page.
    Part(Part),
    /// In several pages, in order.
    Parts(Rc<[Part]>),
}

impl Kept {
    /// Copies a borrowed value.
    pub fn of(value: &Value<'_>) -> Kept {
        match *value {
            Value::Piece(Piece::Pattern(pattern)) => Kept::Pattern(pattern),
            Value::Piece(Piece::Bytes(bytes)) => Kept::Bytes(bytes.into()),
            Value::Kept(kept) => kept.clone(),
            Value::Part { region, at, bytes } => {
                let (mut copy, mut end) = (Region::new(), 0);
                region.read(at, bytes, &mut |piece| {
                    copy.write(end, piece);
                    end += piece.bytes();
                });
                Kept::in_page(&Rc::new(copy), 0, bytes)
            }
        }
    }

    /// A value that lies in a page; a single pattern does not keep the page alive.
    pub(crate) fn in_page(page: &Page, at: u32, bytes: u32) -> Kept {
        let (mut whole, mut pieces) = (None, 0);
        page.read(at, bytes, &mut |piece| {
            pieces += 1;
            if let Piece::Pattern(pattern) = piece {
                whole = Some(pattern);
            }
        });
        match whole {
            Some(pattern) if pieces == 1 => Kept::Pattern(pattern),
            _ if bytes == 0 => Kept::Bytes(Rc::new([])),
            _ => Kept::Part(Part { page: page.clone(), at, bytes }),
        }
    }

    /// Several parts combined into one value.
    pub(crate) fn of_parts(parts: Vec<Part>) -> Kept {
        match &parts[..] {
            [] => Kept::Bytes(Rc::new([])),
            [part] => Kept::in_page(&part.page, part.at, part.bytes),
            _ => Kept::Parts(parts.into()),
        }
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u32 {
        match self {
            Kept::Pattern(pattern) => pattern.bytes,
            Kept::Bytes(bytes) => bytes.len() as u32,
            Kept::Part(part) => part.bytes,
            Kept::Parts(parts) => parts.iter().map(|part| part.bytes).sum(),
        }
    }

    /// Passes `bytes` bytes from `from` on to `sink`, in order, in the pieces in which the value is kept.
    pub fn read(&self, from: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        match self {
            _ if bytes == 0 => {}
            Kept::Pattern(pattern) => sink(Piece::Pattern(pattern.slice(from, bytes))),
            Kept::Bytes(all) => sink(Piece::Bytes(all).slice(from, bytes)),
            Kept::Part(part) => part.page.read(part.at + from, bytes, sink),
            Kept::Parts(parts) => {
                let (mut skip, mut left) = (from, bytes);
                for part in parts.iter() {
                    let here = part.bytes.saturating_sub(skip).min(left);
                    if here > 0 {
                        part.page.read(part.at + skip, here, sink);
                    }
                    skip = skip.saturating_sub(part.bytes);
                    left -= here;
                }
            }
        }
    }

    /// As real bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.bytes() as usize];
        self.read(0, self.bytes(), &mut kvdrive_content::expanding(&mut out));
        out
    }
}
