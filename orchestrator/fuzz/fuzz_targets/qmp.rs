// SPDX-License-Identifier: MIT OR Apache-2.0
//! What QEMU says over QMP: never a panic, whatever it is.
#![no_main]

use kvet::vm::qmp::read_messages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (size, rest) = bytes.split_first().map_or((1, bytes), |(&size, rest)| (size, rest));
    for event in read_messages(rest.chunks(usize::from(size).max(1))) {
        let _ = event.known();
    }
});
