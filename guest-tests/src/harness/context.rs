// SPDX-License-Identifier: MIT OR Apache-2.0
//! A test's side of a job: its parameters and what it reports.

use std::any::Any;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use kvet_records::{Better, Job, MAX_LINE_BYTES, Outcome, Parameters, Record, Value, valid_name};

use super::{Parameter, Stop, TestResult, Why};

/// Argument that makes the guest binary run one job, which is the next argument.
pub const TEST_ARGUMENT: &str = "test";

/// Longest reason of a skip or failure in bytes; the rest is cut off.
const MAX_REASON_BYTES: usize = 4096;

/// What a running test works with.
pub struct Context {
    parameters: Parameters,
    out: Box<dyn Write>,
    records: u64,
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
        Self {
            parameters,
            out,
            records: 0,
        }
    }

    /// Reports a fact that must be the same in every boot of a variant.
    ///
    /// # Errors
    /// The name is not valid, or the record cannot be written.
    pub fn observe(&mut self, name: &str, value: impl Into<Value>) -> TestResult {
        check_name(name)?;
        self.send(&Record::Observation {
            name: name.to_owned(),
            value: value.into(),
        })
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
        check_name(metric)?;
        parameters.keys().try_for_each(|name| check_name(name))?;
        if !value.is_finite() {
            return Err(Stop::fail(format!("sample of {metric} is {value}")));
        }
        self.send(&Record::Sample {
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            better,
            parameters: parameters.clone(),
            value,
        })
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
        self.send(&Record::Skip {
            reason: reason.into(),
        })
    }

    /// Skips the whole test unless what it needs is there.
    ///
    /// # Errors
    /// The skip.
    pub fn require(&self, there: bool, reason: impl Into<String>) -> TestResult {
        if there {
            Ok(())
        } else {
            Err(Stop::skip(reason))
        }
    }

    /// A parameter that is a number in the range of `T`.
    ///
    /// # Errors
    /// The test has no such parameter, or the number does not fit.
    pub fn integer<T: TryFrom<i64>>(&self, name: &str) -> TestResult<T> {
        match self.parameters.get(name) {
            Some(&Value::Integer(value)) => T::try_from(value)
                .ok()
                .why(format_args!("parameter {name} cannot be {value}")),
            other => Err(Stop::fail(format!(
                "parameter {name} is {other:?}, not a number"
            ))),
        }
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
            return Err(Stop::fail(format!(
                "record of {} bytes is too long",
                line.len()
            )));
        }
        line.push(b'\n');
        self.out.write_all(&line).why("write record")
    }

    /// Runs `run`, then reports how it ended.
    fn finish(mut self, job: &str, run: impl FnOnce(&mut Self) -> TestResult) -> TestResult {
        let result = catch_unwind(AssertUnwindSafe(|| run(&mut self)))
            .unwrap_or_else(|panic| Err(Stop::fail(format!("panicked: {}", message(&*panic)))));
        let outcome = match result {
            Ok(()) => Outcome::Completed,
            Err(Stop::Skip(reason)) => {
                self.send(&Record::Skip {
                    reason: one_line(&reason),
                })?;
                Outcome::Skipped
            }
            Err(Stop::Fail(reason)) => Outcome::Failed {
                reason: one_line(&reason),
            },
        };
        let records = self.records;
        self.write(&Record::End {
            job: job.to_owned(),
            records,
            outcome,
        })
    }
}

