// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why kconfig did not grant what was asked for, from the tree's Kconfig files and
//! the `.config` that came out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Symbols;
use super::expression::{Expression, Tristate, Values, number};
use super::tree::{Condition, Definition, Kind, Settled, Tree};
use crate::plan::yaml::closest;

/// Most symbols that one sentence names.
const MAX_NAMES: usize = 4;
/// How far the reasons of a reason are followed.
const MAX_DEPTH: usize = 4;

/// Explains values of one `.config`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Explainer<'a> {
    tree: &'a Tree,
    values: Settled<'a>,
}

/// A part of a condition that does not hold.
struct Unmet {
    words: String,
    /// The symbol that would have to be set, where it is one alone.
    symbol: Option<String>,
    /// Whether it holds could not be found out.
    unknown: bool,
}

/// The parts that do not hold of what a definition needs, and the definition.
type Lacking<'a> = (Vec<(&'a Arc<Condition>, Unmet)>, &'a Definition);

impl<'a> Explainer<'a> {
    pub(super) fn new(tree: &'a Tree, config: &'a Symbols) -> Self {
        Self { tree, values: Settled { tree, config } }
    }

    /// Why a symbol is `got` and not `wanted`: a line, and lines that go into it
    /// further, each two spaces in. `name` is without `CONFIG_`.
    pub(super) fn explain(&self, name: &str, wanted: &str, got: &str) -> Vec<String> {
        let Some(definitions) = self.tree.symbols.get(name) else {
            return vec![self.unknown(name)];
        };
        if let Some(reason) = self.wrong_type(name, wanted) {
            return vec![reason];
        }
        let place = &definitions[0].place;
        if let (Some(wanted), Some(got)) = (tristate(wanted), tristate(got))
            && wanted < got
        {
            if let Some(reason) = self.selected(name, got) {
                return vec![reason];
            }
            if self.unmet_of(name, Tristate::M).is_none() && definitions[0].choice.is_some() {
                return vec![format!(
                    "it is the default of a choice (`choice` before {place}); ask for another of its members instead"
                )];
            }
        }
        let least = self.least(name, wanted);
        let mut seen = BTreeSet::from([name.to_owned()]);
        if let Some(lines) = self.unsettable(name, least, 0, &mut seen) {
            return lines;
        }
        let settled = self
            .other_member(definitions)
            .or_else(|| self.out_of_range(definitions, wanted))
            .unwrap_or_else(|| {
                format!("nothing in its definition forbids it ({place}); a line of kconfig's in the build log may say more")
            });
        vec![settled]
    }

    fn unknown(&self, name: &str) -> String {
        let names = self.tree.symbols.keys().map(String::as_str);
        let hint = match closest(name, names) {
            Some(right) => format!("; did you mean CONFIG_{right}?"),
            None => String::new(),
        };
        let unread = match self.tree.unread.first() {
            Some(first) => format!(" (not all of its Kconfig files were read: {first})"),
            None => String::new(),
        };
        format!("no such symbol in this kernel for this architecture{unread}{hint}")
    }

    fn wrong_type(&self, name: &str, wanted: &str) -> Option<String> {
        let kind = self.tree.kind(name)?;
        let place = &self.tree.symbols.get(name)?.iter().find(|one| one.kind.is_some())?.place;
        let fits = match kind {
            Kind::Bool => matches!(wanted, "y" | "n"),
            Kind::Tristate => matches!(wanted, "y" | "m" | "n"),
            Kind::Int => !wanted.starts_with("0x") && number(wanted).is_some(),
            Kind::Hex => wanted.starts_with("0x"),
            Kind::Text => wanted.starts_with('"'),
        };
        if !fits {
            return Some(format!("it is {kind} ({place})"));
        }
        let modules = self.is("MODULES");
        (wanted == "m" && modules == Tristate::N)
            .then(|| "MODULES is n, so nothing can be a module".to_owned())
    }

