// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's records, read as what they are: untrusted bytes.
//!
//! [`Session`] takes bytes and holds what the guest reported. It does no I/O.
//! The first violation of the protocol ends it: nothing that a guest says after
//! that is believed.

use std::collections::BTreeMap;

use kvet_records::{
    Better, Job, MAX_LINE_BYTES, MAX_RECORDS, Outcome, PROTOCOL_VERSION, Parameters, Record, Value,
    valid_name,
};
use serde::{Deserialize, Serialize};

use crate::fault::escape;
use crate::host::lines::LineSplitter;

/// Most bytes that one guest may send. kvet's own tests send a few kilobytes.
const MAX_TOTAL_BYTES: usize = 16 * 1024 * 1024;
/// Longest text of an observation in bytes; longer ones belong in a log.
const MAX_TEXT_BYTES: usize = 4096;
/// Longest unit of a sample in bytes.
const MAX_UNIT_BYTES: usize = 32;
/// Largest magnitude of a sample: 2^60, far above any count of instructions or
/// nanoseconds in a boot, and small enough to survive arithmetic in f64.
const MAX_SAMPLE: f64 = (1u64 << 60) as f64;
/// How much of an offending line a message shows, in bytes.
const SHOWN_BYTES: usize = 160;

/// One measured number from a guest, checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the metric.
    pub metric: String,
    /// Unit of `value`.
    pub unit: String,
    /// Which way the metric improves.
    pub better: Better,
    /// What distinguishes this sample from others of the metric.
    pub parameters: Parameters,
    /// The number.
    pub value: f64,
    /// What else was counted meanwhile.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, i64>,
}

/// What a guest reported for its job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Kernel release by `hello`.
    pub release: Option<String>,
    /// Behavioural facts by name.
    pub observations: BTreeMap<String, Value>,
    /// Measured numbers in the order of their arrival.
    pub samples: Vec<Sample>,
    /// Lines that a program wrote to standard output, as they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// Lines for people.
    pub logs: Vec<String>,
    /// Reasons for what was not run.
    pub skips: Vec<String>,
    /// How the job ended; without it there is no result.
    pub outcome: Option<Outcome>,
}

/// How far a guest has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing was heard.
    Silent,
    /// `hello` came.
    Up,
    /// `start` came.
    Running,
    /// `end` came.
    Ended,
}

/// A guest broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What it did.
    pub what: String,
    /// The offending line, escaped and cut.
    pub line: String,
}

/// The state of one guest's records.
#[derive(Debug)]
pub struct Session {
    job: Job,
    splitter: LineSplitter,
    bytes: usize,
    records: u64,
    stage: Stage,
    heartbeats: u64,
    report: Report,
    violation: Option<Violation>,
}

impl Session {
    /// A session that expects the records of `job`.
    #[must_use]
    pub fn new(job: Job) -> Self {
        Self {
            job,
            splitter: LineSplitter::new(MAX_LINE_BYTES + 1),
            bytes: 0,
            records: 0,
            stage: Stage::Silent,
            heartbeats: 0,
            report: Report::default(),
            violation: None,
        }
    }

    /// How far the guest has come.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Heartbeats so far.
    #[must_use]
    pub fn heartbeats(&self) -> u64 {
        self.heartbeats
    }

    /// Whether the last line that came is whole.
    #[must_use]
    pub fn between_records(&self) -> bool {
        self.splitter.is_empty()
    }

