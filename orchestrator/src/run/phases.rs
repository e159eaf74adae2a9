// SPDX-License-Identifier: MIT OR Apache-2.0
//! At which moments a counted test starts.

use std::time::Duration;

/// Guest time since its boot at which counted jobs start: long after any guest is up,
/// and idle time costs a counted guest nothing.
pub const START: Duration = Duration::from_secs(60);

/// A whole number of ticks at 100, 250, 300 and 1000 Hz.
const SPAN_NS: u64 = 20_000_000;

/// By how much the windows of phase `phase` of `phases` start later, in nanoseconds.
/// Steps of (1 + 1/n) n-ths of a span meet a tick of any of those rates at n places.
#[must_use]
pub fn offset_ns(phase: u16, phases: u16) -> u64 {
    let (phase, phases) = (u64::from(phase), u64::from(phases.max(1)));
    phase * SPAN_NS * (phases + 1) / (phases * phases)
}

/// The boots of one variant: which phase each has. The first phase is taken at least
/// twice, since two counts at one phase must be the same.
#[must_use]
pub fn schedule(phases: u16, boots: u16) -> Vec<u16> {
    let repetitions = |phase| if phase == 0 { boots.max(2) } else { boots };
    (0..phases)
        .flat_map(|phase| std::iter::repeat_n(phase, usize::from(repetitions(phase))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_fall_on_different_parts_of_a_tick_of_any_rate() {
        for hertz in [100, 250, 300, 1000] {
            let tick = 1_000_000_000 / hertz;
            let mut parts: Vec<u64> = (0..8).map(|phase| offset_ns(phase, 8) % tick).collect();
            parts.sort_unstable();
            let apart = parts.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
            assert!(apart >= tick / 32, "{hertz} Hz: {parts:?}");
        }
        assert_eq!(offset_ns(0, 8), 0);
    }

    #[test]
    fn the_first_phase_is_taken_twice() {
        assert_eq!(schedule(3, 1), [0, 0, 1, 2]);
        assert_eq!(schedule(2, 3), [0, 0, 0, 1, 1, 1]);
    }
}
