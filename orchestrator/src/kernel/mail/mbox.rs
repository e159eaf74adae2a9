// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mails of an mbox, read one after another: never more than one is held.

use std::io::{self, BufRead};

use super::header::is_mail_field;
use super::text::{chomp, starts_with_ignore_case};

/// Largest mail that is read; the largest on the kernel's lists are far below.
pub const MAX_MAIL_BYTES: usize = 64 << 20;

/// One mail of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawMail {
    /// Its bytes without the mbox's own line; empty if it is too large.
    pub bytes: Vec<u8>,
    /// The line of the input that `bytes` start in.
    pub line: usize,
    /// Where `bytes` start in the input.
    pub offset: u64,
    /// How many bytes of the input they are.
    pub length: u64,
    /// Lines that start with `From ` have a `>` before them.
    pub quoted_from: bool,
    /// It has more than [`MAX_MAIL_BYTES`].
    pub too_large: bool,
}

/// Reads the mails of an input one by one.
pub struct Mails<R> {
    reader: R,
    offset: u64,
    line: usize,
    /// The line that was read ahead.
    ahead: Vec<u8>,
    /// The next mail's kind of quoting, once its separator was read.
    quoted_from: bool,
    ended: bool,
    /// The input is one mail with parts: attached patches have separators of their own.
    single: bool,
}

impl<R: BufRead> Mails<R> {
    /// Reads from the input's start.
    pub fn new(reader: R) -> Self {
        let ahead = Vec::new();
        let (quoted_from, ended, single) = (false, false, false);
        Self { reader, offset: 0, line: 1, ahead, quoted_from, ended, single }
    }

    /// The next mail. Text before the first separator is one, too.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn next_mail(&mut self) -> io::Result<Option<RawMail>> {
        let mut mail: Option<RawMail> = None;
        let mut in_header = self.offset == 0;
        let mut line = Vec::new();
        while !self.ended {
            if self.ahead.is_empty() {
                line.clear();
                self.fill(&mut line)?;
                if line.is_empty() {
                    self.ended = true;
                    break;
                }
            } else {
                line = std::mem::take(&mut self.ahead);
            }
            if !self.single && line.starts_with(b"From ") && is_from_line(chomp(&line)) {
                let mut next = Vec::new();
                self.fill(&mut next)?;
                let begins = is_mail_field(&next) || next.starts_with(b">From ");
                self.ahead = next;
                if begins {
                    let quoting = !is_format_patch_line(chomp(&line));
                    self.offset += line.len() as u64;
                    self.line += 1;
                    in_header = false;
                    let quoted_from = std::mem::replace(&mut self.quoted_from, quoting);
                    if let Some(mut mail) = mail.take() {
                        mail.quoted_from = quoted_from;
                        return Ok(Some(mail));
                    }
                    continue;
                }
            }
            if in_header {
                in_header = mail.is_none() || !chomp(&line).is_empty();
                self.single |= starts_with_ignore_case(&line, b"content-type: multipart/");
            }
            let mail = mail.get_or_insert_with(|| RawMail {
                bytes: Vec::new(),
                line: self.line,
                offset: self.offset,
                length: 0,
                quoted_from: self.quoted_from,
                too_large: false,
            });
            mail.length += line.len() as u64;
            self.offset += line.len() as u64;
            self.line += usize::from(line.ends_with(b"\n"));
            if mail.bytes.len() + line.len() > MAX_MAIL_BYTES {
                mail.too_large = true;
                mail.bytes = Vec::new();
            }
            if !mail.too_large {
                mail.bytes.extend_from_slice(&line);
            }
        }
        Ok(mail)
    }

    /// One line, or a piece of it where it is longer than any mail.
    fn fill(&mut self, line: &mut Vec<u8>) -> io::Result<()> {
        use io::Read as _;
        let limit = MAX_MAIL_BYTES as u64 / 4;
        self.reader.by_ref().take(limit).read_until(b'\n', line).map(drop)
    }
}

