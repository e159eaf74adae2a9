// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long `kvet inspect series` takes for mboxes of 2,500, 5,000 and 10,000
//! mails of 20 kB each, and how much memory. Fails above 5 s or 200 MB for the
//! largest, or where time grows by half more than the mbox. Time is the processor's,
//! which is the clock's where nothing else runs: kvet reads with one thread.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MAIL_BYTES: usize = 20_000;
const SIZES: [usize; 3] = [2_500, 5_000, 10_000];
/// What the largest may take.
const MAX_TIME: Duration = Duration::from_secs(5);
const MAX_KILOBYTES: i64 = 200_000;
/// How often each is read; the fastest counts.
const RUNS: usize = 3;

fn main() {
    let folder = tempfile::tempdir().expect("a folder for the mboxes");
    let mut per_mail = Vec::new();
    for kind in ["patches of many series", "one series", "answers"] {
        println!("{kind}:");
        for mails in SIZES {
            let mbox = folder.path().join("mbox");
            let bytes = write(&mbox, mails, kind).expect("the mbox can be written");
            let (time, clock, kilobytes) =
                (0..RUNS).map(|_| measure(&mbox)).min().expect("there is a run");
            println!(
                "  {mails:6} mails {:4} MB  {:5} ms of CPU, {:5} ms by the clock  {:6.1} us per mail  {:4} MB resident",
                bytes / 1_000_000,
                time.as_millis(),
                clock.as_millis(),
                time.as_secs_f64() * 1e6 / mails as f64,
                kilobytes / 1000
            );
            per_mail.push(time.as_secs_f64() / mails as f64);
            if mails == SIZES[2] {
                assert!(time < MAX_TIME, "{time:?} is more than {MAX_TIME:?}");
                assert!(kilobytes < MAX_KILOBYTES, "{kilobytes} kB are too many");
            }
        }
        let growth = per_mail[2] / per_mail[0];
        println!("  time per mail grows by {growth:.2} while the mbox grows by 4");
        assert!(growth < 1.5, "not linear");
        per_mail.clear();
    }
}

/// Writes an mbox; gives its size.
fn write(path: &Path, mails: usize, kind: &str) -> std::io::Result<usize> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut size = 0;
    for mail in 0..mails {
        let (series, number, total) = match kind {
            "one series" => (0, mail + 1, mails.min(9_999)),
            _ => (mail / 10, mail % 10 + 1, 10),
        };
        let answer = if kind == "answers" { "Re: " } else { "" };
        let mut text = format!(
            "From mboxrd@z Thu Jan  1 00:00:00 1970\nReceived: from mail.example.org by list.example.org\nFrom: Ada Example <ada@example.org>\nSubject: {answer}[PATCH v2 {number}/{total}] mm: slate: series {series}\nMessage-ID: <{series}-{number}@example.org>\nIn-Reply-To: <{series}-0@example.org>\nDate: Mon, 5 Jan 2026 10:00:00 +0000\n\nWords.\n\nSigned-off-by: Ada Example <ada@example.org>\n---\n\ndiff --git a/mm/slate{mail}.c b/mm/slate{mail}.c\n--- a/mm/slate{mail}.c\n+++ b/mm/slate{mail}.c\n"
        );
        let mut line = 1;
        while text.len() < MAIL_BYTES - 50 {
            text.push_str(&format!(
                "@@ -{line},5 +{line},5 @@ int slate(void)\n \tint one = {line};\n \n-\treturn one;\n+\treturn one + {mail};\n }}\n \n"
            ));
            line += 10;
        }
        text.push_str("-- \n2.47.0\n\n");
        if kind == "answers" {
            text = text.replace("\n+", "\n> +").replace("\n-", "\n> -").replace("\n ", "\n>  ");
        }
        size += text.len();
        out.write_all(text.as_bytes())?;
    }
    out.flush()?;
    Ok(size)
}

/// What one reading took: processor time, time by the clock, kilobytes of memory.
type Cost = (Duration, Duration, i64);

/// Reads an mbox in a process of its own.
#[expect(clippy::zombie_processes, reason = "wait4 is called for it")]
fn measure(mbox: &Path) -> Cost {
    let start = Instant::now();
    let child = Command::new(env!("CARGO_BIN_EXE_kvet"))
        .args(["inspect", "series"])
        .arg(mbox)
        .stdout(Stdio::null())
        .spawn()
        .expect("kvet starts");
    let (status, usage) = wait(child.id());
    let clock = start.elapsed();
    // 5: the mbox holds many series, or one that is too large.
    let code = std::process::ExitStatus::from_raw(status).code();
    assert!(matches!(code, Some(0 | 5)), "kvet ended with {code:?}");
    let time = |time: libc::timeval| {
        Duration::from_micros((time.tv_sec * 1_000_000 + time.tv_usec).unsigned_abs())
    };
    (time(usage.ru_utime) + time(usage.ru_stime), clock, usage.ru_maxrss)
}

#[expect(unsafe_code, reason = "no safe call tells a child's resources")]
fn wait(child: u32) -> (i32, libc::rusage) {
    let mut status = 0;
    // SAFETY: rusage is plain data, for which zeros are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live variables of the right types.
    let ended = unsafe { libc::wait4(child.cast_signed(), &raw mut status, 0, &raw mut usage) };
    assert_eq!(ended, child.cast_signed(), "the child can be waited for");
    (status, usage)
}
