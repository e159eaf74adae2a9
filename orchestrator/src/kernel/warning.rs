// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings of a kernel build: gcc's, clang's, the assembler's, the linker's,
//! objtool's and modpost's, each with an identity that survives a change of lines
//! above it.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

/// Longest text that is kept of a warning.
const MAX_TEXT: usize = 400;

/// What makes two warnings one and the same: everything but where in its file
/// it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The source file, or the object for a tool that knows no other.
    pub file: String,
    /// The function, where the tool names it (clang does not).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The option that asks for it, such as `-Wunused-variable`, or the tool.
    pub kind: String,
    /// The message without line numbers and code offsets.
    pub text: String,
}

/// A warning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Warning {
    /// What it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// Its line, from 1; 0 where the tool names none.
    pub line: u32,
    /// Its column, from 1; 0 where the tool names none.
    pub column: u32,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Identity { file, function, kind, text } = &self.identity;
        let mut place = file.clone();
        if self.line > 0 {
            place.push_str(&format!(":{}", self.line));
        }
        let parts = [Some(place.as_str()), function.as_deref(), Some(text)];
        let parts: Vec<&str> =
            parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        f.write_str(&parts.join(": "))?;
        if kind.starts_with('-') { write!(f, " [{kind}]") } else { write!(f, " ({kind})") }
    }
}

/// `mm/a.c:12:5: warning: text [-Wkind]`; gcc, clang, gas (`Warning`), and kconfig,
/// which has no blank there.
static COMPILER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"^([^\s:][^:]*):(\d{1,9}):(?:(\d{1,9}):)? ?[Ww]arning: (.*?)(?: \[(-W[^\[\]\s]+)\])?$",
    )
    .expect("a constant pattern")
});
/// `mm/a.o: warning: objtool: f+0x12: text`; other tools without the colon after
/// their name: `ld: warning: text`, `vmlinux.o: warning: text`.
static TOOL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^([^\s:]+): (?i:warning): (?:(objtool): )?(.*)$").expect("a constant pattern")
});
/// `WARNING: modpost: vmlinux: section mismatch in reference: ...`
static MODPOST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^WARNING: (?:(modpost): )?(?:([^\s:]+): )?(.*)$").expect("a constant pattern")
});
/// gcc's line before the warnings of a function (diagnostic.c).
static FUNCTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^([^\s:][^:]*): In (?:function|member function|constructor) '([^']+)'[:,]$")
        .expect("a constant pattern")
});
/// Places inside a message.
static PLACES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(\.[chS]):\d+(?::\d+)?|(\bline) \d+|(\w)\+0x[0-9a-f]+(?:/0x[0-9a-f]+)?")
        .expect("a constant pattern")
});
/// objtool names the function first: `f()+0x12: text`, `f+0x12: text`.
static OBJTOOL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^([A-Za-z_][\w.]*)(?:\(\))?(?:\+0x[0-9a-f]+)?: (.*)$").expect("a constant pattern")
});

/// Reads warnings from the lines of a build, in their order. What stands around
/// a warning (the function) is taken from the lines before it.
#[derive(Debug, Default)]
pub struct Reader {
    /// The file and function of gcc's last word on where it is.
    context: Option<(String, String)>,
}

impl Reader {
    /// The warning that a line holds.
    pub fn line(&mut self, line: &str) -> Option<Warning> {
        let line = line.trim_end();
        if let Some(found) = FUNCTION.captures(line) {
            self.context = Some((found[1].to_owned(), found[2].to_owned()));
            return None;
        }
        if line.ends_with(": At top level:") {
            self.context = None;
            return None;
        }
        // kvet's own fragments override each other in .config; make complains of
        // clocks and job servers.
        if line.starts_with(".config:") || line.starts_with("make") && !line.contains('/') {
            return None;
        }
        if let Some(found) = COMPILER.captures(line) {
            let kind = found.get(5).map_or("compiler", |kind| kind.as_str());
            let function = self.context.as_ref().filter(|_| kind != "-Wcpp");
            let number = |at| found.get(at).and_then(|digits| digits.as_str().parse().ok());
            return Some(Warning {
                identity: identity(
                    &found[1],
                    function.map(|(_, name)| name.as_str()),
                    kind,
                    &found[4],
                ),
                line: number(2).unwrap_or(0),
                column: number(3).unwrap_or(0),
            });
        }
        let plain = |identity| Some(Warning { identity, line: 0, column: 0 });
        if let Some(found) = MODPOST.captures(line) {
            let kind = found.get(1).map_or("build", |kind| kind.as_str());
            let file = found.get(2).map_or("", |file| file.as_str());
            return plain(identity(file, None, kind, &found[3]));
        }
        let found = TOOL.captures(line)?;
        if found.get(2).is_some() {
            let (function, text) = match OBJTOOL.captures(&found[3]) {
                Some(inner) => (Some(inner[1].to_owned()), inner[2].to_owned()),
                None => (None, found[3].to_owned()),
            };
            return plain(identity(&found[1], function.as_deref(), "objtool", &text));
        }
        plain(identity(&found[1], None, "build", &found[3]))
    }

