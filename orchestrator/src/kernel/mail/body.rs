// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of a mail, taken apart where `git mailinfo` takes it apart: headers in
//! the body, the message, the notes below `---`, the diff.

use super::charset::{decode, decode_words};
use super::diff::{self, Diff};
use super::diff_line::{self, is_signature};
use super::text::{Text, chomp, is_blank, starts_with_ignore_case};

/// A mail's text taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// `From:`, `Subject:` and `Date:` in the body, decoded.
    pub from: Option<String>,
    /// See `from`.
    pub subject: Option<String>,
    /// See `from`.
    pub date: Option<String>,
    /// The commit's message without its subject, cleaned as git cleans it.
    pub message: String,
    /// What stands between `---` and the diff.
    pub notes: String,
    /// A `---` stands before the diff.
    pub separated: bool,
    /// The diff.
    pub diff: Option<Diff>,
    /// The text that the diff's lines count in.
    pub text: Text,
    /// The line of the input where a NUL stands in the message.
    pub nul: Option<usize>,
    /// Everything above a scissors line was cut off.
    pub scissors: bool,
    /// Lines quoted with `>` look like a diff.
    pub quoted_diff: bool,
}

impl Body {
    /// The diff's bytes.
    #[must_use]
    pub fn diff_bytes(&self) -> &[u8] {
        self.diff.as_ref().map_or(&[], |diff| self.text.slice(diff.lines.clone()))
    }

    /// The line of the input that the diff starts in.
    #[must_use]
    pub fn diff_line(&self) -> usize {
        self.diff.as_ref().map_or(0, |diff| self.text.number(diff.lines.start))
    }

    /// Whether git takes the diff as it stands.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.diff
            .as_ref()
            .is_some_and(|diff| !diff.damages.iter().any(|damage| damage.kind.is_certain()))
    }

    /// Takes a text apart. The message is in this charset; the diff's bytes stay
    /// as they are, as in git.
    #[must_use]
    pub fn read(text: &Text, charset: Option<&str>) -> Self {
        let signed = without_signature_armour(text);
        let text = signed.as_ref().unwrap_or(text);
        let text = if ends_in_cr(text) { text.without_cr() } else { text.clone() };
        let mut body = Self::default();
        let mut message: Vec<String> = Vec::new();
        let mut in_header = true;
        let mut open: Option<(Field, Vec<u8>)> = None;
        let mut index = 0;
        let mut break_at = text.count();
        let mut first_break = None;
        while index < text.count() {
            let line = chomp(text.line(index));
            if in_header {
                if is_blank(line) {
                    if body.close(&mut open, charset) {
                        in_header = false;
                    }
                    index += 1;
                    continue;
                }
                if let Some((_, value)) = &mut open
                    && matches!(line.first(), Some(b' ' | b'\t'))
                    && !is_scissors(line)
                {
                    value.push(b' ');
                    value.extend_from_slice(line.trim_ascii());
                    index += 1;
                    continue;
                }
                body.close(&mut open, charset);
                if let Some((field, value)) = body.field(line) {
                    open = Some((field, value.to_vec()));
                    index += 1;
                    continue;
                }
                if super::mbox::is_format_patch_line(line.strip_prefix(b">").unwrap_or(line)) {
                    index += 1;
                    continue;
                }
                in_header = false;
            }
            if is_scissors(line) {
                message.clear();
                body.nul = None;
                (body.from, body.subject, body.date) = (None, None, None);
                body.scissors = true;
                in_header = true;
                index += 1;
                continue;
            }
            if is_break(line) {
                break_at = index;
                break;
            }
            if is_signature(line) {
                let next = *first_break.get_or_insert_with(|| find_break(&text, index));
                if next == text.count() {
                    break_at = index;
                    break;
                }
            }
            if body.nul.is_none() && line.contains(&0) {
                body.nul = Some(text.number(index));
            }
            message.push(decode(line, charset).trim_end().to_owned());
            index += 1;
        }
        body.close(&mut open, charset);
        body.message = tidy(&message);
        body.diff = diff::find(&text, break_at);
        if is_separator(text.line(break_at)) && break_at < text.count() {
            body.separated = true;
            let end = body.diff.as_ref().map_or_else(
                || (break_at + 1..text.count()).find(|&at| is_signature(text.line(at))),
                |diff| Some(diff.lines.start),
            );
            let notes = text.slice(break_at + 1..end.unwrap_or(text.count()).max(break_at + 1));
            body.notes = decode(notes, charset).trim_end().to_owned();
        }
        body.quoted_diff = body.diff.is_none() && text.iter().any(is_quoted_diff);
        body.text = text;
        body
    }

    /// A header's line in the body: each name counts once.
    fn field<'a>(&self, line: &'a [u8]) -> Option<(Field, &'a [u8])> {
        if line.starts_with(b"[PATCH]") && line.get(7).is_some_and(u8::is_ascii_whitespace) {
            return self.subject.is_none().then_some((Field::Subject, line));
        }
        for (name, field, have) in [
            (&b"from:"[..], Field::From, self.from.is_some()),
            (b"subject:", Field::Subject, self.subject.is_some()),
            (b"date:", Field::Date, self.date.is_some()),
        ] {
            if !have && starts_with_ignore_case(line, name) {
                return Some((field, &line[name.len()..]));
            }
        }
        None
    }

    /// Keeps a header that has ended; false if there was none.
    fn close(&mut self, open: &mut Option<(Field, Vec<u8>)>, charset: Option<&str>) -> bool {
        let Some((field, value)) = open.take() else {
            return false;
        };
        let value = decode_words(decode(value.trim_ascii(), charset).as_bytes());
        match field {
            Field::From => self.from = Some(value),
            Field::Subject => self.subject = Some(value),
            Field::Date => self.date = Some(value),
        }
        true
    }
}

