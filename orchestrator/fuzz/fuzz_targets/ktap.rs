// SPDX-License-Identifier: MIT OR Apache-2.0
//! A log with TAP or KTAP: never a panic, and only valid names come of it.
#![no_main]

use kvet::ktap::{facts, parse_lines, parse_log, parse_words};
use kvet_records::valid_name;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    for results in [parse_log(&text), parse_lines(&lines), parse_words(&lines)] {
        if let Ok(facts) = facts(&results, &["exit"]) {
            assert!(facts.keys().all(|name| valid_name(name) && name != "exit"), "{facts:?}");
        }
    }
});
