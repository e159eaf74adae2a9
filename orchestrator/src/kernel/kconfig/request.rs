// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the fragments of a config ask for, where they disagree, and whether the
//! kernel granted it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::explain::Explainer;
use super::line::{Line, parse, symbols};
use super::tree::Tree;
use crate::arch::x86_64;
use crate::fault::{Fault, escape};
use crate::plan::{Config, Fragment};

/// Most symbols whose loss is explained; with more, the first ones tell why.
const MAX_EXPLAINED: usize = 32;

/// What a config asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    symbols: BTreeMap<String, Asked>,
    overrides: Vec<Override>,
}

/// Who asks for a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Name of the fragment.
    pub fragment: String,
    /// `file:line:column`.
    pub place: String,
    /// The value, as in `.config`; n for one that is not to be set.
    pub value: String,
}

/// Two fragments of a config that ask for different values of a symbol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The symbol.
    pub symbol: String,
    /// What the earlier fragment asks for, which does not count.
    pub loses: Asked,
    /// What the later fragment asks for.
    pub wins: Asked,
}

impl Request {
    /// Reads the fragments of a config; a later one wins over an earlier one.
    ///
    /// # Errors
    /// A `plan` fault for each line that is none of kconfig's, and for each symbol
    /// for which one fragment asks for two values.
    pub fn read(config: &Config) -> Result<Self, Vec<Fault>> {
        let mut request = Self { symbols: BTreeMap::new(), overrides: Vec::new() };
        let mut faults = Vec::new();
        for fragment in &config.fragments {
            request.add(fragment, &mut faults);
        }
        if faults.is_empty() { Ok(request) } else { Err(faults) }
    }

    fn add(&mut self, fragment: &Fragment, faults: &mut Vec<Fault>) {
        // Where this fragment asked for what.
        let mut own: BTreeMap<String, Asked> = BTreeMap::new();
        for (index, line) in fragment.text.lines().enumerate() {
            let place = format!("{}:{}:1", fragment.path.display(), index + 1);
            match parse(line) {
                Line::Nothing => {}
                Line::Symbol(name, value) => {
                    let asked = Asked { fragment: fragment.name.clone(), place, value };
                    match own.entry(name) {
                        Entry::Vacant(entry) => drop(entry.insert(asked)),
                        Entry::Occupied(entry) if entry.get().value == asked.value => {}
                        Entry::Occupied(entry) => {
                            faults.push(twice(entry.key(), entry.get(), &asked));
                        }
                    }
                }
                Line::Wrong(what) => faults.push(
                    Fault::plan(what)
                        .at(place)
                        .evidence(line)
                        .help("a fragment holds CONFIG_X=y, CONFIG_X=\"text\", # CONFIG_X is not set, and comments"),
                ),
            }
        }
        for (name, asked) in own {
            if let Some(loses) = self.symbols.insert(name.clone(), asked.clone())
                && loses.value != asked.value
            {
                self.overrides.push(Override { symbol: name, loses, wins: asked });
            }
        }
    }

