// SPDX-License-Identifier: MIT OR Apache-2.0
//! One mail: what it is, and what it holds.

use super::author::Author;
use super::body::Body;
use super::damage::{Damage, DamageKind};
use super::header::Header;
use super::mbox::{Mails, RawMail, is_format_patch_line, unquote_from};
use super::mime::{Kind, Part, parts};
use super::pasted::{self, Pasted};
use super::paths::in_kernel_tree;
use super::reading::Reason;
use super::subject::Subject;
use super::text::{Text, is_blank, lines_of};

/// Longest subject that is kept, in characters.
const MAX_SUBJECT: usize = 1000;

/// Deepest nesting of mails in mails.
const MAX_DEPTH: usize = 4;

/// A mail, or what stands in its place in the input.
#[derive(Debug, Clone, Default)]
pub struct Mail {
    /// The line of the input that it starts in.
    pub line: usize,
    /// The subject as it stands.
    pub raw_subject: String,
    /// The subject of the patch.
    pub subject: Subject,
    /// Who sent it.
    pub sender: Option<Author>,
    /// Who wrote the patch: the sender, or who is named in the body.
    pub author: Option<Author>,
    /// The patch's date.
    pub date: Option<String>,
    /// When it was sent, in seconds since 1970.
    pub sent: Option<i64>,
    /// Its id.
    pub message_id: Option<String>,
    /// The ids that it answers, the nearest first.
    pub references: Vec<String>,
    /// What it holds.
    pub body: Body,
    /// Why it can be no patch; none for a patch.
    pub passed: Option<(Reason, String)>,
    /// A file that its diff touches, where it touches none of a kernel tree.
    pub outside: Option<String>,
    /// It is the cover letter of a series.
    pub cover: bool,
    /// An answer, but the patch in it is whole, with a subject of its own.
    pub formal_reply: bool,
    /// What the reader should know of it.
    pub notes: Vec<String>,
}

/// The mails in a piece of an input: one, or several where patches are attached
/// or pages were copied.
#[must_use]
pub fn read(raw: &RawMail) -> Vec<Mail> {
    if raw.too_large {
        let passed = Some((Reason::TooLarge, format!("{} bytes", raw.length)));
        return vec![Mail { line: raw.line, passed, ..Mail::default() }];
    }
    let unquoted = if raw.quoted_from { unquote_from(&raw.bytes) } else { None };
    let bytes = unquoted.as_deref().unwrap_or(&raw.bytes);
    let mut mails = Vec::new();
    read_bytes(bytes, raw.line, MAX_DEPTH, &mut mails);
    mails
}

fn read_bytes(bytes: &[u8], line: usize, depth: usize, mails: &mut Vec<Mail>) {
    let (header, offset, body_line) = Header::parse(bytes, line);
    if header.is_mail() {
        read_mail(&header, &bytes[offset..], line, body_line, depth, mails);
        return;
    }
    if let Some((offset, line)) = pasted::find_header(bytes, line) {
        read_bytes(&bytes[offset..], line, depth, mails);
        return;
    }
    if lines_of(bytes).all(is_blank) {
        return;
    }
    for pasted in pasted::read(bytes, line) {
        mails.push(from_pasted(pasted));
    }
}

fn read_mail(
    header: &Header,
    body: &[u8],
    line: usize,
    body_line: usize,
    depth: usize,
    mails: &mut Vec<Mail>,
) {
    let parts = parts(header, body, body_line);
    let html = parts.iter().any(|part| part.kind == Kind::Html);
    let charset = parts.iter().find_map(|part| part.charset.clone());
    let inline: Vec<&Part> = parts.iter().filter(|part| part.kind == Kind::Inline).collect();
    let mut body = read_inline(&inline, charset.as_deref());
    let mut attached = Vec::new();
    let mut bare: Vec<&Part> = Vec::new();
    for part in &parts {
        match part.kind {
            Kind::Mail if depth > 0 => {
                read_bytes(part.text.bytes(), part.text.number(0), depth - 1, &mut attached);
            }
            Kind::Attachment if is_mail(&part.text) && depth > 0 => {
                read_attached_mails(&part.text, depth, &mut attached);
            }
            Kind::Attachment if Body::read(&part.text, None).diff.is_some() => bare.push(part),
            _ => {}
        }
    }
    attached.retain(|mail| mail.body.diff.is_some() && mail.body.diff_bytes() != body.diff_bytes());
    bare.retain(|part| Body::read(&part.text, None).diff_bytes() != body.diff_bytes());
    if !bare.is_empty() {
        // Like git: one text, whose later parts go on where the earlier ones end.
        let mut all: Vec<&Part> = inline.clone();
        all.extend(&bare);
        body = Body::read(&joined(&all, body.diff.is_none()), charset.as_deref());
    }
    let raw_subject = header.get("subject").unwrap_or_default();
    let sender = header.get("from").as_deref().and_then(Author::parse);
    let date = header.get("date").map(|date| clean_date(&date));
    let mut references = header.ids("in-reply-to");
    let mut older = header.ids("references");
    older.reverse();
    references.extend(older);
    let mut mail = Mail {
        line,
        sent: date.as_deref().and_then(super::header::seconds),
        date,
        raw_subject,
        sender,
        message_id: header.ids("message-id").into_iter().next(),
        references,
        body,
        ..Mail::default()
    };
    if let Some(diff) = &mut mail.body.diff
        && diff.unterminated
    {
        // A mail's lines all end; a text that was copied may have lost its last one.
        let line = mail.body.text.number(diff.lines.end.saturating_sub(1));
        let what = "the last line has no end: the mail was cut in it or behind it".to_owned();
        diff.damages.push(Damage { line, kind: DamageKind::Truncated, what });
    }
    finish(&mut mail, charset.as_deref());
    let carries = mail.body.diff.is_none() && !attached.is_empty();
    if carries && !mail.cover {
        let count = attached.len();
        let reason = if mail.subject.reply { Reason::Reply } else { Reason::Carrier };
        let plural = if count == 1 { "patch is" } else { "patches are" };
        mail.passed = Some((reason, format!("{count} {plural} attached as mails")));
    } else if html && mail.body.diff.is_none() && inline.is_empty() && mail.passed.is_some() {
        mail.passed = Some((Reason::Html, "ask for the patch in plain text".to_owned()));
    }
    for inner in &mut attached {
        // A patch that was attached to an answer is one, but not of its series.
        inner.formal_reply |= mail.subject.reply && inner.passed.is_none();
        if inner.references.is_empty() {
            inner.references = mail.message_id.iter().chain(&mail.references).cloned().collect();
        }
    }
    mails.push(mail);
    mails.append(&mut attached);
}

