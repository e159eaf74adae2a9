// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel tree's Kconfig files define.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::expression::{Expression, Values};
use super::reader::Reader;

/// Largest Kconfig file; the largest of 6.12 has 108 kB.
const MAX_FILE_BYTES: u64 = 2 << 20;

/// Line of a Kconfig file, by its name in the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
}

/// Type of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// y or n.
    Bool,
    /// y, m or n.
    Tristate,
    /// A decimal number.
    Int,
    /// A hexadecimal number.
    Hex,
    /// A text.
    Text,
}

/// Something that must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What must hold.
    pub expression: Expression,
    /// Where it says so.
    pub place: Place,
}

/// One `config` of a symbol, which may have several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Where it is.
    pub place: Place,
    /// Its type, where it gives one.
    pub kind: Option<Kind>,
    /// It has a prompt, without which nobody can set it.
    pub prompt: bool,
    /// What the prompt is there for: its own `if`, and `visible if` of menus.
    pub visible: Vec<Arc<Condition>>,
    /// What it depends on: its own `depends on`, and those of the blocks around it.
    pub depends: Vec<Arc<Condition>>,
    /// It has a default.
    pub default: bool,
    /// Bounds of its value, each with a condition.
    pub ranges: Vec<Range>,
    /// Number of the choice that it is a member of.
    pub choice: Option<usize>,
}

/// Bounds of a number, both included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Least value: a number or a symbol.
    pub low: Expression,
    /// Greatest value.
    pub high: Expression,
    /// When the bounds hold.
    pub condition: Option<Expression>,
    /// Where it says so.
    pub place: Place,
}

/// A `select`: what is selected is at least what the selecting symbol is, where the
/// condition holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Select {
    /// The symbol that selects.
    pub by: String,
    /// Its `if`.
    pub condition: Expression,
    /// What the definition that it stands in depends on.
    pub depends: Vec<Arc<Condition>>,
    /// Where it says so.
    pub place: Place,
}

/// A `choice`, of which one member is y.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Where it is.
    pub place: Place,
    /// Its members.
    pub members: Vec<String>,
}

/// Everything that the Kconfig files of a tree define, for one architecture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Definitions by name, without `CONFIG_`.
    pub symbols: BTreeMap<String, Vec<Definition>>,
    /// What selects a symbol, by its name.
    pub selects: BTreeMap<String, Vec<Select>>,
    /// Symbols that others imply: a default that a user may override.
    pub implied: BTreeSet<String>,
    /// The choices.
    pub choices: Vec<Choice>,
    /// Files that were not read, with the reason.
    pub unread: Vec<String>,
}

impl Tree {
    /// Reads the tree in a folder, beginning with its `Kconfig`. `srcarch` is the
    /// folder in `arch/`. What cannot be read is left out and listed.
    #[must_use]
    pub fn read(folder: &Path, srcarch: &str) -> Self {
        let root = folder.canonicalize();
        Self::read_with(srcarch, &mut |name| {
            let words = |error: &std::io::Error| error.to_string();
            let root = root.as_ref().map_err(words)?;
            let path = root.join(name).canonicalize().map_err(|error| words(&error))?;
            // A series may bring a link to any file of the host.
            if !path.starts_with(root) {
                return Err("leads out of the tree".to_owned());
            }
            let data = std::fs::metadata(&path).map_err(|error| words(&error))?;
            if !data.is_file() || data.len() > MAX_FILE_BYTES {
                return Err(format!("not a file of at most {MAX_FILE_BYTES} bytes"));
            }
            let bytes = std::fs::read(&path).map_err(|error| words(&error))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })
    }

    /// [`Tree::read`], with another way to get at the text of a file.
    pub(super) fn read_with(
        srcarch: &str,
        text_of: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Self {
        let mut tree = Self::default();
        Reader::new(srcarch, text_of, &mut tree).file("Kconfig", 0);
        tree
    }

    /// Type of a symbol: the first that a definition gives.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<Kind> {
        self.symbols.get(name)?.iter().find_map(|definition| definition.kind)
    }
}

/// The values of a `.config`, completed by what the tree says of the symbols that
/// it does not list.
#[derive(Debug, Clone, Copy)]
pub struct Settled<'a> {
    /// What the symbols are.
    pub tree: &'a Tree,
    /// Their values, by name with `CONFIG_`.
    pub config: &'a super::Symbols,
}

impl Values for Settled<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        if let Some(value) = self.config.get(&format!("CONFIG_{name}")) {
            return Some(value);
        }
        // A symbol whose dependencies are not met is not in the file.
        self.tree.kind(name).map(|kind| match kind {
            Kind::Bool | Kind::Tristate => "n",
            Kind::Int | Kind::Hex | Kind::Text => "",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "a bool (y or n)",
            Self::Tristate => "a tristate (y, m or n)",
            Self::Int => "a decimal number",
            Self::Hex => "a hexadecimal number (0x...)",
            Self::Text => "a text in double quotes",
        })
    }
}