    /// Where fragments disagree, in the order of the fragments that win.
    #[must_use]
    pub fn overrides(&self) -> &[Override] {
        &self.overrides
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

    /// Compares what was asked for with what `make olddefconfig` left, and says from
    /// the Kconfig files of the tree why it is not the same.
    ///
    /// # Errors
    /// A `plan` fault that names every symbol that was dropped or changed.
    pub fn check(&self, result: &str, tree: &Path) -> Result<(), Fault> {
        let granted = symbols(result);
        let found = |name: &String| granted.get(name).map_or("n", String::as_str);
        let lost: Vec<(&String, &Asked)> =
            self.symbols.iter().filter(|(name, wanted)| found(name) != wanted.value).collect();
        let Some((first, asked)) = lost.first() else {
            return Ok(());
        };
        let more = match lost.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let tree = Tree::read(tree, x86_64::SRCARCH);
        let explainer = Explainer::new(&tree, &granted);
        let mut lines = Vec::new();
        for (index, (name, wanted)) in lost.iter().enumerate() {
            let Asked { place, value, .. } = wanted;
            let got = found(name);
            let bare = name.strip_prefix("CONFIG_").unwrap_or(name);
            let mut reasons = match index < MAX_EXPLAINED {
                true => explainer.explain(bare, value, got).into_iter(),
                false => Vec::new().into_iter(),
            };
            let reason = reasons.next().map_or(String::new(), |line| format!(": {line}"));
            lines.push(format!("{place}: {name}: asked for {value}, got {got}{reason}"));
            lines.extend(reasons);
        }
        Err(Fault::plan(format!("kconfig does not grant {first}{more}"))
            .at(&asked.place)
            .evidence(&lines.join("\n"))
            .help("add what the symbol depends on to the fragment, or take it out"))
    }
}

fn twice(name: &str, first: &Asked, second: &Asked) -> Fault {
    Fault::plan(format!("{name} is asked for twice in one fragment, with different values"))
        .at(&second.place)
        .evidence(&format!(
            "{}: {name}: {}\n{}: {name}: {}",
            first.place, first.value, second.place, second.value
        ))
        .help("take one of the two out")
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { symbol, loses, wins } = self;
        let line = |asked: &Asked| asked.place.rsplit(':').nth(1).unwrap_or("?").to_owned();
        write!(
            f,
            "{symbol}: fragment {} (line {}) asks for {} and wins over {} (line {}), which asks for {}",
            escape(&wins.fragment),
            line(wins),
            escape(&wins.value),
            escape(&loses.fragment),
            line(loses),
            escape(&loses.value),
        )
    }
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
            base: ConfigBase::Tinyconfig.into(),
            compiler: Compiler::Gcc,
            fragments: fragments.iter().enumerate().map(fragment).collect(),
            overrides: Vec::new(),
        }
    }

    #[test]
    fn a_dropped_symbol_is_named_with_its_line() {
        let request =
            Request::read(&config(&["# why\nCONFIG_BLOCK=n\n", "CONFIG_SWAP=y\n"])).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kconfig = "config MMU\n\tdef_bool y\nconfig BLOCK\n\tbool \"block\"\nconfig SWAP\n\tbool \"swap\"\n\tdepends on MMU && BLOCK\n";
        std::fs::write(folder.path().join("Kconfig"), kconfig).unwrap();
        let fault = request.check("CONFIG_MMU=y\n", folder.path()).unwrap_err();
        assert_eq!(fault.place.as_deref(), Some("f1.config:1:1"));
        assert!(fault.what.contains("CONFIG_SWAP"), "{fault}");
        assert_eq!(
            fault.evidence,
            [
                "f1.config:1:1: CONFIG_SWAP: asked for y, got n: it depends on BLOCK, which is n (Kconfig:7)",
                "  CONFIG_BLOCK=y can be asked for (Kconfig:3)"
            ]
        );
        let granted = "CONFIG_SWAP=y\n# CONFIG_BLOCK is not set\n";
        request.check(granted, folder.path()).unwrap();
    }

    #[test]
    fn later_fragments_win_and_comments_do_not_count() {
        let request =
            Request::read(&config(&["CONFIG_A=y\n", "# CONFIG_A is not set\n#x\n"])).unwrap();
        assert_eq!(request.text(), "# CONFIG_A is not set\n");
        let [found] = request.overrides() else { panic!("{request:?}") };
        assert_eq!(
            (found.loses.place.as_str(), found.loses.value.as_str()),
            ("f0.config:1:1", "y")
        );
        assert_eq!(
            found.to_string(),
            "CONFIG_A: fragment f1 (line 1) asks for n and wins over f0 (line 1), which asks for y"
        );
        let same = Request::read(&config(&["CONFIG_A=y\n", "CONFIG_A=y\nCONFIG_B=1\n"])).unwrap();
        assert_eq!(same.overrides(), []);
    }

    #[test]
    fn one_fragment_cannot_ask_for_two_values() {
        let faults =
            Request::read(&config(&["CONFIG_A=y\n\n# CONFIG_A is not set\n"])).unwrap_err();
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!(fault.place.as_deref(), Some("f0.config:3:1"));
        assert_eq!(fault.evidence, ["f0.config:1:1: CONFIG_A: y", "f0.config:3:1: CONFIG_A: n"]);
        // The same twice does no harm.
        Request::read(&config(&["CONFIG_A=y\nCONFIG_A=y\n"])).unwrap();
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
            prop_assert!(request.check(&request.text(), std::path::Path::new("/nonexistent")).is_ok());
            prop_assert_eq!(symbols(&request.text()), names);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,60}") {
            let _ = Request::read(&config(&[&text]));
        }
    }
}
