// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a subject says: `Re: [RFC PATCH net-next v2 02/11] tcp: do less`.

/// A subject taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// What `git am` makes the commit's subject: without answers' marks and
    /// without everything in brackets, runs of blanks made one.
    pub text: String,
    /// The mail answers another one.
    pub reply: bool,
    /// `PATCH` stands in the brackets.
    pub patch: bool,
    /// A request to pull.
    pub pull: bool,
    /// `RFC` stands in the brackets.
    pub rfc: bool,
    /// `RESEND` or `REPOST` stands in the brackets.
    pub resend: bool,
    /// The version, where one is said: 3 of `v3`.
    pub version: Option<u32>,
    /// The number and the total.
    pub number: Option<(u32, u32)>,
    /// Everything else in the brackets, such as `net-next`.
    pub tags: Vec<String>,
}

/// Marks of an answer in the languages of common clients.
const REPLIES: [&str; 12] = [
    "re",
    "aw",
    "sv",
    "antw",
    "antwort",
    "vs",
    "odp",
    "ynt",
    "res",
    "rv",
    "\u{7b54}\u{590d}",
    "\u{56de}\u{590d}",
];

impl Subject {
    /// Takes a decoded subject apart.
    #[must_use]
    pub fn parse(subject: &str) -> Self {
        let mut parsed = Self::default();
        let mut rest = subject.trim();
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ':');
            if let Some((mark, after)) = after_reply(rest)
                && (parsed.marks_answer(mark, after) || is_re(mark))
            {
                parsed.reply |= parsed.marks_answer(mark, after);
                rest = after;
            } else if let Some((inside, after)) = bracket(rest) {
                parsed.read_bracket(inside);
                rest = after;
            } else if let Some(after) = parsed.bare_marker(rest) {
                rest = after;
            } else {
                break;
            }
        }
        parsed.text = rest.split_whitespace().collect::<Vec<_>>().join(" ");
        parsed
    }

    /// Whether such a mark here says that the mail is an answer. Behind the bracket
    /// of a patch it is the start of the patch's own subject: kernel/trace/rv has
    /// `[PATCH] rv: x`. Without a bracket behind it, only what no subsystem is called.
    fn marks_answer(&self, mark: &str, after: &str) -> bool {
        let known = self.patch || self.rfc || self.number.is_some() || self.version.is_some();
        let mut rest = after.trim_start();
        while let Some((_, after)) = after_reply(rest) {
            rest = after.trim_start();
        }
        let bracket = rest.starts_with('[') && bracket(rest).is_some();
        let first = self.tags.is_empty();
        !known && (bracket || first && (is_re(mark) || !mark.starts_with(char::is_lowercase)))
    }

    fn read_bracket(&mut self, inside: &str) {
        let words: Vec<&str> = inside
            .split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '[' | ']'))
            .filter(|word| !word.is_empty())
            .collect();
        let has = |wanted: &str| words.iter().any(|word| word.eq_ignore_ascii_case(wanted));
        self.pull |= has("PULL") && (has("GIT") || words.len() == 1);
        let mut index = 0;
        while let Some(&word) = words.get(index) {
            // Mercurial's way: `[PATCH 1 of 5]`.
            if let (Ok(number), Some(&"of"), Some(Ok(total))) = (
                word.parse::<u32>(),
                words.get(index + 1),
                words.get(index + 2).map(|word| word.parse::<u32>()),
            ) {
                self.set_number(number, total);
                index += 3;
                continue;
            }
            if !self.read_word(word) {
                self.tags.push(word.to_owned());
            }
            index += 1;
        }
    }

    /// Reads one word of a bracket; false if it means nothing here.
    fn read_word(&mut self, word: &str) -> bool {
        if word.len() > MAX_WORD {
            return false;
        }
        let upper = word.to_ascii_uppercase();
        if let Some((number, total)) = fraction(&upper) {
            self.set_number(number, total);
            return true;
        }
        if let Some(version) = version(&upper) {
            self.version.get_or_insert(version);
            return true;
        }
        match upper.as_str() {
            "RFC" => self.rfc = true,
            "RESEND" | "REPOST" | "RESENT" => self.resend = true,
            "PATCH" | "PATCHES" | "PATCHSET" | "SERIES" => self.patch = true,
            _ => return self.read_fused(&upper),
        }
        true
    }

    /// `PATCHv2`, `PATCH-V2`, `RFCv3`, `RFC/PATCH`, `PATCH-RESEND`, `1/2v3`, `v2-1/3`.
    fn read_fused(&mut self, upper: &str) -> bool {
        let mut read = self.clone();
        for prefix in ["PATCH", "RFC", "RESEND"] {
            let Some(rest) = upper.strip_prefix(prefix) else {
                continue;
            };
            let rest = rest.trim_start_matches(['-', '/', '_', '.']);
            if read.read_word(prefix) && !rest.is_empty() && read.read_word(rest) {
                *self = read;
                return true;
            }
            return false;
        }
        for (left, right) in upper
            .match_indices(['V', '-', '_'])
            .map(|(at, mark)| (&upper[..at], &upper[if mark == "V" { at } else { at + 1 }..]))
        {
            let mut read = self.clone();
            if (fraction(left).is_some() && version(right).is_some()
                || version(left).is_some() && fraction(right).is_some())
                && read.read_word(left)
                && read.read_word(right)
            {
                *self = read;
                return true;
            }
        }
        false
    }

    /// The kernel that the brackets say the patch is for, as stable's `6.1.y`.
    #[must_use]
    pub fn target(&self) -> Option<String> {
        self.tags.iter().find_map(|tag| kernel(tag))
    }

    fn set_number(&mut self, number: u32, total: u32) {
        self.number.get_or_insert((number, total));
    }

    /// Marks that stand before the colon or the subject without brackets:
    /// `PATCH 1/3: x`, `PATCH v2 x`, `(PATCH) x`.
    fn bare_marker<'a>(&mut self, rest: &'a str) -> Option<&'a str> {
        if self.patch {
            return None;
        }
        if let Some(inside) = rest.strip_prefix('(')
            && let Some((inside, after)) = inside.split_once(')')
            && inside.to_ascii_uppercase().contains("PATCH")
        {
            self.read_bracket(inside);
            return Some(after);
        }
        let mut words = rest.char_indices().filter(|(_, c)| c.is_whitespace());
        let end = words.next().map_or(rest.len(), |(at, _)| at);
        let mut after = end;
        let first = rest[..end].trim_end_matches(':');
        if first != "PATCH" && version(first.strip_prefix("PATCH")?).is_none() {
            return None;
        }
        let mut read = Self::default();
        if !read.read_word(first) {
            return None;
        }
        // Only with a number is this a mark and not a word of the subject.
        loop {
            let tail = &rest[after..];
            let start = after + (tail.len() - tail.trim_start().len());
            let length = rest[start..].find(char::is_whitespace).unwrap_or(rest.len() - start);
            let word = rest[start..start + length].trim_end_matches(':');
            if word.is_empty() || !(fraction(word).is_some() || version(word).is_some()) {
                break;
            }
            read.read_word(word);
            after = start + length;
        }
        read.number?;
        self.patch = true;
        self.version = self.version.or(read.version);
        self.number = self.number.or(read.number);
        Some(&rest[after..])
    }
}

