// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task's side: one request for each line of standard input, one line of
//! standard output for each answer.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use super::{Advice, Stop, TestResult, Why, proc};
use crate::harness::Mapping;
use crate::harness::counted::tsc;
use crate::harness::mapping::PAGE;

/// Argument that makes the guest binary [`serve`] as a task.
pub const TASK_ARGUMENT: &str = "task";

/// Argument behind [`TASK_ARGUMENT`] of a task that has executed the program
/// again, and owes the answer to that request.
pub const EXECUTED_ARGUMENT: &str = "executed";

/// What a task has mapped.
#[derive(Debug, Default)]
struct State {
    memory: Option<Mapping>,
    areas: Vec<Mapping>,
}

/// Carries out requests until there are no more.
#[must_use]
pub fn serve(executed: bool) -> ExitCode {
    let mut state = State::default();
    if executed && reply("ok \n").is_err() {
        return ExitCode::FAILURE;
    }
    for request in io::stdin().lock().lines() {
        let Ok(request) = request else {
            return ExitCode::FAILURE;
        };
        let text = match answer(&request, &mut state) {
            Ok(value) => format!("ok {value}\n"),
            Err(Stop::Fail(why) | Stop::Skip(why)) => format!("{request}: {why}\n"),
        };
        if reply(&text).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn reply(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Carries out one request and returns the value of its reply.
fn answer(request: &str, state: &mut State) -> TestResult<String> {
    let words: Vec<&str> = request.split(' ').collect();
    let number = |word: &str| word.parse::<usize>().why(format_args!("{word:?} is no number"));
    match words[..] {
        ["map", len] => {
            let mapping = state.memory.insert(Mapping::anonymous(number(len)?)?);
            return Ok(mapping.address().to_string());
        }
        ["unmap"] => drop(state.memory.take().why("nothing is mapped")?),
        ["touch", start, end] => {
            let mapping = state.memory.as_ref().why("nothing is mapped")?;
            mapping.touch(within(mapping, number(start)?..number(end)?)?);
        }
        ["advise", start, end, name] => {
            let mapping = state.memory.as_ref().why("nothing is mapped")?;
            let advice = Advice::from_name(name).why("no such advice")?;
            mapping.advise(advice, within(mapping, number(start)?..number(end)?)?)?;
        }
        ["read", count, seed] => {
            let mapping = state.memory.as_ref().why("nothing is mapped")?;
            return Ok(read(mapping, number(count)?, number(seed)? as u64).to_string());
        }
        ["areas", count] => state.areas.push(areas(number(count)?)?),
        ["disable_thp", disable] => {
            let disable: bool = disable.parse().why("true or false")?;
            prctl(libc::PR_SET_THP_DISABLE, disable.into())?;
        }
        ["thp_disabled"] => return Ok((prctl(libc::PR_GET_THP_DISABLE, 0)? != 0).to_string()),
        ["fork", owner, input, output] => {
            return fork(number(owner)?, number(input)?, number(output)?);
        }
        ["execute"] => return Err(execute()),
        _ => return Err(Stop::fail("no such request")),
    }
    Ok(String::new())
}

/// Reads words at random places; what the time-stamp counter says that it took.
fn read(mapping: &Mapping, count: usize, seed: u64) -> u64 {
    let words = (mapping.len() / size_of::<u64>()) as u64;
    // The multiplier of Knuth's MMIX generator; its high bits are the random ones.
    let mut state = seed;
    let from = tsc();
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let word = (state >> 32) * words >> 32;
        black_box(mapping.word(word as usize * size_of::<u64>()));
    }
    tsc() - from
}

/// `range`, unless it leaves the mapping.
fn within(mapping: &Mapping, range: Range<usize>) -> TestResult<Range<usize>> {
    (range.start <= range.end && range.end <= mapping.len())
        .then_some(range)
        .why("the range leaves the mapping")
}

/// `count` pages, every other one with advice that the next one does not have.
fn areas(count: usize) -> TestResult<Mapping> {
    let mapping = Mapping::anonymous(count.checked_mul(PAGE).why("too many areas")?)?;
    for page in (0..count).step_by(2) {
        mapping.advise(Advice::DontDump, page * PAGE..(page + 1) * PAGE)?;
    }
    let range = mapping.address()..mapping.address() + mapping.len();
    match proc::areas(std::process::id(), &range)? {
        found if found == count => Ok(mapping),
        found => Err(Stop::fail(format!("the kernel made {found} areas"))),
    }
}

#[expect(unsafe_code, reason = "a system call that rustix does not have")]
fn prctl(option: i32, value: libc::c_ulong) -> TestResult<i32> {
    let none: libc::c_ulong = 0;
    // SAFETY: these options read no memory and write none.
    let result = unsafe { libc::prctl(option, value, none, none, none) };
    if result < 0 {
        return Err(io::Error::last_os_error()).why(format_args!("prctl {option}"));
    }
    Ok(result)
}

/// Forks. The child takes its requests from the file `input` of process
/// `owner`, answers to the file `output`, and has answered this one.
#[expect(unsafe_code, reason = "a system call that rustix has not made stable")]
fn fork(owner: usize, input: usize, output: usize) -> TestResult<String> {
    let open = |number: usize, options: &OpenOptions| -> TestResult<File> {
        let path = format!("/proc/{owner}/fd/{number}");
        options.open(&path).why(format_args!("open {path}"))
    };
    let input = open(input, OpenOptions::new().read(true))?;
    let output = open(output, OpenOptions::new().write(true))?;
    // SAFETY: a task has one thread, so the child lacks none and no lock is held
    // by another.
    match unsafe { libc::fork() } {
        ..0 => Err(io::Error::last_os_error()).why("fork"),
        0 => {
            let ours = rustix::stdio::dup2_stdin(&input)
                .and_then(|()| rustix::stdio::dup2_stdout(&output));
            // An answer would go where the parent's goes.
            if ours.is_err() {
                std::process::exit(1);
            }
            Ok(String::new())
        }
        pid => Ok(pid.to_string()),
    }
}

/// Starts the program again in this process; returns only if it cannot.
fn execute() -> Stop {
    let error = Command::new("/proc/self/exe").args([TASK_ARGUMENT, EXECUTED_ARGUMENT]).exec();
    Stop::fail(format!("execute /proc/self/exe: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_carries_out_its_requests() {
        let mut state = State::default();
        let mut ask = |request: &str| answer(request, &mut state);
        assert!(ask("touch 0 1").is_err());
        assert!(ask("map 8192").unwrap().parse::<usize>().is_ok());
        assert_eq!(ask("touch 0 8192").unwrap(), "");
        assert_eq!(ask("advise 0 4096 dontneed").unwrap(), "");
        assert_eq!(ask("areas 7").unwrap(), "");
        assert_eq!(ask("unmap").unwrap(), "");
        assert!(ask("unmap").is_err());
    }

    #[test]
    fn a_request_that_makes_no_sense_is_an_error() {
        let mut state =
            State { memory: Some(Mapping::anonymous(4096).unwrap()), areas: Vec::new() };
        for request in [
            "",
            "map",
            "map x",
            "map 1",
            "touch 0 8192",
            "touch 2 1",
            "advise 0 1 warm",
            "fly",
            "areas 0",
            "fork 0 0 0",
        ] {
            assert!(answer(request, &mut state).is_err(), "{request:?}");
        }
    }
}
