// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a single line of a diff can be.

/// The line before a signature.
pub(super) fn is_signature(line: &[u8]) -> bool {
    matches!(line, b"-- " | b"--" | b"-- \r" | b"--\r")
}

pub(super) fn lines(count: usize) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}

pub(super) fn no_hunk(line: &[u8]) -> String {
    format!("{} stands where a hunk should start", quoted(line))
}

/// A line for a message, cut and in quotes.
pub(super) fn quoted(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    format!("{:?}", text.chars().take(60).collect::<String>())
}

/// What may stand between the hunks of one file and the next file without being
/// a part of either (git-diff(1), GNU diff, CVS, Subversion).
pub(super) fn is_between_files(line: &[u8]) -> bool {
    const STARTS: [&[u8]; 9] = [
        b"diff ",
        b"Index: ",
        b"=====",
        b"Only in ",
        b"Binary files ",
        b"RCS file: ",
        b"retrieving revision ",
        b"index ",
        b"Property changes on: ",
    ];
    STARTS.iter().any(|start| line.starts_with(start))
}

/// Whether a line was a hunk's header before something happened to it.
pub(super) fn looks_like_hunk(line: &[u8]) -> bool {
    let Some(at) = memchr::memmem::find(line, b" -") else {
        return false;
    };
    let before = &line[..at];
    (before.ends_with(b"@@") || before.ends_with(b"@"))
        && line[at + 2..].first().is_some_and(u8::is_ascii_digit)
        && memchr::memmem::find(&line[at..], b" +").is_some()
}

/// The line counts of `@@ -a,b +c,d @@`.
pub(super) fn hunk_ranges(line: &[u8]) -> Option<(usize, usize)> {
    let rest = line.strip_prefix(b"@@ -")?;
    let (old, rest) = range(rest)?;
    let (new, rest) = range(rest.strip_prefix(b" +")?)?;
    rest.starts_with(b" @@").then_some((old, new))
}

fn range(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (_, rest) = number(bytes)?;
    match rest.strip_prefix(b",") {
        Some(rest) => number(rest),
        None => Some((1, rest)),
    }
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = std::str::from_utf8(&bytes[..digits]).ok()?;
    Some((text.parse().ok()?, &bytes[digits..]))
}

/// A line of a binary patch: a letter for its length, then groups of five (base 85).
pub(super) fn is_base85(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Some((&letter, data)) = line.split_first() else {
        return false;
    };
    let length = match letter {
        b'A'..=b'Z' => usize::from(letter - b'A') + 1,
        b'a'..=b'z' => usize::from(letter - b'a') + 27,
        _ => return false,
    };
    data.len() == length.div_ceil(4) * 5 && data.iter().all(|&byte| is_digit85(byte))
}

fn is_digit85(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&()*+-;<=>?@^_`{|}~".contains(&byte)
}
