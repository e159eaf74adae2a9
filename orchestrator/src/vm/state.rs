// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saved machines: a guest that is up and waits for its job, written to the
//! store once and restored for every test, so that each test has a fresh
//! machine without a boot.
//!
//! QEMU writes and reads the state through a descriptor that it is handed over
//! QMP (`getfd`, then `migrate` or `migrate-incoming` with `fd:NAME`), which
//! works from QEMU 7.2 on and under every `-sandbox` switch. With the memory
//! are kept the console and the records up to that moment: a restored boot
//! replays them first, so what the kernel said while it booted belongs to every
//! boot that starts there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use super::command_line::{CHANNELS, arguments};
use super::qmp::{Qmp, QmpError};
use super::spec::{Accelerator, VmSpec};
use crate::fault::Fault;
use crate::report::json::pretty;
use crate::store::{Scratch, Store, key, touch};

/// Changes whenever a state written by an older kvet must not be used.
const RECIPE: &str = "kvet/state/1";
/// Time between two looks at a migration.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// QEMU's default limit, 128 MiB a second, is for networks.
const BANDWIDTH: u64 = 64 << 30;

/// Most bytes that all states may take: some eighty of guests that have just come up.
const MAX_BYTES: u64 = 4 << 30;
/// Room that a state is expected to need where none shows how large they are: a guest
/// of 512 MiB that has just come up takes 30 to 60 MiB.
const USUAL_BYTES: u64 = 64 << 20;

const MEMORY: &str = "memory";
const CONSOLE: &str = "console";
const RECORDS: &str = "records";
const META: &str = "state.json";

/// How a boot starts.
#[derive(Debug, Clone)]
pub enum Start {
    /// From power-on.
    Cold,
    /// From power-on, without a job: once the guest waits for one, its state is
    /// written to this file, and the boot ends.
    Save(PathBuf),
    /// From a saved state.
    Restored(SavedState),
}

/// A state in the store, read and verified.
#[derive(Debug, Clone)]
pub struct SavedState {
    folder: PathBuf,
    /// The console up to the moment of the save.
    pub console: Vec<u8>,
    /// The records up to then: whole lines.
    pub records: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Meta {
    recipe: String,
    qemu: String,
    /// blake3 of the memory, the console and the records.
    hash: String,
}

/// Name of a VM's state in the store: everything that the state depends on. The
/// VM's name is no part of it. `qemu` is what `--version` says.
#[must_use]
pub fn state_key(spec: &VmSpec, qemu: &str, image_sha256: &str) -> String {
    let unnamed = VmSpec { name: String::new(), ..spec.clone() };
    let program = std::fs::canonicalize(&spec.qemu).unwrap_or_else(|_| spec.qemu.clone());
    let changed = std::fs::metadata(&program).and_then(|data| data.modified());
    let program = format!("{} {:?}", program.display(), changed.ok());
    // Another host CPU may lack what the guest has seen of this one.
    let cpu = match spec.accelerator {
        Accelerator::Kvm => host_cpu(),
        Accelerator::Tcg => String::new(),
    };
    let arguments = arguments(&unnamed, &CHANNELS).join("\n");
    key([RECIPE, qemu, &program, &cpu, image_sha256, &arguments].map(str::as_bytes))
}

/// The host's CPU and kernel, as far as a KVM guest sees them.
fn host_cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = info.split("\n\n").next().unwrap_or_default();
    let kept = first.lines().filter(|line| {
        ["model name", "stepping", "microcode", "flags"].iter().any(|name| line.starts_with(name))
    });
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    format!("{release}\n{}", kept.collect::<Vec<_>>().join("\n"))
}

/// The state of that key, if the store has it whole; a damaged one is removed.
#[must_use]
pub fn find(store: &Store, name: &str) -> Option<SavedState> {
    let folder = store.path("states", name);
    let state = read(&folder).ok();
    if state.is_some() {
        // When it was used last is what pruning goes by.
        touch(&folder);
    } else {
        let _ = std::fs::remove_dir_all(&folder);
    }
    state
}

/// Forgets a state that cannot be restored.
pub fn forget(store: &Store, name: &str) {
    let _ = std::fs::remove_dir_all(store.path("states", name));
}

/// Where a boot with [`Start::Save`] is to write the memory.
#[must_use]
pub fn memory_file(scratch: &Scratch) -> PathBuf {
    scratch.path().join("state").join(MEMORY)
}

