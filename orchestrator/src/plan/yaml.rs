// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads YAML into typed manifests and knows where in the file each value stands.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use saphyr_parser::{Event, Parser, Span};
use serde::de::DeserializeOwned;

use crate::fault::{Fault, escape};

/// Largest YAML file that is read. Plans are written by hand; a larger file is a mistake.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// A parsed file: its value, and the place of everything in it.
#[derive(Debug)]
pub struct Document<T> {
    /// What the file says.
    pub value: T,
    file: PathBuf,
    text: String,
    positions: Positions,
}

/// Reads and parses a file.
///
/// # Errors
/// A `plan` fault with file, line, column, the line's text and, for a misspelt
/// key, a suggestion.
pub fn load<T: DeserializeOwned>(file: &Path) -> Result<Document<T>, Fault> {
    let shown = file.display();
    let read = |error: std::io::Error| {
        let fault = Fault::plan(format!("cannot be read: {error}")).at(shown.to_string());
        fault.help("check the path")
    };
    let size = std::fs::metadata(file).map_err(read)?.len();
    if size > MAX_FILE_BYTES {
        return Err(Fault::plan(format!("{size} bytes are too many for a YAML file of kvet's"))
            .at(shown)
            .help("check that the path names the right file"));
    }
    let bytes = std::fs::read(file).map_err(read)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        Fault::plan(format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
            .at(shown)
            .help("save the file as UTF-8")
    })?;
    parse(file, text)
}

/// Parses text; `file` is what messages call it.
///
/// # Errors
/// As [`load`].
pub fn parse<T: DeserializeOwned>(file: &Path, text: String) -> Result<Document<T>, Fault> {
    let (positions, duplicate) = positions(&text);
    if let Some((path, (line, column))) = duplicate {
        let key = path.rsplit('.').next().unwrap_or(&path);
        return Err(Fault::plan(format!("{key:?} stands here for the second time"))
            .at(format!("{}:{line}:{column}", file.display()))
            .evidence(&excerpt(&text, line, column))
            .help("take one of the two out"));
    }
    let value = serde_yaml::from_str(&text).map_err(|error| {
        let message = error.to_string();
        let (line, column) = locate_error(&error, &message, &text);
        let fault = Fault::plan(clean_message(&message))
            .at(format!("{}:{line}:{column}", file.display()))
            .evidence(&excerpt(&text, line, column));
        match suggestion(&message) {
            Some(help) => fault.help(help),
            None => fault,
        }
    })?;
    Ok(Document { value, file: file.to_owned(), text, positions })
}

impl<T> Document<T> {
    /// Another value made of the same file.
    #[must_use]
    pub fn with<U>(&self, value: U) -> Document<U> {
        let Self { file, text, positions, .. } = self;
        Document { value, file: file.clone(), text: text.clone(), positions: positions.clone() }
    }

    /// `file:line:column` of the value at a path such as `tests.0.name`; of the
    /// nearest enclosing value where the path itself is not in the file.
    #[must_use]
    pub fn place(&self, path: &str) -> String {
        let (line, column) = self.position(path);
        format!("{}:{line}:{column}", self.file.display())
    }

