// SPDX-License-Identifier: MIT OR Apache-2.0
//! The versioned job and record types that `kvet` and its guests exchange.
//!
//! Two virtio-serial ports carry JSON lines, each in one direction. The host
//! queues one [`Job`] on [`JOB_PORT`] before or after the guest starts; the
//! guest answers with [`Record`]s on [`RECORDS_PORT`]. A job's records are
//! `start`, then any number of `observation`, `sample`, `output`, `log` and
//! `skip`, then one `end` that says how many there were. Without a matching `end` there is
//! no result. `hello` comes once in a guest's life, `heartbeat` at any time
//! outside a counted window.
//!
//! The host treats everything that arrives as untrusted; the limits below are
//! the ones that it enforces, and a well-behaved guest keeps to them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Version of the job and record types. Host and guest refuse another one.
pub const PROTOCOL_VERSION: u32 = 1;

/// Name of the virtio-serial port that carries the job, host to guest.
pub const JOB_PORT: &str = "kvet.job";

/// Name of the virtio-serial port that carries records, guest to host.
pub const RECORDS_PORT: &str = "kvet.records";

/// Longest line in bytes, line end excluded, in either direction.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// Longest line of a program's output in bytes; the rest of a longer one is dropped.
pub const MAX_OUTPUT_LINE_BYTES: usize = 4096;

/// Most lines of a program's output that are passed on.
pub const MAX_OUTPUT_LINES: u64 = 50_000;

/// Most bytes of records that a program's output may come to.
pub const MAX_OUTPUT_BYTES: usize = 8 * 1024 * 1024;

/// The measure that counts a guest's instructions ([`Job::measure`]).
pub const MEASURE_INSTRUCTIONS: &str = "instructions";

/// Name of the metric that says what a timer tick costs, in instructions.
pub const TICK_METRIC: &str = "timer.tick";

/// How the text of each `log` record begins that describes the machine before
/// the test: `environment.NAME = VALUE`.
pub const ENVIRONMENT_PREFIX: &str = "environment.";

/// Most records that one job may produce.
pub const MAX_RECORDS: u64 = 100_000;

/// Longest name of a test, observation, metric or parameter in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Parameters of a job or of a sample by name, such as `vlen` = 64.
pub type Parameters = BTreeMap<String, Value>;

/// What the guest is to do: one test or program, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`PROTOCOL_VERSION`] of the sender.
    pub protocol: u32,
    /// Chosen by the host; `start` and `end` repeat it.
    pub id: String,
    /// Name of the test.
    pub test: String,
    /// The test's parameters; one that the test does not know is an error.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: Parameters,
    /// How samples are to be obtained, such as [`MEASURE_INSTRUCTIONS`]; absent for
    /// behaviour only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<String>,
    /// Guest time in nanoseconds by which a counted window is shifted.
    #[serde(default)]
    pub offset_ns: u64,
    /// Guest time in milliseconds since its boot (`CLOCK_BOOTTIME`) at which the job
    /// starts, so that it does not matter when the machine was saved or when the job
    /// came; one that comes too late fails. Absent: as soon as it comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at_ms: Option<u64>,
    /// The program to run instead of one of the guest binary's own tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
}

/// A program in the guest's initramfs. What it writes to standard output comes
/// as `output` records, what it writes to standard error as `log` records; it
/// has no standard input. It passes by exit status 0, which `end` calls
/// [`Outcome::Completed`]; any other end comes as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Absolute path in the guest.
    pub path: String,
    /// Arguments after the program's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// The whole environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// What its results are read from.
    pub format: Format,
}

/// What a program's results are read from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Its exit status alone. Output beyond the limits is dropped.
    #[default]
    Exit,
    /// TAP on standard output, and its exit status.
    Tap,
    /// KTAP on standard output, and its exit status.
    Ktap,
    /// Lines with the word `OK`, `PASS`, `FAIL` or `SKIP` on standard output, and
    /// its exit status.
    Words,
}

impl Format {
    /// Whether results are read from standard output, so that none of it may be
    /// lost.
    #[must_use]
    pub fn is_read(self) -> bool {
        !matches!(self, Self::Exit)
    }
}

/// An exact value: what a test observed, or a parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A yes or no.
    Bool(bool),
    /// A count, size or number.
    Integer(i64),
    /// A word.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

/// Which way a metric improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A smaller number is an improvement.
    Lower,
    /// A larger number is an improvement.
    Higher,
}

/// How a job's process came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The test ran to its end and stands by its observations.
    Completed,
    /// The test cannot run here; a `skip` record says why.
    Skipped,
    /// The test says why it failed.
    Failed {
        /// One line for people.
        reason: String,
    },
    /// The process ended with this exit status: a test that said nothing, or a
    /// program.
    Exited {
        /// Exit status, never 0.
        status: i32,
    },
    /// A signal ended the test's process.
    Killed {
        /// Number of the signal.
        signal: i32,
    },
}

