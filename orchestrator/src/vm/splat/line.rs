// SPDX-License-Identifier: MIT OR Apache-2.0
//! One console line: cleaned, and parted from whatever stands before the kernel's own words.
//!
//! What may stand there: `<4>` levels; `[   12.345678]` of printk.time=1, also as `dmesg -T` and
//! `dmesg -d` write it; `[  T123]` or `[    C1]` of CONFIG_PRINTK_CALLER (v5.1, with the execution
//! context of later kernels behind it); `4,123,456789,-;` of /dev/kmsg and netconsole; syslog and
//! journalctl heads; `kern  :warn  :` of `dmesg -x`; a CI runner's clock; the `(0)[12:comm]` and
//! `c0   12` marks of vendor kernels; a login prompt; `** 12 printk messages dropped **`.

use regex::Regex;
use std::borrow::Cow;
use std::sync::LazyLock;

/// Bytes of a line that are looked at; the rest is dropped. printk cuts records at 1 KiB
/// (PRINTK_MESSAGE_MAX is 2 KiB), so a longer line is not one printk.
pub const LINE_MAX: usize = 4096;

/// Who printed a line, where CONFIG_PRINTK_CALLER says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Caller {
    /// The log does not say.
    #[default]
    Unknown,
    /// A task, by its thread id.
    Task(u32),
    /// A CPU in interrupt context.
    Cpu(u32),
}

/// A console line without its prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The kernel's words.
    pub text: &'a str,
    /// Who printed them.
    pub caller: Caller,
    /// Whether a timestamp, level or caller says that the kernel printed this line.
    pub stamped: bool,
    /// Whether a syslog head says that a program, not the kernel, printed this line.
    pub foreign: bool,
    /// Seconds since boot.
    pub seconds: Option<u64>,
}

/// Removes what a terminal would not show (ANSI sequences, NULs, other control characters) and
/// replaces invalid UTF-8. Tabs stay. At most [`LINE_MAX`] bytes of the line are kept.
#[must_use]
pub fn clean(line: &[u8]) -> Cow<'_, str> {
    let mut line = &line[..line.len().min(LINE_MAX)];
    while let [rest @ .., b'\r' | b'\n'] = line {
        line = rest;
    }
    let plain = |b: &u8| *b == b'\t' || (*b >= 0x20 && *b < 0x7f);
    if line.iter().all(plain) {
        return String::from_utf8_lossy(line);
    }
    let text = String::from_utf8_lossy(line);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            if chars.next_if_eq(&'[').is_some() {
                while chars.next_if(|c| matches!(c, '0'..='9' | ';' | '?' | ' ')).is_some() {}
                chars.next();
            }
        } else if c == '\t' || !c.is_control() {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

static SYSLOG: LazyLock<Regex> = LazyLock::new(|| {
    re(r"(?x)^(?:[A-Z][a-z]{2}\ [\ \d]\d\ (?:\d{4}\ )?\d\d:\d\d:\d\d(?:\.\d+)?
        | \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d\S*)\ +
        (?:\S+\ )?(?P<tag>kernel|[A-Za-z][\w./@-]*(?:\[\d+\]|\(\w+\)\[\d+\]))(?:\[\d+\])?:\ ?")
});
static CLOCK: LazyLock<Regex> = LazyLock::new(|| {
    re(r"^(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?:? ")
});
static DATE: LazyLock<Regex> = LazyLock::new(|| {
    re(r"^(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?(?: \d{4})? ")
});
static HOST: LazyLock<Regex> = LazyLock::new(|| re(r"^[\w.-]{1,64} kernel: ?"));
static KMSG: LazyLock<Regex> =
    LazyLock::new(|| re(r"^\d{1,4},\d+,(\d+),[-c+](?:,[^;]*?caller=([TC])(\d+))?[^;]*;"));
/// syslog in a language whose months are other words.
static MONTH: LazyLock<Regex> =
    LazyLock::new(|| re(r"^\S{2,16} +\d{1,2} \d\d:\d\d:\d\d \S{1,64} kernel: ?"));
static DMESG_X: LazyLock<Regex> =
    LazyLock::new(|| re(r"^(?:kern|user|daemon|syslog|auth) *: ?[a-z]+ *: ?"));
static DROPPED: LazyLock<Regex> =
    LazyLock::new(|| re(r"^\*\* ?\d+ printk messages dropped \*\* ?"));
static BRACKET: LazyLock<Regex> = LazyLock::new(|| {
    re(r"(?x)^\[(?:
          \ *\+?(?P<sec>\d{1,10})\.\d{1,9}
        | \ *(?P<who>[TC])(?P<id>\d{1,10})(?:[@(\ ][^\]]{0,48})?
        | [A-Z][a-z]{2}\ +[A-Z][a-z]{2}\ +\d+\ +\d\d:\d\d:\d\d\ +\d{4}
        | \d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d[^\]]{0,16}
        | \d\d:\d\d:\d\d(?:[.,]\d+)?
        | \ *(?P<at>\d{1,10})\.(?P<cpu>\d+)(?P<us>)
        | \ *\d+:\ *[\w/:.-]+:\ *\d+ )\]\ ?")
});
static VENDOR: LazyLock<Regex> =
    LazyLock::new(|| re(r"^(?:-?\(\d+\)\[\d+:[^\]]{1,20}\] ?|c\d+ +\d+ +(?:\(\S+\) )?)"));