    /// A `plan` fault about the value at a path, with the line's text.
    #[must_use]
    pub fn fault(&self, path: &str, what: impl Into<String>) -> Fault {
        let (line, column) = self.position(path);
        Fault::plan(what).at(self.place(path)).evidence(&excerpt(&self.text, line, column))
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn position(&self, path: &str) -> Position {
        let mut path = path;
        loop {
            if let Some(&position) = self.positions.get(path) {
                return position;
            }
            match path.rfind('.') {
                Some(end) => path = &path[..end],
                None => return (1, 1),
            }
        }
    }
}

/// Line and column, from 1.
type Position = (usize, usize);
/// Positions by path.
type Positions = HashMap<String, Position>;

/// Where each value of a document stands, by dotted path; lines and columns from 1.
/// Stops at the first syntax error, which serde reports better.
/// Also the first value whose key its mapping already has.
fn positions(text: &str) -> (Positions, Option<(String, Position)>) {
    enum Frame {
        Sequence { prefix: String, next: usize },
        Mapping { prefix: String, key: Option<String> },
    }
    let join = |prefix: &str, last: &str| {
        if prefix.is_empty() { last.to_owned() } else { format!("{prefix}.{last}") }
    };
    let start = |span: &Span| (span.start.line(), span.start.col() + 1);
    let mut found = HashMap::new();
    let mut duplicate = None;
    let mut stack: Vec<Frame> = Vec::new();
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { break };
        if let Event::Scalar(word, ..) = &event
            && let Some(Frame::Mapping { key: key @ None, .. }) = stack.last_mut()
        {
            *key = Some(word.to_string());
            continue;
        }
        if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
            stack.pop();
            continue;
        }
        if !matches!(
            event,
            Event::Scalar(..)
                | Event::Alias(..)
                | Event::SequenceStart(..)
                | Event::MappingStart(..)
        ) {
            continue;
        }
        let path = match stack.last_mut() {
            None => String::new(),
            Some(Frame::Sequence { prefix, next }) => {
                *next += 1;
                join(prefix, &(*next - 1).to_string())
            }
            Some(Frame::Mapping { prefix, key }) => {
                join(prefix, key.take().as_deref().unwrap_or_default())
            }
        };
        if found.insert(path.clone(), start(&span)).is_some() && !path.is_empty() {
            duplicate.get_or_insert_with(|| (path.clone(), start(&span)));
        }
        match event {
            Event::SequenceStart(..) => stack.push(Frame::Sequence { prefix: path, next: 0 }),
            Event::MappingStart(..) => stack.push(Frame::Mapping { prefix: path, key: None }),
            _ => {}
        }
    }
    (found, duplicate)
}

/// serde_yaml gives the place of the mapping that holds an unknown key; the key
/// itself is what the user looks for.
fn locate_error(error: &serde_yaml::Error, message: &str, text: &str) -> Position {
    let (line, column) = error.location().map_or((1, 1), |place| (place.line(), place.column()));
    let Some(key) = backquoted(message).next().filter(|_| message.contains("unknown field")) else {
        return (line, column);
    };
    text.lines()
        .enumerate()
        .skip(line - 1)
        .find_map(|(index, content)| {
            let column = find_key(content, key)?;
            Some((index + 1, column + 1))
        })
        .unwrap_or((line, column))
}

/// Character offset of `key` followed by a colon, as a whole word, in one line.
fn find_key(line: &str, key: &str) -> Option<usize> {
    let code = line.split(" #").next().unwrap_or(line);
    code.match_indices(key).find_map(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
        let whole = before.is_none_or(|c| c.is_whitespace() || matches!(c, '{' | ',' | '"' | '\''));
        (whole && after.starts_with(':')).then(|| code[..at].chars().count())
    })
}

fn backquoted(message: &str) -> impl Iterator<Item = &str> {
    message.split('`').skip(1).step_by(2)
}

/// The message without the place that is shown beside it.
fn clean_message(message: &str) -> String {
    let end = message.rfind(" at line ").unwrap_or(message.len());
    // What a Rust type is called is no help.
    const WORDS: [(&str, &str); 4] = [
        ("expected parsable string", "expected a size with a unit, such as 512MiB"),
        ("expected u64", WHOLE),
        ("expected u32", WHOLE),
        ("expected u16", WHOLE),
    ];
    let text = &message[..end];
    let word = WORDS.iter().find_map(|(word, plain)| Some((text.strip_suffix(word)?, plain)));
    match word {
        Some((before, plain)) => format!("{}{plain}", escape(before)),
        None => escape(text),
    }
}

const WHOLE: &str = "expected a whole number";

