// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names and modes in the headers of a diff's files (git-diff(1), "Generating
//! patch text with -p"; GNU diff's `---` and `+++` lines).

use serde::Serialize;

use super::paths::in_kernel_tree;

/// What a diff does to a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Its content or its mode changes.
    #[default]
    Modified,
    /// It is new.
    Added,
    /// It goes.
    Deleted,
    /// It gets another name.
    Renamed,
    /// It is made from another file.
    Copied,
    /// Only its mode changes.
    Mode,
}

/// A file that a diff touches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// Its path in the tree, after the change unless it is deleted.
    pub path: String,
    /// Its path before the change, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    /// What is done to it.
    pub change: Change,
    /// Its content is no text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub binary: bool,
}

/// What the header of one file says. Names have their prefixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    old: Option<String>,
    new: Option<String>,
    /// From `rename from` and the like: without a prefix.
    from: Option<String>,
    to: Option<String>,
    modes: (bool, bool),
    change: Change,
    marked: Option<(String, String)>,
    /// The content is no text.
    pub binary: bool,
}

/// Longest pair of names that is taken apart: two of Linux's longest paths.
const MAX_NAMES: usize = 2 * 4096;

const NOTHING: &str = "/dev/null";

/// The names of `diff --git a/x b/x`.
#[must_use]
pub fn git_names(line: &[u8]) -> Names {
    let mut names = Names::default();
    let text = String::from_utf8_lossy(line);
    let rest = text.trim_end_matches('\r').strip_prefix("diff --git ").unwrap_or_default();
    if let Some((old, new)) = split_pair(rest) {
        names.old = Some(old);
        names.new = Some(new);
    }
    names
}

/// The names of a `---` and a `+++` line without a git header.
#[must_use]
pub fn traditional_names(old: &[u8], new: &[u8]) -> Names {
    let mut names = Names::default();
    let (old_name, old_nothing) = marker(old);
    let (new_name, new_nothing) = marker(new);
    if old_nothing {
        names.change = Change::Added;
    } else if new_nothing {
        names.change = Change::Deleted;
    }
    names.old = (old_name != NOTHING).then_some(old_name);
    names.new = (new_name != NOTHING).then_some(new_name);
    names
}

impl Names {
    /// Takes the `---` and `+++` lines below a git header.
    pub fn markers(&mut self, old: &[u8], new: &[u8]) {
        let (old, new) = (marker(old).0, marker(new).0);
        if old != NOTHING && self.old.is_none() {
            self.old = Some(old.clone());
        }
        if new != NOTHING && self.new.is_none() {
            self.new = Some(new.clone());
        }
        self.marked = Some((old, new));
    }

    /// Takes an extended header; false if the line is none.
    pub fn extended(&mut self, line: &[u8]) -> bool {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\r');
        let name = |prefix| text.strip_prefix(prefix).map(unquote);
        if let Some(from) = name("rename from ").or_else(|| name("rename old ")) {
            (self.change, self.from) = (Change::Renamed, Some(from));
        } else if let Some(to) = name("rename to ").or_else(|| name("rename new ")) {
            (self.change, self.to) = (Change::Renamed, Some(to));
        } else if let Some(from) = name("copy from ") {
            (self.change, self.from) = (Change::Copied, Some(from));
        } else if let Some(to) = name("copy to ") {
            (self.change, self.to) = (Change::Copied, Some(to));
        } else if text.starts_with("new file mode ") {
            self.change = Change::Added;
        } else if text.starts_with("deleted file mode ") {
            self.change = Change::Deleted;
        } else if text.starts_with("old mode ") {
            self.modes.0 = true;
        } else if text.starts_with("new mode ") {
            self.modes.1 = true;
        } else {
            return ["index ", "similarity index ", "dissimilarity index "]
                .iter()
                .any(|prefix| text.starts_with(prefix));
        }
        true
    }

    /// Takes the two halves of a `diff --git` line that was broken.
    pub fn wrapped(&mut self, first: &[u8], second: &[u8]) {
        if self.old.is_none() && first.starts_with(b"diff --git ") {
            let joined = [first.trim_ascii_end(), b" ", second.trim_ascii_start()].concat();
            let joined = git_names(&joined);
            (self.old, self.new) = (joined.old, joined.new);
        }
    }

    /// Whether the header alone changes something.
    #[must_use]
    pub fn changes_something(&self) -> bool {
        self.change != Change::Modified || self.modes == (true, true)
    }