/// One line from the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case", deny_unknown_fields)]
pub enum Record {
    /// The guest is up and reads its job next. Sent once.
    Hello {
        /// [`PROTOCOL_VERSION`] of the guest.
        protocol: u32,
        /// Kernel release, as in `uname -r`.
        release: String,
        /// Kernel command line, as in /proc/cmdline.
        command_line: String,
    },
    /// The job's test begins.
    Start {
        /// [`Job::id`].
        job: String,
        /// [`Job::test`].
        test: String,
    },
    /// A behavioural fact that must be the same in every boot of a variant.
    Observation {
        /// Dotted name, unit last, such as `kicks.cold`; see [`valid_name`].
        name: String,
        /// The fact.
        value: Value,
    },
    /// One measured number.
    Sample {
        /// Name of the metric; see [`valid_name`].
        metric: String,
        /// Unit of `value`, such as `ns`.
        unit: String,
        /// Which way the metric improves.
        better: Better,
        /// What distinguishes this sample from others of the metric.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        parameters: Parameters,
        /// The number; finite.
        value: f64,
        /// What else was counted while it was measured, such as `ticks`: names as of
        /// observations.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        beside: BTreeMap<String, i64>,
    },
    /// A line that the job's program wrote to standard output.
    Output {
        /// The line without its end; what is not UTF-8 is replaced.
        text: String,
    },
    /// A line for people; no verdict rests on it.
    Log {
        /// The line.
        text: String,
    },
    /// The test, or a named part of it, cannot run here.
    Skip {
        /// One line for people: what is missing.
        reason: String,
    },
    /// The job is done.
    End {
        /// [`Job::id`].
        job: String,
        /// Number of records since `start`, heartbeats excepted.
        records: u64,
        /// How the job's process ended.
        outcome: Outcome,
    },
    /// The guest lives. Never sent inside a counted window.
    Heartbeat {
        /// Guest uptime in milliseconds.
        uptime_ms: u64,
    },
}

/// Whether `name` may name a test, observation, metric or parameter.
///
/// A name is one or more parts joined by dots, each of ASCII lower-case
/// letters, digits and underscores, with a letter first in the whole name and
/// at most [`MAX_NAME_BYTES`] bytes in all. Such a name is safe in a path.
#[must_use]
pub fn valid_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.split('.').all(|part| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        })
}

/// One part of a name (see [`valid_name`]): lower case, every run of other bytes
/// one `_`, a letter first. None if nothing of the text is left.
#[must_use]
pub fn name_part(text: &str) -> Option<String> {
    let mut out = String::new();
    for c in text.chars() {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => out.push(c),
            _ if !out.is_empty() && !out.ends_with('_') => out.push('_'),
            _ => {}
        }
    }
    let out = out.trim_end_matches('_');
    match out.bytes().next() {
        None => None,
        Some(b'a'..=b'z') => Some(out.to_owned()),
        Some(_) => Some(format!("t_{out}")),
    }
}

/// A parameter that a test takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterInfo {
    /// Name; see [`valid_name`].
    pub name: String,
    /// One line for people, with the unit.
    pub summary: String,
    /// Value when the plan gives none.
    pub default: Value,
}

/// What a guest binary says of one of its tests (`list` on its command line
/// prints a JSON array of these).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestInfo {
    /// Name; see [`valid_name`].
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// Parameters that the test takes.
    pub parameters: Vec<ParameterInfo>,
    /// Parameters that it takes when it measures; absent if it measures nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Vec<ParameterInfo>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_could_leave_a_folder_are_refused() {
        for name in ["", ".", "..", "a/b", "a..b", "a.", ".a", "A", "a b", "a\n", "1a", "é"] {
            assert!(!valid_name(name), "{name:?}");
        }
        assert!(!valid_name(&"a".repeat(MAX_NAME_BYTES + 1)));
        for name in ["a", "kicks.cold.advised", "flushes.dontneed.vlen_64", "a.1"] {
            assert!(valid_name(name), "{name:?}");
        }
    }

    #[test]
    fn any_text_gives_a_part_of_a_name_or_none() {
        assert_eq!(name_part("Basic COW (2 MiB)").as_deref(), Some("basic_cow_2_mib"));
        assert_eq!(name_part("4 kB").as_deref(), Some("t_4_kb"));
        assert_eq!(name_part(" --é-- "), None);
    }

    #[test]
    fn a_program_is_part_of_its_job_on_the_wire() {
        let line = r#"{"protocol":1,"id":"j","test":"t","offset_ns":0,"program":{"path":"/bin/a","arguments":["-x"],"format":"tap"}}"#;
        let job: Job = serde_json::from_str(line).unwrap();
        assert_eq!(job.program.as_ref().unwrap().format, Format::Tap);
        assert_eq!(serde_json::to_string(&job).unwrap(), line);
        assert!(serde_json::from_str::<Job>(&line.replace("arguments", "argv")).is_err());
    }

    #[test]
    fn the_wire_format_is_the_documented_one() {
        let line = serde_json::to_string(&Record::Observation {
            name: "kicks.cold".into(),
            value: 5u32.into(),
        })
        .unwrap();
        assert_eq!(line, r#"{"record":"observation","name":"kicks.cold","value":5}"#);
        let end =
            Record::End { job: "j".into(), records: 3, outcome: Outcome::Killed { signal: 11 } };
        assert_eq!(
            serde_json::to_string(&end).unwrap(),
            r#"{"record":"end","job":"j","records":3,"outcome":{"killed":{"signal":11}}}"#
        );
    }

    #[test]
    fn unknown_kinds_and_fields_are_errors() {
        for line in [
            r#"{"record":"verdict"}"#,
            r#"{"record":"heartbeat","uptime_ms":1,"extra":2}"#,
            r#"{"record":"heartbeat"}"#,
            r#"{"record":"observation","name":"a","value":1.5}"#,
        ] {
            assert!(serde_json::from_str::<Record>(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn observations_survive_the_wire(name in "[a-z][a-z0-9_]{0,9}", number in any::<i64>(), text in any::<String>()) {
            for value in [Value::Integer(number), Value::Text(text)] {
                let record = Record::Observation { name: name.clone(), value };
                let line = serde_json::to_string(&record).unwrap();
                prop_assert!(!line.contains('\n'));
                prop_assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
            }
        }
    }
}