    /// What keeps a symbol from being less than it is.
    fn selected(&self, name: &str, got: Tristate) -> Option<String> {
        let selects = self.tree.selects.get(name)?;
        let holds = |condition: &Expression| condition.evaluate(&self.values);
        let mut by: Vec<String> = selects
            .iter()
            .filter(|select| {
                self.is(&select.by) >= got.min(Tristate::M)
                    && holds(&select.condition) != Some(Tristate::N)
                    && select.depends.iter().all(|one| holds(&one.expression) != Some(Tristate::N))
            })
            .map(|select| {
                format!("{}, which is {} ({})", select.by, self.is(&select.by), select.place)
            })
            .collect();
        by.dedup();
        let more = by.len().saturating_sub(MAX_NAMES);
        by.truncate(MAX_NAMES);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!by.is_empty()).then(|| format!("it is selected by {}{more}", by.join(", ")))
    }

    /// Why no fragment can set a symbol to `least`; none where one can.
    fn unsettable(
        &self,
        name: &str,
        least: Tristate,
        depth: usize,
        seen: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        let definitions = self.tree.symbols.get(name)?;
        let asking = definitions.iter().any(|definition| definition.prompt);
        if !asking {
            let first = format!(
                "it has no prompt ({}), so it cannot be asked for: {}",
                definitions[0].place,
                self.selectors(name, definitions)
            );
            // Its default, too, counts only where its dependencies are met.
            let more = self.unmet_of(name, least).filter(|_| definitions[0].default);
            let more = more.map(|found| self.lacking(found, depth, seen)).unwrap_or_default();
            return Some(
                std::iter::once(first).chain(more.iter().map(|line| format!("  {line}"))).collect(),
            );
        }
        let found = self.unmet_of(name, least)?;
        Some(self.lacking(found, depth, seen))
    }

    /// What a definition lacks, in words, and how that might be had.
    fn lacking(
        &self,
        (unmet, definition): Lacking<'a>,
        depth: usize,
        seen: &mut BTreeSet<String>,
    ) -> Vec<String> {
        let certain = unmet.iter().any(|(_, part)| !part.unknown);
        let unmet: Vec<_> = unmet.iter().filter(|(_, part)| part.unknown != certain).collect();
        let mut line = String::new();
        let mut before = "";
        for (condition, part) in &unmet {
            let hidden = definition.visible.contains(condition);
            let (head, again) = match hidden {
                true => ("it can be set only if ", " and if "),
                false => ("it depends on ", " and on "),
            };
            match line.is_empty() {
                true => line.push_str(head),
                false if before == head => line.push_str(again),
                false => line.push_str(&format!(", and {head}")),
            }
            line.push_str(&format!("{} ({})", part.words, condition.place));
            before = head;
        }
        let mut lines = vec![line];
        for symbol in unmet.iter().filter_map(|(_, part)| part.symbol.as_ref()) {
            if depth < MAX_DEPTH && seen.insert(symbol.clone()) {
                lines.extend(self.how_to_set(symbol, depth + 1, seen));
            }
        }
        lines
    }

    /// What would set a symbol that another depends on.
    fn how_to_set(&self, name: &str, depth: usize, seen: &mut BTreeSet<String>) -> Vec<String> {
        let Some(definition) = self.tree.symbols.get(name).and_then(|all| all.first()) else {
            return Vec::new();
        };
        match self.unsettable(name, Tristate::M, depth, seen) {
            None => vec![format!("  CONFIG_{name}=y can be asked for ({})", definition.place)],
            Some(lines) => {
                let first = lines.first().map(|line| format!("  {name} is not set: {line}"));
                let rest = lines.iter().skip(1).map(|line| format!("  {line}"));
                first.into_iter().chain(rest).collect()
            }
        }
    }

    /// The parts that do not hold of what the definition needs that lacks least,
    /// and that definition; none where a definition lacks nothing.
    fn unmet_of(&self, name: &str, least: Tristate) -> Option<Lacking<'a>> {
        let all = self.tree.symbols.get(name)?;
        let asking = all.iter().any(|one| one.prompt);
        let definitions = all.iter().filter(|one| one.prompt || !asking);
        let lacking = definitions.map(|definition| {
            let mut unmet = Vec::new();
            for condition in definition.depends.iter().chain(&definition.visible) {
                let mut parts = Vec::new();
                self.unmet(&condition.expression, least, &mut parts);
                unmet.extend(parts.into_iter().map(|part| (condition, part)));
            }
            (unmet, definition)
        });
        let least = lacking.min_by_key(|(unmet, _)| unmet.len())?;
        (!least.0.is_empty()).then_some(least)
    }

    fn unmet(&self, expression: &Expression, least: Tristate, out: &mut Vec<Unmet>) {
        match expression {
            Expression::And(parts) => parts.iter().for_each(|part| self.unmet(part, least, out)),
            Expression::Not(inner) => match &**inner {
                Expression::Or(parts) => {
                    for part in parts {
                        self.unmet(&Expression::Not(Box::new(part.clone())), least, out);
                    }
                }
                _ => self.unmet_part(expression, least, out),
            },
            _ => self.unmet_part(expression, least, out),
        }
    }

    fn unmet_part(&self, expression: &Expression, least: Tristate, out: &mut Vec<Unmet>) {
        let value = expression.evaluate(&self.values);
        if value.is_some_and(|value| value >= least) {
            return;
        }
        let (words, symbol) = match expression {
            Expression::Symbol(name) => match self.values.value(name) {
                Some(value) => (format!("{name}, which is {value}"), Some(name.clone())),
                None => (format!("{name}, which this kernel does not have here"), None),
            },
            _ => {
                let values: Vec<String> = expression
                    .symbols()
                    .into_iter()
                    .map(|name| format!("{name} is {}", self.shown(name)))
                    .collect();
                let values = match (values.is_empty(), value) {
                    (_, None) => ", of which only a run of kconfig can tell".to_owned(),
                    (true, _) => String::new(),
                    (false, _) => format!(", and {}", values.join(", ")),
                };
                (format!("{expression}{values}"), None)
            }
        };
        out.push(Unmet { words, symbol, unknown: value.is_none() });
    }

    fn selectors(&self, name: &str, definitions: &[Definition]) -> String {
        let mut by: Vec<&str> = Vec::new();
        for select in self.tree.selects.get(name).into_iter().flatten() {
            if !by.contains(&select.by.as_str()) {
                by.push(&select.by);
            }
        }
        let default = definitions.iter().any(|definition| definition.default)
            || self.tree.implied.contains(name);
        let more = by.len().saturating_sub(MAX_NAMES);
        by.truncate(MAX_NAMES);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        match (by.is_empty(), default) {
            (true, true) => "its default decides".to_owned(),
            (true, false) => "nothing selects it".to_owned(),
            (false, true) => {
                format!("its default decides, or a select by {}{more}", by.join(", "))
            }
            (false, false) => format!("only a select by {}{more} sets it", by.join(", ")),
        }
    }

    fn other_member(&self, definitions: &[Definition]) -> Option<String> {
        let choice = &self.tree.choices[definitions.iter().find_map(|one| one.choice)?];
        let set = choice.members.iter().find(|member| self.is(member) == Tristate::Y)?;
        Some(format!("{set} is y, and only one member of the choice can be ({})", choice.place))
    }

    fn out_of_range(&self, definitions: &[Definition], wanted: &str) -> Option<String> {
        let wanted = number(wanted)?;
        let holds = |condition: &Option<Expression>| {
            let value = condition.as_ref().map(|condition| condition.evaluate(&self.values));
            value.is_none_or(|value| value != Some(Tristate::N))
        };
        let bound = |expression: &Expression| match expression {
            Expression::Symbol(name) => number(self.shown(name)),
            _ => None,
        };
        let ranges = definitions.iter().flat_map(|definition| &definition.ranges);
        let range = ranges.into_iter().find(|range| holds(&range.condition))?;
        let (low, high) = (bound(&range.low)?, bound(&range.high)?);
        (!(low..=high).contains(&wanted))
            .then(|| format!("its range is {low} to {high} ({})", range.place))
    }

    /// The least value of its dependencies with which a symbol can be `wanted`: a
    /// bool is y also where they are m (scripts/kconfig/symbol.c,
    /// `sym_calc_visibility`).
    fn least(&self, name: &str, wanted: &str) -> Tristate {
        let tristate = self.tree.kind(name) == Some(Kind::Tristate);
        match tristate && wanted == "y" && self.is("MODULES") == Tristate::Y {
            true => Tristate::Y,
            false => Tristate::M,
        }
    }

    fn is(&self, name: &str) -> Tristate {
        tristate(self.shown(name)).unwrap_or(Tristate::N)
    }

    /// The value, or the name itself of what has none, such as a number.
    fn shown<'b>(&'b self, name: &'b str) -> &'b str {
        self.values.value(name).unwrap_or(name)
    }
}

