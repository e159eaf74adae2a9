// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patches without a mail's header: copied from lore's pages, from `git show`, from
//! Mercurial, or a bare diff.

use super::body::is_break;
use super::header::{Header, is_mail_field};
use super::text::{Text, is_blank, lines_of};

/// Most lines above a mail's header that are passed over as a page's head.
const MAX_HEAD_LINES: usize = 40;

/// What stands for a mail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pasted {
    /// Its first line in the input.
    pub line: usize,
    /// Its subject; empty for a bare diff.
    pub subject: String,
    /// Who wrote it, as it stands.
    pub author: Option<String>,
    /// Its date, as it stands.
    pub date: Option<String>,
    /// Message and diff.
    pub text: Text,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// Finds a mail's header below the head of a page; gives its offset and its line.
/// It must name a sender and a subject, and no diff may stand above it.
#[must_use]
pub fn find_header(bytes: &[u8], first_line: usize) -> Option<(usize, usize)> {
    let mut offset = 0;
    for (index, line) in lines_of(bytes).enumerate().take(MAX_HEAD_LINES) {
        if is_break(line) {
            return None;
        }
        if index > 0 && is_mail_field(line) && !is_lore_from(line) {
            let (header, ..) = Header::parse(&bytes[offset..], 1);
            if header.raw("from").is_some() && header.raw("subject").is_some() {
                return Some((offset, first_line + index));
            }
        }
        offset += line.len();
    }
    None
}

/// Reads text without a header.
#[must_use]
pub fn read(bytes: &[u8], line: usize) -> Vec<Pasted> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = Text::new(bytes, line);
    let first = (0..text.count()).find(|&at| !is_blank(text.line(at))).unwrap_or(0);
    if text.iter().take(5000).any(is_lore_from) {
        return lore_thread(&text);
    }
    if commit_line(text.line(first)) {
        return git_log(&text, first);
    }
    if text.line(first).starts_with(b"# HG changeset patch") {
        return vec![mercurial(&text, first)];
    }
    vec![plain(&text, first)]
}

fn string(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim().to_owned()
}

/// Subject, perhaps its author in brackets, message, diff.
fn plain(text: &Text, first: usize) -> Pasted {
    let mut pasted = Pasted { line: text.number(first), ..Pasted::default() };
    let mut at = first;
    if !is_break(text.line(first)) {
        let subject = string(text.line(first));
        pasted.subject = subject.strip_prefix("* ").unwrap_or(&subject).to_owned();
        at += 1;
        // The rest of a subject that was broken: up to the first blank line.
        let mut next = (at..text.count()).find(|&at| !is_blank(text.line(at))).unwrap_or(at);
        if let Some(author) = bracketed_author(text.line(next)) {
            pasted.author = Some(author);
            next += 1;
            at = next;
        }
    }
    pasted.text = text.part(at..text.count());
    pasted
}

/// `[Ada Example <ada@example.org>]` on a line of its own.
fn bracketed_author(line: &[u8]) -> Option<String> {
    let line = string(line);
    let inside = line.strip_prefix('[')?.strip_suffix(']')?;
    (inside.contains('@') && inside.contains('<') && inside.ends_with('>'))
        .then(|| inside.to_owned())
}

fn commit_line(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"commit ") else {
        return false;
    };
    rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count() >= 12
}

/// What `git show` and `git log -p` print: the newest commit first.
fn git_log(text: &Text, first: usize) -> Vec<Pasted> {
    let starts: Vec<usize> =
        (first..text.count()).filter(|&at| commit_line(text.line(at))).collect();
    let mut patches = Vec::new();
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(text.count());
        patches.push(git_commit(text, start, end));
    }
    if patches.len() > 1 {
        patches.reverse();
        for patch in &mut patches {
            patch
                .notes
                .push("`git log` prints the newest commit first; the order was turned".to_owned());
        }
    }
    patches
}

