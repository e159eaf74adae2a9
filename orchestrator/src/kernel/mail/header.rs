// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of a mail or of one of its parts.

use mail_parser::parsers::MessageStream;

use super::charset::decode_words;
use super::text::{chomp, is_blank, lines_of};

/// Names that make the first lines of a text a mail's header. Words before a
/// colon are no proof: kernel subjects start with them.
const MAIL_NAMES: [&str; 22] = [
    "from",
    "subject",
    "date",
    "to",
    "cc",
    "message-id",
    "in-reply-to",
    "references",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
    "content-disposition",
    "received",
    "return-path",
    "delivered-to",
    "reply-to",
    "sender",
    "list-id",
    "x-mailer",
    "user-agent",
    "dkim-signature",
    "status",
];

/// Longest value that is kept; only lists of receivers are longer.
const MAX_VALUE: usize = 16 * 1024;

/// One field: its lower-case name, its unfolded value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: String,
    value: Vec<u8>,
}

impl Field {
    /// Adds a folded line, as far as there is room.
    fn unfold(&mut self, line: &[u8]) {
        self.value.truncate(self.value.trim_ascii_end().len());
        self.value.push(b' ');
        let room = MAX_VALUE.saturating_sub(self.value.len());
        self.value.extend_from_slice(&line[..line.len().min(room)]);
    }
}

/// The fields of a header, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    fields: Vec<Field>,
}

/// A value such as `text/plain; charset=utf-8`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Structured {
    /// What stands before the slash, in lower case.
    pub main: String,
    /// What stands behind it, in lower case; empty without a slash.
    pub sub: String,
    attributes: Vec<(String, String)>,
}

impl Structured {
    /// A parameter's value.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Header {
    /// Reads a header from the start of bytes whose first line has this number.
    /// Like git, passes over blank lines before it, and ends at the first line
    /// that is no field: at a blank one, which is taken, or at any other, which
    /// belongs to the body. Gives the header, the body's offset and its line.
    #[must_use]
    pub fn parse(bytes: &[u8], first_line: usize) -> (Self, usize, usize) {
        let mut header = Self::default();
        let mut offset = 0;
        let mut number = first_line;
        let mut started = false;
        for line in lines_of(bytes) {
            let content = chomp(line);
            if content.is_empty() || (!started && is_blank(content)) {
                offset += line.len();
                number += 1;
                if started {
                    break;
                }
                continue;
            }
            if is_fold(content) && !header.fields.is_empty() {
                if let Some(field) = header.fields.last_mut() {
                    field.unfold(content[1..].trim_ascii_end());
                }
            } else if let Some((name, value)) = field(content) {
                let value = value[..value.len().min(MAX_VALUE)].to_vec();
                header.fields.push(Field { name, value });
            } else if !is_separator(content) {
                break;
            }
            started = true;
            offset += line.len();
            number += 1;
        }
        (header, offset, number)
    }

    /// Whether these are the fields of a mail.
    #[must_use]
    pub fn is_mail(&self) -> bool {
        self.fields.iter().any(|field| MAIL_NAMES.contains(&field.name.as_str()))
    }

    /// A field's value as it stands, unfolded; the first of several.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.value.as_slice())
    }

    /// A field's value with its encoded words decoded.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        self.raw(name).map(|value| decode_words(value.trim_ascii()))
    }

    /// The message ids in a field, without their angle brackets.
    #[must_use]
    pub fn ids(&self, name: &str) -> Vec<String> {
        let value = self.raw(name).unwrap_or_default();
        let mut ids = Vec::new();
        for piece in value.split(|&byte| byte == b'<').skip(1) {
            if let Some(end) = piece.iter().position(|&byte| byte == b'>') {
                // Some clients fold inside an id.
                let id: Vec<u8> = piece[..end]
                    .iter()
                    .copied()
                    .filter(|byte| !byte.is_ascii_whitespace())
                    .collect();
                ids.push(String::from_utf8_lossy(&id).into_owned());
            }
        }
        ids
    }

    /// A field in the grammar of `Content-Type` (RFC 2045, RFC 2231).
    #[must_use]
    pub fn structured(&self, name: &str) -> Option<Structured> {
        let mut value = self.raw(name)?.to_vec();
        value.push(b'\n');
        let parsed = MessageStream::new(&value).parse_content_type().into_content_type()?;
        let attributes = parsed.attributes.unwrap_or_default();
        Some(Structured {
            main: parsed.c_type.to_ascii_lowercase(),
            sub: parsed.c_subtype.unwrap_or_default().to_ascii_lowercase(),
            attributes: attributes
                .into_iter()
                .map(|attribute| (attribute.name.into_owned(), attribute.value.into_owned()))
                .collect(),
        })
    }
}

fn is_fold(line: &[u8]) -> bool {
    matches!(line.first(), Some(b' ' | b'\t'))
}

/// A line that may stand among a header's fields without being one: that of an mbox.
fn is_separator(line: &[u8]) -> bool {
    line.starts_with(b"From ") || line.starts_with(b">From ")
}

/// A field's name and value: RFC 5322 allows every printable character in a name.
fn field(line: &[u8]) -> Option<(String, &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    let name = line[..colon].trim_ascii_end();
    if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    Some((String::from_utf8_lossy(name).to_ascii_lowercase(), line[colon + 1..].trim_ascii()))
}

/// Whether a line is a field that a mail may begin with.
#[must_use]
pub fn is_mail_field(line: &[u8]) -> bool {
    field(chomp(line)).is_some_and(|(name, _)| {
        MAIL_NAMES.contains(&name.as_str()) || name.starts_with("x-") || name.starts_with("arc-")
    })
}

/// The seconds since 1970 of a `Date:` field; none where it is no date.
pub(super) fn seconds(date: &str) -> Option<i64> {
    let line = format!("{date}\n");
    let value = MessageStream::new(line.as_bytes()).parse_date();
    value.as_datetime().filter(|date| date.is_valid()).map(mail_parser::DateTime::to_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_unfolded_and_the_body_is_found() {
        let mail = b"From: A <a@example.org>\r\nSubject: [PATCH]\r\n  x:\r\n\ty\r\nMessage-Id: <a@\r\n b>\r\n\r\nbody\r\n";
        let (header, offset, line) = Header::parse(mail, 3);
        assert_eq!(header.get("subject").as_deref(), Some("[PATCH]  x: y"));
        assert_eq!(header.ids("message-id"), ["a@b"]);
        assert_eq!((&mail[offset..], line), (&b"body\r\n"[..], 10));
        assert!(header.is_mail());
    }

    #[test]
    fn a_line_that_is_no_field_belongs_to_the_body() {
        let (header, offset, line) = Header::parse(b"\nSubject: x\nno field here\n", 1);
        assert_eq!((header.get("subject").as_deref(), offset, line), (Some("x"), 12, 3));
    }

    #[test]
    fn a_subject_of_the_kernel_is_no_header() {
        let (header, ..) = Header::parse(b"mm/madvise: use a struct\n\nwords\n", 1);
        assert!(!header.is_mail());
    }

    #[test]
    fn parameters_are_read() {
        let (header, ..) = Header::parse(
            b"Content-Type: multipart/mixed;\n boundary=\"a b\"; charset*=utf-8''x%20y\n",
            1,
        );
        let kind = header.structured("content-type").unwrap();
        assert_eq!((kind.main.as_str(), kind.sub.as_str()), ("multipart", "mixed"));
        assert_eq!(kind.attribute("boundary"), Some("a b"));
    }
}