/// The inline text; of a text that says it is flowed, the reading that gives a
/// whole diff.
fn read_inline(inline: &[&Part], charset: Option<&str>) -> Body {
    let body = Body::read(&joined(inline, false), charset);
    if body.is_whole() {
        return body;
    }
    for variant in 0..2 {
        let mut text = Text::default();
        let mut differs = false;
        for part in inline {
            let other = part.unflowed.get(variant);
            differs |= other.is_some();
            append(&mut text, other.unwrap_or(&part.text));
        }
        let other = Body::read(&text, charset);
        if differs && other.is_whole() {
            return other;
        }
    }
    body
}

fn joined(parts: &[&Part], cut_signatures: bool) -> Text {
    let mut text = Text::default();
    for part in parts {
        if !cut_signatures || part.kind != Kind::Inline {
            append(&mut text, &part.text);
            continue;
        }
        let end = (0..part.text.count())
            .find(|&at| super::diff_line::is_signature(part.text.line(at)))
            .unwrap_or(part.text.count());
        append(&mut text, &part.text.part(0..end));
    }
    text
}

fn append(text: &mut Text, more: &Text) {
    if text.bytes().last().is_some_and(|&last| last != b'\n') {
        text.push(b"\n", text.number(usize::MAX));
    }
    for index in 0..more.count() {
        text.push(more.raw_line(index), more.number(index));
    }
}

/// Whether an attached text is a mail: what `git format-patch` writes.
fn is_mail(text: &Text) -> bool {
    let (header, ..) = Header::parse(text.bytes(), 1);
    is_format_patch_line(text.line(0))
        || header.raw("subject").is_some() && header.raw("from").is_some()
}

fn read_attached_mails(text: &Text, depth: usize, mails: &mut Vec<Mail>) {
    let mut inner = Mails::new(text.bytes());
    // Reading from memory cannot fail.
    while let Ok(Some(mut raw)) = inner.next_mail() {
        raw.line = text.number(raw.line - 1);
        read_bytes(&raw.bytes, raw.line, depth - 1, mails);
    }
}

fn from_pasted(pasted: Pasted) -> Mail {
    let body = Body::read(&pasted.text, None);
    let mut mail = Mail {
        line: pasted.line,
        raw_subject: pasted.subject,
        sender: pasted.author.as_deref().and_then(Author::parse),
        date: pasted.date,
        body,
        notes: pasted.notes,
        ..Mail::default()
    };
    finish(&mut mail, None);
    if mail.passed.as_ref().is_some_and(|(reason, _)| *reason == Reason::NoDiff)
        && mail.body.text.bytes().contains(&0)
    {
        mail.passed = Some((Reason::NoDiff, "the input is no text".to_owned()));
    }
    mail
}

