// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who wrote a patch, read from a `From:` as `git mailinfo` reads it.

use serde::Serialize;

/// A person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Author {
    /// The name; the address where there is none.
    pub name: String,
    /// The address, without angle brackets.
    pub email: String,
}

/// Longest name that git takes for one; a longer one is replaced by the address.
const MAX_NAME: usize = 60;

impl Author {
    /// Reads the decoded value of a `From:`. None without an address.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        // Lore's pages and archives that hide addresses.
        let value = value.replace(" (a) ", "@").replace(" at ", "@");
        let at = value.find('@')?;
        let breaks = |c: char| c.is_whitespace() || c == '<' || c == '>';
        let start = value[..at]
            .rfind(breaks)
            .map_or(0, |start| start + value[start..].chars().next().map_or(1, char::len_utf8));
        let end = value[at..].find(breaks).map_or(value.len(), |end| at + end);
        let email = value[start..end].trim_matches(|c| matches!(c, '(' | ')' | ',' | ';'));
        let rest = format!("{} {}", &value[..start], &value[end..]);
        let name = unquote(&rest.replace(['<', '>'], " "));
        let name = if name.is_empty() || name.contains('@') || name.chars().count() > MAX_NAME {
            email.to_owned()
        } else {
            name
        };
        Some(Self { name, email: email.to_owned() })
    }
}

/// A display name without quotes and without the parentheses of a comment around
/// all of it.
fn unquote(name: &str) -> String {
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let name = name.trim_end_matches(',').trim();
    let name = name.strip_prefix('(').and_then(|name| name.strip_suffix(')')).unwrap_or(name);
    let mut out = String::new();
    let mut characters = name.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {}
            '\\' => out.extend(characters.next()),
            _ => out.push(character),
        }
    }
    out.trim().to_owned()
}

impl std::fmt::Display for Author {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} <{}>", self.name, self.email)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authors_are_read_as_git_reads_them() {
        for (value, name, email) in [
            ("Ada Example <ada@example.org>", "Ada Example", "ada@example.org"),
            ("\"Example, Ada\" <ada@example.org>", "Example, Ada", "ada@example.org"),
            ("ada@example.org (Ada Example)", "Ada Example", "ada@example.org"),
            ("ada@example.org", "ada@example.org", "ada@example.org"),
            ("<ada@example.org>", "ada@example.org", "ada@example.org"),
            ("Ada \"A.\" Example <ada@example.org>", "Ada A. Example", "ada@example.org"),
            ("Ada Example<ada@example.org>", "Ada Example", "ada@example.org"),
            ("\"Ada \\\"A\\\" Example\" <ada@example.org>", "Ada \"A\" Example", "ada@example.org"),
            ("Ada (Example Corp) <ada@example.org>", "Ada (Example Corp)", "ada@example.org"),
            ("\u{c4}da <ada@example.org>", "\u{c4}da", "ada@example.org"),
        ] {
            let author = Author::parse(value).unwrap();
            assert_eq!((author.name.as_str(), author.email.as_str()), (name, email), "{value}");
        }
        assert_eq!(Author::parse("nobody"), None);
        assert_eq!(Author::parse("@").unwrap().email, "@");
    }
}
