// SPDX-License-Identifier: MIT OR Apache-2.0
//! Characters: bodies in any charset, and encoded words (RFC 2047) in headers.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use mail_parser::parsers::MessageStream;

use super::text::Text;

/// Text in the charset that a mail names. Where it names none, an unknown one, or
/// a wrong one, it is UTF-8, or else windows-1252, in which every byte means something.
#[must_use]
pub fn decode<'a>(bytes: &'a [u8], label: Option<&str>) -> Cow<'a, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && (bytes.is_ascii() || label.is_none_or(|label| !is_other(label)))
        && !bytes.contains(&0x1b)
    {
        return text.into();
    }
    let named = label.and_then(|label| Encoding::for_label(label.trim().as_bytes()));
    match named {
        Some(encoding) if encoding != UTF_8 => encoding.decode_without_bom_handling(bytes).0,
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => WINDOWS_1252.decode_without_bom_handling(bytes).0,
        },
    }
}

/// Whether a label names a charset that is not UTF-8 or a part of it.
fn is_other(label: &str) -> bool {
    let label = label.trim();
    Encoding::for_label(label.as_bytes()).is_some_and(|encoding| encoding != UTF_8)
        && !label.eq_ignore_ascii_case("us-ascii")
}

/// A body in UTF-16 as UTF-8; its lines cannot be found otherwise.
#[must_use]
pub fn from_utf16(text: &Text, label: Option<&str>) -> Option<Text> {
    let encoding = Encoding::for_label(label?.trim().as_bytes())?;
    if encoding != UTF_16LE && encoding != UTF_16BE {
        return None;
    }
    let (decoded, _, _) = encoding.decode(text.bytes());
    let marked = text.bytes().starts_with(b"\xff\xfe") || text.bytes().starts_with(b"\xfe\xff");
    let mut offset = if marked { 2 } else { 0 };
    let mut out = Text::default();
    for line in decoded.split_inclusive('\n') {
        out.push(line.as_bytes(), text.number_at(offset));
        offset += 2 * line.encode_utf16().count();
    }
    Some(out)
}

/// A header's value with its encoded words decoded. As in git, blanks between two
/// encoded words go and all others stay.
#[must_use]
pub fn decode_words(value: &[u8]) -> String {
    let mut out = String::new();
    let mut rest = value;
    let mut after_word = false;
    while let Some(at) = memchr::memmem::find(rest, b"=?") {
        let mut stream = MessageStream::new(&rest[at + 1..]);
        let word = stream.decode_rfc2047();
        let before = &rest[..at];
        if !(after_word && word.is_some() && before.iter().all(u8::is_ascii_whitespace)) {
            out.push_str(&decode(before, None));
        }
        match word {
            Some(word) => {
                out.push_str(&word);
                rest = &rest[at + 1 + stream.offset()..];
                after_word = true;
            }
            None => {
                out.push_str("=?");
                rest = &rest[at + 2..];
                after_word = false;
            }
        }
    }
    out.push_str(&decode(rest, None));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn charsets_are_decoded_and_guessed() {
        assert_eq!(decode(b"caf\xe9", Some("iso-8859-1")), "caf\u{e9}");
        assert_eq!(decode(b"caf\xe9", None), "caf\u{e9}");
        assert_eq!(decode(b"caf\xc3\xa9", Some("utf-8")), "caf\u{e9}");
        assert_eq!(decode(b"caf\xc3\xa9", Some("no-such-charset")), "caf\u{e9}");
        assert_eq!(decode(b"caf\xc3\xa9", Some("us-ascii")), "caf\u{e9}");
        assert_eq!(decode(b"\x1b$B;~\x1b(B", Some("iso-2022-jp")), "\u{6642}");
        assert_eq!(decode(b"\xcb\xce", Some("koi8-r")), "\u{43a}\u{43d}");
    }

    #[test]
    fn encoded_words_are_joined_as_git_joins_them() {
        for (value, expected) in [
            (&b"=?UTF-8?q?a=C3=A9?= =?UTF-8?b?Yg==?= c"[..], "a\u{e9}b c"),
            (b"plain  text", "plain  text"),
            (b"=?iso-8859-1?Q?=E9t=E9_x?=: y", "\u{e9}t\u{e9} x: y"),
            (b"\"=?UTF-8?q?B=C3=B6?=\" <b@example.org>", "\"B\u{f6}\" <b@example.org>"),
            (b"a =?broken b", "a =?broken b"),
            (b"raw \xc3\xa9 and \xe9", "raw \u{c3}\u{a9} and \u{e9}"),
        ] {
            assert_eq!(decode_words(value), expected);
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_the_decoder_panic(value in proptest::collection::vec(prop_oneof![Just(b'='), Just(b'?'), Just(b'q'), Just(b'b'), any::<u8>()], 0..80)) {
            let _ = decode_words(&value);
        }
    }
}