/// `Re`, `RE[2]` or the like, and what follows its colon.
fn after_reply(text: &str) -> Option<(&str, &str)> {
    let (whole, after) = text.split_once([':', '\u{ff1a}'])?;
    let mark = whole.trim_end();
    let mark = mark.split_once(['[', '(']).map_or(mark, |(mark, count)| {
        let count = count.trim_end_matches([']', ')']);
        if count.bytes().all(|byte| byte.is_ascii_digit()) { mark } else { "" }
    });
    REPLIES.contains(&mark.to_lowercase().as_str()).then_some((whole, after))
}

/// The one mark that git takes away, wherever it stands before the text.
fn is_re(mark: &str) -> bool {
    mark.eq_ignore_ascii_case("re")
}

/// The inside of a leading bracket, brackets inside of it included, and what
/// follows. Like git, takes nothing that is not closed.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix('[')?;
    let mut depth = 1;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return Some((&inside[..at], &inside[at + 1..]));
        }
    }
    inside.split_once(']')
}

/// `02/11`, upper limits as in [`MAX_TOTAL`].
fn fraction(word: &str) -> Option<(u32, u32)> {
    let (number, total) = word.split_once('/')?;
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(number) || !digits(total) {
        return None;
    }
    let (number, total) = (number.parse().ok()?, total.parse().ok()?);
    (total <= MAX_TOTAL && number <= MAX_TOTAL).then_some((number, total))
}

/// Longest word of a bracket that can mean something.
const MAX_WORD: usize = 40;

/// Largest total that is believed: stable's review series have about a thousand.
pub const MAX_TOTAL: u32 = 9_999;

/// `v2`, `V2`. `v6.1` is no version but the kernel that a patch is for.
fn version(word: &str) -> Option<u32> {
    let number = word.strip_prefix(['V', 'v'])?;
    let digits = (1..=4).contains(&number.len()) && number.bytes().all(|c| c.is_ascii_digit());
    digits.then(|| number.parse().ok()).flatten()
}