fn suggestion(message: &str) -> Option<String> {
    if !(message.contains("unknown field") || message.contains("unknown variant")) {
        return None;
    }
    let mut words = backquoted(message);
    let wrong = words.next()?;
    closest(wrong, words).map(|right| format!("did you mean `{right}`?"))
}

/// The candidate that `wrong` was probably meant to be.
pub fn closest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(wrong, candidate), candidate))
        // A third of the letters wrong is still a slip of the fingers; more is another word.
        .filter(|&(distance, candidate)| distance <= 1 + candidate.chars().count().max(3) / 3)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

fn excerpt(text: &str, line: usize, column: usize) -> String {
    let Some(content) = text.lines().nth(line.saturating_sub(1)) else {
        return String::new();
    };
    let mut out = String::new();
    let number = line.to_string();
    let _ = writeln!(out, "{number} | {}", content.replace('\t', " "));
    let _ = write!(out, "{} | {}^", " ".repeat(number.len()), " ".repeat(column.saturating_sub(1)));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Sample {
        series: Vec<String>,
        #[serde(default)]
        tests: Vec<Entry>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Entry {
        name: String,
        #[serde(default)]
        guests: Vec<String>,
    }

    fn fault(text: &str) -> Fault {
        parse::<Sample>(Path::new("plan.yaml"), text.to_owned()).unwrap_err()
    }

    #[test]
    fn types_are_called_what_people_call_them() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only parsed")]
        struct Guest {
            memory: bytesize::ByteSize,
            vcpus: u32,
        }
        let said =
            |text: &str| parse::<Guest>(Path::new("plan.yaml"), text.to_owned()).unwrap_err().what;
        let size = said("memory: 1XiB\nvcpus: 1\n");
        assert!(size.ends_with("expected a size with a unit, such as 512MiB"), "{size}");
        let number = said("memory: 1MiB\nvcpus: zero\n");
        assert!(number.ends_with("expected a whole number"), "{number}");
    }

    #[test]
    fn a_misspelt_key_is_shown_in_its_place_with_a_suggestion() {
        let fault = fault("series: [a]\ntests:\n  - {name: a, guest: [b]}\n");
        assert_eq!(fault.place.as_deref(), Some("plan.yaml:3:15"));
        assert_eq!(fault.help.as_deref(), Some("did you mean `guests`?"));
        assert_eq!(fault.evidence[1], "  |               ^");
    }

    #[test]
    fn a_misspelt_key_at_the_top_is_found_too() {
        let fault = fault("# sereis: in a comment\ntests: []\nsereis: [a]\n");
        assert_eq!(fault.place.as_deref(), Some("plan.yaml:3:1"), "{fault}");
        assert_eq!(fault.help.as_deref(), Some("did you mean `series`?"));
    }

    #[test]
    fn values_are_found_by_path() {
        let text = "series:\n  - a\n  - b\ntests: [{name: x, guests: [one, two]}]\n";
        let document = parse::<Sample>(Path::new("p"), text.to_owned()).unwrap();
        assert_eq!(document.place("series.1"), "p:3:5");
        assert_eq!(document.place("tests.0.guests.1"), "p:4:33");
        assert_eq!(document.place("tests.0.nothing"), "p:4:9");
    }

    #[test]
    fn a_key_that_stands_twice_is_an_error() {
        let fault = fault("series: [a]\ntests:\n  - {name: a, name: b}\n");
        assert_eq!(fault.place.as_deref(), Some("plan.yaml:3:21"), "{fault}");
    }

    #[test]
    fn only_near_words_are_suggested() {
        assert_eq!(closest("khugepaged_colt", ["khugepaged_cold", "x"]), Some("khugepaged_cold"));
        assert_eq!(closest("abc", ["xyz", "process_madvise"]), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[a-z:\\-{}\\[\\],&* \n\"'#é\t]{0,80}") {
            let _ = parse::<Sample>(Path::new("p"), text.clone());
            let _ = positions(&text);
        }
    }
}