/// Fills in what follows from the header and the body together.
fn finish(mail: &mut Mail, charset: Option<&str>) {
    if let Some((at, _)) = mail.raw_subject.char_indices().nth(MAX_SUBJECT) {
        mail.raw_subject.truncate(at);
    }
    if let (Some(line), Some(diff)) = (mail.body.nul, &mut mail.body.diff) {
        let what = "the message has a NUL byte".to_owned();
        diff.damages.push(Damage { line, kind: DamageKind::Message, what });
    }
    let outer = Subject::parse(&mail.raw_subject);
    let inner = mail.body.subject.as_deref().map(Subject::parse);
    mail.formal_reply = outer.reply && mail.body.scissors && inner.is_some();
    mail.subject = match inner {
        Some(mut inner) => {
            // A subject in the body is the patch's; only the mail's own says what it answers.
            inner.reply = outer.reply;
            if !outer.reply {
                inner.number = inner.number.or(outer.number);
                inner.version = inner.version.or(outer.version);
                inner.patch |= outer.patch;
                inner.rfc |= outer.rfc;
                inner.resend |= outer.resend;
                if inner.tags.is_empty() {
                    inner.tags = outer.tags;
                }
            }
            inner
        }
        None => outer,
    };
    let named = mail.body.from.as_deref().and_then(Author::parse);
    mail.author = named.or_else(|| mail.sender.clone());
    if let Some(date) = &mail.body.date {
        mail.date = Some(date.clone());
    }
    if mail.subject.number.is_none() {
        number_from_message(mail);
    }
    mail.outside = outside_kernel(mail);
    mail.passed = passed(mail);
    mail.cover =
        mail.passed.is_none() && mail.subject.number.is_some_and(|(number, _)| number == 0);
    if mail.passed.is_none() && !mail.cover {
        notes(mail, charset);
    }
}

/// Why a mail is no patch.
fn passed(mail: &Mail) -> Option<(Reason, String)> {
    if mail.subject.pull {
        return Some((Reason::PullRequest, String::new()));
    }
    if mail.subject.reply && !mail.formal_reply {
        let detail = match (&mail.body.diff, &mail.outside) {
            (Some(_), Some(path)) => {
                format!("its own diff touches only {path}, nothing of a kernel tree")
            }
            (Some(diff), None) => {
                let path = diff.files.first().map_or("a file", |file| file.path.as_str());
                format!("with a diff of its own, of {path}, line {}", mail.body.diff_line())
            }
            (None, _) => String::new(),
        };
        let reason = if mail.body.quoted_diff { Reason::Review } else { Reason::Reply };
        return Some((reason, detail));
    }
    if mail.subject.number.is_some_and(|(number, _)| number == 0) {
        return None;
    }
    if mail.body.diff.is_none() {
        if mail.body.quoted_diff {
            return Some((Reason::Review, String::new()));
        }
        return Some((Reason::NoDiff, String::new()));
    }
    None
}

/// Where every file of a diff lies outside of a kernel tree, the first of them.
fn outside_kernel(mail: &Mail) -> Option<String> {
    let files = &mail.body.diff.as_ref()?.files;
    let known = files.iter().filter(|file| !file.path.is_empty());
    if known.clone().any(|file| {
        in_kernel_tree(&file.path) || file.old_path.as_deref().is_some_and(in_kernel_tree)
    }) {
        return None;
    }
    known.map(|file| file.path.clone()).next()
}

/// Andrew Morton's tree tells a series in the first patch's message: `Patch series
/// "...", v3.` and `This patch (of 4):`.
fn number_from_message(mail: &mut Mail) {
    let message = mail.body.message.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(total) = message
        .split_once("This patch (of ")
        .and_then(|(_, rest)| rest.split_once(')'))
        .and_then(|(total, _)| total.parse().ok())
        .filter(|total| (1..=super::subject::MAX_TOTAL).contains(total))
    else {
        return;
    };
    mail.subject.number = Some((1, total));
    let version = message
        .split_once("Patch series \"")
        .and_then(|(_, rest)| rest.split_once("\", v"))
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>())
        .and_then(|version| version.parse().ok());
    if mail.subject.version.is_none() {
        mail.subject.version = version;
    }
    mail.notes.push(format!("the message says that it is the first of {total}"));
}

fn notes(mail: &mut Mail, charset: Option<&str>) {
    let Some(diff) = &mail.body.diff else {
        return;
    };
    let mut add = |note: String| mail.notes.push(note);
    if diff.strip != 1 {
        add(format!("its file names need -p{}, which `git am` has to be told", diff.strip));
    }
    if diff.stripped_blanks > 0 {
        let count = diff.stripped_blanks;
        add(format!("{count} empty context lines lost their blank; git reads them all the same"));
    }
    if diff.unterminated && diff.damages.is_empty() {
        add("its last line has no end; check that nothing was cut off".to_owned());
    }
    let is_utf8 = std::str::from_utf8(mail.body.diff_bytes()).is_ok();
    if !is_utf8 && !diff.files.iter().all(|file| file.binary) {
        let charset = charset.unwrap_or("none named");
        add(format!("its diff is not UTF-8 (charset: {charset}); its bytes are kept"));
    }
    if mail.formal_reply {
        add("it stands in a reply".to_owned());
    }
}

fn clean_date(date: &str) -> String {
    // Lore's pages have a link behind the date.
    date.split('\t')
        .next()
        .unwrap_or_default()
        .split(" [")
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}
