// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kconfig fragments: what is asked for, and whether the kernel granted it.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::plan::{Config, Fragment};

/// A symbol's value as `.config` has it: `y`, `m`, a number, a quoted string;
/// `n` for `# CONFIG_X is not set`.
pub type Symbols = BTreeMap<String, String>;

/// What a config asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    symbols: BTreeMap<String, Wanted>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    value: String,
    place: String,
}

impl Request {
    /// Reads the fragments of a config; a later one wins over an earlier one.
    ///
    /// # Errors
    /// A `plan` fault for each line that is none of kconfig's.
    pub fn read(config: &Config) -> Result<Self, Vec<Fault>> {
        let (mut symbols, mut faults) = (BTreeMap::new(), Vec::new());
        for fragment in &config.fragments {
            read_fragment(fragment, &mut symbols, &mut faults);
        }
        if faults.is_empty() { Ok(Self { symbols }) } else { Err(faults) }
    }

    /// The request in `.config`'s form, sorted, without comments.
    #[must_use]
    pub fn text(&self) -> String {
        self.symbols
            .iter()
            .map(|(name, wanted)| match wanted.value.as_str() {
                "n" => format!("# {name} is not set\n"),
                value => format!("{name}={value}\n"),
            })
            .collect()
    }

    /// Compares what was asked for with what `make olddefconfig` left.
    ///
    /// # Errors
    /// A `plan` fault that names every symbol that was dropped or changed.
    pub fn check(&self, result: &str) -> Result<(), Fault> {
        let granted = symbols(result);
        let mut lines = Vec::new();
        let mut first = None;
        for (name, wanted) in &self.symbols {
            let found = granted.get(name).map_or("n", String::as_str);
            if found != wanted.value {
                lines.push(format!(
                    "{}: {name}: asked for {}, got {found}",
                    wanted.place, wanted.value
                ));
                first.get_or_insert_with(|| (name.clone(), wanted.place.clone()));
            }
        }
        let Some((name, place)) = first else {
            return Ok(());
        };
        let more = match lines.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        Err(Fault::plan(format!("kconfig does not grant {name}{more}"))
            .at(place)
            .evidence(&lines.join("\n"))
            .help("add what the symbol depends on to the fragment (its `depends on` in the kernel's Kconfig), or take it out"))
    }
}

fn read_fragment(
    fragment: &Fragment,
    symbols: &mut BTreeMap<String, Wanted>,
    faults: &mut Vec<Fault>,
) {
    for (index, line) in fragment.text.lines().enumerate() {
        let place = format!("{}:{}", fragment.path.display(), index + 1);
        match parse_line(line) {
            Parsed::Nothing => {}
            Parsed::Symbol(name, value) => {
                symbols.insert(name, Wanted { value, place });
            }
            Parsed::Wrong(what) => faults.push(
                Fault::plan(what)
                    .at(format!("{place}:1"))
                    .evidence(line)
                    .help("a fragment holds CONFIG_X=y, CONFIG_X=\"text\", # CONFIG_X is not set, and comments"),
            ),
        }
    }
}

/// The symbols of a `.config`; lines that are none are passed over.
#[must_use]
pub fn symbols(text: &str) -> Symbols {
    text.lines()
        .filter_map(|line| match parse_line(line) {
            Parsed::Symbol(name, value) => Some((name, value)),
            Parsed::Nothing | Parsed::Wrong(_) => None,
        })
        .collect()
}

enum Parsed {
    Nothing,
    Symbol(String, String),
    Wrong(&'static str),
}

fn parse_line(line: &str) -> Parsed {
    let line = line.trim_end();
    if line.is_empty() {
        return Parsed::Nothing;
    }
    if let Some(comment) = line.strip_prefix('#') {
        let unset = comment.trim_start().strip_suffix(" is not set").filter(|name| is_symbol(name));
        return unset
            .map_or(Parsed::Nothing, |name| Parsed::Symbol(name.to_owned(), "n".to_owned()));
    }
    let Some((name, value)) = line.split_once('=') else {
        return Parsed::Wrong("not a line of a kconfig fragment");
    };
    if !is_symbol(name) {
        return Parsed::Wrong("a symbol is CONFIG_ and capitals, digits or underscores");
    }
    if !is_value(value) {
        return Parsed::Wrong("a value is y, m, n, a number or a quoted string");
    }
    Parsed::Symbol(name.to_owned(), value.to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::manifest::{Compiler, ConfigBase};
    use proptest::prelude::*;

    fn config(fragments: &[&str]) -> Config {
        let fragment = |(index, text): (usize, &&str)| Fragment {
            name: format!("f{index}"),
            path: format!("f{index}.config").into(),
            text: (*text).to_owned(),
        };
        Config {
            name: "c".into(),
            base: ConfigBase::Tinyconfig,
            compiler: Compiler::Gcc,
            fragments: fragments.iter().enumerate().map(fragment).collect(),
        }
    }

    #[test]
    fn a_dropped_symbol_is_named_with_its_line() {
        let request =
            Request::read(&config(&["# why\nCONFIG_BLOCK=n\n", "CONFIG_SWAP=y\n"])).unwrap();
        let fault = request.check("CONFIG_MMU=y\n").unwrap_err();
        assert_eq!(fault.place.as_deref(), Some("f1.config:1"));
        assert!(fault.what.contains("CONFIG_SWAP"), "{fault}");
        assert_eq!(fault.evidence, ["f1.config:1: CONFIG_SWAP: asked for y, got n"]);
        request.check("CONFIG_SWAP=y\n# CONFIG_BLOCK is not set\n").unwrap();
    }

    #[test]
    fn later_fragments_win_and_comments_do_not_count() {
        let request =
            Request::read(&config(&["CONFIG_A=y\n", "# CONFIG_A is not set\n#x\n"])).unwrap();
        assert_eq!(request.text(), "# CONFIG_A is not set\n");
    }

    #[test]
    fn what_kconfig_would_ignore_is_an_error() {
        for text in ["SWAP=y", "CONFIG_SWAP = y", "CONFIG_SWAP", "CONFIG_SWAP=yes", "CONFIG_X=\""] {
            let faults = Request::read(&config(&[text])).unwrap_err();
            assert_eq!(faults[0].place.as_deref(), Some("f0.config:1:1"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_request_is_granted_by_itself(names in prop::collection::btree_map("CONFIG_[A-Z0-9_]{1,8}", "y|m|n|-?[0-9]{1,5}|0x[0-9a-f]{1,4}|\"[a-z ]{0,5}\"", 0..8)) {
            let text: String = names.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
            let request = Request::read(&config(&[&text])).unwrap();
            prop_assert!(request.check(&request.text()).is_ok());
            prop_assert_eq!(symbols(&request.text()), names);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,60}") {
            let _ = Request::read(&config(&[&text]));
        }
    }
}