#[derive(Debug, Clone, Copy)]
enum Field {
    From,
    Subject,
    Date,
}

/// A message as git keeps it: no blanks at line ends, no blank lines at either
/// end, never two in a row.
pub(super) fn tidy(lines: &[String]) -> String {
    let mut out = String::new();
    let mut blank = false;
    for line in lines {
        if line.is_empty() {
            blank = !out.is_empty();
            continue;
        }
        if std::mem::take(&mut blank) {
            out.push('\n');
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// `---` and nothing else: what follows is not for the commit.
fn is_separator(line: &[u8]) -> bool {
    line.strip_prefix(b"---").is_some_and(is_blank)
}

/// Whether a message ends at this line: at `---`, or where a diff starts.
pub(super) fn is_break(line: &[u8]) -> bool {
    line.starts_with(b"diff -")
        || line.starts_with(b"Index: ")
        || is_separator(line)
        || line
            .strip_prefix(b"--- ")
            .and_then(<[u8]>::first)
            .is_some_and(|c| !c.is_ascii_whitespace())
}

/// The first break from a line on: up to it a message goes on although it holds a
/// signature's line. The text's end where there is none.
fn find_break(text: &Text, from: usize) -> usize {
    (from..text.count()).find(|&index| is_break(text.line(index))).unwrap_or(text.count())
}

fn is_quoted_diff(line: &[u8]) -> bool {
    let mut rest = line;
    let mut quoted = false;
    while let Some((b'>' | b' ' | b'|', after)) = rest.split_first() {
        quoted |= rest[0] == b'>';
        rest = after;
    }
    quoted && (rest.starts_with(b"diff --git ") || diff_line::hunk_ranges(rest).is_some())
}

/// Whether the text's line ends are CR LF, by the lines that git writes itself; a
/// file's own carriage returns do not show in these. A text without a diff has
/// them where its first line has one.
fn ends_in_cr(text: &Text) -> bool {
    let mut lines = text.iter().filter(|line| {
        [&b"diff --git "[..], b"--- ", b"+++ ", b"index "].iter().any(|head| line.starts_with(head))
    });
    let line = lines.next().unwrap_or_else(|| text.line(0));
    line.ends_with(b"\r")
}

/// The text inside an inline PGP signature, without what signing did to lines
/// that start with a dash (RFC 4880, section 7).
fn without_signature_armour(text: &Text) -> Option<Text> {
    let find = |marker: &[u8], from: usize| {
        (from..text.count()).find(|&index| chomp(text.line(index)) == marker)
    };
    let start = find(b"-----BEGIN PGP SIGNED MESSAGE-----", 0)?;
    let end = find(b"-----BEGIN PGP SIGNATURE-----", start)?;
    let blank = (start..end).find(|&index| is_blank(text.line(index)))?;
    let before = text.part(0..start);
    let inside = text.part(blank + 1..end);
    let inside = inside.map(|line| line.strip_prefix(b"- ").unwrap_or(line));
    let mut out = Text::default();
    for part in [&before, &inside] {
        for index in 0..part.count() {
            out.push(part.raw_line(index), part.number(index));
        }
    }
    Some(out)
}

/// `-- >8 --`: what stands above is not for the commit. The perforation is more
/// than a third of the line, and dashes and scissors more than half of it.
pub(super) fn is_scissors(line: &[u8]) -> bool {
    let visible = line.trim_ascii();
    let (mut perforation, mut blanks, mut scissors) = (0, 0, false);
    let mut inside = false;
    let mut index = 0;
    while index < visible.len() {
        let rest = &visible[index..];
        index += 1;
        if rest[0].is_ascii_whitespace() {
            if inside {
                perforation += 1;
                blanks += 1;
            }
        } else if rest[0] == b'-' {
            inside = true;
            perforation += 1;
        } else if [b">8", b"8<", b">%", b"%<"].iter().any(|cut| rest.starts_with(*cut)) {
            inside = true;
            perforation += 2;
            scissors = true;
            index += 1;
        } else {
            inside = false;
        }
    }
    scissors && visible.len() >= 8 && visible.len() < perforation * 3 && blanks * 2 < perforation
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str =
        "diff --git a/mm/a.c b/mm/a.c\n--- a/mm/a.c\n+++ b/mm/a.c\n@@ -1 +1 @@\n-a\n+b\n";

    fn read(text: &str) -> Body {
        Body::read(&Text::new(text.as_bytes(), 1), None)
    }

    #[test]
    fn headers_message_notes_and_diff_are_parted() {
        let body = read(&format!(
            "\nFrom: Ada\n <ada@example.org>\nSubject: x\n\nwhy  \n\n\nhow\n---\nv2: less\n a.c | 2\n\n{DIFF}-- \n2.47\n"
        ));
        assert_eq!(body.from.as_deref(), Some("Ada <ada@example.org>"));
        assert_eq!(body.subject.as_deref(), Some("x"));
        assert_eq!(body.message, "why\n\nhow\n");
        assert_eq!(body.notes, "v2: less\n a.c | 2");
        assert_eq!(body.diff_bytes(), DIFF.as_bytes());
        assert_eq!(body.diff_line(), 14);
        assert!(body.is_whole() && !body.diff.unwrap().trailing);
    }

    #[test]
    fn scissors_cut_what_stands_above() {
        let body =
            read(&format!("Subject: not this\n\nhi\n-- >8 --\nSubject: this\n\nwhy\n---\n{DIFF}"));
        assert_eq!((body.subject.as_deref(), body.message.as_str()), (Some("this"), "why\n"));
        for (line, expected) in [
            ("-- >8 --", true),
            ("--- 8< ---", true),
            ("- - - >8 - - -", true),
            ("-- >8 -- cut here", true),
            (">8 -- a long line of words", false),
            ("------- >8 ------- cut here", true),
            (">8", false),
            ("--------", false),
            ("- 8<", false),
        ] {
            assert_eq!(is_scissors(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_signed_text_loses_its_armour_and_its_dashes() {
        let signed = format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nwhy\n- ---\n{}-----BEGIN PGP SIGNATURE-----\n\nxx\n-----END PGP SIGNATURE-----\n",
            DIFF.replace("\n-", "\n- -")
        );
        let body = read(&signed);
        assert_eq!((body.message.as_str(), body.diff_bytes()), ("why\n", DIFF.as_bytes()));
    }

    #[test]
    fn line_ends_of_the_transport_go_and_those_of_the_file_stay() {
        let crlf = format!("why\n---\n{DIFF}").replace('\n', "\r\n");
        assert_eq!(read(&crlf).diff_bytes(), DIFF.as_bytes());
        let content = DIFF.replace("-a\n+b\n", "-a\r\n+b\r\n");
        assert_eq!(read(&format!("why\n---\n{content}")).diff_bytes(), content.as_bytes());
        let both = format!("why\n---\n{content}").replace('\n', "\r\n");
        assert_eq!(read(&both).diff_bytes(), content.as_bytes());
    }

    #[test]
    fn a_quoted_diff_is_no_diff() {
        let quoted: String = DIFF.lines().map(|line| format!("> {line}\n")).collect();
        let body = read(&format!("On Monday Ada wrote:\n{quoted}\nNo.\n"));
        assert!(body.diff.is_none() && body.quoted_diff);
    }
}
