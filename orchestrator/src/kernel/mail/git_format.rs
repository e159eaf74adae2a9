// SPDX-License-Identifier: MIT OR Apache-2.0
//! A patch as the text that `git format-patch` would have written.

use super::body::is_break;
use super::reading::Patch;
use super::text::starts_with_ignore_case;

impl Patch {
    /// The patch as a mail for `git am`, with `total` in its subject. Where the
    /// diff holds carriage returns, git needs `--keep-cr`; where [`Patch::strip`]
    /// is not 1, it needs `-p`.
    #[must_use]
    pub fn to_mail(&self, version: u32, total: usize) -> Vec<u8> {
        let mut out = String::new();
        out.push_str("From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n");
        let author = match &self.author {
            Some(author) => format!("{} <{}>", quoted(&author.name), author.email),
            // git takes no patch without one.
            None => "unknown <unknown@example.invalid>".to_owned(),
        };
        let date = self.date.as_deref().unwrap_or("Thu, 1 Jan 1970 00:00:00 +0000");
        let version = if version > 1 { format!(" v{version}") } else { String::new() };
        let number = if total > 1 { format!(" {}/{total}", self.number) } else { String::new() };
        for line in [
            format!("From: {author}"),
            format!("Date: {date}"),
            format!("Subject: [PATCH{version}{number}] {}", self.subject),
            "MIME-Version: 1.0".to_owned(),
            "Content-Type: text/plain; charset=UTF-8".to_owned(),
            "Content-Transfer-Encoding: 8bit".to_owned(),
        ] {
            // A header's line cannot hold a line end.
            out.extend(line.chars().map(|c| if c.is_control() { ' ' } else { c }));
            out.push('\n');
        }
        out.push('\n');
        let header_like = |line: &str| {
            [&b"from:"[..], b"subject:", b"date:", b"[patch]"]
                .iter()
                .any(|name| starts_with_ignore_case(line.as_bytes(), name))
        };
        if self.message.lines().next().is_some_and(header_like) {
            // git would read the message's first line as a header.
            out.push_str(&format!("From: {author}\n\n"));
        }
        for line in self.message.lines() {
            if is_break(line.as_bytes()) || line.starts_with("From ") {
                out.push(' ');
            }
            out.push_str(line);
            out.push('\n');
        }
        out.push_str("---\n\n");
        let mut bytes = out.into_bytes();
        bytes.extend_from_slice(&self.diff);
        if !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(b"-- \nkvet\n\n");
        bytes
    }
}

/// A display name, in quotes where it needs them (RFC 5322, section 3.2.3).
fn quoted(name: &str) -> String {
    if name.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '\'')) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}
