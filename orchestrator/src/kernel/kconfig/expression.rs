// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kconfig's expressions (Documentation/kbuild/kconfig-language.rst, "Menu
//! dependencies"): symbols, `!`, `&&`, `||`, comparisons and parentheses over the
//! values n, m and y.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

/// A value of a bool or a tristate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tristate {
    /// Not there.
    N,
    /// A module.
    M,
    /// Built in.
    Y,
}

/// Values of symbols, by their names without `CONFIG_`.
pub trait Values {
    /// The value as `.config` has it, `n` for a bool or a tristate that is not set;
    /// none for what the kernel does not have.
    fn value(&self, name: &str) -> Option<&str>;
}

/// An expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    /// A symbol, or one of the constants y, m and n.
    Symbol(String),
    /// A quoted constant.
    Text(String),
    /// Something that Kconfig's preprocessor replaces, such as `$(cc-option,-x)`:
    /// only it knows by what.
    Macro(String),
    /// `!A`.
    Not(Box<Expression>),
    /// `A && B`, two or more.
    And(Vec<Expression>),
    /// `A || B`, two or more.
    Or(Vec<Expression>),
    /// `A = B` and the like; both sides are symbols, texts or macros.
    Compare(Box<Expression>, Comparison, Box<Expression>),
}

/// `=`, `!=`, `<`, `<=`, `>` or `>=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `=`.
    Equal,
    /// `!=`.
    Unequal,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
}

