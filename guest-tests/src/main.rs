// SPDX-License-Identifier: MIT OR Apache-2.0
//! One static binary with every part that a guest needs: as process 1 it is
//! the guest's init, which starts it again once for the test and once for each
//! task that the test sets up. On the host, `list` prints what tests there are.

use std::process::ExitCode;

use kvet_guest_tests::{harness, init, tests};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => {
            println!("{}", tests::list());
            ExitCode::SUCCESS
        }
        [harness::TEST_ARGUMENT, job] => harness::run_job(job),
        [harness::TASK_ARGUMENT] => harness::task::serve(false),
        [harness::TASK_ARGUMENT, harness::EXECUTED_ARGUMENT] => harness::task::serve(true),
        // Last, so that `list` is harmless as process 1 of a container, too.
        _ if std::process::id() == 1 => init::main(),
        _ => {
            eprintln!("usage: kvet-guest list (or run it as the init of a guest)");
            ExitCode::from(2)
        }
    }
}
