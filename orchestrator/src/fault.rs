// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is to blame when there is no verdict, and what the process exits with.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whose a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    /// The user's input: a plan, a file that it names, or the command line.
    Plan,
    /// The host, QEMU, or a kernel that does not build without the series.
    Infra,
    /// The series does not apply or does not build.
    Series,
    /// The kernel panicked, oopsed or hung.
    Kernel,
    /// The guest test failed, died, or broke the protocol.
    Test,
    /// Nobody: the user stopped kvet.
    Interrupt,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plan => "plan",
            Self::Infra => "infra",
            Self::Series => "series",
            Self::Kernel => "kernel",
            Self::Test => "test",
            Self::Interrupt => "interrupt",
        })
    }
}

/// Why there is no verdict: whose fault, what happened, where, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Whose fault it is.
    pub blame: Blame,
    /// One lower-case line: what happened.
    pub what: String,
    /// `file`, `file:line` or `file:line:column` of the cause, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Evidence in several lines: compiler output, console, hunks. Control
    /// characters are escaped by [`Fault::evidence`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The series is already in the source (or, in reverse, is not there at
    /// all), so that there is nothing to do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nothing_to_do: bool,
}

impl Fault {
    /// A fault with nothing but its blame and its line.
    #[must_use]
    pub fn new(blame: Blame, what: impl Into<String>) -> Self {
        Self {
            blame,
            what: what.into(),
            place: None,
            evidence: Vec::new(),
            help: None,
            nothing_to_do: false,
        }
    }

    /// A fault of the user's input.
    #[must_use]
    pub fn plan(what: impl Into<String>) -> Self {
        Self::new(Blame::Plan, what)
    }

    /// A fault of the host or of what runs on it.
    #[must_use]
    pub fn infra(what: impl Into<String>) -> Self {
        Self::new(Blame::Infra, what)
    }

    /// A fault of the series under test.
    #[must_use]
    pub fn series(what: impl Into<String>) -> Self {
        Self::new(Blame::Series, what)
    }

    /// A fault of the kernel under test.
    #[must_use]
    pub fn kernel(what: impl Into<String>) -> Self {
        Self::new(Blame::Kernel, what)
    }

    /// A fault of the guest test.
    #[must_use]
    pub fn test(what: impl Into<String>) -> Self {
        Self::new(Blame::Test, what)
    }

    /// The user stopped kvet.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::new(Blame::Interrupt, "interrupted")
    }

    /// An infra fault from an I/O error, with what was being done.
    #[must_use]
    pub fn io(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        let fault = Self::infra(format!("{doing}: {error}"));
        match error.kind() {
            std::io::ErrorKind::StorageFull => {
                fault.help("make space on that file system and run again; finished work is kept")
            }
            std::io::ErrorKind::PermissionDenied => fault.help("check the folder's permissions"),
            _ => fault,
        }
    }

    /// Says where the cause is.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place = Some(place.to_string());
        self
    }

    /// Adds evidence, one entry for each line, control characters escaped.
    #[must_use]
    pub fn evidence(mut self, text: &str) -> Self {
        self.evidence.extend(text.lines().map(escape));
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Marks that there is nothing to do rather than something wrong.
    #[must_use]
    pub fn nothing_to_do(mut self) -> Self {
        self.nothing_to_do = true;
        self
    }

    /// What the process exits with when this is all that happened.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self.blame {
            _ if self.nothing_to_do => ExitCode::Inconclusive,
            Blame::Plan => ExitCode::Plan,
            Blame::Infra => ExitCode::Infra,
            Blame::Series => ExitCode::Series,
            Blame::Kernel => ExitCode::Kernel,
            Blame::Test => ExitCode::Test,
            Blame::Interrupt => ExitCode::Interrupted,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.place, self.nothing_to_do) {
            (Some(place), false) => write!(f, "{} fault: {place}: {}", self.blame, self.what)?,
            (None, false) => write!(f, "{} fault: {}", self.blame, self.what)?,
            (_, true) => write!(f, "nothing to do: {}", self.what)?,
        }
        for line in &self.evidence {
            write!(f, "\n    {line}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// Makes text from a guest, a patch or a tool harmless for a terminal: control
/// characters, and those that reorder text, become `\u{..}` escapes; a tab is kept.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let reorders = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if (character.is_control() && character != '\t') || reorders {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

/// What kvet exits with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
#[serde(into = "u8")]
#[serde(try_from = "u8")]
pub enum ExitCode {
    /// Acceptable.
    Acceptable = 0,
    /// Regressed, unexpected or missing behaviour, or an unlisted new splat.
    Behaviour = 1,
    /// Plan or usage error.
    Plan = 2,
    /// Infra fault.
    Infra = 3,
    /// Kernel fault.
    Kernel = 4,
    /// Series fault.
    Series = 5,
    /// Inconclusive, or identical without leave.
    Inconclusive = 6,
    /// Test fault.
    Test = 7,
    /// Interrupted.
    Interrupted = 130,
}

/// With several, the first of these wins; the report always shows all.
const PRECEDENCE: [ExitCode; 9] = [
    ExitCode::Interrupted,
    ExitCode::Plan,
    ExitCode::Infra,
    ExitCode::Series,
    ExitCode::Kernel,
    ExitCode::Test,
    ExitCode::Behaviour,
    ExitCode::Inconclusive,
    ExitCode::Acceptable,
];

impl ExitCode {
    /// The one of several that the process exits with.
    #[must_use]
    pub fn worst(codes: impl IntoIterator<Item = Self>) -> Self {
        let rank = |code: Self| PRECEDENCE.iter().position(|&other| other == code);
        codes.into_iter().min_by_key(|&code| rank(code)).unwrap_or(Self::Acceptable)
    }

    /// Short words for a report.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Acceptable => "acceptable",
            Self::Behaviour => "regressed, unexpected or missing behaviour",
            Self::Plan => "plan error",
            Self::Infra => "infra fault",
            Self::Kernel => "kernel fault",
            Self::Series => "series fault",
            Self::Inconclusive => "inconclusive or identical",
            Self::Test => "test fault",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<ExitCode> for u8 {
    fn from(code: ExitCode) -> Self {
        code as Self
    }
}

impl TryFrom<u8> for ExitCode {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        PRECEDENCE
            .into_iter()
            .find(|&code| code as u8 == number)
            .ok_or_else(|| format!("{number} is not an exit code of kvet"))
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_precedence_decides() {
        use ExitCode::*;
        assert_eq!(ExitCode::worst([]), Acceptable);
        assert_eq!(ExitCode::worst([Acceptable, Inconclusive]), Inconclusive);
        assert_eq!(ExitCode::worst([Inconclusive, Behaviour]), Behaviour);
        assert_eq!(ExitCode::worst([Behaviour, Test, Kernel]), Kernel);
        assert_eq!(ExitCode::worst([Kernel, Series]), Series);
        assert_eq!(ExitCode::worst([Series, Infra]), Infra);
        assert_eq!(ExitCode::worst([Infra, Plan]), Plan);
        assert_eq!(ExitCode::worst([Plan, Interrupted]), Interrupted);
    }

    #[test]
    fn evidence_cannot_reach_a_terminal_unescaped() {
        let fault = Fault::kernel("x").evidence("a\u{1b}[2Jb\u{202e}c\td");
        assert_eq!(fault.evidence, ["a\\u{1b}[2Jb\\u{202e}c\td"]);
    }
}
