// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads Kconfig files (Documentation/kbuild/kconfig-language.rst). A series may
//! bring any text: what is not understood is passed over, and what an expression
//! that cannot be read stands for is not known.

use std::sync::Arc;

use super::expression::Expression;
use super::lines::{Lines, first_word};
use super::parser::unquote;
use super::tree::{Choice, Condition, Definition, Kind, Place, Range, Select, Tree};

/// Deepest chain of `source`; 6.12 has 6.
const MAX_DEPTH: usize = 32;
/// Most files that are read, one as often as it is named; 6.12 has 1,600 of them for
/// one architecture.
const MAX_FILES: usize = 10_000;
/// Most text of all files together; 6.12 has 5.7 MB for one architecture.
const MAX_BYTES: usize = 32 << 20;
/// Most blocks inside each other.
const MAX_BLOCKS: usize = 64;
/// Most definitions, and most selects; 6.12 has 17,700 and 14,600.
const MAX_DEFINITIONS: usize = 200_000;
/// Most reasons that are kept why files were not read.
const MAX_UNREAD: usize = 20;

/// A block that what follows is in, and what it asks of it.
#[derive(Debug, Default, Clone)]
struct Block {
    depends: Vec<Arc<Condition>>,
    visible: Vec<Arc<Condition>>,
    choice: Option<usize>,
}

/// What the lines that follow are attributes of.
enum Entry {
    None,
    Symbol {
        name: String,
        definition: Definition,
        selects: Vec<(String, String, Place)>,
    },
    /// The innermost block: a menu or a choice.
    Block,
}

