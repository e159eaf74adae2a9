// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways in which a patch may travel.

use std::fmt::Write as _;

/// Small numbers that a seed decides.
pub struct Rng(pub u64);

impl Rng {
    /// A number below another one.
    pub fn below(&mut self, limit: usize) -> usize {
        // Knuth's MMIX generator; its high bits are good enough to choose by.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// How a patch travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrapping {
    /// As `git format-patch` writes it.
    None,
    /// With CR LF at every line end.
    Crlf,
    /// quoted-printable, with more encoded than has to be.
    QuotedPrintable,
    /// base64.
    Base64,
    /// base64 in a mail with CR LF.
    Base64Crlf,
    /// A part of a multipart mail, quoted-printable, with a footer behind it.
    Multipart,
    /// In an mbox that quotes lines which start with `From `.
    Mboxrd,
    /// Among other mails in an mbox.
    Among,
    /// As an attached file.
    Attached,
}

impl Wrapping {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Crlf,
        Self::QuotedPrintable,
        Self::Base64,
        Self::Base64Crlf,
        Self::Multipart,
        Self::Mboxrd,
        Self::Among,
        Self::Attached,
    ];
    /// Those that `git am` reads, too.
    pub const GIT: [Self; 7] = [
        Self::None,
        Self::Crlf,
        Self::QuotedPrintable,
        Self::Base64,
        Self::Base64Crlf,
        Self::Multipart,
        Self::Mboxrd,
    ];
}

/// A patch of `git format-patch` in another shape.
pub fn wrap(patch: &[u8], wrapping: Wrapping, rng: &mut Rng) -> Vec<u8> {
    let separator_end = patch.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let (separator, mail) = patch.split_at(separator_end);
    let end = mail.windows(2).position(|window| window == b"\n\n").unwrap() + 1;
    let (header, body) = (&mail[..end], &mail[end + 1..]);
    let header = plain_header(header);
    let mut out = separator.to_vec();
    match wrapping {
        Wrapping::None => return patch.to_vec(),
        Wrapping::Crlf => {
            out.extend(crlf(mail));
            return out;
        }
        Wrapping::QuotedPrintable => {
            out.extend(encoded(&header, "quoted-printable"));
            out.extend(quoted_printable(body, rng));
        }
        Wrapping::Base64 | Wrapping::Base64Crlf => {
            let mut mail = encoded(&header, "base64");
            mail.extend(base64(body));
            out.extend(if wrapping == Wrapping::Base64 { mail } else { crlf(&mail) });
        }
        Wrapping::Multipart => {
            out.extend(&header);
            out.extend(b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"=_b=\"\n\nA preamble.\n--=_b=\n");
            out.extend(b"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n");
            out.extend(quoted_printable(body, rng));
            out.extend(b"\n--=_b=\nContent-Type: text/plain\n\n______\na list\n--=_b=--\n");
        }
        Wrapping::Mboxrd => {
            out = b"From mboxrd@z Thu Jan  1 00:00:00 1970\n".to_vec();
            for line in mail.split_inclusive(|&byte| byte == b'\n') {
                let marks = line.iter().take_while(|&&byte| byte == b'>').count();
                if line[marks..].starts_with(b"From ") {
                    out.push(b'>');
                }
                out.extend(line);
            }
        }
        Wrapping::Among => {
            let other = b"From bob@example.com Mon Jan  5 10:00:00 2026\nFrom: Bob <bob@example.com>\nSubject: Re: [PATCH] mm: x\n\n> diff --git a/mm/x b/mm/x\n> @@ -1 +1 @@\n\nWhy?\n\n";
            out = other.to_vec();
            out.extend(patch);
            out.extend(other);
        }
        Wrapping::Attached => {
            out = b"From: Ada Example <ada@example.org>\nSubject: see the attachment\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"=_b=\"\n\n--=_b=\nContent-Type: text/plain\n\nHello.\n--=_b=\n".to_vec();
            out.extend(b"Content-Type: text/x-patch; name=\"0001.patch\"\nContent-Disposition: attachment;\n filename=\"0001.patch\"\nContent-Transfer-Encoding: base64\n\n");
            out.extend(base64(patch));
            out.extend(b"--=_b=--\n");
        }
    }
    out
}

/// A header without the fields that say how its body is encoded.
fn plain_header(header: &[u8]) -> Vec<u8> {
    let lines = header.split_inclusive(|&byte| byte == b'\n');
    lines
        .filter(|line| !line.starts_with(b"MIME-") && !line.starts_with(b"Content-"))
        .flatten()
        .copied()
        .collect()
}

fn encoded(header: &[u8], encoding: &str) -> Vec<u8> {
    let mut out = header.to_vec();
    out.extend(b"MIME-Version: 1.0\nContent-Type: text/plain;\n charset=\"utf-8\"\nContent-Transfer-Encoding: ");
    out.extend(encoding.bytes());
    out.extend(b"\n\n");
    out
}

fn crlf(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    lines
        .flat_map(|line| match line.strip_suffix(b"\n") {
            Some(rest) => [rest, b"\r\n"].concat(),
            None => line.to_vec(),
        })
        .collect()
}

fn quoted_printable(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = String::new();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let (content, end) = match line.strip_suffix(b"\n") {
            Some(content) => (content, "\n"),
            None => (line, "=\n"),
        };
        let mut width = 0;
        for (at, &byte) in content.iter().enumerate() {
            let last = at + 1 == content.len();
            let plain =
                matches!(byte, b'!'..=b'<' | b'>'..=b'~') || matches!(byte, b' ' | b'\t') && !last;
            if width > 70 {
                out.push_str("=\n");
                width = 0;
            }
            // A boundary's or a separator's line must not come to be.
            if plain && rng.below(20) > 0 && !(width == 0 && matches!(byte, b'-' | b'F')) {
                out.push(char::from(byte));
                width += 1;
            } else {
                write!(out, "={byte:02X}").unwrap();
                width += 3;
            }
        }
        out.push_str(end);
    }
    out.into_bytes()
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for line in bytes.chunks(57) {
        for group in line.chunks(3) {
            let mut three = [0; 3];
            three[..group.len()].copy_from_slice(group);
            let value = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            for digit in 0..4 {
                let sextet = (value >> (18 - 6 * digit)) as usize & 63;
                out.push(if digit > group.len() { b'=' } else { DIGITS[sextet] });
            }
        }
        out.push(b'\n');
    }
    out
}
