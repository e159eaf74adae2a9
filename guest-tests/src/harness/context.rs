// SPDX-License-Identifier: MIT OR Apache-2.0
//! A test's side of a job: its parameters and what it reports.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kvet_records::{
    Better, MAX_LINE_BYTES, Outcome, Parameters, Record, TICK_METRIC, Value, valid_name,
};

use super::{Stop, TestResult, Why};

/// Longest reason of a skip or failure in bytes; the rest is cut off.
const MAX_REASON_BYTES: usize = 4096;

/// What a running test works with.
pub struct Context {
    parameters: Parameters,
    out: Box<dyn Write>,
    records: u64,
    /// What is written at the end; none where it is written at once.
    kept: Option<Vec<u8>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("parameters", &self.parameters)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// A context that writes its records to `out`.
    #[must_use]
    pub fn new(parameters: Parameters, out: Box<dyn Write>) -> Self {
        Self { parameters, out, records: 0, kept: None }
    }

    /// Keeps what is reported until the end: the world outside takes no part in what is
    /// measured.
    #[must_use]
    pub fn keeping(self) -> Self {
        Self { kept: Some(Vec::new()), ..self }
    }

    /// Reports a fact that must be the same in every boot of a variant.
    ///
    /// # Errors
    /// The name is not valid, or the record cannot be written.
    pub fn observe(&mut self, name: &str, value: impl Into<Value>) -> TestResult {
        check_name(name)?;
        self.send(&Record::Observation { name: name.to_owned(), value: value.into() })
    }

    /// Reports one measured number.
    ///
    /// # Errors
    /// A name is not valid, the number is not finite, or the record cannot be
    /// written.
    pub fn sample(
        &mut self,
        metric: &str,
        value: f64,
        unit: &str,
        better: Better,
        parameters: &Parameters,
    ) -> TestResult {
        self.sample_beside(metric, value, unit, better, parameters, &BTreeMap::new())
    }

    /// The same, with what else was counted meanwhile.
    ///
    /// # Errors
    /// As for [`Context::sample`].
    pub fn sample_beside(
        &mut self,
        metric: &str,
        value: f64,
        unit: &str,
        better: Better,
        parameters: &Parameters,
        beside: &BTreeMap<String, i64>,
    ) -> TestResult {
        check_name(metric)?;
        parameters.keys().chain(beside.keys()).try_for_each(|name| check_name(name))?;
        if !value.is_finite() {
            return Err(Stop::fail(format!("sample of {metric} is {value}")));
        }
        self.send(&Record::Sample {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            better,
            parameters: parameters.clone(),
            value,
            beside: beside.clone(),
        })
    }

    /// Reports what a timer tick costs in this kernel, in instructions.
    ///
    /// # Errors
    /// As for [`Context::sample`].
    pub fn tick_cost(&mut self, instructions: f64) -> TestResult {
        let none = Parameters::new();
        self.sample(TICK_METRIC, instructions, "instructions", Better::Lower, &none)
    }

