//! The body of a list, decoded while it comes in.
//!
//! The API server writes a list item by item and does not hold it as a whole; neither is that
//! necessary here. Each item is cut from the body when its last byte is there, so that it lies in
//! one piece, and what was decoded is kept no longer.

use bytes::{Buf as _, Bytes, BytesMut};
use prost::Message as _;

use super::{Encoded, MAGIC, Page, ProtobufError, convert, messages};
use crate::guarded::Guarded;

/// The field of the envelope that contains the list.
const RAW: u64 = 2;

/// The fields of a list.
const METADATA: u64 = 1;
const ITEM: u64 = 2;

/// The type of fields that begin with their length.
const LENGTH_DELIMITED: u64 = 2;

/// Decodes a list of objects from the pieces in which its body comes in, however they are cut.
#[derive(Debug)]
pub struct ListDecoder<K> {
    /// What came in and is not decoded yet.
    rest: BytesMut,
    place: Place,
    page: Page<K>,
}

/// Where in the body what comes next is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At its first bytes.
    Magic,
    /// Between the fields of the envelope, in front of the list.
    Envelope,
    /// Between the fields of the list, of which so many bytes are left.
    List { left: usize },
    /// Between the fields of the envelope, behind the list.
    End,
}

impl<K: Encoded> ListDecoder<K> {
    /// At the beginning of a body.
    pub fn new() -> Self {
        let page = Page { items: Vec::new(), continue_token: None, resource_version: None };
        Self { rest: BytesMut::new(), place: Place::Magic, page }
    }

    /// Takes the next piece of the body. Nothing is decoded before [`Self::decode`].
    pub fn push(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
    }

    /// How many bytes were taken and are not decoded yet.
    pub fn waiting(&self) -> usize {
        self.rest.len()
    }

    /// Decodes the items that are complete.
    ///
    /// # Errors
    /// When the body is no list in this encoding, however it goes on.
    pub fn decode(&mut self) -> Result<(), ProtobufError> {
        while self.step()? {}
        Ok(())
    }

    /// The list, once its body is complete.
    ///
    /// # Errors
    /// When the body ends within the list.
    pub fn finish(mut self) -> Result<Page<K>, ProtobufError> {
        self.decode()?;
        match self.place {
            // An envelope without a list is not an empty list.
            Place::End if self.rest.is_empty() => Ok(self.page),
            _ => Err(ProtobufError::Truncated),
        }
    }

    /// Decodes the next field; `false` if more of the body is needed for it.
    fn step(&mut self) -> Result<bool, ProtobufError> {
        match self.place {
            Place::Magic => {
                let seen = self.rest.len().min(MAGIC.len());
                if self.rest[..seen] != MAGIC[..seen] {
                    return Err(ProtobufError::Magic);
                }
                if seen < MAGIC.len() {
                    return Ok(false);
                }
                self.rest.advance(seen);
                self.place = Place::Envelope;
            }
            Place::Envelope | Place::End => {
                let Some(head) = Head::read(&self.rest)? else { return Ok(false) };
                if head.field == RAW && head.is_delimited && self.place == Place::Envelope {
                    self.rest.advance(head.size);
                    self.place = Place::List { left: head.content };
                } else if self.cut(head).is_none() {
                    return Ok(false);
                }
            }
            Place::List { left: 0 } => self.place = Place::End,
            Place::List { left } => {
                let Some(head) = Head::read(&self.rest)? else { return Ok(false) };
                let whole = head.size.saturating_add(head.content);
                let left = left.checked_sub(whole).ok_or(ProtobufError::Malformed)?;
                let Some(content) = self.cut(head) else { return Ok(false) };
                self.place = Place::List { left };
                match head.field {
                    METADATA if head.is_delimited => {
                        let metadata = messages::ListMeta::decode(content)?;
                        self.page.continue_token = convert::text(metadata.continue_token);
                        self.page.resource_version = convert::text(metadata.resource_version);
                    }
                    ITEM if head.is_delimited => {
                        self.page.items.push(Guarded::from(K::decode(content)));
                    }
                    _ => {}
                }
            }
        }
        Ok(true)
    }

    /// The content of a field, without its head; `None` if it is not complete yet.
    fn cut(&mut self, head: Head) -> Option<Bytes> {
        if self.rest.len() - head.size < head.content {
            return None;
        }
        self.rest.advance(head.size);
        Some(self.rest.split_to(head.content).freeze())
    }
}

impl<K: Encoded> Default for ListDecoder<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// What a field begins with.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The number of the field.
    field: u64,
    /// Whether the length of its content is written in front of it.
    is_delimited: bool,
    /// The size of the head in bytes.
    size: usize,
    /// The size of what follows in bytes.
    content: usize,
}

impl Head {
    /// The head of the field that begins here; `None` if more bytes are needed.
    fn read(bytes: &[u8]) -> Result<Option<Self>, ProtobufError> {
        let Some((key, size)) = varint(bytes)? else { return Ok(None) };
        let head = |is_delimited, size, content| {
            Ok(Some(Self { field: key >> 3, is_delimited, size, content }))
        };
        // By the type of the field: a number of any size, eight bytes, by length, four bytes.
        match key & 7 {
            0 => match varint(&bytes[size..])? {
                Some((_, content)) => head(false, size, content),
                None => Ok(None),
            },
            1 => head(false, size, 8),
            LENGTH_DELIMITED => match varint(&bytes[size..])? {
                Some((length, of_length)) => {
                    let length = usize::try_from(length).map_err(|_| ProtobufError::Malformed)?;
                    head(true, size + of_length, length)
                }
                None => Ok(None),
            },
            5 => head(false, size, 4),
            _ => Err(ProtobufError::Malformed),
        }
    }
}

/// The number that begins here, seven bits a byte, and in how many bytes it is written; `None` if
/// more bytes are needed.
fn varint(bytes: &[u8]) -> Result<Option<(u64, usize)>, ProtobufError> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((number, at + 1)));
        }
    }
    if bytes.len() < 10 { Ok(None) } else { Err(ProtobufError::Malformed) }
}