    /// Forgets the lines before: another tool begins.
    pub fn step(&mut self) {
        self.context = None;
    }
}

fn identity(file: &str, function: Option<&str>, kind: &str, text: &str) -> Identity {
    let text = PLACES.replace_all(text, "$1$2$3");
    Identity {
        file: file.trim_start_matches("./").to_owned(),
        function: function.map(str::to_owned),
        kind: kind.to_owned(),
        text: text.chars().take(MAX_TEXT).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<Warning> {
        let mut reader = Reader::default();
        text.lines().filter_map(|line| reader.line(line)).collect()
    }

    #[test]
    fn gccs_warnings_have_their_function() {
        let log = "In file included from mm/a.c:3:\nmm/a.c: In function 'f':\nmm/a.c:12:6: warning: unused variable 'x' [-Wunused-variable]\n   12 |  int x;\n      |      ^\nmm/a.c: At top level:\nmm/a.c:20:13: warning: 'g' defined but not used [-Wunused-function]\n";
        let found = read(log);
        assert_eq!(found[0].to_string(), "mm/a.c:12: f: unused variable 'x' [-Wunused-variable]");
        assert_eq!(found[1].to_string(), "mm/a.c:20: 'g' defined but not used [-Wunused-function]");
        assert_eq!((found[0].column, found.len()), (6, 2));
    }

    #[test]
    fn inlined_functions_and_errors_that_are_warnings_are_read() {
        let log = "In function 'g',\n    inlined from 'f' at mm/a.c:7:2:\n./include/x.h:9:1: warning: call to 'h' declared with attribute warning: no [-Wattribute-warning]\nmm/a.c:1:1: error: x [-Werror=y]\n";
        let found = read(log);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].identity.file, "include/x.h");
    }

    #[test]
    fn other_tools_are_read() {
        let log = "mm/a.S:4: Warning: no instruction mnemonic suffix given\nmm/a.o: warning: objtool: f()+0x1c: unreachable instruction\nWARNING: modpost: vmlinux: section mismatch in reference: f+0x12 (section: .text) -> g (section: .init.text)\nld: warning: a.o: missing .note.GNU-stack section implies executable stack\nmm/Kconfig:9:warning: prompt redefined\nWARNING: unmet direct dependencies detected for X\n.config:9:warning: override: y\nmake[2]: warning:  Clock skew detected.\n";
        let shown: Vec<String> = read(log).iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "mm/a.S:4: no instruction mnemonic suffix given (compiler)",
                "mm/a.o: f: unreachable instruction (objtool)",
                "vmlinux: section mismatch in reference: f (section: .text) -> g (section: .init.text) (modpost)",
                "ld: a.o: missing .note.GNU-stack section implies executable stack (build)",
                "mm/Kconfig:9: prompt redefined (compiler)",
                "unmet direct dependencies detected for X (build)",
            ]
        );
    }

    #[test]
    fn a_message_with_places_is_the_same_when_these_move() {
        let at = |line: u32| {
            read(&format!(
                "mm/a.c:{line}:1: warning: redefined, see mm/b.h:{line}:3 and line {line} [-Wx]"
            ))
        };
        assert_eq!(at(3)[0].identity, at(99)[0].identity);
        assert_ne!(at(3), at(99));
    }

    proptest! {
        #[test]
        fn what_a_compiler_writes_is_read_back(
            file in "[a-z]{1,8}/[a-z_0-9]{1,12}\\.[ch]",
            function in proptest::option::of("[a-z_][a-z0-9_]{0,20}"),
            line in 1u32..999_999,
            column in proptest::option::of(1u32..999),
            text in "[a-zA-Z'(*), ]{0,40}[a-z']",
            kind in "-W[a-z][a-z-]{0,20}[a-z](=[0-9])?",
            clang in any::<bool>(),
        ) {
            let place = column.map_or(format!("{line}"), |column| format!("{line}:{column}"));
            let function = function.filter(|_| !clang);
            let head = function.as_ref().map_or(String::new(), |name| format!("{file}: In function '{name}':\n"));
            let found = read(&format!("{head}{file}:{place}: warning: {text} [{kind}]\n  1 | x\n    | ^\n"));
            let expected = Warning {
                identity: Identity { file, function, kind, text },
                line,
                column: column.unwrap_or(0),
            };
            prop_assert_eq!(found, [expected]);
        }

        #[test]
        fn no_log_makes_the_reader_panic(text in "(mm/a.c|:|[0-9]{1,12}|[Ww]arning: |WARNING: | In function 'f':|objtool: |\\+0x1|\\[-W|\\]|é|\n){0,30}") {
            read(&text);
        }
    }
}
