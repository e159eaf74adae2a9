// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the test that a job names, with the job's parameters.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use kvet_records::{Job, MEASURE_INSTRUCTIONS, Parameters};

use super::{Context, Counted, Parameter, Stop, TestResult, Why, environment};

/// Argument that makes the guest binary run one job, which is the next argument.
pub const TEST_ARGUMENT: &str = "test";

/// The job's parameters over the test's defaults.
fn merge(known: &[Parameter], given: &Parameters) -> TestResult<Parameters> {
    let mut merged: Parameters = known
        .iter()
        .map(|parameter| (parameter.name.to_owned(), parameter.default.to_value()))
        .collect();
    for (name, value) in given {
        let default = merged.get_mut(name).why(format_args!("no parameter {name:?}"))?;
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
    match records_file().why("set up the record pipe").and_then(|out| run(job, Box::new(out))) {
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
        return Context::new(Parameters::new(), out)
            .finish(&job.id, |_| Err(Stop::fail(format!("no test {:?}", job.test))));
    };
    if let Some(measure) = &job.measure {
        return measured(&job, measure, out);
    }
    match merge(test.parameters, &job.parameters) {
        Ok(parameters) => Context::new(parameters, out).finish(&job.id, |context| {
            environment::log(context)?;
            (test.run)(context)
        }),
        Err(stop) => Context::new(Parameters::new(), out).finish(&job.id, |_| Err(stop)),
    }
}

/// Runs what the job's test measures.
fn measured(job: &Job, measure: &str, out: Box<dyn Write>) -> TestResult {
    let fail = |why: String, out| {
        Context::new(Parameters::new(), out).finish(&job.id, |_| Err(Stop::fail(why)))
    };
    if measure != MEASURE_INSTRUCTIONS {
        return fail(format!("no measure {measure:?}"), out);
    }
    let Some(measured) = crate::tests::measured(&job.test) else {
        return fail(format!("test {:?} measures nothing", job.test), out);
    };
    match merge(measured.parameters, &job.parameters) {
        Ok(parameters) => Context::new(parameters, out).keeping().finish(&job.id, |context| {
            environment::log(context)?;
            let mut counted = Counted::start(context, job.offset_ns)?;
            (measured.run)(context, &mut counted)
        }),
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
    use kvet_records::{Outcome, Record, Value};

    use super::super::Default;
    use super::super::context::tests::Shared;
    use super::*;

    const KNOWN: &[Parameter] = &[
        Parameter { name: "count", summary: "how many", default: Default::Integer(4) },
        Parameter { name: "mode", summary: "how", default: Default::Text("fast") },
        Parameter { name: "loud", summary: "whether", default: Default::Bool(true) },
    ];

    #[test]
    fn a_job_overrides_defaults_of_the_same_kind() {
        let given = Parameters::from([("count".to_owned(), Value::Integer(7))]);
        let context = Context::new(merge(KNOWN, &given).unwrap(), Box::new(io::sink()));
        assert_eq!(context.integer::<u8>("count"), Ok(7));
        assert!(context.integer::<u8>("mode").is_err());
        assert_eq!(context.text("mode").as_deref(), Ok("fast"));
        assert!(context.text("count").is_err());
        assert_eq!(context.flag("loud"), Ok(true));
        assert!(context.flag("mode").is_err());
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
            [Record::End { records: 0, outcome: Outcome::Failed { .. }, .. }]
        ));
        assert!(run("{", Box::new(io::sink())).is_err());
    }
}