    /// The first violation, if there was one.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// What the guest reported up to now, or to its violation.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Takes bytes from the guest.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.violation.is_some() {
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > MAX_TOTAL_BYTES {
            return self.refuse(format!("more than {MAX_TOTAL_BYTES} bytes of records"), b"");
        }
        let mut lines = Vec::new();
        self.splitter.push(bytes, |line| lines.push(line));
        for line in lines {
            if line.cut || line.bytes.len() > MAX_LINE_BYTES {
                return self
                    .refuse(format!("a line of more than {MAX_LINE_BYTES} bytes"), &line.bytes);
            }
            if let Err(what) = self.line(&line.bytes) {
                return self.refuse(what, &line.bytes);
            }
        }
    }

    /// The stream ended: a line without its end was cut.
    pub fn finish(&mut self) {
        if let Some(line) = self.splitter.finish()
            && self.violation.is_none()
        {
            self.refuse("the last line has no end".to_owned(), &line.bytes);
        }
    }

    fn refuse(&mut self, what: String, line: &[u8]) {
        let shown = &line[..line.len().min(SHOWN_BYTES)];
        let mut line = escape_bytes(shown);
        if shown.len() == SHOWN_BYTES {
            line.push('…');
        }
        self.violation = Some(Violation { what, line });
        self.report.outcome = None;
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
        if text.contains('\0') {
            return Err("a NUL byte".to_owned());
        }
        let record: Record = serde_json::from_str(text)
            .map_err(|error| format!("not a record: {}", escape(&error.to_string())))?;
        self.record(record)
    }

    fn record(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Hello { protocol, release, command_line } => {
                self.hello(protocol, release, &command_line)
            }
            Record::Heartbeat { .. } => {
                self.expect_at_least(Stage::Up, "a heartbeat before hello")?;
                self.heartbeats += 1;
                Ok(())
            }
            Record::Start { job, test } => self.start(&job, &test),
            Record::End { job, records, outcome } => self.end(&job, records, outcome),
            Record::Observation { name, value } => {
                self.count("an observation")?;
                self.observation(name, value)
            }
            Record::Sample { metric, unit, better, parameters, value, beside } => {
                self.count("a sample")?;
                let sample = Sample { metric, unit, better, parameters, value, beside };
                check_sample(&sample)?;
                self.report.samples.push(sample);
                Ok(())
            }
            Record::Output { text } => {
                self.count("a line of output")?;
                if self.job.program.is_none() {
                    return Err("output of a program that was not asked for".to_owned());
                }
                self.report.output.push(text);
                Ok(())
            }
            Record::Log { text } => {
                self.count("a log line")?;
                self.report.logs.push(escape(&text));
                Ok(())
            }
            Record::Skip { reason } => {
                self.count("a skip")?;
                self.report.skips.push(escape(&reason));
                Ok(())
            }
        }
    }

    fn hello(&mut self, protocol: u32, release: String, command_line: &str) -> Result<(), String> {
        if self.stage != Stage::Silent {
            return Err("a second hello".to_owned());
        }
        if protocol != PROTOCOL_VERSION {
            return Err(format!("protocol {protocol}, but this kvet speaks {PROTOCOL_VERSION}"));
        }
        if release.len() > 128 || command_line.len() > 4096 {
            return Err("a hello that is too long".to_owned());
        }
        self.stage = Stage::Up;
        self.report.release = Some(escape(&release));
        Ok(())
    }

    fn start(&mut self, job: &str, test: &str) -> Result<(), String> {
        if self.stage != Stage::Up {
            return Err("start out of order".to_owned());
        }
        if job != self.job.id || test != self.job.test {
            return Err("start of another job".to_owned());
        }
        self.stage = Stage::Running;
        Ok(())
    }

    fn end(&mut self, job: &str, records: u64, outcome: Outcome) -> Result<(), String> {
        // A job that the guest refuses ends without having started.
        if self.stage != Stage::Running && self.stage != Stage::Up {
            return Err("end out of order".to_owned());
        }
        if job != self.job.id {
            return Err("end of another job".to_owned());
        }
        if records != self.records {
            return Err(format!("end counts {records} records, but {} arrived", self.records));
        }
        if self.stage == Stage::Up && matches!(outcome, Outcome::Completed) {
            return Err("completed without a start".to_owned());
        }
        self.stage = Stage::Ended;
        self.report.outcome = Some(match outcome {
            Outcome::Failed { reason } => Outcome::Failed { reason: escape(&reason) },
            other => other,
        });
        Ok(())
    }

    fn observation(&mut self, name: String, value: Value) -> Result<(), String> {
        if !valid_name(&name) {
            return Err("an observation's name that is none".to_owned());
        }
        check_value(&value)?;
        if self.report.observations.insert(name.clone(), value).is_some() {
            return Err(format!("{name} observed twice"));
        }
        Ok(())
    }

    fn count(&mut self, what: &str) -> Result<(), String> {
        if self.stage != Stage::Running {
            return Err(format!("{what} outside of a job"));
        }
        self.records += 1;
        if self.records > MAX_RECORDS {
            return Err(format!("more than {MAX_RECORDS} records"));
        }
        Ok(())
    }

    fn expect_at_least(&self, stage: Stage, what: &str) -> Result<(), String> {
        if self.stage < stage { Err(what.to_owned()) } else { Ok(()) }
    }
}