pub(super) struct Reader<'a> {
    srcarch: &'a str,
    text_of: &'a mut dyn FnMut(&str) -> Result<String, String>,
    tree: &'a mut Tree,
    blocks: Vec<Block>,
    entry: Entry,
    files: usize,
    bytes: usize,
    definitions: usize,
    /// The files ask for more than a limit: nothing more is read.
    stopped: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        srcarch: &'a str,
        text_of: &'a mut dyn FnMut(&str) -> Result<String, String>,
        tree: &'a mut Tree,
    ) -> Self {
        Self {
            srcarch,
            text_of,
            tree,
            blocks: Vec::new(),
            entry: Entry::None,
            files: 0,
            bytes: 0,
            definitions: 0,
            stopped: false,
        }
    }

    /// Reads a file of the tree, and those that it names.
    pub(super) fn file(&mut self, name: &str, depth: usize) {
        if depth > MAX_DEPTH {
            self.unread(name, "sourced too deep");
            return;
        }
        self.files += 1;
        if self.files > MAX_FILES {
            return self.stop(name, "too many files");
        }
        let text = match (self.text_of)(name) {
            Ok(text) => text,
            Err(why) => return self.unread(name, &why),
        };
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            return self.stop(name, "too much text in all");
        }
        let file: Arc<str> = name.into();
        let outside = self.blocks.len();
        let mut lines = Lines::new(&text);
        while let Some((number, line)) = lines.next_whole() {
            let place = Place { file: Arc::clone(&file), line: number };
            let (word, rest) = first_word(&line);
            match word {
                "help" | "---help---" if rest.is_empty() => lines.skip_help(),
                "source" | "osource" if !is_assignment(rest) => {
                    self.finish();
                    self.source(rest, depth);
                }
                _ if is_assignment(rest) => {}
                _ => self.line(word, rest, place),
            }
            if self.blocks.len() > MAX_BLOCKS || self.definitions > MAX_DEFINITIONS {
                self.stop(name, "too many blocks or definitions");
            }
            if self.stopped {
                return;
            }
        }
        self.finish();
        // A block ends with its file at the latest.
        self.blocks.truncate(outside);
    }

    fn unread(&mut self, name: &str, why: &str) {
        if self.tree.unread.len() < MAX_UNREAD {
            self.tree.unread.push(format!("{name}: {why}"));
        }
    }

    fn stop(&mut self, name: &str, why: &str) {
        self.unread(name, &format!("{why}; nothing more is read"));
        self.stopped = true;
    }

    fn source(&mut self, rest: &str, depth: usize) {
        let name = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => unquote(rest, quote).map(|(text, _)| text),
            _ => Some(rest.to_owned()),
        };
        let name = name.unwrap_or_default();
        let name = name.replace("$(SRCARCH)", self.srcarch).replace("$(srctree)/", "");
        if name.contains("$(") {
            // Such as another architecture's, of which only its own build knows.
            return self.unread(&name, "its name is not known here");
        }
        if name.starts_with('/') || name.split('/').any(|part| part == "..") {
            return self.unread(&name, "leads out of the tree");
        }
        self.file(&name, depth + 1);
    }

    fn line(&mut self, word: &str, rest: &str, place: Place) {
        match word {
            "config" | "menuconfig" => self.symbol(rest, place),
            "choice" => {
                self.finish();
                self.tree.choices.push(Choice { place, members: Vec::new() });
                let choice = Some(self.tree.choices.len() - 1);
                self.open(Block { choice, ..Block::default() });
            }
            "menu" => {
                self.finish();
                self.open(Block::default());
            }
            "if" => {
                self.finish();
                let condition = condition(rest, place);
                self.open(Block { depends: vec![condition], ..Block::default() });
                self.entry = Entry::None;
            }
            "endchoice" | "endmenu" | "endif" => {
                self.finish();
                self.blocks.pop();
            }
            "comment" | "mainmenu" => self.finish(),
            "depends" => {
                let Some(text) = rest.strip_prefix("on") else { return };
                let condition = dependency(text, place);
                match &mut self.entry {
                    Entry::Symbol { definition, .. } => definition.depends.push(condition),
                    Entry::Block => self.inner(|block| block.depends.push(condition)),
                    Entry::None => {}
                }
            }
            "visible" => {
                let Some(text) = rest.strip_prefix("if") else { return };
                let condition = condition(text, place);
                if matches!(self.entry, Entry::Block) {
                    self.inner(|block| block.visible.push(condition));
                }
            }
            _ => self.attribute(word, rest, place),
        }
    }

    fn open(&mut self, block: Block) {
        self.blocks.push(block);
        self.entry = Entry::Block;
    }

    fn inner(&mut self, change: impl FnOnce(&mut Block)) {
        if let Some(block) = self.blocks.last_mut() {
            change(block);
        }
    }

    fn symbol(&mut self, rest: &str, place: Place) {
        self.finish();
        let (name, _) = first_word(rest);
        if name.is_empty() {
            return;
        }
        let all = |part: fn(&Block) -> &Vec<Arc<Condition>>| {
            self.blocks.iter().flat_map(part).cloned().collect()
        };
        let definition = Definition {
            place,
            kind: None,
            prompt: false,
            visible: all(|block| &block.visible),
            depends: all(|block| &block.depends),
            default: false,
            ranges: Vec::new(),
            choice: self.blocks.iter().rev().find_map(|block| block.choice),
        };
        self.entry = Entry::Symbol { name: name.to_owned(), definition, selects: Vec::new() };
    }

    /// Attributes of a symbol; a prompt's condition also of a choice.
    fn attribute(&mut self, word: &str, rest: &str, place: Place) {
        let typed = match word {
            "bool" | "def_bool" | "boolean" => Some(Kind::Bool),
            "tristate" | "def_tristate" => Some(Kind::Tristate),
            "int" => Some(Kind::Int),
            "hex" => Some(Kind::Hex),
            "string" => Some(Kind::Text),
            _ => None,
        };
        let prompt = (word == "prompt" || (typed.is_some() && !word.starts_with("def_")))
            .then(|| prompt(rest))
            .flatten();
        let visible = prompt.flatten().map(|text| condition(text, place.clone()));
        match &mut self.entry {
            Entry::Symbol { definition, selects, .. } => {
                definition.kind = definition.kind.or(typed);
                definition.prompt |= prompt.is_some();
                definition.visible.extend(visible);
                match word {
                    "default" | "def_bool" | "def_tristate" => definition.default = true,
                    "select" => {
                        let (target, rest) = first_word(rest);
                        let when = rest.strip_prefix("if").unwrap_or("y");
                        selects.push((target.to_owned(), when.to_owned(), place));
                    }
                    "imply" => drop(self.tree.implied.insert(first_word(rest).0.to_owned())),
                    "range" => definition.ranges.extend(range(rest, place)),
                    _ => {}
                }
            }
            Entry::Block => self.inner(|block| block.visible.extend(visible)),
            Entry::None => {}
        }
    }

    /// Ends the entry that lines were attributes of.
    fn finish(&mut self) {
        let entry = std::mem::replace(&mut self.entry, Entry::None);
        let Entry::Symbol { name, definition, selects } = entry else { return };
        self.definitions += 1 + selects.len();
        for (target, when, place) in selects {
            let (by, condition) = (name.clone(), expression(&when));
            let depends = definition.depends.clone();
            let select = Select { by, condition, depends, place };
            self.tree.selects.entry(target).or_default().push(select);
        }
        if let Some(choice) = definition.choice.and_then(|at| self.tree.choices.get_mut(at)) {
            choice.members.push(name.clone());
        }
        self.tree.symbols.entry(name).or_default().push(definition);
    }
}

