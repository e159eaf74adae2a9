// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a mail (RFC 2046). Boundaries are looked for line by line and
//! bodies are decoded by [`Encoding::decode`]: mail-parser, which reads the fields,
//! finds a boundary in the middle of a line too, and keeps neither bytes nor lines.

use super::charset::from_utf16;
use super::flowed::{unflow, unstuff};
use super::header::{Header, Structured};
use super::text::{Text, chomp, lines_of};
use super::transfer::Encoding;

/// Deepest nesting that is read; no mail client nests deeper than a few levels.
const MAX_DEPTH: usize = 12;

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text of the mail itself.
    Inline,
    /// A text that is attached: a patch, perhaps.
    Attachment,
    /// Text that only a browser reads.
    Html,
    /// A whole mail inside.
    Mail,
    /// Anything else.
    Other,
}

/// A leaf of a mail's tree of parts.
#[derive(Debug, Clone)]
pub struct Part {
    /// What it is.
    pub kind: Kind,
    /// The charset that it names.
    pub charset: Option<String>,
    /// Its decoded text; empty for [`Kind::Other`].
    pub text: Text,
    /// Other readings of a text that says it is flowed, which its sender may have
    /// got wrong.
    pub unflowed: Vec<Text>,
}

/// The leaves of a mail, in order.
#[must_use]
pub fn parts(header: &Header, body: &[u8], line: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    walk(header, body, line, false, MAX_DEPTH, &mut parts);
    parts
}

fn walk(
    header: &Header,
    body: &[u8],
    line: usize,
    digest: bool,
    depth: usize,
    parts: &mut Vec<Part>,
) {
    let kind = header.structured("content-type");
    let (main, sub) = match &kind {
        Some(kind) => (kind.main.clone(), kind.sub.clone()),
        None if digest => ("message".to_owned(), "rfc822".to_owned()),
        None => ("text".to_owned(), "plain".to_owned()),
    };
    let boundary = kind.as_ref().and_then(|kind| kind.attribute("boundary"));
    if main == "multipart"
        && let Some(boundary) = boundary
        && depth > 0
    {
        let pieces = split(body, line, boundary.as_bytes());
        if !pieces.is_empty() {
            let first = parts.len();
            for (piece, line) in pieces {
                let (header, offset, body_line) = part_header(piece, line);
                walk(&header, &piece[offset..], body_line, sub == "digest", depth - 1, parts);
            }
            if sub == "alternative" {
                keep_plain(parts, first);
            }
            return;
        }
    }
    parts.push(leaf(header, kind.as_ref(), &main, &sub, body, line));
}

/// A part's header; a part that begins with its body, as some clients leave out
/// the blank line, has none.
fn part_header(piece: &[u8], line: usize) -> (Header, usize, usize) {
    if piece.starts_with(b"\n") || piece.starts_with(b"\r\n") {
        let offset = if piece[0] == b'\n' { 1 } else { 2 };
        return (Header::default(), offset, line + 1);
    }
    Header::parse(piece, line)
}

fn leaf(
    header: &Header,
    kind: Option<&Structured>,
    main: &str,
    sub: &str,
    body: &[u8],
    line: usize,
) -> Part {
    let disposition = header.structured("content-disposition");
    let attribute = |name| kind.and_then(|kind| kind.attribute(name)).map(str::to_owned);
    let name = disposition
        .as_ref()
        .and_then(|disposition| disposition.attribute("filename"))
        .map(str::to_owned)
        .or_else(|| attribute("name"));
    let attached = disposition.as_ref().is_some_and(|value| value.main == "attachment");
    let is_patch_name = name.as_deref().is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        [".patch", ".diff", ".txt", ".mbox", ".eml", ".mbx"].iter().any(|end| name.ends_with(end))
    });
    let is_patch_type = matches!(
        sub,
        "x-patch" | "x-diff" | "patch" | "diff" | "x-patch-file" | "x-git-patch" | "mbox"
    );
    let part_kind = match main {
        "message" if sub == "rfc822" || sub == "global" => Kind::Mail,
        "text" if sub == "html" => Kind::Html,
        "text" if is_patch_type || attached || name.is_some() => Kind::Attachment,
        "text" if sub == "plain" || sub.is_empty() => Kind::Inline,
        _ if is_patch_name || is_patch_type => Kind::Attachment,
        // A type that cannot be read; git takes such a body as text.
        "multipart" => Kind::Inline,
        _ => Kind::Other,
    };
    let charset = attribute("charset");
    let mut text = Text::default();
    let mut unflowed = Vec::new();
    if !matches!(part_kind, Kind::Other | Kind::Html) {
        let encoding = header.get("content-transfer-encoding").unwrap_or_default();
        text = Encoding::parse(&encoding).decode(body, line);
        if let Some(decoded) = from_utf16(&text, charset.as_deref()) {
            text = decoded;
        }
        let is = |name, value: &str| {
            attribute(name).is_some_and(|found| found.eq_ignore_ascii_case(value))
        };
        if is("format", "flowed") && part_kind == Kind::Inline {
            let flowed = unflow(&text, is("delsp", "yes"));
            unflowed = vec![unstuff(&text), std::mem::replace(&mut text, flowed)];
        }
    }
    Part { kind: part_kind, charset, text, unflowed }
}

