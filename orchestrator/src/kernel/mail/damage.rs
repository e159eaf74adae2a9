// SPDX-License-Identifier: MIT OR Apache-2.0
//! What mail clients and web pages do to patches.

use serde::Serialize;

use super::names::Names;

/// What kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamageKind {
    /// A long line was broken.
    Wrapped,
    /// Tabs became blanks, or indentation was lost.
    Whitespace,
    /// Blanks became non-breaking ones.
    NonBreaking,
    /// Lines are quoted as in an answer.
    Quoted,
    /// The end is missing.
    Truncated,
    /// A hunk has other lines than its header says.
    Miscounted,
    /// A line of a file's or hunk's header is missing or wrong.
    Header,
    /// Another mail was joined to this one.
    Joined,
    /// The message has a byte that git takes in none.
    Message,
    /// A form of diff that cannot be applied.
    Unreadable,
}

impl DamageKind {
    /// What to do about it.
    #[must_use]
    pub fn help(self) -> &'static str {
        match self {
            Self::Wrapped => {
                "a mail client wrapped it; ask for it as an attachment or from `git send-email`"
            }
            Self::Whitespace | Self::NonBreaking => {
                "it was copied from a page or by a mail client; take the raw mail"
            }
            Self::Quoted => "it is a quotation; take the mail that it quotes",
            Self::Truncated => "take the whole mail from its source",
            Self::Miscounted => "it was edited or damaged; take it from its source again",
            Self::Header => "the diff lost a part; take it from its source again",
            Self::Joined => {
                "give each mail in a file of its own, or an mbox that quotes lines with `From `"
            }
            Self::Message => "take the byte out of the message; `git am` refuses it too",
            Self::Unreadable => "make the patch again with `git format-patch --binary`",
        }
    }

    /// Whether git refuses the patch or would take only a part of it. Whitespace
    /// alone may turn out to be the file's own.
    #[must_use]
    pub fn is_certain(self) -> bool {
        self != Self::Whitespace
    }
}

/// One damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The line of the input.
    pub line: usize,
    /// What kind.
    pub kind: DamageKind,
    /// What is wrong there.
    pub what: String,
}

const NON_BREAKING: &[u8] = "\u{a0}".as_bytes();

/// What happened to a line that no hunk can have.
#[must_use]
pub fn kind_of_line(line: &[u8]) -> DamageKind {
    if line.starts_with(NON_BREAKING) || line.starts_with(b"\xa0") {
        DamageKind::NonBreaking
    } else if line.starts_with(b">") {
        DamageKind::Quoted
    } else {
        DamageKind::Wrapped
    }
}

/// The same with words.
#[must_use]
pub fn of_line(line: &[u8]) -> (DamageKind, String) {
    let text = super::diff_line::quoted(line);
    let kind = kind_of_line(line);
    let what = match kind {
        DamageKind::NonBreaking => "starts with a non-breaking space",
        DamageKind::Quoted => "is quoted",
        _ => "looks like the rest of the line before it",
    };
    (kind, format!("{text} {what}"))
}

/// Watches the indentation of one file's hunks.
#[derive(Debug, Default)]
pub struct Whitespace {
    /// The file is of a kind that the kernel indents with tabs.
    tabs_expected: bool,
    tab_seen: bool,
    /// Lines that stand in the tree and are indented with blanks: the first, and how many.
    blanks: Option<(usize, usize)>,
    non_breaking: bool,
}

/// Statements that never stand at the left margin.
const STATEMENTS: [&[u8]; 8] =
    [b"return ", b"return;", b"if (", b"goto ", b"break;", b"for (", b"while (", b"} else"];

impl Whitespace {
    /// The file whose hunks follow.
    pub fn file(&mut self, names: &Names) {
        let path = names.usual_path();
        let file = path.rsplit('/').next().unwrap_or_default();
        let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
        self.tabs_expected = matches!(extension, "c" | "h" | "S" | "dts" | "dtsi" | "y" | "l")
            || file.starts_with("Kconfig")
            || file.starts_with("Makefile")
            || file == "Kbuild";
    }

    /// Takes a line of a hunk; gives a damage that shows in it alone.
    pub fn line(&mut self, line: &[u8], number: usize) -> Option<Damage> {
        let (marker, content) = line.split_first()?;
        if memchr::memchr(b'\t', content).is_some() {
            self.tab_seen = true;
        }
        let blanks = content.iter().take_while(|&&byte| byte == b' ').count();
        let after = &content[blanks..];
        let valid = || std::str::from_utf8(line).is_ok();
        if after.starts_with(NON_BREAKING) || (after.starts_with(b"\xa0") && !valid()) {
            // One is enough: a page has them in every line.
            if !std::mem::replace(&mut self.non_breaking, true) {
                return Some(Damage {
                    line: number,
                    kind: DamageKind::Whitespace,
                    what: "indented with non-breaking spaces".to_owned(),
                });
            }
        }
        let in_tree = matches!(marker, b' ' | b'-');
        // A tab that a page expanded: up to column 8, the marker included.
        let indented = blanks >= 7 && !after.is_empty();
        let at_margin = STATEMENTS.iter().any(|statement| after.starts_with(statement));
        if in_tree && (indented || at_margin) {
            let (_, count) = self.blanks.get_or_insert((number, 0));
            *count += 1;
        }
        None
    }

    /// The damage of the whole file.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        let (line, count) = self.blanks?;
        if !self.tabs_expected || self.tab_seen {
            return None;
        }
        let lines = if count == 1 { "line" } else { "lines" };
        let what = format!(
            "tabs turned to spaces: {count} {lines} of the file's own code indented without any tab"
        );
        Some(Damage { line, kind: DamageKind::Whitespace, what })
    }
}
