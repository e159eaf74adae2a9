// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long each phase of a boot may take: what the plan says, or a default for
//! the accelerator, stretched on a host that has been seen to be slower than the
//! one that the defaults were measured on.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spec::Accelerator;
use crate::plan::Deadlines;
use crate::store::{Store, write_atomically};

/// The limits of one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From QEMU's start to the guest's `hello`.
    pub boot: Duration,
    /// From `hello` to the job's `end`.
    pub test: Duration,
}

/// Seconds from QEMU's start to `hello` on the host where the defaults were
/// chosen: 0.9 to 2 s under TCG on two cores, a third of that under KVM.
const fn reference(accelerator: Accelerator) -> f64 {
    match accelerator {
        Accelerator::Kvm => 0.6,
        Accelerator::Tcg => 2.0,
    }
}

/// Defaults of `boot` and `test`, thirty times the reference and enough for
/// kvet's own tests, which need a few seconds.
const fn defaults(accelerator: Accelerator) -> (f64, f64) {
    match accelerator {
        Accelerator::Kvm => (20.0, 60.0),
        Accelerator::Tcg => (60.0, 120.0),
    }
}

/// No host is believed to be more than this many times slower.
const MAX_STRETCH: f64 = 10.0;

/// The limits of a boot. `measured` is the longest boot seen on this host, in
/// seconds; a quick host does not shorten the defaults. A `counted` guest has
/// [`COUNTED`] times as long.
#[must_use]
pub fn limits(
    plan: &Deadlines,
    accelerator: Accelerator,
    measured: Option<f64>,
    counted: bool,
) -> Limits {
    let stretch =
        measured.map_or(1.0, |seconds| seconds / reference(accelerator)).clamp(1.0, MAX_STRETCH);
    let (boot, test) = defaults(accelerator);
    let slower = if counted { COUNTED } else { 1 };
    Limits {
        boot: slower * plan.boot.unwrap_or_else(|| Duration::from_secs_f64(boot * stretch)),
        test: slower * plan.test.unwrap_or_else(|| Duration::from_secs_f64(test * stretch)),
    }
}

/// A guest whose instructions are counted takes some ten times as long to boot (8 to
/// 14 s where the others take one): a plan's deadlines are meant for the others.
const COUNTED: u32 = 10;

/// The longest boot that was seen on this host, kept in the store.
#[derive(Debug)]
pub struct Measured {
    file: PathBuf,
    kept: Kept,
}

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Kept {
    boot_seconds: Option<f64>,
}

impl Measured {
    /// Reads what was kept for an accelerator.
    #[must_use]
    pub fn read(store: &Store, host_key: &str, accelerator: Accelerator) -> Self {
        let file = store.path("probes", &format!("{host_key}-{accelerator}-boot.json"));
        let kept = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self { file, kept: kept.unwrap_or_default() }
    }

    /// The longest boot in seconds.
    #[must_use]
    pub fn boot_seconds(&self) -> Option<f64> {
        self.kept.boot_seconds
    }

    /// Takes note of a boot; only a longer one than any before is kept.
    pub fn learn(&mut self, seconds: f64) {
        if self.kept.boot_seconds.is_none_or(|longest| seconds > longest) {
            self.kept.boot_seconds = Some(seconds);
            // What cannot be kept is measured again.
            let _ = write_atomically(&self.file, &crate::report::json::pretty(&self.kept));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_hosts_get_more_time_and_quick_ones_no_less() {
        let plan = Deadlines { boot: None, test: None };
        let seconds =
            |measured| limits(&plan, Accelerator::Tcg, measured, false).boot.as_secs_f64();
        assert_eq!(seconds(None), 60.0);
        assert_eq!(seconds(Some(0.5)), 60.0);
        assert_eq!(seconds(Some(6.0)), 180.0);
        assert_eq!(seconds(Some(1e9)), 600.0);
        let plan = Deadlines { boot: Some(Duration::from_secs(7)), test: None };
        assert_eq!(limits(&plan, Accelerator::Kvm, Some(6.0), false).boot.as_secs(), 7);
        assert_eq!(limits(&plan, Accelerator::Tcg, None, true).boot.as_secs(), 70);
    }

    #[test]
    fn the_longest_boot_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let read = || Measured::read(&store, "host", Accelerator::Tcg);
        assert_eq!(read().boot_seconds(), None);
        read().learn(2.0);
        read().learn(1.0);
        assert_eq!(read().boot_seconds(), Some(2.0));
    }
}
