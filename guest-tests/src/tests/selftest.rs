// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that end in every way a test can end. kvet uses them on itself: what
//! each does is known, so what kvet says of it can be checked.

use std::fs;
use std::process;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use crate::harness::{Context, Default, Parameter, Stop, Test, TestResult, Why};

/// All of them.
pub const TESTS: &[Test] = &[
    Test {
        name: "selftest_pass",
        summary: "makes one observation",
        parameters: &[],
        run: |context| context.observe("passed", true),
    },
    Test {
        name: "selftest_fail",
        summary: "fails with a reason",
        parameters: &[],
        run: |_| Err(Stop::fail("meant to fail")),
    },
    Test {
        name: "selftest_skip",
        summary: "skips with a reason",
        parameters: &[],
        run: |_| Err(Stop::skip("meant to skip")),
    },
    Test {
        name: "selftest_exit",
        summary: "exits without saying anything",
        parameters: &[Parameter {
            name: "status",
            summary: "exit status",
            default: Default::Integer(3),
        }],
        run: |context| process::exit(context.integer("status")?),
    },
    Test {
        name: "selftest_kill",
        summary: "makes one observation and is killed by a signal",
        parameters: &[Parameter {
            name: "signal",
            summary: "number of the signal",
            default: Default::Integer(11),
        }],
        run: kill,
    },
    Test {
        name: "selftest_hang",
        summary: "sleeps for ever",
        parameters: &[],
        run: |_| loop {
            sleep(Duration::from_secs(3600));
        },
    },
    Test {
        name: "selftest_spin",
        summary: "keeps a CPU busy for ever",
        parameters: &[],
        run: |_| loop {
            std::hint::spin_loop();
        },
    },
    Test {
        name: "selftest_panic",
        summary: "makes one observation and lets the kernel panic",
        parameters: &[],
        run: panic_kernel,
    },
];

fn kill(context: &mut Context) -> TestResult {
    let number = context.integer("signal")?;
    let signal = Signal::from_named_raw(number).why(format_args!("no signal {number}"))?;
    context.observe("alive", true)?;
    // Rust's own handler of SIGSEGV and SIGBUS puts the default back and
    // returns, so that the fault repeats: these need a second signal.
    for _ in 0..2 {
        kill_process(getpid(), signal).why(format_args!("send signal {number}"))?;
    }
    Err(Stop::fail(format!(
        "signal {number} does not end a process"
    )))
}

fn panic_kernel(context: &mut Context) -> TestResult {
    context.observe("alive", true)?;
    fs::write("/proc/sysrq-trigger", "c").why("write /proc/sysrq-trigger")?;
    Err(Stop::fail("the kernel survived"))
}
