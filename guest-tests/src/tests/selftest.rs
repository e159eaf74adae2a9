// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that end in every way a test can end, and what the kernel's own faults
//! (the series `selftest`) need of a guest. kvet uses them on itself: what each
//! does is known, so what kvet says of it can be checked.

use std::arch::asm;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use kvet_records::{Job, MAX_LINE_BYTES, PROTOCOL_VERSION, Parameters, Value};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, getpid, kill_process, pidfd_getfd, pidfd_open,
};

use super::kmemleak_scan;
use crate::harness::{Context, Default, Parameter, Stop, TEST_ARGUMENT, Test, TestResult, Why};

/// Writing here lets the fault happen that `kvet_selftest=` chose.
const TRIGGER: &str = "/proc/kvet_selftest";

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
    Test {
        name: "selftest_fault",
        summary: "lets the fault happen that the kernel's command line chose",
        parameters: &[Parameter {
            name: "scans",
            summary: "how often kmemleak looks for leaks afterwards; it tells one at the second",
            default: Default::Integer(0),
        }],
        run: fault,
    },
    Test {
        name: "selftest_memory",
        summary: "takes all memory",
        parameters: &[],
        run: |_| {
            let mut taken = Vec::new();
            loop {
                taken.push(vec![1_u8; 1 << 20]);
            }
        },
    },
    Test {
        name: "selftest_trap",
        summary: "does what the CPU forbids",
        parameters: &[TRAP],
        run: trap,
    },
    Test {
        name: "selftest_trap_child",
        summary: "observes the signal that ends a child which does what the CPU forbids",
        parameters: &[TRAP],
        run: trap_child,
    },
    Test {
        name: "selftest_sysrq",
        summary: "asks the kernel for what it shows on request",
        parameters: &[],
        run: sysrq,
    },
    Test {
        name: "selftest_words",
        summary: "prints lines that speak of trouble, and passes",
        parameters: &[],
        run: words,
    },
    Test {
        name: "selftest_kill_init",
        summary: "overwrites init's code, so that process 1 ends",
        parameters: &[],
        run: kill_init,
    },
    Test {
        name: "selftest_garble",
        summary: "sends what is no record to init",
        parameters: &[],
        run: |context| {
            context.observe("alive", true)?;
            send(&mut own_records()?, b"this is no record\n")
        },
    },
    Test {
        name: "selftest_forge",
        summary: "takes init's port and sends the host a line that init would not",
        parameters: &[Parameter {
            name: "line",
            summary: "which one, from 0",
            default: Default::Integer(0),
        }],
        run: forge,
    },
];

const TRAP: Parameter = Parameter {
    name: "vector",
    summary: "number of the exception: 0 divide, 6 opcode, 13 protection, 14 page",
    default: Default::Integer(14),
};

fn kill(context: &mut Context) -> TestResult {
    let number = context.integer("signal")?;
    let signal = Signal::from_named_raw(number).why(format_args!("no signal {number}"))?;
    context.observe("alive", true)?;
    // Rust's own handler of SIGSEGV and SIGBUS puts the default back and
    // returns, so that the fault repeats: these need a second signal.
    for _ in 0..2 {
        kill_process(getpid(), signal).why(format_args!("send signal {number}"))?;
    }
    Err(Stop::fail(format!("signal {number} does not end a process")))
}

fn panic_kernel(context: &mut Context) -> TestResult {
    context.observe("alive", true)?;
    fs::write("/proc/sysrq-trigger", "c").why("write /proc/sysrq-trigger")?;
    Err(Stop::fail("the kernel survived"))
}

fn fault(context: &mut Context) -> TestResult {
    let scans: u32 = context.integer("scans")?;
    context.require(
        Path::new(TRIGGER).exists(),
        "this kernel has no faults on demand (CONFIG_KVET_SELFTEST)",
    )?;
    context.observe("alive", true)?;
    fs::write(TRIGGER, "now").why(format_args!("write {TRIGGER}"))?;
    context.observe("survived", true)?;
    if scans > 0 {
        context.observe("leaks", kmemleak_scan::scan(scans)?)?;
    }
    Ok(())
}

