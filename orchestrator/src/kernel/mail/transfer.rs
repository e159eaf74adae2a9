// SPDX-License-Identifier: MIT OR Apache-2.0
//! Content-Transfer-Encoding (RFC 2045, section 6), decoded line by line, so that
//! every decoded line knows its place, and byte for byte, as a patch needs it:
//! blanks at line ends stay, and so do carriage returns.

use super::text::{Text, lines_of};

/// How a part's bytes travelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    /// 7bit, 8bit, binary, or nothing said.
    #[default]
    Plain,
    /// quoted-printable.
    QuotedPrintable,
    /// base64.
    Base64,
}

impl Encoding {
    /// From the header's value; what is unknown is taken as it stands.
    #[must_use]
    pub fn parse(value: &str) -> Self {
        let value = value.trim().to_ascii_lowercase();
        // git looks for the word anywhere in the value.
        if value.contains("quoted-printable") {
            Self::QuotedPrintable
        } else if value.contains("base64") {
            Self::Base64
        } else {
            Self::Plain
        }
    }

    /// Decodes a body whose first line has this number.
    #[must_use]
    pub fn decode(self, body: &[u8], first_line: usize) -> Text {
        match self {
            Self::Plain => Text::new(body, first_line),
            Self::QuotedPrintable => quoted_printable(body, first_line),
            Self::Base64 => base64(body, first_line),
        }
    }
}

fn quoted_printable(body: &[u8], first_line: usize) -> Text {
    let mut text = Text::default();
    let mut decoded = Vec::new();
    for (index, line) in lines_of(body).enumerate() {
        decoded.clear();
        let (content, end) = match line.strip_suffix(b"\r\n") {
            Some(content) => (content, &b"\r\n"[..]),
            None => match line.strip_suffix(b"\n") {
                Some(content) => (content, &b"\n"[..]),
                None => (line, &b""[..]),
            },
        };
        // Blanks after the `=` of a soft line break were added on the way.
        let trimmed = content.trim_ascii_end();
        let (content, end) = match trimmed.strip_suffix(b"=") {
            Some(content) => (content, &b""[..]),
            None => (content, end),
        };
        let mut rest = content;
        while let Some(at) = memchr::memchr(b'=', rest) {
            decoded.extend_from_slice(&rest[..at]);
            match rest.get(at + 1..at + 3).and_then(hex) {
                Some(byte) => {
                    decoded.push(byte);
                    rest = &rest[at + 3..];
                }
                None => {
                    decoded.push(b'=');
                    rest = &rest[at + 1..];
                }
            }
        }
        decoded.extend_from_slice(rest);
        // The transport's carriage return is not content; an encoded one (=0D) is.
        if !end.is_empty() {
            decoded.push(b'\n');
        }
        text.push(&decoded, first_line + index);
    }
    text
}

fn hex(digits: &[u8]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(value(digits[0])? * 16 + value(digits[1])?).ok()
}

fn base64(body: &[u8], first_line: usize) -> Text {
    let mut text = Text::default();
    let mut group = 0u32;
    let mut have = 0;
    let mut decoded = Vec::new();
    for (index, line) in lines_of(body).enumerate() {
        decoded.clear();
        for &byte in line {
            let value = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                // Padding ends a group; another one may follow.
                b'=' => {
                    flush(&mut decoded, group, have);
                    (group, have) = (0, 0);
                    continue;
                }
                _ => continue,
            };
            group = group << 6 | u32::from(value);
            have += 1;
            if have == 4 {
                decoded.extend_from_slice(&group.to_be_bytes()[1..]);
                (group, have) = (0, 0);
            }
        }
        text.push(&decoded, first_line + index);
    }
    decoded.clear();
    flush(&mut decoded, group, have);
    let last = text.number(usize::MAX);
    text.push(&decoded, last);
    text
}

/// The whole bytes of an incomplete group of `have` sextets.
fn flush(decoded: &mut Vec<u8>, group: u32, have: u32) {
    match have {
        2 => decoded.push((group >> 4) as u8),
        3 => decoded.extend_from_slice(&((group >> 2) as u16).to_be_bytes()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_printable_gives_the_bytes_back() {
        let body = b"a=3Db=\r\nc =20\r\n=C3=A9=zz=\n\nlast";
        let text = quoted_printable(body, 10);
        assert_eq!(text.bytes(), b"a=bc  \n\xc3\xa9=zz\nlast");
        assert_eq!([text.number(0), text.number(1), text.number(2)], [10, 12, 14]);
        assert_eq!(quoted_printable(b"x=0D\ny \n", 1).bytes(), b"x\r\ny \n");
    }

    #[test]
    fn base64_ignores_what_is_none_and_ends_where_it_ends() {
        assert_eq!(base64(b"YQpi\r\nIGMK\n", 3).bytes(), b"a\nb c\n");
        assert_eq!(base64(b"YQpi\r\nIGMK\n", 3).number(1), 3);
        assert_eq!(base64(b"YQ==\nYg==\n", 1).bytes(), b"ab");
        assert_eq!(base64(b"YWJj*ZA", 1).bytes(), b"abcd");
    }

    #[test]
    fn an_unknown_encoding_is_taken_as_it_stands() {
        assert_eq!(Encoding::parse(" Quoted-Printable "), Encoding::QuotedPrintable);
        assert_eq!(Encoding::parse("BASE64"), Encoding::Base64);
        assert_eq!(Encoding::parse("x-what").decode(b"=41\n", 1).bytes(), b"=41\n");
    }
}
