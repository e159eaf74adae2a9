// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest is told to do for one boot of a test.

use kvet_records::{Job, PROTOCOL_VERSION, Program};

use super::phases;
use crate::plan::Test;
use crate::plan::manifest::Measure;

/// The job of a test in the kernel that is called `kernel`. A measured one starts at
/// phase number `phase` of `phases`.
#[must_use]
pub fn job(
    test: &Test,
    kernel: impl std::fmt::Display,
    program: Option<Program>,
    phase: u16,
    phases: u16,
) -> Job {
    let counted = test.measure == Some(Measure::Instructions);
    let start = u64::try_from(phases::START.as_millis()).unwrap_or(u64::MAX);
    Job {
        protocol: PROTOCOL_VERSION,
        id: format!("{}-{kernel}", test.name),
        test: test.name.clone(),
        parameters: test.parameters.clone(),
        measure: test.measure.map(|measure| measure.name().to_owned()),
        offset_ns: phases::offset_ns(phase, phases),
        start_at_ms: counted.then_some(start),
        program,
    }
}