/// Takes away the `>` that an mbox puts before lines that start with `From `
/// (mboxrd: one of them, however many there are).
#[must_use]
pub fn unquote_from(bytes: &[u8]) -> Option<Vec<u8>> {
    memchr::memmem::find(bytes, b">From ")?;
    let mut out = Vec::with_capacity(bytes.len());
    for line in super::text::lines_of(bytes) {
        let rest = &line[line.iter().take_while(|&&byte| byte == b'>').count()..];
        let quoted = rest.len() < line.len() && rest.starts_with(b"From ");
        out.extend_from_slice(&line[usize::from(quoted)..]);
    }
    Some(out)
}

/// `From SENDER DATE`, where the date has a time and ends in a year, as
/// `git mailsplit` wants it.
fn is_from_line(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"From ") else {
        return false;
    };
    let digit = |at: usize| rest.get(at).is_some_and(u8::is_ascii_digit);
    let Some(colon) = rest.iter().rposition(|&byte| byte == b':') else {
        return false;
    };
    if colon < 4 || !digit(colon - 2) || !digit(colon - 1) || !digit(colon + 1) || !digit(colon + 2)
    {
        return false;
    }
    let year: Vec<u8> = rest[colon + 3..]
        .trim_ascii_start()
        .iter()
        .copied()
        .take_while(u8::is_ascii_digit)
        .collect();
    String::from_utf8(year).is_ok_and(|year| year.parse::<u32>().is_ok_and(|year| year > 90))
}

/// The separator that git's own patches start with: `From COMMIT Mon Sep 17
/// 00:00:00 2001`. In these, no line is quoted.
#[must_use]
pub fn is_format_patch_line(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"From ") else {
        return false;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    matches!(digits, 40 | 64) && rest[digits..].starts_with(b" Mon Sep 17 00:00:00 2001")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(input: &[u8]) -> Vec<RawMail> {
        let mut mails = Mails::new(input);
        std::iter::from_fn(|| mails.next_mail().unwrap()).collect()
    }

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn separators_are_told_from_text() {
        let input = format!(
            "From mboxrd@z Thu Jan  1 00:00:00 1970\nSubject: a\n\nFrom here on 10:00:00 2020\nit is text\n>From x\n\nFrom {COMMIT} Mon Sep 17 00:00:00 2001\nFrom: b\n\nb"
        );
        let mails = split(input.as_bytes());
        assert_eq!(mails.len(), 2);
        assert_eq!((mails[0].line, mails[1].line), (2, 9));
        assert_eq!((mails[0].quoted_from, mails[1].quoted_from), (true, false));
        assert!(mails[0].bytes.ends_with(b">From x\n\n"));
        for mail in &mails {
            let start = mail.offset as usize;
            assert_eq!(&input.as_bytes()[start..start + mail.length as usize], mail.bytes);
        }
    }

    #[test]
    fn text_without_a_separator_is_one_mail() {
        let mails = split(b"Subject: a\n\nbody\n");
        assert_eq!((mails.len(), mails[0].line, mails[0].quoted_from), (1, 1, false));
        assert!(split(b"").is_empty());
    }

    #[test]
    fn one_mark_of_quoting_goes() {
        let quoted = unquote_from(b">From a\n>>From b\n> From c\nx >From d\n").unwrap();
        assert_eq!(quoted, b"From a\n>From b\n> From c\nx >From d\n");
        assert_eq!(unquote_from(b"none"), None);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(input in "(From a@b Thu Jan  1 00:00:00 1970\n|Subject: x\n|\n|>From y\n|text){0,20}") {
            let mails = split(input.as_bytes());
            for mail in &mails {
                let start = mail.offset as usize;
                prop_assert_eq!(&input.as_bytes()[start..start + mail.length as usize], &mail.bytes[..]);
            }
        }
    }
}