fn check_name(name: &str) -> TestResult {
    valid_name(name)
        .then_some(())
        .why(format_args!("{name:?} is not a valid name"))
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

/// The job's parameters over the test's defaults.
fn merge(known: &[Parameter], given: &Parameters) -> TestResult<Parameters> {
    let mut merged: Parameters = known
        .iter()
        .map(|parameter| (parameter.name.to_owned(), parameter.default.to_value()))
        .collect();
    for (name, value) in given {
        let default = merged
            .get_mut(name)
            .why(format_args!("no parameter {name:?}"))?;
        if std::mem::discriminant(default) != std::mem::discriminant(value) {
            return Err(Stop::fail(format!(
                "parameter {name} is {value}, which is not of the kind of {default}"
            )));
        }
        *default = value.clone();
    }
    Ok(merged)
}

/// Runs the test that `job`, in JSON, names. Records go to what was standard
/// output; what the test prints goes to standard error, the console.
#[must_use]
pub fn run_job(job: &str) -> ExitCode {
    match records_file()
        .why("set up the record pipe")
        .and_then(|out| run(job, Box::new(out)))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Skip(why) | Stop::Fail(why)) => {
            eprintln!("kvet-guest: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(job: &str, out: Box<dyn Write>) -> TestResult {
    let job: Job = serde_json::from_str(job).why("read the job")?;
    let Some(test) = crate::tests::find(&job.test) else {
        return Context::new(Parameters::new(), out).finish(&job.id, |_| {
            Err(Stop::fail(format!("no test {:?}", job.test)))
        });
    };
    match merge(test.parameters, &job.parameters) {
        Ok(parameters) => Context::new(parameters, out).finish(&job.id, test.run),
        Err(stop) => Context::new(Parameters::new(), out).finish(&job.id, |_| Err(stop)),
    }
}

/// Takes standard output for the records alone and lets what is printed go to
/// standard error. The copy is closed on exec, so no child writes records.
fn records_file() -> io::Result<File> {
    let out = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(File::from(out))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::super::Default;
    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shared {
        fn records(&self) -> Vec<Record> {
            let bytes = self.0.borrow();
            let text = std::str::from_utf8(&bytes).unwrap();
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        }
    }

    fn records_of(run: fn(&mut Context) -> TestResult) -> Vec<Record> {
        let out = Shared::default();
        Context::new(Parameters::new(), Box::new(out.clone()))
            .finish("j", run)
            .unwrap();
        out.records()
    }

    fn end(records: u64, outcome: Outcome) -> Record {
        Record::End {
            job: "j".into(),
            records,
            outcome,
        }
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
        assert_eq!(
            records[0],
            Record::Skip {
                reason: "no swap".into()
            }
        );
        assert_eq!(records[1], end(1, Outcome::Skipped));
    }

    #[test]
    fn a_panic_is_a_failure_with_its_message() {
        let records = records_of(|_| panic!("out of {}", "luck"));
        assert_eq!(
            records,
            [end(
                0,
                Outcome::Failed {
                    reason: "panicked: out of luck".into()
                }
            )]
        );
    }

    #[test]
    fn bad_names_numbers_and_lengths_fail_the_test() {
        for run in [
            (|context| context.observe("A", true)) as fn(&mut Context) -> TestResult,
            |context| context.sample("m", f64::NAN, "ns", Better::Lower, &Parameters::new()),
            |context| context.log("x".repeat(MAX_LINE_BYTES)),
        ] {
            let records = records_of(run);
            assert!(matches!(
                records[..],
                [Record::End {
                    outcome: Outcome::Failed { .. },
                    ..
                }]
            ));
        }
    }

    const KNOWN: &[Parameter] = &[
        Parameter {
            name: "count",
            summary: "how many",
            default: Default::Integer(4),
        },
        Parameter {
            name: "mode",
            summary: "how",
            default: Default::Text("fast"),
        },
    ];

    #[test]
    fn a_job_overrides_defaults_of_the_same_kind() {
        let given = Parameters::from([("count".to_owned(), Value::Integer(7))]);
        let context = Context::new(merge(KNOWN, &given).unwrap(), Box::new(io::sink()));
        assert_eq!(context.integer::<u8>("count"), Ok(7));
        assert!(context.integer::<u8>("mode").is_err());
        assert!(context.integer::<u8>("other").is_err());
    }

    #[test]
    fn unknown_parameters_and_other_kinds_are_refused() {
        for (name, value) in [("colour", Value::Integer(1)), ("count", Value::Bool(true))] {
            let given = Parameters::from([(name.to_owned(), value)]);
            let stop = merge(KNOWN, &given).unwrap_err();
            assert!(matches!(stop, Stop::Fail(why) if why.contains(name)));
        }
    }

    #[test]
    fn a_parameter_out_of_range_is_named() {
        let given = Parameters::from([("count".to_owned(), Value::Integer(-1))]);
        let context = Context::new(merge(KNOWN, &given).unwrap(), Box::new(io::sink()));
        assert_eq!(
            context.integer::<usize>("count"),
            Err(Stop::fail("parameter count cannot be -1"))
        );
    }

    #[test]
    fn an_unknown_test_is_a_failure_and_a_broken_job_an_error() {
        let out = Shared::default();
        let job = r#"{"protocol":1,"id":"j","test":"no_such_test"}"#;
        run(job, Box::new(out.clone())).unwrap();
        assert!(matches!(
            out.records()[..],
            [Record::End {
                records: 0,
                outcome: Outcome::Failed { .. },
                ..
            }]
        ));
        assert!(run("{", Box::new(io::sink())).is_err());
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let line = one_line(&"é".repeat(MAX_REASON_BYTES));
        assert!(line.len() <= MAX_REASON_BYTES && !line.is_empty());
    }
}
