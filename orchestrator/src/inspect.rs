// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet inspect`: what kvet reads out of a file.

use std::io::Read;
use std::path::Path;

use crate::fault::Fault;
use crate::kernel::mail;
use crate::ktap::{self, MAX_LOG_BYTES};
use crate::plan::manifest::SeriesFile;
use crate::plan::yaml;
use crate::report::{self, json};
use crate::vm::splat::Scanner;

/// The splats in a serial log. It is read piece by piece: it may be larger than
/// memory.
///
/// # Errors
/// A `plan` fault when it cannot be read.
pub fn console(log: &Path, as_json: bool) -> Result<String, Fault> {
    let mut reader = open(log)?;
    let mut scanner = Scanner::new();
    let mut buffer = vec![0; 1 << 20];
    let findings = loop {
        match reader.read(&mut buffer).map_err(|error| unreadable(log, &error))? {
            0 => break scanner.finish(),
            count => drop(scanner.feed(&buffer[..count])),
        }
    };
    Ok(match as_json {
        true => text_of(&json::pretty(&findings.splats)),
        false => report::console::render(&findings),
    })
}

/// The results in TAP or KTAP of any kind: a kernel's log, a program's output, a
/// test runner's.
///
/// # Errors
/// A `plan` fault when it cannot be read or is too large.
pub fn ktap(log: &Path, as_json: bool) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    let limit = MAX_LOG_BYTES as u64 + 1;
    open(log)?.take(limit).read_to_end(&mut bytes).map_err(|error| unreadable(log, &error))?;
    if bytes.len() > MAX_LOG_BYTES {
        let what = format!("more than {MAX_LOG_BYTES} bytes are too many for a log of tests");
        return Err(Fault::plan(what)
            .at(log.display())
            .help("cut out the part that begins with `KTAP version` or `TAP version`"));
    }
    let results = ktap::parse_log(&String::from_utf8_lossy(&bytes));
    Ok(match as_json {
        true => text_of(&json::pretty(&results)),
        false => report::ktap::render(&results),
    })
}

/// What mails, a maildir, a patch file or a folder hold, and whether `kvet build`
/// takes it: a complete series, which may have what looks like damage and only the
/// file itself can tell.
///
/// # Errors
/// A `plan` fault when it cannot be read.
pub fn series(input: &Path, as_json: bool) -> Result<(String, bool), Fault> {
    let inputs = mail::input::open(input)?;
    let manifest = input.join("series.yaml");
    let title = match manifest.is_file() {
        true => Some(yaml::load::<SeriesFile>(&manifest)?.value.title),
        false => None,
    };
    let mut reading = mail::read(&inputs).map_err(|error| unreadable(input, &error))?;
    reading.title = title;
    let page = match as_json {
        true => text_of(&json::pretty(&reading)),
        false => report::reading::render(&reading),
    };
    Ok((page, reading.is_usable()))
}

fn open(log: &Path) -> Result<Box<dyn Read>, Fault> {
    Ok(match log == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(std::fs::File::open(log).map_err(|error| unreadable(log, &error))?),
    })
}

fn unreadable(log: &Path, error: &std::io::Error) -> Fault {
    Fault::plan(format!("cannot be read: {error}")).at(log.display()).help("check the path")
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