/// An expression; where it cannot be read, one whose value is not known.
fn expression(text: &str) -> Expression {
    match Expression::parse(text) {
        Ok((expression, None)) => expression,
        _ => Expression::Macro(text.trim().to_owned()),
    }
}

fn condition(text: &str, place: Place) -> Arc<Condition> {
    Arc::new(Condition { expression: expression(text), place })
}

/// `A`, or `A if B`, which newer kernels have: A, but only where B holds.
fn dependency(text: &str, place: Place) -> Arc<Condition> {
    match Expression::parse(text) {
        Ok((what, Some(when))) => {
            let never = Expression::Not(Box::new(expression(when)));
            Arc::new(Condition { expression: Expression::Or(vec![what, never]), place })
        }
        _ => condition(text, place),
    }
}

/// Whether a prompt is there, and what stands behind its `if`.
fn prompt(rest: &str) -> Option<Option<&str>> {
    let quote = rest.chars().next()?;
    if !matches!(quote, '"' | '\'') {
        return None;
    }
    let (_, length) = unquote(rest, quote)?;
    Some(rest[length..].trim_start().strip_prefix("if"))
}

fn range(rest: &str, place: Place) -> Option<Range> {
    let (low, rest) = rest.split_once([' ', '\t'])?;
    let rest = rest.trim_start();
    let (high, rest) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    let condition = rest.trim_start().strip_prefix("if").map(expression);
    Some(Range { low: expression(low), high: expression(high), condition, place })
}