fn git_commit(text: &Text, start: usize, end: usize) -> Pasted {
    let mut pasted = Pasted { line: text.number(start), ..Pasted::default() };
    let mut at = start + 1;
    while at < end && !is_blank(text.line(at)) {
        let line = string(text.line(at));
        if let Some((key, value)) = line.split_once(':') {
            match key {
                "Author" => pasted.author = Some(value.trim().to_owned()),
                "Date" | "AuthorDate" => pasted.date = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        at += 1;
    }
    for index in at..end {
        let line = text.raw_line(index);
        let Some(content) = line.strip_prefix(b"    ") else {
            // The diff, whose own lines are not indented.
            if !is_blank(line) {
                pasted.text.push(b"---\n", text.number(index));
                for index in index..end {
                    pasted.text.push(text.raw_line(index), text.number(index));
                }
                break;
            }
            pasted.text.push(line, text.number(index));
            continue;
        };
        if pasted.subject.is_empty() {
            pasted.subject = string(content);
        } else if is_break(content) {
            // It would end the message.
            pasted.text.push(b" ", text.number(index));
            pasted.text.push(content, text.number(index));
        } else {
            pasted.text.push(content, text.number(index));
        }
    }
    pasted
}

fn mercurial(text: &Text, first: usize) -> Pasted {
    let mut pasted = Pasted { line: text.number(first), ..Pasted::default() };
    let mut at = first;
    while text.line(at).starts_with(b"#") {
        if let Some(user) = string(text.line(at)).strip_prefix("# User ") {
            pasted.author = Some(user.to_owned());
        }
        at += 1;
    }
    while at < text.count() && is_blank(text.line(at)) {
        at += 1;
    }
    let rest = plain(text, at);
    Pasted { subject: rest.subject, text: rest.text, ..pasted }
}

/// `From: Ada Example @ 2026-01-02  3:04 UTC (permalink / raw)`.
fn is_lore_from(line: &[u8]) -> bool {
    line.starts_with(b"From: ")
        && memchr::memmem::find(line, b" @ ").is_some()
        && memchr::memmem::find(line, b"permalink / raw").is_some()
}

/// The mails of a thread's page on lore: each begins with `* SUBJECT`, an index of
/// the thread around it, and who sent it when.
fn lore_thread(text: &Text) -> Vec<Pasted> {
    let froms: Vec<usize> = (0..text.count()).filter(|&at| is_lore_from(text.line(at))).collect();
    let mut mails = Vec::new();
    let mut begin = 0;
    for (index, &from) in froms.iter().enumerate() {
        let limit = froms.get(index + 1).copied().unwrap_or(text.count());
        let end =
            (from..limit).find(|&at| text.line(at).starts_with(b"^ permalink ")).unwrap_or(limit);
        let subject = (begin..from).find(|&at| text.line(at).starts_with(b"* ")).unwrap_or(begin);
        let line = string(text.line(from));
        let (sender, date) = line["From: ".len()..].split_once(" @ ").unwrap_or_default();
        let date = date.split(" (").next().unwrap_or_default();
        let mut body = from + 1;
        while body < end && text.line(body).starts_with(b"  ") && !is_blank(text.line(body)) {
            body += 1;
        }
        let subject_text = string(text.line(subject));
        mails.push(Pasted {
            line: text.number(subject),
            subject: subject_text.trim_start_matches("* ").to_owned(),
            // A page shows the name only; the body may name the author.
            author: sender.contains('@').then(|| sender.to_owned()),
            date: Some(date.to_owned()),
            text: text.part(body..end),
            notes: Vec::new(),
        });
        begin = end + 1;
    }
    mails
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIFF: &str =
        "diff --git a/mm/a.c b/mm/a.c\n--- a/mm/a.c\n+++ b/mm/a.c\n@@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn a_subject_an_author_in_brackets_and_a_message() {
        let text = format!("[PATCH 3/4] mm: x\n\n[Ada <ada@example.org>]\n\nwhy\n---\n{DIFF}");
        let read = read(text.as_bytes(), 1);
        assert_eq!((read.len(), read[0].subject.as_str()), (1, "[PATCH 3/4] mm: x"));
        assert_eq!(read[0].author.as_deref(), Some("Ada <ada@example.org>"));
        assert_eq!(read[0].text.line(1), b"why");
        assert_eq!(read[0].text.number(1), 5);
    }

    #[test]
    fn commits_of_git_log_come_in_the_order_of_their_making() {
        let commit = |name: &str| {
            format!(
                "commit 0123456789abcdef\nAuthor: Ada <ada@example.org>\nDate:   now\n\n    mm: {name}\n\n    why\n    --- here\n\n{DIFF}\n"
            )
        };
        let read = read(format!("{}{}", commit("two"), commit("one")).as_bytes(), 1);
        assert_eq!([&read[0].subject, &read[1].subject], ["mm: one", "mm: two"]);
        assert_eq!(read[0].author.as_deref(), Some("Ada <ada@example.org>"));
        assert!(String::from_utf8_lossy(read[0].text.bytes()).contains("why\n --- here\n"));
    }

    #[test]
    fn a_page_of_lore_gives_its_mails() {
        let text = format!(
            "* [PATCH 0/1] mm: cover\n@ 2026-01-02  3:04 Ada\n  0 siblings\nFrom: Ada @ 2026-01-02  3:04 UTC (permalink / raw)\n  To: list; +Cc: Bob\n\nwords\n\n^ permalink raw reply\t[flat|nested] 2+ messages in thread\n\n* [PATCH 1/1] mm: x\n  2026-01-02  3:04 [PATCH 0/1] mm: cover Ada\n@ 2026-01-02  3:05 ` Ada\n  0 siblings\nFrom: Ada @ 2026-01-02  3:05 UTC (permalink / raw)\n  To: list\n\nwhy\n---\n{DIFF}\n^ permalink raw reply\t[flat|nested] 2+ messages in thread\n"
        );
        let read = read(text.as_bytes(), 1);
        assert_eq!(read.len(), 2);
        assert_eq!((read[1].subject.as_str(), read[1].line), ("[PATCH 1/1] mm: x", 11));
        assert!(String::from_utf8_lossy(read[1].text.bytes()).starts_with("\nwhy\n---\n"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(commit 0123456789ab\n|From: A @ 2 \\(permalink / raw\\)\n|\\* x\n|# HG changeset patch\n|\\[a <b@c>\\]\n|    x\n|\n|\u{feff}){0,20}") {
            let _ = (read(text.as_bytes(), 1), find_header(text.as_bytes(), 1));
        }
    }
}