#[expect(unsafe_code, reason = "only what the language forbids makes a CPU trap")]
fn trap(context: &mut Context) -> TestResult {
    let vector: u32 = context.integer("vector")?;
    context.observe("alive", true)?;
    // SAFETY: none of these returns: each raises an exception whose signal ends
    // the process, and until then nothing but registers has changed.
    unsafe {
        match vector {
            0 => asm!("div {0:e}", in(reg) 0, inout("eax") 1 => _, inout("edx") 0 => _),
            6 => asm!("ud2"),
            13 => asm!("hlt"),
            14 => asm!("mov {0}, [{0}]", inout(reg) 0_usize => _),
            _ => return Err(Stop::fail(format!("no way to raise exception {vector}"))),
        }
    }
    Err(Stop::fail(format!("exception {vector} does not end a process")))
}

fn trap_child(context: &mut Context) -> TestResult {
    let vector: i64 = context.integer("vector")?;
    let job = Job {
        protocol: PROTOCOL_VERSION,
        id: "child".to_owned(),
        test: "selftest_trap".to_owned(),
        parameters: Parameters::from([("vector".to_owned(), Value::Integer(vector))]),
        measure: None,
        offset_ns: 0,
        start_at_ms: None,
        program: None,
    };
    let job = serde_json::to_string(&job).why("write the child's job")?;
    let status = Command::new("/proc/self/exe")
        .args([TEST_ARGUMENT, &job])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .why("run the child")?;
    let signal = status.signal().why(format_args!("the child: {status}"))?;
    context.observe("signal", i64::from(signal))
}

/// Stacks of all CPUs and tasks, blocked tasks, memory.
fn sysrq(context: &mut Context) -> TestResult {
    for key in ["l", "t", "w", "m"] {
        fs::write("/proc/sysrq-trigger", key).why(format_args!("sysrq {key}"))?;
    }
    context.observe("passed", true)
}

/// Lines of programs, which reach the same console as the kernel's. None is a
/// splat; all have words of one.
fn words(context: &mut Context) -> TestResult {
    for line in [
        "TAP version 13",
        "1..3",
        "not ok 1 mm/warning: expected no BUG, got 2",
        "# WARNING: test is slow",
        "ok 2 panic_on_oops # SKIP kernel panic is not wanted",
        "not ok 3 lockdep # TODO possible deadlock is known",
        "Segmentation fault (core dumped)",
        "thread 'main' panicked at src/main.rs:1:1:",
        "warning: unused variable: `oops`",
        "error: general protection of data is not set up",
        "Out of memory is what this test is about",
    ] {
        eprintln!("{line}");
    }
    context.observe("passed", true)
}

/// Init survives any signal that it does not expect, but not its own illegal
/// instruction.
fn kill_init(context: &mut Context) -> TestResult {
    context.observe("alive", true)?;
    let maps = fs::read_to_string("/proc/1/maps").why("read init's memory map")?;
    let code = maps.lines().find_map(executable_range).why("find init's code")?;
    // UD2, over and over. From an odd address it is another instruction, whose
    // stream ends at code that is not there.
    let ud2 = [0x0f, 0x0b].repeat((code.end - code.start) / 2);
    let memory = OpenOptions::new().write(true).open("/proc/1/mem").why("open init's memory")?;
    memory.write_all_at(&ud2, code.start as u64).why("write init's memory")?;
    // Init wakes for its heartbeat.
    sleep(Duration::from_secs(10));
    Err(Stop::fail("init survived"))
}

/// The addresses in a line of `maps`, if they hold code of a file.
fn executable_range(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let executable = fields.next()?.contains('x') && line.contains(" /");
    let address = |text| usize::from_str_radix(text, 16).ok();
    executable.then_some(address(start)?..address(end)?)
}

/// The pipe to init: the only one that a test's process has.
fn own_records() -> TestResult<File> {
    let path = open_files("self")?
        .into_iter()
        .find_map(|(path, target)| target.starts_with("pipe:").then_some(path))
        .why("find the pipe to init")?;
    OpenOptions::new().write(true).open(path).why("open the pipe to init")
}