/// `NAME = text` of the preprocessor.
fn is_assignment(rest: &str) -> bool {
    ["=", ":=", "+="].iter().any(|sign| rest.starts_with(sign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::read_with("x86", &mut |name| {
            let found = files.iter().find(|(file, _)| *file == name);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "not there".to_owned())
        })
    }

    /// `expression@place` for each.
    fn shown(conditions: &[Arc<Condition>]) -> Vec<String> {
        let one = |c: &Arc<Condition>| format!("{}@{}", c.expression, c.place);
        conditions.iter().map(one).collect()
    }

    #[test]
    fn what_is_around_a_symbol_is_asked_of_it_too() {
        let tree = tree(&[
            (
                "Kconfig",
                "mainmenu \"x\"\nNAME := $(shell,config EVIL)\nsource \"arch/$(SRCARCH)/Kconfig\"\nmenu \"m\"\n\tdepends on A\n\tvisible if B\nif C && \\\n   D\nconfig X\n\tbool \"x\" if E\n\tdepends on F # why\n\tselect Y if G\n\timply V if G\n\thelp\n\t  config NOT\n\n\t  if NOT\nconfig Z\n\tint\n\trange 1 X if H\n\tdefault 3\nendif\nendmenu\nconfig LAST\n\tbool\n",
            ),
            (
                "arch/x86/Kconfig",
                "choice\n\tprompt \"one\" if P\n\tdepends on Q\nconfig ONE\n\tbool \"1\"\nconfig TWO\n\tbool \"2\"\nendchoice\nif LOST\n",
            ),
        ]);
        let names: Vec<&str> = tree.symbols.keys().map(String::as_str).collect();
        assert_eq!(names, ["LAST", "ONE", "TWO", "X", "Z"]);
        let x = &tree.symbols["X"][0];
        assert_eq!(shown(&x.depends), ["A@Kconfig:5", "C && D@Kconfig:7", "F@Kconfig:11"]);
        assert_eq!(shown(&x.visible), ["B@Kconfig:6", "E@Kconfig:10"]);
        assert_eq!((x.prompt, x.kind, x.default), (true, Some(Kind::Bool), false));
        let select = &tree.selects["Y"][0];
        assert_eq!((select.by.as_str(), select.condition.to_string().as_str()), ("X", "G"));
        assert_eq!(select.depends, x.depends);
        assert!(tree.implied.iter().eq(["V"]));
        let z = &tree.symbols["Z"][0];
        assert_eq!((z.prompt, z.kind, z.default), (false, Some(Kind::Int), true));
        assert_eq!(z.ranges[0].high, Expression::Symbol("X".into()));
        let one = &tree.symbols["ONE"][0];
        assert_eq!(shown(&one.depends), ["Q@arch/x86/Kconfig:3"]);
        assert_eq!(shown(&one.visible), ["P@arch/x86/Kconfig:2"]);
        assert_eq!(tree.choices[one.choice.unwrap()].members, ["ONE", "TWO"]);
        assert!(tree.symbols["LAST"][0].depends.is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_not_known_and_said() {
        let tree = tree(&[(
            "Kconfig",
            "source \"../evil\"\nsource \"/etc/passwd\"\nsource \"arch/$(X)/Kconfig\"\nsource \"gone\"\nsource \"Kconfig\"\nconfig X\n\tbool \"x\"\n\tdepends on (A\n",
        )]);
        assert!(tree.unread.iter().any(|line| line == "../evil: leads out of the tree"));
        assert!(tree.unread.iter().any(|line| line == "gone: not there"));
        assert!(tree.unread.len() <= MAX_UNREAD);
        assert_eq!(shown(&tree.symbols["X"][0].depends), ["(A@Kconfig:8"]);
    }

    #[test]
    fn a_tree_that_asks_for_too_much_is_read_in_part() {
        let deep = format!("config A\n\tbool\n{}config B\n\tbool\n", "if X\n".repeat(1000));
        let read = tree(&[("Kconfig", &deep)]);
        assert!(read.symbols.keys().eq(["A"]), "{:?}", read.symbols.keys());
        assert_eq!(read.unread, ["Kconfig: too many blocks or definitions; nothing more is read"]);
        let read = tree(&[("Kconfig", &"config A\n".repeat(MAX_DEFINITIONS + 10))]);
        assert!(read.symbols["A"].len() <= MAX_DEFINITIONS + 1, "{}", read.symbols["A"].len());
        // Each names itself twice: without an end, and wide.
        let read = tree(&[("Kconfig", "source \"Kconfig\"\nsource \"Kconfig\"\n# \u{e9}\n")]);
        assert_eq!(read.unread.len(), MAX_UNREAD);
        assert!(read.symbols.is_empty());
    }

    #[test]
    fn a_link_out_of_the_tree_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("tree");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(folder.path().join("secret"), "config SECRET\n\tbool\n").unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("link")).unwrap();
        std::os::unix::fs::symlink("real", inside.join("near")).unwrap();
        std::fs::write(inside.join("real"), "config NEAR\n\tbool\n").unwrap();
        let text = "source \"link\"\nsource \"near\"\nsource \".\"\n";
        std::fs::write(inside.join("Kconfig"), text).unwrap();
        let tree = Tree::read(&inside, "x86");
        assert!(tree.symbols.keys().eq(["NEAR"]), "{tree:?}");
        assert_eq!(tree.unread[0], "link: leads out of the tree");
        assert!(tree.unread[1].starts_with(".: not a file"), "{:?}", tree.unread);
    }

    #[test]
    fn a_newer_kernels_conditional_dependency_is_understood() {
        let tree = tree(&[("Kconfig", "config X\n\tbool\n\tdepends on A if B\n")]);
        assert_eq!(shown(&tree.symbols["X"][0].depends), ["A || !B@Kconfig:3"]);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(
            lines in prop::collection::vec(
                "(\t| |  \t)?(config|choice|endchoice|if|endif|menu|endmenu|source|help|select|depends on|bool|range|visible if|default|prompt)? ?[A-Z\"'$()&|!=é\\\\ \t]{0,12}", 0..30)
        ) {
            let text = lines.join("\n");
            let tree = tree(&[("Kconfig", &text), ("A", &text)]);
            for definition in tree.symbols.values().flatten() {
                prop_assert!(definition.choice.is_none_or(|at| at < tree.choices.len()));
            }
        }

        #[test]
        fn every_config_is_found_whatever_stands_in_the_help(
            names in prop::collection::btree_set("[A-Z]{1,6}", 1..6),
            help in "[!-~][ -~]{0,30}",
        ) {
            let text: String = names
                .iter()
                .map(|name| format!("config {name}\n\tbool \"{name}\"\n\thelp\n\t  {help}\n\n\t  config {help}\n"))
                .collect();
            let tree = tree(&[("Kconfig", &text)]);
            prop_assert!(tree.symbols.keys().eq(names.iter()), "{:?}", tree.symbols.keys());
        }
    }
}