    /// Reports a line for people.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn log(&mut self, text: impl Into<String>) -> TestResult {
        self.send(&Record::Log { text: text.into() })
    }

    /// Reports that a named part of the test cannot run here; the test goes on.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn skip_part(&mut self, reason: impl Into<String>) -> TestResult {
        self.send(&Record::Skip { reason: reason.into() })
    }

    /// Skips the whole test unless what it needs is there.
    ///
    /// # Errors
    /// The skip.
    pub fn require(&self, there: bool, reason: impl Into<String>) -> TestResult {
        if there { Ok(()) } else { Err(Stop::skip(reason)) }
    }

    /// A parameter that is a number in the range of `T`.
    ///
    /// # Errors
    /// The test has no such parameter, or the number does not fit.
    pub fn integer<T: TryFrom<i64>>(&self, name: &str) -> TestResult<T> {
        match self.parameters.get(name) {
            Some(&Value::Integer(value)) => {
                T::try_from(value).ok().why(format_args!("parameter {name} cannot be {value}"))
            }
            other => Err(Stop::fail(format!("parameter {name} is {other:?}, not a number"))),
        }
    }

    /// A parameter that is a yes or no.
    ///
    /// # Errors
    /// The test has no such parameter.
    pub fn flag(&self, name: &str) -> TestResult<bool> {
        match self.parameters.get(name) {
            Some(&Value::Bool(value)) => Ok(value),
            other => Err(Stop::fail(format!("parameter {name} is {other:?}, not true or false"))),
        }
    }

    /// A parameter that is a word.
    ///
    /// # Errors
    /// The test has no such parameter.
    pub fn text(&self, name: &str) -> TestResult<String> {
        match self.parameters.get(name) {
            Some(Value::Text(value)) => Ok(value.clone()),
            other => Err(Stop::fail(format!("parameter {name} is {other:?}, not a word"))),
        }
    }

    /// A parameter that is a size, such as `32MiB`, in bytes.
    ///
    /// # Errors
    /// The test has no such parameter, or it is no size.
    pub fn bytes(&self, name: &str) -> TestResult<usize> {
        let text = self.text(name)?;
        let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
        let shift = match unit {
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            _ => return Err(Stop::fail(format!("parameter {name} is {text:?}, not as 32MiB"))),
        };
        let number: usize = number.parse().why(format_args!("parameter {name} is {text:?}"))?;
        let bytes = number.checked_mul(1 << shift).filter(|&bytes| bytes > 0);
        bytes.why(format_args!("parameter {name} cannot be {text}"))
    }

    /// A parameter that is a list of words, parted by commas.
    ///
    /// # Errors
    /// The test has no such parameter, or it has an empty word.
    pub fn words(&self, name: &str) -> TestResult<Vec<String>> {
        let text = self.text(name)?;
        let words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
        let whole = words.iter().all(|word| !word.is_empty());
        whole.then_some(words).why(format_args!("parameter {name} is {text:?}, not a list"))
    }

    /// A parameter that is a list of numbers in the range of `T`, parted by commas.
    ///
    /// # Errors
    /// The test has no such parameter, or a number does not fit.
    pub fn integers<T: std::str::FromStr>(&self, name: &str) -> TestResult<Vec<T>> {
        let number = |word: &String| {
            word.parse().ok().why(format_args!("parameter {name} cannot hold {word:?}"))
        };
        self.words(name)?.iter().map(number).collect()
    }

    /// Writes one record, in one write, so that a test killed at any moment has
    /// sent whole lines, as far as a pipe allows.
    fn send(&mut self, record: &Record) -> TestResult {
        self.write(record)?;
        self.records += 1;
        Ok(())
    }

    fn write(&mut self, record: &Record) -> TestResult {
        let mut line = serde_json::to_vec(record).why("write record")?;
        if line.len() > MAX_LINE_BYTES {
            return Err(Stop::fail(format!("record of {} bytes is too long", line.len())));
        }
        line.push(b'\n');
        match &mut self.kept {
            Some(kept) => {
                kept.extend(line);
                Ok(())
            }
            None => self.out.write_all(&line).why("write record"),
        }
    }

    /// Runs `run`, then reports how it ended.
    pub(super) fn finish(
        mut self,
        job: &str,
        run: impl FnOnce(&mut Self) -> TestResult,
    ) -> TestResult {
        let result = catch_unwind(AssertUnwindSafe(|| run(&mut self)))
            .unwrap_or_else(|panic| Err(Stop::fail(format!("panicked: {}", message(&*panic)))));
        if let Some(kept) = self.kept.take() {
            self.out.write_all(&kept).why("write records")?;
        }
        let outcome = match result {
            Ok(()) => Outcome::Completed,
            Err(Stop::Skip(reason)) => {
                self.send(&Record::Skip { reason: one_line(&reason) })?;
                Outcome::Skipped
            }
            Err(Stop::Fail(reason)) => Outcome::Failed { reason: one_line(&reason) },
        };
        let records = self.records;
        self.write(&Record::End { job: job.to_owned(), records, outcome })
    }
}

fn check_name(name: &str) -> TestResult {
    valid_name(name).then_some(()).why(format_args!("{name:?} is not a valid name"))
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// `reason` on one line and not too long.
fn one_line(reason: &str) -> String {
    let mut line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    while line.len() > MAX_REASON_BYTES {
        line.pop();
    }
    line
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::io;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Default)]
    pub struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shared {
        pub fn records(&self) -> Vec<Record> {
            let bytes = self.0.borrow();
            let text = std::str::from_utf8(&bytes).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    fn records_of(run: fn(&mut Context) -> TestResult) -> Vec<Record> {
        let out = Shared::default();
        Context::new(Parameters::new(), Box::new(out.clone())).finish("j", run).unwrap();
        out.records()
    }

    fn end(records: u64, outcome: Outcome) -> Record {
        Record::End { job: "j".into(), records, outcome }
    }

    #[test]
    fn a_test_ends_with_the_count_of_its_records() {
        let records = records_of(|context| {
            context.observe("a.b", true)?;
            context.log("hello")?;
            context.sample("m", 1.5, "ns", Better::Lower, &Parameters::new())
        });
        assert_eq!(records.len(), 4);
        assert_eq!(records[3], end(3, Outcome::Completed));
    }

    #[test]
    fn a_skip_says_why() {
        let records = records_of(|context| context.require(false, "no\nswap"));
        assert_eq!(records[0], Record::Skip { reason: "no swap".into() });
        assert_eq!(records[1], end(1, Outcome::Skipped));
    }

    #[test]
    fn a_panic_is_a_failure_with_its_message() {
        let records = records_of(|_| panic!("out of {}", "luck"));
        assert_eq!(records, [end(0, Outcome::Failed { reason: "panicked: out of luck".into() })]);
    }

    #[test]
    fn bad_names_numbers_and_lengths_fail_the_test() {
        for run in [
            (|context| context.observe("A", true)) as fn(&mut Context) -> TestResult,
            |context| context.sample("m", f64::NAN, "ns", Better::Lower, &Parameters::new()),
            |context| context.log("x".repeat(MAX_LINE_BYTES)),
        ] {
            let records = records_of(run);
            assert!(matches!(records[..], [Record::End { outcome: Outcome::Failed { .. }, .. }]));
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let line = one_line(&"é".repeat(MAX_REASON_BYTES));
        assert!(line.len() <= MAX_REASON_BYTES && !line.is_empty());
    }
}