fn tristate(value: &str) -> Option<Tristate> {
    match value {
        "y" => Some(Tristate::Y),
        "m" => Some(Tristate::M),
        "n" => Some(Tristate::N),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KCONFIG: &str = "\
config MODULES
	bool \"modules\"
config BLOCK
	bool \"block\" if EXPERT
	default y
	depends on DISK
config EXPERT
	bool \"expert\"
config DISK
	bool \"disk\"
config HIDDEN
	bool
config CHOSEN
	bool
config LOUD
	bool \"loud\"
	select CHOSEN
	select HIDDEN if DISK
if BLOCK
config SWAP
	bool \"swap\"
	depends on MMU && !CHOSEN && (A || B)
endif
config MMU
	def_bool y
	depends on !DISK
config A
	tristate \"a\"
config B
	bool \"b\"
	depends on A=y
config NUMBER
	int \"number\"
	range 2 64 if A
	range 2 8
config FLAG
	bool \"flag\"
	depends on $(cc-option,-fx) && MMU
config ARM
	bool \"arm\"
	depends on OTHER_ARCH
choice
	prompt \"which\"
config ONE
	bool \"one\"
config TWO
	bool \"two\"
endchoice
";

    fn explain(config: &str, name: &str, wanted: &str, got: &str) -> Vec<String> {
        let tree = Tree::read_with("x86", &mut |_| Ok(KCONFIG.to_owned()));
        let config = super::super::symbols(config);
        Explainer::new(&tree, &config).explain(name, wanted, got)
    }

    #[test]
    fn only_the_parts_that_do_not_hold_are_named_with_their_line_and_what_is_behind_them() {
        let config = "CONFIG_MMU=y\nCONFIG_LOUD=y\nCONFIG_CHOSEN=y\nCONFIG_A=y\nCONFIG_EXPERT=y\n";
        assert_eq!(
            explain(config, "SWAP", "y", "n"),
            [
                "it depends on BLOCK, which is n (Kconfig:19) and on !CHOSEN, and CHOSEN is y (Kconfig:22)",
                "  BLOCK is not set: it depends on DISK, which is n (Kconfig:6)",
                "    CONFIG_DISK=y can be asked for (Kconfig:9)",
            ]
        );
        let config = "CONFIG_MMU=y\nCONFIG_DISK=y\n";
        assert_eq!(
            explain(config, "SWAP", "y", "n"),
            [
                "it depends on BLOCK, which is n (Kconfig:19) and on A || B, and A is n, B is n (Kconfig:22)",
                "  BLOCK is not set: it can be set only if EXPERT, which is n (Kconfig:4)",
                "    CONFIG_EXPERT=y can be asked for (Kconfig:7)",
            ]
        );
    }

    #[test]
    fn what_nobody_can_set_or_unset_is_said_with_who_does() {
        assert_eq!(
            explain("", "HIDDEN", "y", "n"),
            [
                "it has no prompt (Kconfig:11), so it cannot be asked for: only a select by LOUD sets it"
            ]
        );
        assert_eq!(
            explain("CONFIG_LOUD=y\nCONFIG_CHOSEN=y\n", "CHOSEN", "n", "y"),
            ["it is selected by LOUD, which is y (Kconfig:17)"]
        );
        assert_eq!(
            explain("CONFIG_MMU=y\n", "MMU", "n", "y"),
            ["it has no prompt (Kconfig:24), so it cannot be asked for: its default decides"]
        );
        assert_eq!(
            explain("CONFIG_DISK=y\n", "MMU", "y", "n"),
            [
                "it has no prompt (Kconfig:24), so it cannot be asked for: its default decides",
                "  it depends on !DISK, and DISK is y (Kconfig:26)"
            ]
        );
    }

    #[test]
    fn other_reasons_have_words_of_their_own() {
        let one = |config: &str, name: &str, wanted: &str, got: &str| {
            explain(config, name, wanted, got).join("\n")
        };
        let unknown = one("", "SWAPP", "y", "n");
        assert!(
            unknown.ends_with("here; did you mean CONFIG_SWAP?")
                || unknown.contains("did you mean CONFIG_SWAP?"),
            "{unknown}"
        );
        assert!(!one("", "QUITE_ANOTHER", "y", "n").contains("did you mean"));
        assert_eq!(one("", "BLOCK", "m", "n"), "it is a bool (y or n) (Kconfig:3)");
        assert_eq!(one("", "A", "m", "y"), "MODULES is n, so nothing can be a module");
        assert_eq!(one("CONFIG_A=y\n", "NUMBER", "99", "64"), "its range is 2 to 64 (Kconfig:34)");
        assert_eq!(one("", "NUMBER", "9", "8"), "its range is 2 to 8 (Kconfig:35)");
        assert_eq!(one("", "NUMBER", "y", "8"), "it is a decimal number (Kconfig:32)");
        assert_eq!(
            one("CONFIG_TWO=y\n", "ONE", "y", "n"),
            "TWO is y, and only one member of the choice can be (Kconfig:42)"
        );
        assert_eq!(
            one("CONFIG_MMU=y\n", "FLAG", "y", "n"),
            "it depends on $(cc-option,-fx), of which only a run of kconfig can tell (Kconfig:38)"
        );
        assert_eq!(
            one("", "ARM", "y", "n"),
            "it depends on OTHER_ARCH, which this kernel does not have here (Kconfig:41)"
        );
        assert_eq!(
            one("CONFIG_A=m\nCONFIG_MODULES=y\n", "B", "y", "n"),
            "it depends on A = y, and A is m (Kconfig:31)"
        );
    }

    proptest! {
        #[test]
        fn every_symbol_and_value_gets_an_answer(
            set in prop::collection::btree_map("(MODULES|BLOCK|EXPERT|DISK|LOUD|A|B|MMU|ONE)", "y|m|n", 0..8),
            name in "(MODULES|BLOCK|SWAP|HIDDEN|CHOSEN|NUMBER|FLAG|ARM|TWO|B|X)",
            wanted in "y|m|n|[0-9]{1,2}|0x1|\"a\"",
            got in "y|m|n|[0-9]{1,2}",
        ) {
            let config: String = set.iter().map(|(name, value)| format!("CONFIG_{name}={value}\n")).collect();
            let lines = explain(&config, &name, &wanted, &got);
            prop_assert!(!lines.is_empty() && lines.iter().all(|line| !line.trim().is_empty()));
        }
    }
}