/// The kernel that a word of a bracket names: 6.1 of `v6.1`, `6.1.y`, `linux-6.1.y`.
fn kernel(word: &str) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    let name = lower.strip_prefix("linux-").unwrap_or(&lower);
    let name = name.strip_prefix('v').unwrap_or(name);
    let name = name.strip_suffix(".y").unwrap_or(name);
    let numbers = name.split_once("-rc").map_or(name, |(numbers, _)| numbers);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (numbers.contains('.') && numbers.split('.').all(digits)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(subject: &str) -> String {
        let parsed = Subject::parse(subject);
        let mut words = Vec::new();
        for (set, word) in [
            (parsed.reply, "reply"),
            (parsed.patch, "patch"),
            (parsed.pull, "pull"),
            (parsed.rfc, "rfc"),
            (parsed.resend, "resend"),
        ] {
            if set {
                words.push(word.to_owned());
            }
        }
        if let Some(version) = parsed.version {
            words.push(format!("v{version}"));
        }
        if let Some((number, total)) = parsed.number {
            words.push(format!("{number}/{total}"));
        }
        words.extend(parsed.tags.iter().map(|tag| format!("+{tag}")));
        format!("{} | {}", words.join(" "), parsed.text)
    }

    #[test]
    fn subjects_are_read_as_people_write_them() {
        for (subject, expected) in [
            ("[PATCH] mm: x", "patch | mm: x"),
            ("[PATCH v3 2/4] mm: x", "patch v3 2/4 | mm: x"),
            ("[RFC PATCH net-next v2 02/11] tcp: x", "patch rfc v2 2/11 +net-next | tcp: x"),
            ("[PATCH 03/10] x", "patch 3/10 | x"),
            ("[PATCH V2] x", "patch v2 | x"),
            ("[PATCHv2] x", "patch v2 | x"),
            ("[PATCHv2 1/3] x", "patch v2 1/3 | x"),
            ("[PATCH-v2 1/3] x", "patch v2 1/3 | x"),
            ("[RESEND PATCH v5] x", "patch resend v5 | x"),
            ("[PATCH RESEND 0/3] x", "patch resend 0/3 | x"),
            ("[patch 1/2] x", "patch 1/2 | x"),
            ("[PATCH] [subsys] foo", "patch +subsys | foo"),
            ("[PATCH v2][1/3] x", "patch v2 1/3 | x"),
            ("[PATCH net-next,v2,1/3] x", "patch v2 1/3 +net-next | x"),
            ("[PATCH 2 of 5] x", "patch 2/5 | x"),
            ("[PATCH v6.1 3/5] x", "patch 3/5 +v6.1 | x"),
            ("[PATCH v2 v5.10 3/5] x", "patch v2 3/5 +v5.10 | x"),
            ("[PATCH 1/2v3] x", "patch v3 1/2 | x"),
            ("[RFC/PATCH 1/2] x", "patch rfc 1/2 | x"),
            ("[RFC v2 1/3] x", "rfc v2 1/3 | x"),
            ("Re: [PATCH 1/1] x", "reply patch 1/1 | x"),
            ("RE: Re[2]: [PATCH] x", "reply patch | x"),
            ("AW: [PATCH] x", "reply patch | x"),
            ("rv: [PATCH] x", "reply patch | x"),
            ("SV: Re: [PATCH] x", "reply patch | x"),
            ("[list] Re: [PATCH] x", "reply patch +list | x"),
            ("[list] rv: x", "+list | rv: x"),
            ("[PATCH] rv: x", "patch | rv: x"),
            ("[PATCH 2/3] SV: x", "patch 2/3 | SV: x"),
            ("[PATCH] rv[2]: x", "patch | rv[2]: x"),
            ("[PATCH] Re: x", "patch | x"),
            ("[PATCH][x] vs: [y] z", "patch +x | vs: [y] z"),
            ("Sv: x", "reply | x"),
            ("RE: x", "reply | x"),
            ("rv: x", " | rv: x"),
            ("[GIT PULL] x", "pull +GIT +PULL | x"),
            ("[PATCH] a[0] = b[1]: x", "patch | a[0] = b[1]: x"),
            ("[PATCH] x: use ] well", "patch | x: use ] well"),
            ("[PATCH x] [y [z]] t", "patch +x +y +z | t"),
            ("[PATCH unclosed 1/2 x", " | [PATCH unclosed 1/2 x"),
            ("PATCH 1/3: x", "patch 1/3 | x"),
            ("PATCH x without brackets", " | PATCH x without brackets"),
            ("[PATCH 6.12 033/100] x", "patch 33/100 +6.12 | x"),
            ("  [PATCH]   two   blanks ", "patch | two blanks"),
            ("Revert \"x\"", " | Revert \"x\""),
            ("resend: x", " | resend: x"),
            ("[2/3] x", "2/3 | x"),
            ("[PATCH 99999999999/3] x", "patch +99999999999/3 | x"),
        ] {
            assert_eq!(told(subject), expected, "{subject}");
        }
    }

    #[test]
    fn the_kernel_that_a_patch_is_for_is_told_from_other_words() {
        for (subject, expected) in [
            ("[PATCH v6.1 1/2] x", Some("6.1")),
            ("[PATCH 6.12 033/100] x", Some("6.12")),
            ("[PATCH linux-5.10.y v2] x", Some("5.10")),
            ("[PATCH 6.1.y] x", Some("6.1")),
            ("[PATCH v6.13-rc2] x", Some("6.13-rc2")),
            ("[PATCH net-next v2 1/3] x", None),
            ("[PATCH v2] x: use v6.1", None),
            ("[PATCH .y] x", None),
        ] {
            assert_eq!(Subject::parse(subject).target().as_deref(), expected, "{subject}");
        }
    }

    proptest! {
        #[test]
        fn no_subject_makes_the_reader_panic(subject in "(\\[|\\]|PATCH|[vV]|[0-9]{1,6}|/| of |Re:|\\(|\\)|.|\u{e9}){0,16}") {
            let _ = Subject::parse(&subject);
        }
    }
}
