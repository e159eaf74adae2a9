// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lets an interrupted run go on: each boot with a result leaves `boot.json`
//! beside its traces, with everything that the result depends on. A run that is
//! resumed takes it instead of booting, and refuses when what it depends on is no
//! longer the same.

use std::path::Path;

use kvet_records::Job;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pipeline::Selection;
use crate::fault::{Blame, Fault};
use crate::plan::Plan;
use crate::report::json::pretty;
use crate::store::write_atomically;
use crate::vm::halt::BootReport;
use crate::vm::spec::VmSpec;

const BOOT: &str = "boot.json";
const INTENT: &str = "intent.json";

/// What a boot's result depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// kvet's version.
    kvet: String,
    /// SHA-256 of the bootable image.
    image: String,
    /// Name of the initramfs in the store, which is its hash.
    initramfs: String,
    /// First line of QEMU's `--version`.
    qemu: String,
    /// The machine, without the names of files and of the boot.
    machine: Value,
    /// What the guest was told to do.
    job: Job,
    /// Booted from power-on.
    cold: bool,
}

impl Inputs {
    /// The inputs of one boot.
    #[must_use]
    pub fn new(spec: &VmSpec, image_sha256: &str, qemu: &str, job: &Job, cold: bool) -> Self {
        let stem = spec.initramfs.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut machine = serde_json::to_value(spec).unwrap_or_default();
        if let Some(fields) = machine.as_object_mut() {
            for name in ["name", "qemu", "kernel", "initramfs"] {
                fields.remove(name);
            }
        }
        Self {
            kvet: env!("CARGO_PKG_VERSION").to_owned(),
            image: image_sha256.to_owned(),
            initramfs: stem,
            qemu: qemu.to_owned(),
            machine,
            job: job.clone(),
            cold,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Finished {
    inputs: Inputs,
    report: BootReport,
}

/// Keeps the report of a boot, unless only the host or the user is to blame for
/// its end: such a boot is tried again.
///
/// # Errors
/// An `infra` fault when it cannot be written.
pub fn keep(folder: &Path, inputs: Inputs, report: &BootReport) -> Result<(), Fault> {
    let fault = report.fault("");
    if fault.is_some_and(|fault| matches!(fault.blame, Blame::Infra | Blame::Interrupt)) {
        return Ok(());
    }
    let finished = Finished { inputs, report: report.clone() };
    write_atomically(&folder.join(BOOT), &pretty(&finished))
}

/// The report that an earlier life of the run kept for this boot, if it got there.
///
/// # Errors
/// A `plan` fault when the boot would not be the same today, with what changed.
pub fn kept(folder: &Path, inputs: &Inputs) -> Result<Option<BootReport>, Fault> {
    let path = folder.join(BOOT);
    let Ok(text) = std::fs::read(&path) else { return Ok(None) };
    // Written by one rename: what cannot be read is of another kvet.
    let Ok(finished) = serde_json::from_slice::<Finished>(&text) else {
        return Err(refused("another kvet wrote this boot's result", "").at(path.display()));
    };
    if finished.inputs == *inputs {
        return Ok(Some(finished.report));
    }
    let value = |inputs: &Inputs| serde_json::to_value(inputs).unwrap_or_default();
    let lines = differences("", &value(&finished.inputs), &value(inputs)).join("\n");
    Err(refused("what this boot depends on has changed since", &lines).at(path.display()))
}

/// What a run is about, written before anything else.
///
/// # Errors
/// An `infra` fault when it cannot be written.
pub fn intend(folder: &Path, plan: &Plan, selection: &Selection) -> Result<(), Fault> {
    intend_value(folder, &intent(plan, selection))
}

/// [`intend`] of whatever a run may be about.
///
/// # Errors
/// As [`intend`].
pub fn intend_value(folder: &Path, value: &impl Serialize) -> Result<(), Fault> {
    write_atomically(&folder.join(INTENT), &pretty(value))
}

/// Whether a run has written what it is about.
#[must_use]
pub fn is_intended(folder: &Path) -> bool {
    folder.join(INTENT).exists()
}

/// Whether a run is about this plan, as it is today.
///
/// # Errors
/// A `plan` fault when it is not, with what changed.
pub fn check(folder: &Path, plan: &Plan, selection: &Selection) -> Result<(), Fault> {
    check_value(folder, &intent(plan, selection))
}

/// [`check`] of whatever a run may be about.
///
/// # Errors
/// As [`check`].
pub fn check_value(folder: &Path, value: &impl Serialize) -> Result<(), Fault> {
    let path = folder.join(INTENT);
    let wrong = |what: String| {
        Fault::plan(what).at(path.display()).help("name the folder of a run that was interrupted")
    };
    let text = std::fs::read(&path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let then: Value = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("not the intent of a run: {error}")))?;
    let now = serde_json::to_value(value).unwrap_or_default();
    let lines = differences("", &then, &now);
    match lines.is_empty() {
        true => Ok(()),
        false => Err(refused("the plan or the selection has changed since", &lines.join("\n"))
            .at(path.display())),
    }
}

fn intent(plan: &Plan, selection: &Selection) -> Value {
    serde_json::json!({ "plan": plan, "selection": selection })
}

fn refused(what: &str, evidence: &str) -> Fault {
    Fault::plan(format!("cannot be resumed: {what}")).evidence(evidence).help(
        "start a new run without --resume; finished boots of one run must all be of one thing",
    )
}

/// Where two documents differ, one line each: the place, then and now.
fn differences(place: &str, then: &Value, now: &Value) -> Vec<String> {
    let inner = |name: &str| {
        if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
    };
    match (then, now) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
            names.sort();
            names.dedup();
            let value = |side: &serde_json::Map<String, Value>, name: &str| {
                side.get(name).cloned().unwrap_or_default()
            };
            names
                .into_iter()
                .flat_map(|name| differences(&inner(name), &value(a, name), &value(b, name)))
                .collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let both = a.iter().zip(b).enumerate();
            both.flat_map(|(at, (a, b))| differences(&inner(&at.to_string()), a, b)).collect()
        }
        _ if then == now => Vec::new(),
        _ => {
            let (then, now) = (then.to_string(), now.to_string());
            let same = then.chars().zip(now.chars()).take_while(|(a, b)| a == b).count();
            vec![format!("{place}: {}, now {}", short(&then, same), short(&now, same))]
        }
    }
}

