// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads an [`Expression`] from its text.

use super::expression::{COMPARISONS, Expression};

/// Deepest nesting of `!` and parentheses that is read. 6.12 has 3 parentheses.
const MAX_DEPTH: usize = 64;
/// Longest expression. The longest of 6.12 has 232 bytes.
const MAX_BYTES: usize = 64 * 1024;

impl Expression {
    /// Reads an expression that ends with the text, at a comment, or before the
    /// word `if`; also gives the text behind that word.
    ///
    /// # Errors
    /// One line when it is no expression.
    pub fn parse(text: &str) -> Result<(Self, Option<&str>), String> {
        if text.len() > MAX_BYTES {
            return Err(format!("an expression of more than {MAX_BYTES} bytes"));
        }
        let mut parser = Parser { rest: text, depth: 0 };
        let expression = parser.or()?;
        match parser.next_word() {
            "" => Ok((expression, None)),
            "if" => Ok((expression, Some(parser.rest.trim_start()["if".len()..].trim()))),
            word => Err(format!("{word:?} is not expected here")),
        }
    }
}

fn one_or(mut parts: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    if parts.len() == 1 { parts.remove(0) } else { many(parts) }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// What comes next, for a look: an operator, a word, or nothing.
    fn next_word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !is_word(c)).unwrap_or(self.rest.len());
        match end {
            0 if self.rest.starts_with('#') => "",
            0 => self.rest.get(..first_char(self.rest)).unwrap_or(""),
            end => &self.rest[..end],
        }
    }

    fn take(&mut self, sign: &str) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn or(&mut self) -> Result<Expression, String> {
        self.list("||", Self::and, Expression::Or)
    }

    fn and(&mut self) -> Result<Expression, String> {
        self.list("&&", Self::not, Expression::And)
    }

    fn list(
        &mut self,
        sign: &str,
        part: fn(&mut Self) -> Result<Expression, String>,
        many: fn(Vec<Expression>) -> Expression,
    ) -> Result<Expression, String> {
        let mut parts = vec![part(self)?];
        while self.take(sign) {
            parts.push(part(self)?);
        }
        Ok(one_or(parts, many))
    }

    fn not(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("an expression nested deeper than {MAX_DEPTH}"));
        }
        let negated = !self.rest.trim_start().starts_with("!=") && self.take("!");
        let expression = if negated {
            Expression::Not(Box::new(self.not()?))
        } else if self.take("(") {
            let inner = self.or()?;
            if !self.take(")") {
                return Err("a parenthesis is not closed".to_owned());
            }
            inner
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn comparison(&mut self) -> Result<Expression, String> {
        let left = self.operand()?;
        match COMPARISONS.iter().find(|(sign, _)| self.take(sign)) {
            None => Ok(left),
            Some(&(_, comparison)) => {
                Ok(Expression::Compare(Box::new(left), comparison, Box::new(self.operand()?)))
            }
        }
    }

    fn operand(&mut self) -> Result<Expression, String> {
        self.rest = self.rest.trim_start();
        match self.rest.chars().next() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            Some('$') => self.word_with_macro(),
            Some(c) if is_word(c) => match self.next_word() {
                "if" => Err("an expression is missing before `if`".to_owned()),
                word if self.rest[word.len()..].starts_with('$') => self.word_with_macro(),
                word => {
                    self.rest = &self.rest[word.len()..];
                    Ok(Expression::Symbol(word.to_owned()))
                }
            },
            Some(c) => Err(format!("{c:?} is not expected here")),
            None => Err("the expression ends too early".to_owned()),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Expression, String> {
        let (text, length) = unquote(self.rest, quote).ok_or("a quote is not closed")?;
        let whole = &self.rest[..length];
        self.rest = &self.rest[length..];
        Ok(match text.contains("$(") {
            true => Expression::Macro(whole.to_owned()),
            false => Expression::Text(text),
        })
    }

    /// A word with `$(...)` in it: all of it, parentheses matched.
    fn word_with_macro(&mut self) -> Result<Expression, String> {
        let length = macro_length(self.rest).ok_or("a $( is not closed")?;
        let text = &self.rest[..length];
        self.rest = &self.rest[length..];
        Ok(Expression::Macro(text.to_owned()))
    }
}

/// Text between quotes, with `\` before a character that stands for itself, and
/// the length of all of it.
pub(super) fn unquote(text: &str, quote: char) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Some((out, at + c.len_utf8())),
            '\\' => out.push(chars.next()?.1),
            _ => out.push(c),
        }
    }
    None
}

fn macro_length(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            c if depth == 0 && !is_word(c) && c != '$' => return Some(at),
            _ => {}
        }
    }
    (depth == 0).then_some(text.len())
}

fn is_word(c: char) -> bool {
    // As scripts/kconfig/lexer.l has it, with "." and "/" for unquoted texts.
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')
}

fn first_char(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}