static STAMP: LazyLock<Regex> = LazyLock::new(|| re(r"\[ {0,6}\d{1,7}\.\d{6}\]"));

fn re(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a fixed pattern")
}

/// Where a second line begins inside `text`, when two printks ended up in one console line
/// (a login prompt, a program that wrote without a newline, two CPUs).
#[must_use]
pub fn embedded(text: &str) -> Option<usize> {
    if !text.contains(".") || !text.contains("[") {
        return None;
    }
    let at = STAMP.find(text)?.start();
    // A level belongs to the stamp behind it.
    let head = &text[..at];
    let level =
        head.len() - head.trim_end_matches(|c: char| c.is_ascii_digit() || "<>".contains(c)).len();
    if level >= 3 && head[at - level..].starts_with('<') { Some(at - level) } else { Some(at) }
}

/// Parts the prefixes from the kernel's words.
#[must_use]
pub fn split(raw: &str) -> Line<'_> {
    let mut line =
        Line { text: raw, caller: Caller::Unknown, stamped: false, foreign: false, seconds: None };
    for _ in 0..10 {
        let s = line.text;
        let Some(&first) = s.as_bytes().first() else {
            break;
        };
        let cut = match first {
            b'<' => level(s).inspect(|_| line.stamped = true),
            b'[' => bracket(s, &mut line),
            b'*' => DROPPED.find(s).map(|m| m.end()),
            b'>' | b'|' => quote(s),
            b' ' | b'\t' => indent(s),
            b'0'..=b'9' => number(s, &mut line),
            b'A'..=b'Z' if s.as_bytes().get(3) == Some(&b' ') => syslog(s, &mut line),
            b'k' | b'u' | b'd' | b's' | b'a' if s.as_bytes().get(4..8).is_some() => {
                DMESG_X.find(s).map(|m| m.end()).inspect(|_| line.stamped = true)
            }
            b'(' | b'-' | b'c' if line.stamped => VENDOR.find(s).map(|m| m.end()),
            _ => None,
        };
        let cut = cut.or_else(|| {
            if first < b'0' || !s.contains(" kernel: ") {
                None
            } else if line.stamped {
                HOST.find(s).map(|m| m.end())
            } else {
                line.stamped = MONTH.is_match(s);
                MONTH.find(s).map(|m| m.end())
            }
        });
        match cut {
            Some(n) => line.text = &s[n..],
            None => break,
        }
    }
    line
}

/// A mail's quoting mark. The mark at the bad byte in a report's memory dump is none.
fn quote(s: &str) -> Option<usize> {
    let rest = &s.as_bytes()[1..];
    if rest.first() == Some(&b' ') {
        return Some(2);
    }
    let hex = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    (s.starts_with('>') && !rest.is_empty() && hex < 8).then_some(1)
}

/// White space before a prefix, as bug trackers indent a log.
fn indent(s: &str) -> Option<usize> {
    let t = s.trim_start_matches([' ', '\t']);
    let prefix = match t.as_bytes().first()? {
        b'[' => BRACKET.is_match(t),
        b'<' => level(t).is_some(),
        b'0'..=b'9' => SYSLOG.is_match(t) || CLOCK.is_match(t),
        b'A'..=b'Z' => t.as_bytes().get(3) == Some(&b' ') && DATE.is_match(t),
        b'>' | b'|' => t.as_bytes().get(1) == Some(&b' '),
        _ => false,
    };
    prefix.then_some(s.len() - t.len())
}

fn level(s: &str) -> Option<usize> {
    let end = s.bytes().take(5).position(|b| b == b'>')?;
    (end > 1 && s[1..end].bytes().all(|b| b.is_ascii_digit())).then_some(end + 1)
}

