// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits an untrusted byte stream into lines of bounded length.

/// Collects bytes and hands out whole lines.
#[derive(Debug)]
pub struct LineSplitter {
    pending: Vec<u8>,
    limit: usize,
}

/// One line without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The bytes; a carriage return before the line feed is gone.
    pub bytes: Vec<u8>,
    /// The line was longer than the limit: it goes on in the next one.
    pub cut: bool,
}

impl LineSplitter {
    /// A splitter that cuts lines after `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { pending: Vec::new(), limit: limit.max(1) }
    }

    /// Takes bytes in and gives each line that they complete to `each`.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Line)) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (content, complete) = match piece.strip_suffix(b"\n") {
                Some(content) => (content, true),
                None => (piece, false),
            };
            let mut rest = content;
            while self.pending.len() + rest.len() > self.limit {
                let (now, later) = rest.split_at(self.limit - self.pending.len());
                self.pending.extend_from_slice(now);
                rest = later;
                each(Line { bytes: std::mem::take(&mut self.pending), cut: true });
            }
            self.pending.extend_from_slice(rest);
            if complete {
                if self.pending.last() == Some(&b'\r') {
                    self.pending.pop();
                }
                each(Line { bytes: std::mem::take(&mut self.pending), cut: false });
            }
        }
    }

    /// Whether no line has begun.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The last line, when the stream ended without a line end.
    #[must_use]
    pub fn finish(&mut self) -> Option<Line> {
        (!self.pending.is_empty())
            .then(|| Line { bytes: std::mem::take(&mut self.pending), cut: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]], limit: usize) -> Vec<Line> {
        let mut splitter = LineSplitter::new(limit);
        let mut lines = Vec::new();
        for chunk in chunks {
            splitter.push(chunk, |line| lines.push(line));
        }
        lines.extend(splitter.finish());
        lines
    }

    #[test]
    fn carriage_returns_go_and_long_lines_are_cut() {
        let lines = split(&[b"a\r\nb", b"cdefg\n", b"end"], 4);
        let texts: Vec<_> = lines.iter().map(|line| (line.bytes.as_slice(), line.cut)).collect();
        assert_eq!(texts, [(&b"a"[..], false), (b"bcde", true), (b"fg", false), (b"end", false)]);
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter_and_nothing_is_lost(text in "[a-c\n]{0,60}", cuts in prop::collection::vec(0usize..60, 0..5), limit in 1usize..8) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let pieces = split(&chunks, limit);
            prop_assert_eq!(&pieces, &split(&[bytes], limit));
            prop_assert!(pieces.iter().all(|line| line.bytes.len() <= limit));
            let joined: Vec<u8> = pieces.iter().flat_map(|line| line.bytes.clone()).collect();
            prop_assert_eq!(joined, text.replace('\n', "").into_bytes());
        }
    }
}
