// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest's records: never a panic, never more kept than the limits allow, and
//! no result after a violation.
#![no_main]

use kvet::transport::virtio::Session;
use kvet_records::{Job, PROTOCOL_VERSION, Parameters};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let job = Job {
        protocol: PROTOCOL_VERSION,
        id: "j".into(),
        test: "t".into(),
        parameters: Parameters::new(),
        measure: None,
        offset_ns: 0,
        start_at_ms: None,
        program: None,
    };
    let mut session = Session::new(job);
    // The first byte says how large the pieces are in which the rest arrives.
    let (size, rest) = bytes.split_first().map_or((1, bytes), |(&size, rest)| (size, rest));
    for piece in rest.chunks(usize::from(size).max(1)) {
        session.push(piece);
    }
    session.finish();
    if session.violation().is_some() {
        assert_eq!(session.report().outcome, None);
    }
    for text in session.report().logs.iter().chain(&session.report().skips) {
        assert!(!text.chars().any(|c| c.is_control() && c != '\t'));
    }
});