/// Of the same text in several forms, the plain one.
fn keep_plain(parts: &mut Vec<Part>, first: usize) {
    let is_plain = |part: &Part| matches!(part.kind, Kind::Inline | Kind::Attachment);
    if parts[first..].iter().any(is_plain) {
        let forms = parts.split_off(first);
        parts.extend(forms.into_iter().filter(|part| part.kind != Kind::Html));
    }
}

/// The pieces between the boundaries, each with its first line. Without a single
/// boundary there are none. A mail that was cut before its last boundary gives
/// its last piece to the end.
fn split<'a>(body: &'a [u8], first_line: usize, boundary: &[u8]) -> Vec<(&'a [u8], usize)> {
    let mut pieces = Vec::new();
    let mut start: Option<(usize, usize)> = None;
    let mut offset = 0;
    for (number, line) in (first_line..).zip(lines_of(body)) {
        let end = chomp(line).strip_prefix(b"--").and_then(|rest| rest.strip_prefix(boundary));
        let last = end.map(|rest| rest.trim_ascii_end());
        if let Some(rest) = last
            && (rest.is_empty() || rest == b"--")
        {
            if let Some((from, line)) = start.take() {
                // RFC 2046 gives the last line end to the boundary; git keeps it, since
                // a patch ends in one.
                pieces.push((&body[from..offset], line));
            }
            if rest == b"--" {
                return pieces;
            }
            start = Some((offset + line.len(), number + 1));
        }
        offset += line.len();
    }
    if let Some((from, line)) = start
        && from < body.len()
    {
        pieces.push((&body[from..], line));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(mail: &str) -> Vec<(Kind, String, usize)> {
        let (header, offset, line) = Header::parse(mail.as_bytes(), 1);
        parts(&header, &mail.as_bytes()[offset..], line)
            .into_iter()
            .map(|part| {
                (
                    part.kind,
                    String::from_utf8_lossy(part.text.bytes()).into_owned(),
                    part.text.number(0),
                )
            })
            .collect()
    }

    #[test]
    fn nested_parts_are_found_by_whole_lines() {
        let mail = "Content-Type: multipart/mixed; boundary=b\n\npreamble\n--b\nContent-Type: multipart/alternative; boundary=bb\n\n--bb\n\nplain --bb\n--bbb\n--bb\nContent-Type: text/html\n\n<p>\n--bb--\n--b\nContent-Type: text/x-patch; name=a.patch\nContent-Transfer-Encoding: base64\n\nYQo=\n--b--\nepilogue\n";
        assert_eq!(
            read(mail),
            [
                (Kind::Inline, "plain --bb\n--bbb\n".to_owned(), 9),
                (Kind::Attachment, "a\n".to_owned(), 20)
            ]
        );
    }

    #[test]
    fn a_cut_mail_keeps_its_last_part_and_a_wrong_boundary_takes_the_whole() {
        let cut = "Content-Type: multipart/mixed; boundary=b\n\n--b\n\none\n--b\n\ntwo\n";
        assert_eq!(read(cut).len(), 2);
        let wrong = "Content-Type: multipart/mixed; boundary=b\n\ntext\n";
        assert_eq!(read(wrong), [(Kind::Inline, "text\n".to_owned(), 3)]);
    }

    proptest! {
        #[test]
        fn no_mail_makes_the_reader_panic(mail in "(Content-Type: (multipart/mixed; boundary=b|text/plain; format=flowed)\n|Content-Transfer-Encoding: base64\n|--b(--)?\n|\r?\n|[a =]){0,30}") {
            let _ = read(&mail);
        }
    }
}