pub(super) const COMPARISONS: [(&str, Comparison); 6] = [
    ("!=", Comparison::Unequal),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("=", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Comparison {
    fn sign(self) -> &'static str {
        COMPARISONS.iter().find(|(_, which)| *which == self).map_or("=", |(sign, _)| sign)
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Unequal => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Expression {
    /// The value; none where it depends on what a macro stands for.
    #[must_use]
    pub fn evaluate(&self, values: &dyn Values) -> Option<Tristate> {
        match self {
            Self::Symbol(name) => Some(symbol(name, values)),
            // As the kernel's reader has it: a quoted y is a y.
            Self::Text(text) => Some(constant(text).unwrap_or(Tristate::N)),
            Self::Macro(_) => None,
            Self::Not(inner) => inner.evaluate(values).map(|value| match value {
                Tristate::N => Tristate::Y,
                Tristate::M => Tristate::M,
                Tristate::Y => Tristate::N,
            }),
            Self::And(parts) => fold(parts, values, Tristate::N, Ord::min),
            Self::Or(parts) => fold(parts, values, Tristate::Y, Ord::max),
            Self::Compare(left, comparison, right) => {
                let holds = comparison.holds(compare(&left.text(values)?, &right.text(values)?));
                Some(if holds { Tristate::Y } else { Tristate::N })
            }
        }
    }

    /// What stands on one side of a comparison.
    fn text(&self, values: &dyn Values) -> Option<String> {
        match self {
            Self::Symbol(name) => Some(text_of(name, values)),
            Self::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// The names of its symbols, without constants.
    #[must_use]
    pub fn symbols(&self) -> BTreeSet<&str> {
        match self {
            Self::Symbol(name) if constant(name).is_none() && !is_number(name) => {
                BTreeSet::from([name.as_str()])
            }
            Self::Symbol(_) | Self::Text(_) | Self::Macro(_) => BTreeSet::new(),
            Self::Not(inner) => inner.symbols(),
            Self::And(parts) | Self::Or(parts) => {
                parts.iter().flat_map(|part| part.symbols()).collect()
            }
            Self::Compare(left, _, right) => &left.symbols() | &right.symbols(),
        }
    }
}

/// The least or the greatest of the parts; where one of them is not known, only an
/// `end`, beyond which nothing lies, is a result.
fn fold(
    parts: &[Expression],
    values: &dyn Values,
    end: Tristate,
    join: fn(Tristate, Tristate) -> Tristate,
) -> Option<Tristate> {
    let found: Vec<Option<Tristate>> = parts.iter().map(|part| part.evaluate(values)).collect();
    let known = found.iter().flatten().copied().reduce(join);
    if found.contains(&None) { known.filter(|&value| value == end) } else { known }
}

fn constant(name: &str) -> Option<Tristate> {
    match name {
        "y" => Some(Tristate::Y),
        "m" => Some(Tristate::M),
        "n" => Some(Tristate::N),
        _ => None,
    }
}

fn symbol(name: &str, values: &dyn Values) -> Tristate {
    match constant(name) {
        // `m` alone is `m && MODULES` (scripts/kconfig/expr.c, expr_trans_bool).
        Some(Tristate::M) => symbol("MODULES", values).min(Tristate::M),
        Some(value) => value,
        None => values.value(name).and_then(constant).unwrap_or(Tristate::N),
    }
}

/// The value as text: without quotes, and the name itself of what is no symbol, as
/// a number is.
fn text_of(name: &str, values: &dyn Values) -> String {
    match values.value(name) {
        Some(value) => {
            let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            inner.unwrap_or(value).to_owned()
        }
        None => name.to_owned(),
    }
}

/// As numbers where both are numbers or one of n, m and y in this order, else as
/// text (scripts/kconfig/expr.c, `expr_parse_string`).
fn compare(left: &str, right: &str) -> Ordering {
    let rank = |text: &str| constant(text).map(|value| value as i128).or_else(|| number(text));
    match (rank(left), rank(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => left.cmp(right),
    }
}

/// A decimal or hexadecimal number.
pub(super) fn number(text: &str) -> Option<i128> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn is_number(text: &str) -> bool {
    number(text).is_some()
}

impl fmt::Display for Tristate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::N => "n",
            Self::M => "m",
            Self::Y => "y",
        })
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, parts: &[Self], sign: &str| {
            for (index, part) in parts.iter().enumerate() {
                let before = if index == 0 { "" } else { sign };
                match part {
                    Self::And(_) | Self::Or(_) => write!(f, "{before}({part})")?,
                    _ => write!(f, "{before}{part}")?,
                }
            }
            Ok(())
        };
        match self {
            Self::Symbol(text) | Self::Macro(text) => f.write_str(text),
            Self::Text(text) => {
                write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
            }
            Self::Not(inner) => match **inner {
                Self::And(_) | Self::Or(_) | Self::Compare(..) => write!(f, "!({inner})"),
                _ => write!(f, "!{inner}"),
            },
            Self::And(parts) => list(f, parts, " && "),
            Self::Or(parts) => list(f, parts, " || "),
            Self::Compare(left, comparison, right) => {
                write!(f, "{left} {} {right}", comparison.sign())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Values for BTreeMap<&str, &str> {
        fn value(&self, name: &str) -> Option<&str> {
            self.get(name).copied()
        }
    }

    fn parse(text: &str) -> Expression {
        Expression::parse(text).unwrap().0
    }

    fn value(text: &str) -> Option<Tristate> {
        let values = BTreeMap::from([
            ("Y", "y"),
            ("M", "m"),
            ("N", "n"),
            ("MODULES", "y"),
            ("TEN", "10"),
            ("HEX", "0x1f"),
            ("NAME", "\"gcc\""),
            ("EMPTY", "\"\""),
        ]);
        parse(text).evaluate(&values)
    }

    #[test]
    fn values_are_those_of_the_documentation() {
        use Tristate::{M, N, Y};
        for (text, expected) in [
            ("Y && M", M),
            ("N || M", M),
            ("!M", M),
            ("!Y || Y && N", N),
            ("!(Y && N)", Y),
            ("NOBODY", N),
            ("m", M),
            ("Y=y", Y),
            ("M = y", N),
            ("M!=n", Y),
            ("!Y = n", Y),
            ("TEN > 9", Y),
            ("TEN < 0x10", Y),
            ("HEX >= 31", Y),
            ("NAME = \"gcc\"", Y),
            ("EMPTY != \"\"", N),
            ("NAME", N),
            ("M <= Y", Y),
            ("N < M", Y),
            ("Y <= M", N),
            ("N && $(cc-option,-x)", N),
            ("Y || $(cc-option,-x)", Y),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
        for text in ["$(x)", "Y && $(x)", "!$(success,echo (a) b)", "\"$(x)\" != \"\""] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for text in ["", "A &&", "(A", "A B", "A = ", "!= A", "\"a", "$(a", "if A", "&& A", "é"] {
            Expression::parse(text).expect_err(text);
        }
        let deep = format!("{}A", "!".repeat(10_000));
        Expression::parse(&deep).unwrap_err();
    }

    #[test]
    fn a_condition_and_a_comment_end_it() {
        assert_eq!(Expression::parse("A if B && C"), Ok((parse("A"), Some("B && C"))));
        assert_eq!(Expression::parse("A # if B"), Ok((parse("A"), None)));
        assert_eq!(parse("A\t&&\\\"x"[..1].into()), parse("A"));
    }

    fn expressions() -> impl Strategy<Value = Expression> {
        let leaf = prop_oneof![
            "[A-Z][A-Z0-9_]{0,5}".prop_map(Expression::Symbol),
            "[ -~]{0,6}"
                .prop_filter("a macro is none of these", |text| !text.contains("$("))
                .prop_map(Expression::Text),
            "\\$\\([a-z, ]{0,8}\\)".prop_map(Expression::Macro),
        ];
        let operand = leaf.clone();
        let compare = (operand.clone(), prop::sample::select(&COMPARISONS[..]), operand).prop_map(
            |(left, (_, how), right)| Expression::Compare(left.into(), how, right.into()),
        );
        prop_oneof![leaf, compare].prop_recursive(5, 40, 4, |inner| {
            let many = |inner| prop::collection::vec(inner, 2..4);
            prop_oneof![
                inner.clone().prop_map(|part| Expression::Not(Box::new(part))),
                many(inner.clone()).prop_map(Expression::And),
                many(inner).prop_map(Expression::Or),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(expression in expressions()) {
            let text = expression.to_string();
            prop_assert_eq!(Expression::parse(&text), Ok((expression, None)), "{}", text);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[A-Z!&|()=<> \"'$\\\\#ifé]{0,60}") {
            let _ = Expression::parse(&text);
        }
    }
}