fn check_value(value: &Value) -> Result<(), String> {
    match value {
        Value::Text(text) if text.len() > MAX_TEXT_BYTES => {
            Err(format!("a text of more than {MAX_TEXT_BYTES} bytes"))
        }
        Value::Text(text) if text.chars().any(char::is_control) => {
            Err("a control character in a text".to_owned())
        }
        Value::Text(_) | Value::Integer(_) | Value::Bool(_) => Ok(()),
    }
}

fn check_sample(sample: &Sample) -> Result<(), String> {
    if !valid_name(&sample.metric) {
        return Err("a metric's name that is none".to_owned());
    }
    if !sample.value.is_finite() || sample.value.abs() > MAX_SAMPLE {
        return Err(format!("{} is not a number that can be measured", sample.value));
    }
    let unit = &sample.unit;
    if unit.is_empty()
        || unit.len() > MAX_UNIT_BYTES
        || !unit.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err("a unit that is none".to_owned());
    }
    for (name, value) in &sample.parameters {
        if !valid_name(name) {
            return Err("a parameter's name that is none".to_owned());
        }
        check_value(value)?;
    }
    Ok(())
}

/// Bytes for people: printable ASCII as it is, everything else as `\x..`.
fn escape_bytes(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn job() -> Job {
        Job {
            protocol: PROTOCOL_VERSION,
            id: "j1".into(),
            test: "t".into(),
            parameters: Parameters::new(),
            measure: None,
            offset_ns: 0,
            start_at_ms: None,
            program: None,
        }
    }

    const HELLO: &str = r#"{"record":"hello","protocol":1,"release":"6.12.1","command_line":"x"}"#;
    const START: &str = r#"{"record":"start","job":"j1","test":"t"}"#;

    fn end(records: u64) -> String {
        format!(r#"{{"record":"end","job":"j1","records":{records},"outcome":"completed"}}"#)
    }

    fn session(lines: &[&str]) -> Session {
        let mut session = Session::new(job());
        for line in lines {
            session.push(format!("{line}\n").as_bytes());
        }
        session.finish();
        session
    }

    #[test]
    fn a_whole_job_is_read() {
        let done = session(&[
            HELLO,
            r#"{"record":"heartbeat","uptime_ms":5}"#,
            START,
            r#"{"record":"observation","name":"kicks.cold","value":5}"#,
            r#"{"record":"sample","metric":"latency","unit":"ns","better":"lower","parameters":{"vlen":64},"value":1.5}"#,
            r#"{"record":"log","text":"a\u001b[2Jb"}"#,
            &end(3),
        ]);
        assert_eq!(done.violation(), None);
        assert_eq!(done.report().outcome, Some(Outcome::Completed));
        assert_eq!(done.report().observations["kicks.cold"], Value::Integer(5));
        assert_eq!(done.report().logs, ["a\\u{1b}[2Jb"]);
        assert_eq!(done.heartbeats(), 1);
    }

    #[test]
    fn what_a_guest_must_not_do_is_refused_with_the_bytes_shown() {
        let long = format!(r#"{{"record":"log","text":"{}"}}"#, "x".repeat(MAX_LINE_BYTES));
        let cases: &[(&[&str], &str)] = &[
            (&[START], "start out of order"),
            (&[HELLO, HELLO], "a second hello"),
            (
                &[HELLO, START, r#"{"record":"output","text":"ok 1 a"}"#],
                "output of a program that was not asked for",
            ),
            (&[HELLO, START, &end(1)], "end counts 1 records, but 0 arrived"),
            (&[HELLO, &end(0)], "completed without a start"),
            (&[HELLO, START, &end(0), &end(0)], "end out of order"),
            (&[HELLO, r#"{"record":"log","text":"x"}"#], "a log line outside of a job"),
            (&[HELLO, r#"{"record":"start","job":"other","test":"t"}"#], "start of another job"),
            (
                &[HELLO, START, r#"{"record":"observation","name":"a/../b","value":1}"#],
                "an observation's name that is none",
            ),
            (
                &[HELLO, START, r#"{"record":"observation","name":"a","value":"x\u0007"}"#],
                "a control character in a text",
            ),
            (
                &[
                    HELLO,
                    START,
                    r#"{"record":"observation","name":"a","value":1}"#,
                    r#"{"record":"observation","name":"a","value":1}"#,
                ],
                "a observed twice",
            ),
            (
                &[
                    HELLO,
                    START,
                    r#"{"record":"sample","metric":"m","unit":"ns","better":"lower","value":1e300}"#,
                ],
                "not a number that can be measured",
            ),
            (
                &[
                    HELLO,
                    START,
                    r#"{"record":"sample","metric":"m","unit":"","better":"lower","value":1}"#,
                ],
                "a unit that is none",
            ),
            (
                &[
                    HELLO,
                    START,
                    r#"{"record":"sample","metric":"m","unit":"ns","better":"lower","value":NaN}"#,
                ],
                "not a record",
            ),
            (&[HELLO, START, r#"{"record":"verdict"}"#], "not a record"),
            (&[HELLO, START, &long], "a line of more than"),
            (&[r#"{"record":"hello","protocol":9,"release":"x","command_line":""}"#], "protocol 9"),
            (&["\0"], "a NUL byte"),
        ];
        for (lines, expected) in cases {
            let session = session(lines);
            let violation = session.violation().unwrap_or_else(|| panic!("accepted: {expected}"));
            assert!(violation.what.contains(expected), "{violation:?}, not {expected}");
            assert_eq!(session.report().outcome, None);
        }
        let mut bad = Session::new(job());
        bad.push(b"\xff\x1b[2J\n");
        assert_eq!(bad.violation().unwrap().line, r"\xff\x1b[2J");
    }

    #[test]
    fn a_torn_last_line_is_no_result() {
        let mut torn = Session::new(job());
        torn.push(format!("{HELLO}\n{START}\n{}", end(0)).as_bytes());
        torn.finish();
        assert_eq!(torn.report().outcome, None);
        assert!(torn.violation().is_some());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic_or_complete(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20)) {
            let mut session = Session::new(job());
            for chunk in &chunks {
                session.push(chunk);
            }
            session.finish();
            prop_assert_eq!(&session.report().outcome, &None);
        }

        #[test]
        fn how_the_bytes_arrive_does_not_matter(cuts in prop::collection::vec(0usize..300, 0..8)) {
            let text = format!("{HELLO}\n{START}\n{}\n{}\n", r#"{"record":"log","text":"é"}"#, end(1));
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut session = Session::new(job());
            for pair in cuts.windows(2) {
                session.push(&bytes[pair[0]..pair[1]]);
            }
            session.finish();
            prop_assert_eq!(&session.report().outcome, &Some(Outcome::Completed));
        }
    }
}
