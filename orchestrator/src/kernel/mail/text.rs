// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text whose every line knows the line of the input that it came from.

use std::ops::Range;

/// Decoded text: bytes, and for each line where it starts and which line of the
/// input (from 1) its first byte stood in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    bytes: Vec<u8>,
    lines: Vec<(usize, usize)>,
}

impl Text {
    /// Text as it stands in the input, whose first line has this number.
    #[must_use]
    pub fn new(bytes: &[u8], first_line: usize) -> Self {
        let mut text = Self::default();
        for (index, line) in lines_of(bytes).enumerate() {
            text.push(line, first_line + index);
        }
        text
    }

    /// Adds bytes that come from one line of the input; they may be a part of a
    /// line or several lines.
    pub fn push(&mut self, bytes: &[u8], number: usize) {
        for piece in lines_of(bytes) {
            if self.bytes.last().is_none_or(|&last| last == b'\n') {
                self.lines.push((self.bytes.len(), number));
            }
            self.bytes.extend_from_slice(piece);
        }
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many lines there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lines.len()
    }

    /// A line without its line feed; empty behind the end.
    #[must_use]
    pub fn line(&self, index: usize) -> &[u8] {
        let line = self.raw_line(index);
        line.strip_suffix(b"\n").unwrap_or(line)
    }

    /// A line with its line feed, if it has one.
    #[must_use]
    pub fn raw_line(&self, index: usize) -> &[u8] {
        self.slice(index..index + 1)
    }

    /// The bytes of whole lines.
    #[must_use]
    pub fn slice(&self, lines: Range<usize>) -> &[u8] {
        let at = |index: usize| self.lines.get(index).map_or(self.bytes.len(), |line| line.0);
        &self.bytes[at(lines.start)..at(lines.end)]
    }

    /// The input's line that a line came from; that of the last one behind the end.
    #[must_use]
    pub fn number(&self, index: usize) -> usize {
        let line = self.lines.get(index).or(self.lines.last());
        line.map_or(1, |line| line.1)
    }

    /// The input's line that the line with this byte came from.
    #[must_use]
    pub fn number_at(&self, offset: usize) -> usize {
        self.number(self.lines.partition_point(|line| line.0 <= offset).saturating_sub(1))
    }

    /// All lines without their line feeds.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.count()).map(|index| self.line(index))
    }

    /// The text of these lines alone.
    #[must_use]
    pub fn part(&self, lines: Range<usize>) -> Self {
        let mut text = Self::default();
        for index in lines {
            text.push(self.raw_line(index), self.number(index));
        }
        text
    }

    /// Every line as `change` makes it from its bytes, line feed included.
    #[must_use]
    pub fn map<'a>(&'a self, change: impl Fn(&'a [u8]) -> &'a [u8]) -> Self {
        let mut text = Self::default();
        for index in 0..self.count() {
            text.push(change(self.raw_line(index)), self.number(index));
        }
        text
    }

    /// Removes one carriage return from the end of every line that has one.
    #[must_use]
    pub fn without_cr(&self) -> Self {
        let mut text = Self::default();
        for index in 0..self.count() {
            let line = self.raw_line(index);
            match line.strip_suffix(b"\r\n") {
                Some(rest) => {
                    text.push(rest, self.number(index));
                    text.push(b"\n", self.number(index));
                }
                None => text.push(line, self.number(index)),
            }
        }
        text
    }
}

/// The lines of bytes, each with its line feed.
pub(super) fn lines_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        Some(line)
    })
}

/// A line without its line end, be it LF or CR LF.
pub(super) fn chomp(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Whether a line is blank.
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Whether bytes start with a prefix, whatever the case of ASCII letters.
pub(super) fn starts_with_ignore_case(bytes: &[u8], prefix: &[u8]) -> bool {
    bytes.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_the_number_of_the_line_that_their_first_byte_came_from() {
        let mut text = Text::default();
        text.push(b"one\ntw", 7);
        text.push(b"o\nthree", 8);
        assert_eq!(text.iter().collect::<Vec<_>>(), [&b"one"[..], b"two", b"three"]);
        assert_eq!([text.number(0), text.number(1), text.number(2), text.number(9)], [7, 7, 8, 8]);
        assert_eq!(text.slice(1..3), b"two\nthree");
        assert_eq!(text.part(1..2).bytes(), b"two\n");
    }

    #[test]
    fn one_carriage_return_goes_from_each_line_end() {
        let text = Text::new(b"a\r\nb\r\r\nc\rd\n", 1).without_cr();
        assert_eq!(text.bytes(), b"a\nb\r\nc\rd\n");
        assert_eq!(text.number(2), 3);
    }
}
