// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line of a `.config` or of a fragment.

use std::collections::BTreeMap;

/// Values by symbol, as `.config` has them: `y`, `m`, a number, a quoted string;
/// `n` for `# CONFIG_X is not set`.
pub type Symbols = BTreeMap<String, String>;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A comment, or nothing.
    Nothing,
    /// A symbol and its value.
    Symbol(String, String),
    /// Nothing that kconfig knows; why not.
    Wrong(&'static str),
}

/// The symbols of a `.config`; lines that are none are passed over.
#[must_use]
pub fn symbols(text: &str) -> Symbols {
    text.lines()
        .filter_map(|line| match parse(line) {
            Line::Symbol(name, value) => Some((name, value)),
            Line::Nothing | Line::Wrong(_) => None,
        })
        .collect()
}

pub(super) fn parse(line: &str) -> Line {
    let line = line.trim_end();
    if line.is_empty() {
        return Line::Nothing;
    }
    if let Some(comment) = line.strip_prefix('#') {
        let unset = comment.trim_start().strip_suffix(" is not set").filter(|name| is_symbol(name));
        return unset.map_or(Line::Nothing, |name| Line::Symbol(name.to_owned(), "n".to_owned()));
    }
    let Some((name, value)) = line.split_once('=') else {
        return Line::Wrong("not a line of a kconfig fragment");
    };
    if !is_symbol(name) {
        return Line::Wrong("a symbol is CONFIG_ and capitals, digits or underscores");
    }
    if !is_value(value) {
        return Line::Wrong("a value is y, m, n, a number or a quoted string");
    }
    Line::Symbol(name.to_owned(), value.to_owned())
}

fn is_symbol(name: &str) -> bool {
    name.strip_prefix("CONFIG_").is_some_and(|rest| {
        // A few symbols of the kernel have lower-case letters, such as ARCH_x.
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

fn is_value(value: &str) -> bool {
    let quoted = value.len() >= 2 && value.starts_with('"') && value.ends_with('"');
    let number = value.strip_prefix('-').unwrap_or(value);
    let hexadecimal = number.strip_prefix("0x").is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    let decimal = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    matches!(value, "y" | "m" | "n") || quoted || decimal || hexadecimal
}
