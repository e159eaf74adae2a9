// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `kvet` binary: arguments in, one call into the library, an exit code out.

use std::process::ExitCode;

/// One thread, the main one: children die with the thread that started them, and
/// this one lives as long as kvet does.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let code = kvet::cli::status(kvet::cli::main().await);
    kvet::host::guardian::dismiss();
    code.into()
}
