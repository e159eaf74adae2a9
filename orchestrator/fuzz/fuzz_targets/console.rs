// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest's console: never a panic, and the same findings however the bytes
//! arrive.
#![no_main]

use kvet::vm::console::Console;
use kvet::vm::splat::scan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (size, rest) = bytes.split_first().map_or((1, bytes), |(&size, rest)| (size, rest));
    let mut console = Console::new(std::io::sink());
    for piece in rest.chunks(usize::from(size).max(1)) {
        let _ = console.push(piece);
    }
    let (tail, findings) = console.finish();
    assert!(tail.iter().all(|line| !line.chars().any(|c| c.is_control() && c != '\t')));
    let titles = |splats: &[kvet::vm::splat::Splat]| -> Vec<String> {
        splats.iter().map(|splat| splat.title.clone()).collect()
    };
    assert_eq!(titles(&findings.splats), titles(&scan(rest)));
});