    /// Where the header's lines name different files, as git refuses it.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        let (old, new) = self.marked.as_ref()?;
        for (header, marker) in [(&self.old, old), (&self.new, new)] {
            if let Some(header) = header
                && marker != NOTHING
                && header != marker
                && header != NOTHING
            {
                return Some(format!("its header lines name both {header:?} and {marker:?}"));
            }
        }
        None
    }

    /// The file, with so many leading folders taken away.
    fn file(&self, strip: usize, has_hunks: bool) -> FileChange {
        let name = |name: &Option<String>| {
            name.as_deref()
                .filter(|name| *name != NOTHING)
                .map(|name| stripped(name, strip).to_owned())
        };
        let old = self.from.clone().or_else(|| name(&self.old)).or_else(|| name(&self.new));
        let new = self.to.clone().or_else(|| name(&self.new)).or_else(|| name(&self.old));
        let change = match self.change {
            Change::Modified if self.modes == (true, true) && !has_hunks => Change::Mode,
            change => change,
        };
        let (path, other) = if change == Change::Deleted { (old, new) } else { (new, old) };
        let path = path.unwrap_or_default();
        let moved = matches!(change, Change::Renamed | Change::Copied);
        FileChange {
            old_path: other.filter(|old| moved && *old != path),
            path,
            change,
            binary: self.binary,
        }
    }

    /// Whether the names have git's prefixes: `a/` and `b/`, or one of them beside
    /// `/dev/null`.
    fn is_prefixed(&self) -> bool {
        let is = |name: &Option<String>, prefix| {
            name.as_deref().map(|name| name == NOTHING || name.starts_with(prefix))
        };
        let names = [is(&self.old, "a/"), is(&self.new, "b/")];
        names.contains(&Some(true)) && !names.contains(&Some(false))
    }

    /// The path of the file as most trees have it.
    pub(super) fn usual_path(&self) -> String {
        self.file(1, true).path
    }
}

/// The files, and how many folders to strip. One, as git takes it, where names have
/// `a/` and `b/`: what follows is the path, wherever it lies. Otherwise what gives
/// most paths of a kernel tree, and one if that is undecided.
#[must_use]
pub fn resolve(names: &[Names]) -> (usize, Vec<FileChange>) {
    let files = |strip| -> Vec<FileChange> {
        names.iter().map(|names| names.file(strip, names.marked.is_some())).collect()
    };
    let hits = |strip| files(strip).iter().filter(|file| in_kernel_tree(&file.path)).count();
    let mut best = (1, hits(1));
    if names.iter().any(Names::is_prefixed) {
        return (1, files(1));
    }
    for strip in [0, 2, 3] {
        let count = hits(strip);
        if count > best.1 {
            best = (strip, count);
        }
    }
    (best.0, files(best.0))
}

fn stripped(name: &str, strip: usize) -> &str {
    let mut rest = name;
    for _ in 0..strip {
        match rest.split_once('/') {
            Some((_, after)) => rest = after.trim_start_matches('/'),
            None => break,
        }
    }
    rest
}

/// The name in a `---` or `+++` line, and whether it says that there is no file.
fn marker(line: &[u8]) -> (String, bool) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches('\r').get(4..).unwrap_or_default();
    if text.starts_with('"') {
        return (unquote(text), false);
    }
    let (name, stamp) = match text.split_once('\t') {
        Some((name, stamp)) => (name, stamp),
        None => split_stamp(text),
    };
    let name = name.trim_end();
    // GNU diff gives an absent file the first second there is, in any time zone.
    let epoch = stamp.starts_with("1970-01-01 ") || stamp.starts_with("1969-12-31 ");
    (name.to_owned(), name == NOTHING || epoch)
}

/// A name and the time stamp that blanks part from it.
fn split_stamp(text: &str) -> (&str, &str) {
    let is_date = |word: &str| {
        let bytes = word.as_bytes();
        bytes.len() == 10 && bytes[4] == b'-' && bytes[7] == b'-' && bytes[0].is_ascii_digit()
    };
    for (at, _) in text.match_indices(' ') {
        if text[at + 1..].split(' ').next().is_some_and(is_date) {
            return (&text[..at], &text[at + 1..]);
        }
    }
    (text, "")
}

/// The two names of a `diff --git` line. Unquoted names with blanks can only be
/// told apart where both are the same behind their prefixes.
fn split_pair(rest: &str) -> Option<(String, String)> {
    if rest.starts_with('"') {
        let end = closing_quote(rest)?;
        let new = rest[end + 1..].strip_prefix(' ')?;
        return Some((unquote(&rest[..=end]), unquote(new)));
    }
    if let Some(at) = rest.find(" \"") {
        return Some((rest[..at].to_owned(), unquote(&rest[at + 1..])));
    }
    if rest.len() > MAX_NAMES {
        return None;
    }
    let blanks = || rest.match_indices(' ').map(|(at, _)| at).filter(|at| at + 1 < rest.len());
    // Where the first name's path starts, and the second one's: behind their first
    // slashes. The first grows with each blank and the second never does, so that
    // few pairs are of one length and only these are compared.
    let first = after_slash(rest, 0);
    let mut second = 0..0;
    for at in blanks() {
        if second.start <= at {
            second = after_slash(rest, at + 1);
        }
        let old = if first.start < at { rest.get(first.end..at) } else { Some(&rest[..at]) };
        let start = if second.start == rest.len() { at + 1 } else { second.end };
        let (old, new) = (old.unwrap_or_default(), &rest[start..]);
        if old.len() == new.len() && old == new {
            return Some((rest[..at].to_owned(), rest[at + 1..].to_owned()));
        }
    }
    // Two names that differ: a rename, whose own lines say them again.
    let at = blanks().next()?;
    let (old, new) = (&rest[..at], &rest[at + 1..]);
    (!new.contains(' ')).then(|| (old.to_owned(), new.to_owned()))
}

