// SPDX-License-Identifier: MIT OR Apache-2.0
//! A series in any bytes: never a panic, every place inside the input, and a patch
//! that is whole stays the same when it is written and read again.
#![no_main]

use kvet::kernel::mail::read_bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let reading = read_bytes("input", bytes).expect("few mails");
    let lines = bytes.split(|&byte| byte == b'\n').count();
    for problem in &reading.problems {
        if let Some(place) = &problem.place {
            assert!((1..=lines).contains(&place.line), "{place} of {lines}");
        }
    }
    for passed in &reading.passed_over {
        assert!((1..=lines).contains(&passed.place.line), "{} of {lines}", passed.place);
    }
    assert_eq!(reading.complete, reading.problems.is_empty() && !reading.patches.is_empty());
    let _ = kvet::report::reading::render(&reading);
    if !reading.complete {
        return;
    }
    for patch in &reading.patches {
        assert!((1..=lines).contains(&patch.diff_line));
        let again = read_bytes("again", &patch.to_mail(reading.version, 1)).expect("one mail");
        assert_eq!(again.patches.len(), 1);
        let diff = patch.diff.strip_suffix(b"\n").unwrap_or(&patch.diff);
        let same = again.patches[0].diff.strip_suffix(b"\n").unwrap_or(&again.patches[0].diff);
        assert_eq!(same, diff);
    }
});