/// Puts what such a boot left into the store. `traces` is the boot's folder.
///
/// # Errors
/// An `infra` fault when the store cannot be written.
pub fn keep(
    store: &Store,
    name: &str,
    scratch: &Scratch,
    traces: &Path,
    qemu: &str,
) -> Result<(), Fault> {
    let folder = scratch.path().join("state");
    let write = || -> io::Result<()> {
        std::fs::copy(traces.join("console.log"), folder.join(CONSOLE))?;
        std::fs::copy(traces.join("records.jsonl"), folder.join(RECORDS))?;
        let hash = hash(&folder)?;
        let meta = Meta { recipe: RECIPE.to_owned(), qemu: qemu.to_owned(), hash };
        std::fs::write(folder.join(META), pretty(&meta))?;
        File::open(folder.join(MEMORY))?.sync_data()
    };
    write().map_err(|error| Fault::io("keep the machine's state", &error))?;
    store.publish(&folder, "states", name)?;
    prune(&store.path("states", ""), name, MAX_BYTES);
    Ok(())
}

/// Makes room on the store's file system for one more state, by removing those that
/// were used longest ago, except the ones in `used`. `wanted` is in bytes; without it,
/// room is made for one as large as the largest there is.
///
/// # Errors
/// One line: how much is free, which is too little.
pub fn make_room(
    store: &Store,
    used: &BTreeSet<String>,
    wanted: Option<u64>,
) -> Result<(), String> {
    let states = store.path("states", "");
    make_room_in(&states, used, wanted, || free_bytes(&states))
}

fn make_room_in(
    states: &Path,
    used: &BTreeSet<String>,
    wanted: Option<u64>,
    free: impl Fn() -> Option<u64>,
) -> Result<(), String> {
    let oldest_first = stored(states);
    let largest = oldest_first.iter().map(|state| size(&state.folder)).max();
    let wanted = wanted.unwrap_or_else(|| largest.map_or(USUAL_BYTES, |most| most / 4 * 5));
    for state in oldest_first.iter().filter(|state| !used.contains(&state.name)) {
        match free() {
            Some(free) if free < wanted => drop(std::fs::remove_dir_all(&state.folder)),
            _ => return Ok(()),
        }
    }
    match free() {
        Some(free) if free < wanted => Err(format!(
            "the cache's file system has {} free, and a saved machine takes about {}",
            ByteSize(free),
            ByteSize(wanted)
        )),
        _ => Ok(()),
    }
}

/// Bytes that a user may still write to the file system; none when it does not say.
fn free_bytes(folder: &Path) -> Option<u64> {
    let data = rustix::fs::statvfs(folder).ok()?;
    data.f_bavail.checked_mul(data.f_frsize)
}

/// A state's folder in the store.
struct Stored {
    /// When it was used last.
    used: SystemTime,
    name: String,
    folder: PathBuf,
}

/// All states, the one that was used longest ago first.
fn stored(states: &Path) -> Vec<Stored> {
    let mut found: Vec<Stored> = std::fs::read_dir(states)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some(Stored {
                used: entry.metadata().ok()?.modified().ok()?,
                name: entry.file_name().into_string().ok()?,
                folder: entry.path(),
            })
        })
        .collect();
    found.sort_by(|a, b| (a.used, &a.name).cmp(&(b.used, &b.name)));
    found
}

