//! From the bytes that a terminal sends to keys.

use ratatui_termion::termion::event::Key;

const ESCAPE: u8 = 0x1b;

/// Longer sequences are no keys.
const LONGEST: usize = 32;

/// What was typed so far and is no whole key yet.
#[derive(Debug, Default)]
pub(super) struct Typed(Vec<u8>);

impl Typed {
    /// The keys of what a read has brought. Sequences that are no keys are left out. An escape
    /// character at the end is the key of that name: terminals send sequences in one piece.
    pub(super) fn keys(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.0.extend_from_slice(bytes);
        let mut keys = Vec::new();
        loop {
            match first(&self.0) {
                Some((key, length)) => {
                    keys.extend(key);
                    self.0.drain(..length);
                }
                None if self.0.len() > LONGEST => self.0.clear(),
                None => return keys,
            }
        }
    }
}

/// The first key, if it is one, and its bytes; `None` if it is not complete.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let (&byte, rest) = bytes.split_first()?;
    let key = match byte {
        ESCAPE => {
            let (key, length) = escaped(rest).unwrap_or((Some(Key::Esc), 1));
            return (length > 0).then_some((key, length));
        }
        b'\r' | b'\n' => Key::Char('\n'),
        b'\t' => Key::Char('\t'),
        0x7f => Key::Backspace,
        0 => Key::Null,
        0x01..=0x1a => Key::Ctrl(char::from(byte - 1 + b'a')),
        0x1c..=0x1f => return Some((None, 1)),
        _ => return character(bytes),
    };
    Some((Some(key), 1))
}

/// What follows an escape character: the key and the bytes of both together, which are 0 if it is
/// not complete. `None` if nothing follows that belongs to it.
fn escaped(rest: &[u8]) -> Option<(Option<Key>, usize)> {
    match rest.first()? {
        b'[' => {
            let parameters =
                rest[1..].iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
            let Some(&last) = rest.get(1 + parameters) else { return Some((None, 0)) };
            let key = control(&rest[1..=parameters], last);
            // Something else than the end of a sequence begins anew.
            let is_end = (0x40..0x7f).contains(&last);
            Some((key, 2 + parameters + usize::from(is_end)))
        }
        b'O' => match rest.get(1) {
            None => Some((None, 0)),
            Some(&last) => Some((control(&[], last), 3)),
        },
        // With Alt; no key of ours.
        byte if (0x20..0x7f).contains(byte) => Some((None, 2)),
        _ => None,
    }
}

/// A key of a control sequence.
fn control(parameters: &[u8], last: u8) -> Option<Key> {
    match (parameters, last) {
        (_, b'A') => Some(Key::Up),
        (_, b'B') => Some(Key::Down),
        (_, b'C') => Some(Key::Right),
        (_, b'D') => Some(Key::Left),
        (_, b'H') | (b"1" | b"7", b'~') => Some(Key::Home),
        (_, b'F') | (b"4" | b"8", b'~') => Some(Key::End),
        (_, b'Z') => Some(Key::BackTab),
        // Enter of the number pad.
        ([], b'M') => Some(Key::Char('\n')),
        (b"5", b'~') => Some(Key::PageUp),
        (b"6", b'~') => Some(Key::PageDown),
        _ => None,
    }
}

/// A character in UTF-8.
fn character(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let length = match bytes.first()? {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return Some((None, 1)),
    };
    if bytes.len() < length {
        // The rest comes with the next read, unless this is no beginning of a character.
        let is_begun = bytes[1..].iter().all(|byte| (0x80..0xc0).contains(byte));
        return if is_begun { None } else { Some((None, 1)) };
    }
    let text = std::str::from_utf8(&bytes[..length]).ok();
    match text.and_then(|text| text.chars().next()) {
        Some(c) => Some((Some(Key::Char(c)), length)),
        None => Some((None, 1)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        Typed::default().keys(bytes)
    }

    #[test]
    fn arrows_come_in_both_spellings() {
        assert_eq!(keys(b"\x1b[A\x1b[B\x1bOA\x1bOD"), [Key::Up, Key::Down, Key::Up, Key::Left]);
        let others = b"\x1b[5~\x1b[6~\x1b[H\x1b[4~\x1b[Z";
        let expected = [Key::PageUp, Key::PageDown, Key::Home, Key::End, Key::BackTab];
        assert_eq!(keys(others), expected);
    }

    #[test]
    fn an_escape_character_alone_is_a_key() {
        assert_eq!(keys(b"\x1b"), [Key::Esc]);
        assert_eq!(keys(b"\x1b\x1b"), [Key::Esc, Key::Esc]);
        assert_eq!(keys(b"q\x1b"), [Key::Char('q'), Key::Esc]);
    }

    #[test]
    fn what_is_not_complete_waits_for_its_rest() {
        let mut typed = Typed::default();
        assert_eq!(typed.keys(b"\x1b["), []);
        assert_eq!(typed.keys(b"A"), [Key::Up]);
        let name = "節".as_bytes();
        assert_eq!(typed.keys(&name[..1]), []);
        assert_eq!(typed.keys(&name[1..]), [Key::Char('節')]);
    }

    #[test]
    fn what_is_no_key_is_left_out() {
        assert_eq!(keys(b"\x1b[200~ab\x1b[201~"), [Key::Char('a'), Key::Char('b')]);
        assert_eq!(keys(b"\x1b[<0;1;2Mq"), [Key::Char('q')]);
        assert_eq!(keys(b"\xff\xc3(q"), [Key::Char('('), Key::Char('q')]);
        assert_eq!(keys(b"\x03\r\x7f"), [Key::Ctrl('c'), Key::Char('\n'), Key::Backspace]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_and_ctrl_c_always_ends_what_was_typed(
            reads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10)
        ) {
            let mut typed = Typed::default();
            for read in reads {
                typed.keys(&read);
                prop_assert!(typed.0.len() <= LONGEST);
            }
            let after = typed.keys(b"\x03\x03\x03");
            prop_assert!(after.contains(&Key::Ctrl('c')), "{after:?}");
        }
    }
}
