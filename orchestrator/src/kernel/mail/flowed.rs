// SPDX-License-Identifier: MIT OR Apache-2.0
//! format=flowed (RFC 3676): lines that end in a blank go on in the next one, and
//! a leading blank was stuffed in by the sender.

use super::text::{Text, chomp};

/// Undoes format=flowed as `git mailinfo` does: the signature's line `-- ` is
/// fixed, quoted lines are not told apart. With `delsp`, the blank that marks a
/// soft line break is deleted.
#[must_use]
pub fn unflow(text: &Text, delsp: bool) -> Text {
    let mut out = Text::default();
    for index in 0..text.count() {
        let number = text.number(index);
        let line = chomp(text.raw_line(index));
        if line == b"-- " {
            if out.bytes().last().is_some_and(|&last| last != b'\n') {
                out.push(b"\n", number);
            }
            out.push(b"-- \n", number);
            continue;
        }
        let line = line.strip_prefix(b" ").unwrap_or(line);
        match line.strip_suffix(b" ") {
            Some(short) => out.push(if delsp { short } else { line }, number),
            None => {
                out.push(line, number);
                out.push(b"\n", number);
            }
        }
    }
    out
}

/// Takes only the stuffed blanks away: for senders that say flowed and break no line.
#[must_use]
pub fn unstuff(text: &Text) -> Text {
    text.map(|line| line.strip_prefix(b" ").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_breaks_are_joined_and_stuffing_goes() {
        let text = Text::new(b"one \ntwo\n  context\n-- \nme\n", 5);
        let flowed = unflow(&text, false);
        assert_eq!(flowed.bytes(), b"one two\n context\n-- \nme\n");
        assert_eq!([flowed.number(0), flowed.number(1)], [5, 7]);
        assert_eq!(unflow(&Text::new(b"ab \ncd\r\n", 1), true).bytes(), b"abcd\n");
        assert_eq!(unstuff(&text).bytes(), b"one \ntwo\n context\n-- \nme\n");
    }
}