fn size(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// Removes the states that were used longest ago until the rest fits in `limit`
/// bytes. A boot that was about to restore one of them starts cold and says so.
fn prune(states: &Path, newest: &str, limit: u64) {
    let mut total = size(&states.join(newest));
    for state in stored(states).into_iter().rev().filter(|state| state.name != newest) {
        total = total.saturating_add(size(&state.folder));
        if total > limit {
            let _ = std::fs::remove_dir_all(state.folder);
        }
    }
}

fn read(folder: &Path) -> io::Result<SavedState> {
    let meta: Meta = serde_json::from_slice(&std::fs::read(folder.join(META))?)?;
    if meta.recipe != RECIPE || meta.hash != hash(folder)? {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(SavedState {
        folder: folder.to_owned(),
        console: std::fs::read(folder.join(CONSOLE))?,
        records: std::fs::read(folder.join(RECORDS))?,
    })
}

fn hash(folder: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    for name in [MEMORY, CONSOLE, RECORDS] {
        let mut file = File::open(folder.join(name))?;
        hasher.update(&file.metadata()?.len().to_le_bytes());
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            };
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Why a state was not written or not read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file cannot be used.
    #[error("{0}")]
    File(#[from] io::Error),
    /// QEMU refused, or is gone.
    #[error("{0}")]
    Qmp(#[from] QmpError),
    /// QEMU began, and failed.
    #[error("the migration ended as {status:?}{}", if description.is_empty() { String::new() } else { format!(": {description}") })]
    Migration {
        /// QEMU's status.
        status: String,
        /// QEMU's words.
        description: String,
    },
}

/// Writes the state of a stopped VM to a file.
///
/// # Errors
/// When the file cannot be made, or QEMU fails.
pub async fn save(qmp: &mut Qmp, memory: &Path) -> Result<(), StateError> {
    if let Some(folder) = memory.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let file = File::create(memory)?;
    qmp.execute(&SetBandwidth { max_bandwidth: BANDWIDTH }).await?;
    qmp.send_fd(MEMORY, file.as_fd()).await?;
    let uri = Some(format!("fd:{MEMORY}"));
    qmp.execute(&qapi::qmp::migrate { channels: None, detach: None, resume: None, uri }).await?;
    migrated(qmp).await
}

/// Reads a state into a VM that was started with `-incoming defer`, and leaves
/// it stopped.
///
/// # Errors
/// When the file cannot be read, or QEMU does not take it.
pub async fn restore(qmp: &mut Qmp, state: &SavedState) -> Result<(), StateError> {
    let file = File::open(state.folder.join(MEMORY))?;
    qmp.send_fd(MEMORY, file.as_fd()).await?;
    qmp.execute(&MigrateIncoming { uri: format!("fd:{MEMORY}") }).await?;
    migrated(qmp).await
}

async fn migrated(qmp: &mut Qmp) -> Result<(), StateError> {
    loop {
        let info = qmp.execute(&QueryMigrate {}).await?;
        match info.status.as_deref() {
            Some("completed") => return Ok(()),
            Some(status @ ("failed" | "cancelled" | "cancelling")) => {
                let description = info.description.unwrap_or_default();
                return Err(StateError::Migration { status: status.to_owned(), description });
            }
            _ => tokio::time::sleep(LOOK_INTERVAL).await,
        }
    }
}

/// Three commands in types of our own: qapi's know only the statuses and the
/// parameters of one QEMU version.
#[derive(Debug, Serialize)]
struct QueryMigrate {}

#[derive(Debug, Deserialize)]
struct MigrationInfo {
    status: Option<String>,
    #[serde(rename = "error-desc")]
    description: Option<String>,
}

impl qapi::Command for QueryMigrate {
    type Ok = MigrationInfo;
    const NAME: &'static str = "query-migrate";
    const ALLOW_OOB: bool = false;
}

#[derive(Debug, Serialize)]
struct MigrateIncoming {
    uri: String,
}

impl qapi::Command for MigrateIncoming {
    type Ok = serde_json::Value;
    const NAME: &'static str = "migrate-incoming";
    const ALLOW_OOB: bool = false;
}

#[derive(Debug, Serialize)]
struct SetBandwidth {
    #[serde(rename = "max-bandwidth")]
    max_bandwidth: u64,
}

impl qapi::Command for SetBandwidth {
    type Ok = serde_json::Value;
    const NAME: &'static str = "migrate-set-parameters";
    const ALLOW_OOB: bool = false;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States of 100 bytes with these names and ages in seconds.
    fn states(ages: &[(&str, u64)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, age) in ages {
            let state = folder.path().join(name);
            std::fs::create_dir(&state).unwrap();
            std::fs::write(state.join(MEMORY), [0; 100]).unwrap();
            let when = SystemTime::now() - Duration::from_secs(*age);
            File::open(&state).unwrap().set_modified(when).unwrap();
        }
        folder
    }

    #[test]
    fn room_is_made_from_the_states_used_longest_ago_and_none_in_use() {
        let folder = states(&[("oldest", 90), ("used", 60), ("old", 30), ("young", 10)]);
        let left = || stored(folder.path()).into_iter().map(|state| state.name).collect::<Vec<_>>();
        // A file system of 450 bytes.
        let free = || Some(450 - stored(folder.path()).len() as u64 * 100);
        let used = BTreeSet::from(["used".to_owned()]);
        let make_room = |wanted| make_room_in(folder.path(), &used, wanted, free);
        make_room(Some(50)).unwrap();
        assert_eq!(left(), ["oldest", "used", "old", "young"]);
        // As large as the largest, and a quarter: 125.
        make_room(None).unwrap();
        assert_eq!(left(), ["used", "old", "young"]);
        make_room(Some(250)).unwrap();
        assert_eq!(left(), ["used", "young"]);
        let why = make_room(Some(1000)).unwrap_err();
        assert!(why.contains("has 350 B free"), "{why}");
        assert_eq!(left(), ["used"]);
        // A file system that does not say what is free is tried.
        make_room_in(folder.path(), &used, Some(1000), || None).unwrap();
    }

    #[test]
    fn the_states_used_longest_ago_go_first() {
        let folder = states(&[("old", 30), ("older", 60), ("used", 10), ("newest", 90)]);
        prune(folder.path(), "newest", 350);
        let left = |name: &str| folder.path().join(name).exists();
        assert!(left("newest") && left("used") && left("old") && !left("older"));
        prune(folder.path(), "newest", 150);
        assert!(left("newest") && !left("used") && !left("old"));
    }
}