/// The first run of slashes from a byte on; empty at the text's end if there is none.
fn after_slash(text: &str, from: usize) -> std::ops::Range<usize> {
    let start = text[from..].find('/').map_or(text.len(), |at| from + at);
    let end = text[start..].find(|c| c != '/').map_or(text.len(), |at| start + at);
    start..end
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

/// A name in C's quotes, as git writes it when it holds unusual bytes.
fn unquote(text: &str) -> String {
    let text = text.trim_end();
    let Some(inside) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
        return text.to_owned();
    };
    let mut out = Vec::new();
    let mut bytes = inside.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(digit @ b'0'..=b'3') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    if let Some(digit @ b'0'..=b'7') = bytes.peek().copied() {
                        value = value * 8 + u32::from(digit - b'0');
                        bytes.next();
                    }
                }
                out.push(value as u8);
            }
            Some(letter) => out.push(match letter {
                b'a' => 7,
                b'b' => 8,
                b't' => b'\t',
                b'n' => b'\n',
                b'v' => 11,
                b'f' => 12,
                b'r' => b'\r',
                other => other,
            }),
            None => {}
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(line: &str) -> String {
        resolve(&[git_names(line.as_bytes())]).1[0].path.clone()
    }

    #[test]
    fn names_are_read_with_blanks_quotes_and_prefixes() {
        assert_eq!(path("diff --git a/mm/a b.c b/mm/a b.c"), "mm/a b.c");
        assert_eq!(
            path("diff --git \"a/mm/\\303\\244\\tx\" \"b/mm/\\303\\244\\tx\""),
            "mm/\u{e4}\tx"
        );
        assert_eq!(path("diff --git mm/a.c mm/a.c"), "mm/a.c");
        assert_eq!(path("diff --git linux.orig/mm/a.c linux/mm/a.c"), "mm/a.c");
        assert_eq!(path("diff --git x/linux/mm/a.c y/linux/mm/a.c"), "mm/a.c");
        // With git's prefixes what follows is the path, in whatever folder it lies.
        assert_eq!(path("diff --git a/vendor/mm/a.c b/vendor/mm/a.c"), "vendor/mm/a.c");
        let new = traditional_names(b"--- /dev/null", b"+++ b/vendor/mm/a.c");
        assert_eq!(resolve(&[new]).1[0].path, "vendor/mm/a.c");
        let names = traditional_names(
            b"--- linux-6.1.orig/mm/a.c\t2024-01-01 10:00:00.0 +0000",
            b"+++ linux-6.1/mm/a.c 2024-01-02 10:00:00.0 +0000",
        );
        let (strip, files) = resolve(&[names]);
        assert_eq!((strip, files[0].path.as_str()), (1, "mm/a.c"));
    }

    #[test]
    fn absent_files_are_new_or_deleted() {
        let new = traditional_names(b"--- a/mm/x.c\t1970-01-01 01:00:00.0 +0100", b"+++ b/mm/x.c");
        assert_eq!(resolve(&[new]).1[0].change, Change::Added);
        let gone = traditional_names(b"--- a/mm/x.c", b"+++ /dev/null");
        let gone = &resolve(&[gone]).1[0];
        assert_eq!((gone.change, gone.path.as_str()), (Change::Deleted, "mm/x.c"));
    }

    /// Every pair of positions compared would be 10^10 bytes here.
    #[test]
    fn long_pairs_of_names_take_no_longer_than_their_bytes() {
        let start = std::time::Instant::now();
        let long = "x ".repeat(4000);
        for _ in 0..100 {
            for line in [format!("a/ {long}"), format!("{long}/{long}"), "/ ".repeat(4000)] {
                let _ = split_pair(&line);
            }
        }
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }

    proptest! {
        #[test]
        fn pairs_are_parted_where_the_paths_are_the_same(rest in "(a|b|x|/| ){1,14}") {
            let pairs = rest.match_indices(' ').map(|(at, _)| (&rest[..at], &rest[at + 1..]));
            let mut pairs = pairs.filter(|(_, new)| !new.is_empty());
            if let Some((old, new)) = pairs.find(|(old, new)| stripped(old, 1) == stripped(new, 1)) {
                prop_assert_eq!(split_pair(&rest), Some((old.to_owned(), new.to_owned())));
            }
        }

        #[test]
        fn no_header_makes_the_reader_panic(rest in "(\"|\\\\|[0-9]|a/| |\t|\u{e9}|/dev/null|2024-01-01){0,12}") {
            let _ = resolve(&[git_names(format!("diff --git {rest}").as_bytes())]);
            let _ = resolve(&[traditional_names(format!("--- {rest}").as_bytes(), format!("+++ {rest}").as_bytes())]);
        }
    }
}