fn bracket(s: &str, line: &mut Line<'_>) -> Option<usize> {
    let m = BRACKET.captures(s)?;
    if let Some(seconds) = m.name("sec") {
        line.seconds = seconds.as_str().parse().ok();
    } else if let (Some(who), Some(id)) = (m.name("who"), m.name("id")) {
        line.caller = caller(who.as_str(), id.as_str());
    }
    line.stamped = true;
    Some(m[0].len())
}

fn number(s: &str, line: &mut Line<'_>) -> Option<usize> {
    if let Some(m) = KMSG.captures(s) {
        line.stamped = true;
        line.seconds = m[1].parse::<u64>().ok().map(|us| us / 1_000_000);
        if let (Some(who), Some(id)) = (m.get(2), m.get(3)) {
            line.caller = caller(who.as_str(), id.as_str());
        }
        return Some(m[0].len());
    }
    syslog(s, line).or_else(|| CLOCK.find(s).map(|m| m.end()))
}

fn syslog(s: &str, line: &mut Line<'_>) -> Option<usize> {
    let Some(m) = SYSLOG.captures(s) else {
        return DATE.find(s).map(|m| m.end());
    };
    if &m["tag"] == "kernel" {
        line.stamped = true;
    } else {
        line.foreign = true;
    }
    Some(m[0].len())
}

fn caller(who: &str, id: &str) -> Caller {
    match (who, id.parse()) {
        ("T", Ok(id)) => Caller::Task(id),
        ("C", Ok(id)) => Caller::Cpu(id),
        _ => Caller::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(raw: &str) -> &str {
        split(raw).text
    }

    #[test]
    fn every_known_prefix_is_parted_from_the_words() {
        for raw in [
            "words here",
            "[   12.345678] words here",
            "<4>[   12.345678] words here",
            "<4>words here",
            "[   12.345678][  T123] words here",
            "[   12.345678] [    C1] words here",
            "[   12.345678][  T123@C1] words here",
            "[  T123] words here",
            "[Tue Mar  5 10:11:12 2024] words here",
            "[  +0.000012] words here",
            "Mar  5 10:11:12 host kernel: [   12.345678] words here",
            "Mar  5 10:11:12 host kernel: words here",
            "2024-03-05T10:11:12.123456+00:00 host kernel: [   12.345678] words here",
            "[   12.345678] host kernel: words here",
            "кві 09 19:54:36 host kernel: words here",
            "kern  :warn  : [   12.345678] words here",
            "4,123,12345678,-;words here",
            "4,123,12345678,-,caller=T12;words here",
            "** 12 printk messages dropped ** [   12.345678] words here",
            "> [   12.345678] words here",
            "10:11:12 [   12.345678] words here",
            "[   12.345678] (1)[123:kworker/1:2]words here",
            "[   12.345678] c1   4321 words here",
        ] {
            assert_eq!(text(raw), "words here", "{raw}");
        }
    }

    #[test]
    fn callers_and_seconds_are_read() {
        let line = split("[  102.345678][  T123] x");
        assert_eq!((line.caller, line.seconds), (Caller::Task(123), Some(102)));
        assert_eq!(split("[    1.000001][    C3] x").caller, Caller::Cpu(3));
        assert_eq!(split("4,1,2000000,-,caller=C2;x").caller, Caller::Cpu(2));
    }

    #[test]
    fn a_stack_frame_address_is_no_prefix() {
        assert_eq!(
            text("[<ffffffff81234567>] do_it+0x1/0x2"),
            "[<ffffffff81234567>] do_it+0x1/0x2"
        );
        assert_eq!(
            text("[ BUG: bad unlock balance detected! ]"),
            "[ BUG: bad unlock balance detected! ]"
        );
    }

    #[test]
    fn programs_lines_in_syslog_are_foreign() {
        assert!(split("Mar  5 10:11:12 host sshd[12]: WARNING: no").foreign);
        assert!(!split("Mar  5 10:11:12 host kernel: WARNING: no").foreign);
    }

    #[test]
    fn a_second_line_within_a_line_is_found() {
        let text = "login: [   12.345678] BUG: x";
        assert_eq!(embedded(text), Some(7));
        assert_eq!(embedded("login: <4>[   12.345678] BUG: x"), Some(7));
        assert_eq!(embedded("CPU 1.5 [x]"), None);
    }

    #[test]
    fn control_characters_are_dropped() {
        assert_eq!(clean(b"\x1b[0;32mok\x1b[0m \0x\xff\r\n"), "ok x\u{fffd}");
    }
}