/// Lines of which each breaks the protocol in another way.
fn forged(line: usize) -> Option<Vec<u8>> {
    let record = |name: &str, value: &str| {
        format!(r#"{{"record":"observation","name":"{name}","value":{value}}}"#).into_bytes()
    };
    Some(match line {
        0 => b"\xff\xfe\x00\x1b[2J".to_vec(),
        1 => record("a", "true").split_off(20),
        2 => record("a", "1e999"),
        3 => record("../../etc/passwd", "true"),
        4 => record("a", &format!("\"{}\"", "x".repeat(MAX_LINE_BYTES))),
        5 => br#"{"record":"end","job":"another","records":0,"outcome":"completed"}"#.to_vec(),
        6 => br#"{"record":"no_such_record"}"#.to_vec(),
        _ => return None,
    })
}

/// A test runs with all rights, so it can take what init has open.
fn forge(context: &mut Context) -> TestResult {
    let number: usize = context.integer("line")?;
    let mut line = forged(number).why(format_args!("no line {number}"))?;
    line.push(b'\n');
    context.observe("alive", true)?;
    let init = pidfd_open(Pid::INIT, PidfdFlags::empty()).why("find init")?;
    // Of init's two ports this is the one that it writes to.
    let port = open_files("1")?
        .into_iter()
        .filter(|(_, target)| target.starts_with("/dev/vport"))
        .find_map(|(path, _)| {
            let fd = path.file_name()?.to_str()?.parse().ok()?;
            let info = fs::read_to_string(format!("/proc/1/fdinfo/{fd}")).ok()?;
            opened_to_write(&info).then_some(fd)
        })
        .why("find init's port")?;
    let port = pidfd_getfd(init, port, PidfdGetfdFlags::empty()).why("take init's port")?;
    send(&mut File::from(port), &line)
}

/// Whether a file's `fdinfo` says that it is open to be written.
fn opened_to_write(info: &str) -> bool {
    info.lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok())
        .is_some_and(|flags| flags & 0o3 != 0)
}

/// A process's open files: where to open them again, and what they are.
fn open_files(process: &str) -> TestResult<Vec<(PathBuf, String)>> {
    let folder = format!("/proc/{process}/fd");
    Ok(fs::read_dir(&folder)
        .why(format_args!("read {folder}"))?
        .flatten()
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            Some((entry.path(), target.to_string_lossy().into_owned()))
        })
        .collect())
}

fn send(file: &mut File, bytes: &[u8]) -> TestResult {
    file.write_all(bytes).why("send what is not the test's to send")
}

#[cfg(test)]
mod tests {
    use kvet_records::Record;

    use super::*;

    #[test]
    fn a_ports_direction_is_read_from_fdinfo() {
        assert!(opened_to_write("pos:\t0\nflags:\t02100001\nmnt_id:\t5\n"));
        assert!(!opened_to_write("pos:\t0\nflags:\t02100000\nmnt_id:\t5\n"));
        assert!(!opened_to_write("pos:\t0\n"));
    }

    #[test]
    fn code_of_files_is_found_in_a_memory_map() {
        let code = "7f00-8000 r-xp 00001000 00:02 5                   /init";
        assert_eq!(executable_range(code), Some(0x7f00..0x8000));
        for other in [
            "7f00-8000 r--p 00001000 00:02 5                   /init",
            "7f00-8000 r-xp 00000000 00:00 0                   [vdso]",
            "",
        ] {
            assert_eq!(executable_range(other), None);
        }
    }

    #[test]
    fn the_forged_end_is_a_record_and_the_others_are_not_all() {
        let end = forged(5).unwrap();
        assert!(matches!(serde_json::from_slice(&end), Ok(Record::End { .. })));
        for line in [0, 1, 2, 6] {
            assert!(serde_json::from_slice::<Record>(&forged(line).unwrap()).is_err());
        }
        assert_eq!(forged(7), None);
    }
}
