// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of a Kconfig file.

/// Lines with their numbers; one that ends with `\` goes on in the next.
pub(super) struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    pending: Option<(usize, &'a str)>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { lines: text.lines().enumerate(), pending: None }
    }

    fn next_line(&mut self) -> Option<(usize, &'a str)> {
        let next = || self.lines.next().map(|(index, line)| (index + 1, line));
        self.pending.take().or_else(next)
    }

    /// The next line and its number, from 1, with what continues it.
    pub(super) fn next_whole(&mut self) -> Option<(usize, String)> {
        let (number, line) = self.next_line()?;
        let mut whole = line.to_owned();
        while whole.ends_with('\\') {
            whole.pop();
            let Some((_, more)) = self.next_line() else { break };
            whole.push(' ');
            whole.push_str(more);
        }
        Some((number, whole))
    }

    /// Passes over a help text: the lines at least as far in as its first one.
    pub(super) fn skip_help(&mut self) {
        let mut least = None;
        while let Some((number, line)) = self.next_line() {
            if line.trim().is_empty() {
                continue;
            }
            let column = indentation(line);
            let least = *least.get_or_insert(column);
            if column < least || column == 0 {
                self.pending = Some((number, line));
                return;
            }
        }
    }
}

/// Column of a line's first character, with tabs of 8.
fn indentation(line: &str) -> usize {
    line.chars().take_while(|c| c.is_whitespace()).fold(0, |column, c| match c {
        '\t' => (column / 8 + 1) * 8,
        _ => column + 1,
    })
}

/// The word at the start of a line, and what follows it.
pub(super) fn first_word(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let end = line.find(|c| !word(c)).unwrap_or(line.len());
    (&line[..end], line[end..].trim())
}
