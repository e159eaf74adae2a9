// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds for any log: nothing panics, pieces do not matter, memory is bounded, and a
//! fingerprint does not change with what changes between boots.

use kvet::vm::splat::{self, SPLATS_MAX, Scanner};
use proptest::prelude::*;
use regex::{Captures, Regex};
use std::fs;
use std::path::Path;

fn logs() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consoles");
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let read = |f: &std::path::PathBuf| String::from_utf8_lossy(&fs::read(f).unwrap()).into_owned();
    files.iter().map(read).collect()
}

/// Lines that matter to the recogniser, in any order, with any prefix.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "BUG: KASAN: slab-out-of-bounds in f+0x1/0x2",
        "BUG: unable to handle page fault for address: 0",
        "WARNING: CPU: 0 PID: 1 at mm/x.c:1 f+0x1/0x2",
        "WARNING: possible circular locking dependency detected",
        "a/1 is trying to acquire lock:",
        "ffff (x){+.+.}-{3:3}, at: g+0x1/0x2",
        "stack backtrace:",
        "Call Trace:",
        " <IRQ>",
        " h+0x1/0x2",
        " ? i+0x1/0x2",
        "RIP: 0010:f+0x1/0x2",
        "---[ end trace 0000000000000000 ]---",
        "Kernel panic - not syncing: Fatal exception",
        "unreferenced object 0xffff888103a2c000 (size 64):",
        "INFO: task a:1 blocked for more than 120 seconds.",
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "Linux version 6.1.0",
        "------------[ cut here ]------------",
        "BUG: x\u{e9}\u{1f600}",
        "",
    ]);
    let prefix = prop::sample::select(vec![
        "",
        "<4>",
        "[   12.345678] ",
        "[   12.345678][    C1] ",
        "[   12.345678][  T12] ",
        "> ",
        "Mar  5 10:11:12 host kernel: ",
        "[",
        "[<",
        "4,1,2,-;",
        "\u{1b}[1m",
        "\r",
    ]);
    let junk = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        4 => (prefix, words).prop_map(|(p, w)| format!("{p}{w}").into_bytes()),
        1 => junk,
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = splat::scan(&bytes);
    }

    #[test]
    fn any_mixture_of_kernel_lines_reads_the_same_in_pieces(
        lines in prop::collection::vec(line(), 0..80),
        cut in 1usize..200,
    ) {
        let log = lines.join(&b'\n');
        let whole = splat::examine(&log);
        let mut scanner = Scanner::new();
        for piece in log.chunks(cut) {
            scanner.feed(piece);
        }
        prop_assert_eq!(scanner.finish(), whole);
    }

    #[test]
    fn a_fingerprint_does_not_change_with_what_changes_between_boots(
        which in 0usize..1000, seed in 1u64..0xffff,
    ) {
        let all = logs();
        let log = &all[which % all.len()];
        let other = rewrite(log, seed);
        let prints = |log: &str| -> Vec<String> {
            splat::scan(log.as_bytes()).into_iter().map(|s| s.fingerprint).collect()
        };
        prop_assert_eq!(prints(log), prints(&other), "{}", other);
    }
}

/// Another boot of another build: other addresses, offsets, times, CPUs, pids and line numbers.
fn rewrite(log: &str, seed: u64) -> String {
    let mut n = seed;
    let mut next = move || {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        n >> 33
    };
    let mut text = log.to_owned();
    let mut change = |pattern: &str, f: &mut dyn FnMut(&Captures<'_>, u64) -> String| {
        let re = Regex::new(pattern).unwrap();
        text = re.replace_all(&text, |c: &Captures<'_>| f(c, next())).into_owned();
    };
    change(r"\+0x[0-9a-f]+/0x[0-9a-f]+", &mut |_, n| {
        format!("+0x{:x}/0x{:x}", n % 999, n % 9999 + 999)
    });
    change(r"\bffff[0-9a-f]{12}\b", &mut |_, n| format!("ffff8881{:08x}", n & 0xffff_ffff));
    change(r"(?m)^\[ *(\d+)\.\d{6}\]", &mut |c, n| format!("[{:>5}.{:06}]", &c[1], n % 1_000_000));
    change(r"PID: \d+", &mut |_, n| format!("PID: {}", n % 30000 + 2));
    change(r"([\w./-]+\.[ch]):\d+", &mut |c, n| format!("{}:{}", &c[1], n % 4000 + 1));
    // CPUs get other numbers, but the same one keeps the same: a report says which are stalled.
    let cpu = |c: &str| c.parse::<u64>().map_or(0, |c| (c ^ seed) % 64);
    change(r"(CPU#|CPU: |for cpu |for CPU |on CPU \{ |from CPU |to CPUs )(\d+)", &mut |c, _| {
        format!("{}{}", &c[1], cpu(&c[2]))
    });
    change(r"\b(\d+)(-[.!?A-Zo0]{3,6}[ :])", &mut |c, _| format!("{}{}", cpu(&c[1]), &c[2]));
    change(r"by task ([\w./-]+)/\d+", &mut |c, n| format!("by task {}/{}", &c[1], n % 30000 + 2));
    text
}

#[test]
fn a_flood_of_splats_is_counted_and_not_kept() {
    let mut log = String::new();
    for i in 0..SPLATS_MAX + 100 {
        log.push_str(&format!("WARNING: CPU: 0 PID: 1 at mm/x.c:1 f{i}_x+0x1/0x2\n"));
    }
    let found = splat::examine(log.as_bytes());
    assert_eq!((found.splats.len(), found.more), (SPLATS_MAX, 100));
}

#[test]
fn an_endless_line_and_an_endless_splat_are_cut() {
    let mut log = b"BUG: KASAN: use-after-free in f+0x1/0x2\n".to_vec();
    log.extend(std::iter::repeat_n(b'x', 1 << 20));
    log.push(b'\n');
    for _ in 0..20_000 {
        log.extend_from_slice(b" h+0x1/0x2 and a good deal of text behind it to fill the room\n");
    }
    let splats = splat::scan(&log);
    assert_eq!(splats.len(), 1);
    assert!(splats[0].text.len() <= 256 * 1024);
}

#[test]
fn the_same_splat_again_is_counted() {
    let one = "[    1.000000] WARNING: CPU: 0 PID: 1 at mm/x.c:1 f+0x1/0x2\n[    1.000001] ---[ end trace 0 ]---\n";
    let splats = splat::scan(one.repeat(5).as_bytes());
    assert_eq!((splats.len(), splats[0].count), (1, 5));
}
