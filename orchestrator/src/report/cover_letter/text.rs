// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text that survives a mailing list: ASCII, at most 72 columns, no tabs.

use crate::fault::escape;

/// Longest line.
pub(super) const WIDTH: usize = 72;
/// Columns that a table is set in by.
const INDENT: usize = 2;
/// Columns between two columns of a table.
const GAP: usize = 2;

/// A letter while it is written.
#[derive(Debug, Default)]
pub(super) struct Letter {
    out: String,
}

/// A table; cells are cut by nobody, so they had better be short.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Names of the columns.
    pub(super) heads: Vec<String>,
    /// As many cells each.
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heads: &[&str]) -> Self {
        Self { heads: heads.iter().map(|head| ascii(head)).collect(), rows: Vec::new() }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.iter().map(|cell| ascii(cell)).collect());
    }
}

impl Letter {
    /// The whole, with one line end at its end.
    pub(super) fn finish(mut self) -> String {
        self.out.truncate(self.out.trim_end().len());
        self.out.push('\n');
        self.out
    }

    /// A line with a line of `rule` under it, and an empty one.
    pub(super) fn heading(&mut self, text: &str, rule: char) {
        if text.trim().is_empty() {
            return;
        }
        let lines = wrap(&ascii(text), "", "");
        let longest = lines.iter().map(String::len).max().unwrap_or(0);
        lines.iter().for_each(|line| self.line(line));
        self.line(&String::from(rule).repeat(longest));
        self.blank();
    }

    /// A paragraph and an empty line.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.hang("", "", text);
        self.blank();
    }

    /// A paragraph that begins with `first` and goes on with `rest`.
    pub(super) fn hang(&mut self, first: &str, rest: &str, text: &str) {
        wrap(&ascii(text), first, rest).iter().for_each(|line| self.line(line));
    }

    /// One item of a list.
    pub(super) fn item(&mut self, text: &str) {
        self.hang("- ", "  ", text);
    }

    /// A name and what it is.
    pub(super) fn field(&mut self, name: &'static str, value: &str) {
        self.hang(&format!("  {name:<8}  "), "            ", value);
    }

    /// A command that can be pasted into a shell.
    pub(super) fn command(&mut self, words: &str) {
        let words = ascii(words);
        if words.len() + 2 <= WIDTH {
            return self.line(&format!("  {words}"));
        }
        let mut line = " ".to_owned();
        for word in words.split(' ') {
            if line.len() + word.len() + 3 > WIDTH && line.trim() != "" {
                self.line(&format!("{line} \\"));
                line = "    ".to_owned();
            }
            line = format!("{line} {word}");
        }
        self.line(&line);
    }

    pub(super) fn blank(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// A table and an empty line: the first column to the left, others to the right.
    /// One that is too wide becomes a paragraph for each row.
    pub(super) fn table(&mut self, table: &Table) {
        let widths: Vec<usize> = (0..table.heads.len())
            .map(|column| {
                let cells = table.rows.iter().filter_map(|row| row.get(column));
                cells.chain([&table.heads[column]]).map(String::len).max().unwrap_or(0)
            })
            .collect();
        let wide = INDENT + widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        if wide > WIDTH {
            for row in &table.rows {
                let cells = table.heads.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
                let cells: Vec<String> = cells
                    .map(|(head, cell)| match head.is_empty() {
                        true => cell.clone(),
                        false => format!("{head} {}", cell.trim()),
                    })
                    .collect();
                self.hang("  ", "    ", &cells.join(", "));
            }
            return self.blank();
        }
        for row in std::iter::once(&table.heads).chain(&table.rows) {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let cells: Vec<String> = cells.collect();
            let line = format!("{}{}", " ".repeat(INDENT), cells.join(&" ".repeat(GAP)));
            self.line(&line);
        }
        self.blank();
    }

    /// Empty lines come from [`Letter::blank`], which writes no two.
    fn line(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        let parts = chunks(text).into_iter().map(str::trim_end);
        for part in parts.filter(|part| !part.is_empty()) {
            self.out.push_str(part);
            self.out.push('\n');
        }
    }
}

/// What a mail can hold: other characters become `?`.
pub(super) fn ascii(text: &str) -> String {
    let safe = |character: char| match character {
        '\t' => ' ',
        _ if character.is_ascii() => character,
        _ => '?',
    };
    escape(text).chars().map(safe).collect()
}

/// Lines of at most [`WIDTH`] columns, broken between words where that is possible.
fn wrap(text: &str, first: &str, rest: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines
}

/// Parts of an ASCII text that are short enough for a line.
fn chunks(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut left = text;
    while left.len() > WIDTH {
        let (part, more) = left.split_at(WIDTH);
        parts.push(part);
        left = more;
    }
    parts.push(left);
    parts
}

#[cfg(test)]
pub(super) fn check(letter: &str) {
    for line in letter.lines() {
        assert!(line.len() <= WIDTH, "{} columns: {line}", line.len());
        assert_eq!(line, line.trim_end(), "a space at the end of {line:?}");
    }
    let fits = |byte: u8| byte == b'\n' || (byte.is_ascii() && !byte.is_ascii_control());
    assert!(letter.bytes().all(fits), "{letter:?}");
    assert!(letter.ends_with('\n') && !letter.contains("\n\n\n"), "{letter}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wide_table_becomes_paragraphs() {
        let mut table = Table::new(&["what", "before", "after"]);
        table.row(["x".repeat(60), "1".to_owned(), "123456789".to_owned()]);
        let mut letter = Letter::default();
        letter.table(&table);
        let text = letter.finish();
        assert!(text.starts_with("  what xxx") && text.contains("after 123456789"), "{text}");
        check(&text);
    }

    #[test]
    fn a_long_command_goes_on_in_the_next_line() {
        let mut letter = Letter::default();
        letter.command(&format!("kvet run {} --series {}", "p".repeat(40), "s".repeat(30)));
        assert_eq!(
            letter.finish(),
            format!("  kvet run {} --series \\\n     {}\n", "p".repeat(40), "s".repeat(30))
        );
    }

    proptest! {
        #[test]
        fn whatever_is_written_survives(text in "\\PC{0,200}", cells in prop::array::uniform3("[\\PC\t\n\u{1b}]{0,50}")) {
            let mut letter = Letter::default();
            letter.heading(&text, '=');
            letter.paragraph(&text);
            letter.item(&text);
            letter.field("name", &text);
            letter.command(&text);
            let mut table = Table::new(&["a", "b", "c"]);
            table.row(cells);
            letter.table(&table);
            check(&letter.finish());
        }
    }
}