/// A value's JSON, cut so that what comes after its first `same` characters is seen.
fn short(text: &str, same: usize) -> String {
    const SHOWN: usize = 60;
    let total = text.chars().count();
    let from = if total <= SHOWN { 0 } else { same.saturating_sub(SHOWN / 3) };
    let shown: String = text.chars().skip(from).take(SHOWN).collect();
    let (before, after) = (if from > 0 { "…" } else { "" }, from + SHOWN < total);
    format!("{before}{shown}{}", if after { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_name_their_place() {
        let then = json!({"a": {"b": [1, 2]}, "c": "x", "gone": true});
        let now = json!({"a": {"b": [1, 3]}, "c": "x"});
        assert_eq!(differences("", &then, &now), ["a.b.1: 2, now 3", "gone: true, now null"]);
        assert!(differences("", &then, &then).is_empty());
        assert_eq!(differences("", &json!([1]), &json!([1, 2])), [": [1], now [1,2]"]);
        // Long ones are shown from where they differ.
        let long = |end: &str| json!(format!("{}{end}", "x".repeat(100)));
        let lines = differences("", &json!({"a": long("yes")}), &json!({"a": long("no")}));
        let shown = "…".to_owned() + &"x".repeat(20);
        assert_eq!(lines, [format!("a: {shown}yes\", now {shown}no\"")]);
    }
}
