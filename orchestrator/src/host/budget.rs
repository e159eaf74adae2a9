// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs and memory, shared by every build and guest of every kvet of a user.
//!
//! A claim is a file in one folder, locked by whoever holds it: the kernel drops
//! the lock of a process that dies, so a killed kvet gives everything back.
//! Waiters are files, too, and served in the order in which they came: a build
//! that wants every CPU is not overtaken for ever by small guests.
//!
//! Nobody may wait for anything else of kvet's while holding a claim.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::run::event::{Events, RunEvent};

/// The folder of claims in a folder that has others, too.
pub(crate) const FALLBACK: &str = "budget";
/// Time between two tries.
const POLL: Duration = Duration::from_millis(50);
/// Time between two tries to look at the claims.
const LEDGER_POLL: Duration = Duration::from_millis(5);
/// How long the claims are waited for without a word: looking at them takes
/// milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is left to the user's other programs: a twentieth of the memory, and at
/// least this.
const MIN_RESERVE_BYTES: u64 = 256 << 20;
/// What QEMU takes beside its guest's memory: translated code and its own heap,
/// measured at 60 to 150 MiB for small guests under TCG.
pub const QEMU_OVERHEAD_BYTES: u64 = 192 << 20;

/// What something needs while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// CPUs that it keeps busy; more than there are count as all.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Nothing else may run beside it.
    #[serde(default)]
    pub alone: bool,
}

/// The budget of this user on this host.
#[derive(Debug, Clone)]
pub struct Budget {
    folder: PathBuf,
    cpus: u32,
    /// Most memory in bytes that all claims may come to; what is free when none.
    limit: Option<u64>,
}

/// A part of the budget, held until it is dropped.
#[derive(Debug)]
pub struct Claim {
    file: File,
    path: PathBuf,
    entry: Entry,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Entry {
    need: Need,
    /// The process whose resident memory is already missing from what is free.
    process: Option<u32>,
}

impl Claim {
    /// Says which process uses it, so that what that process has already taken
    /// is not counted twice.
    pub fn used_by(&mut self, process: u32) {
        self.entry.process = Some(process);
        // Without it the claim only counts for more than it is.
        let _ = write(&mut self.file, &self.entry);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Memory of the host in bytes.
#[derive(Debug, Clone, Copy)]
struct Memory {
    total: u64,
    available: u64,
}

impl Memory {
    fn read() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/meminfo")?;
        match (kib_field(&text, "MemTotal:"), kib_field(&text, "MemAvailable:")) {
            (Some(total), Some(available)) => Ok(Self { total, available }),
            _ => Err(io::Error::other("/proc/meminfo does not say what is free")),
        }
    }

    fn reserve(self) -> u64 {
        (self.total / 20).max(MIN_RESERVE_BYTES)
    }
}

impl Budget {
    /// The user's budget: `cpus` in all, and at most `limit` bytes of memory
    /// where it is given. `fallback` holds the claims where the host has no
    /// runtime folder for the user.
    ///
    /// # Errors
    /// An `infra` fault when its folder cannot be made.
    pub fn open(fallback: &Path, cpus: u32, limit: Option<u64>) -> Result<Self, Fault> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        let folder = match runtime.map(PathBuf::from) {
            Some(runtime) if runtime.is_dir() => runtime.join("kvet"),
            _ => fallback.join(FALLBACK),
        };
        std::fs::create_dir_all(&folder)
            .map_err(|error| Fault::io(format!("make {}", folder.display()), &error))?;
        Ok(Self { folder, cpus: cpus.max(1), limit })
    }

    /// CPUs that builds and guests share.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Whether `need` fits on this host when nothing else runs.
    ///
    /// # Errors
    /// One line: why it never will.
    pub fn check(&self, need: Need) -> Result<(), String> {
        let Ok(memory) = Memory::read() else { return Ok(()) };
        let most = memory.total.saturating_sub(memory.reserve());
        let (most, whose) = match self.limit {
            Some(limit) if limit < most => (limit, "--memory allows"),
            _ => (most, "this host has"),
        };
        if need.memory <= most {
            return Ok(());
        }
        Err(format!(
            "it needs {} with QEMU's own, and {whose} {}",
            ByteSize(need.memory),
            ByteSize(most)
        ))
    }

    /// How many of `need` the CPUs and the memory are enough for, at least one.
    #[must_use]
    pub fn at_once(&self, need: Need) -> usize {
        let memory = Memory::read().map_or(u64::MAX, |memory| memory.available);
        let memory = self.limit.map_or(memory, |limit| memory.min(limit));
        let by_memory = memory / need.memory.max(1);
        let by_cpus = u64::from(self.cpus / need.cpus.max(1));
        usize::try_from(by_cpus.min(by_memory)).unwrap_or(usize::MAX).max(1)
    }

    /// Waits until `need` fits beside what runs, and takes it. Safe to cancel. What
    /// needs more than `--memory` allows gets all of that: only a build does, since
    /// guests are checked before ([`Self::check`]), and it may turn out to need less.
    ///
    /// # Errors
    /// An `infra` fault when the claim cannot be written.
    pub async fn claim(&self, task: &str, need: Need, events: &Events) -> Result<Claim, Fault> {
        let memory = self.limit.map_or(need.memory, |limit| need.memory.min(limit));
        let need = Need { cpus: need.cpus.clamp(1, self.cpus), memory, ..need };
        let failed = |error: io::Error| {
            Fault::io(format!("share this host, in {}", self.folder.display()), &error)
        };
        let mut ticket = None;
        loop {
            let ledger = self.ledger(task, events).await.map_err(failed)?;
            let obstacle = match self.try_claim(need, ticket.as_ref(), &ledger).map_err(failed)? {
                Ok(claim) => return Ok(claim),
                Err(obstacle) => obstacle,
            };
            if ticket.is_none() {
                ticket = Some(self.ticket(&ledger).map_err(failed)?);
                events.send(&RunEvent::Waiting { what: format!("{obstacle}, for {task}") });
            }
            drop(ledger);
            tokio::time::sleep(POLL).await;
        }
    }

    /// The right to look at the claims and to change them. Nobody keeps it for long,
    /// unless he is stopped.
    async fn ledger(&self, task: &str, events: &Events) -> io::Result<Ledger> {
        let file = File::create(self.folder.join("lock"))?;
        let began = Instant::now();
        let mut said = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Ledger { _file: file }),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
            if !said && began.elapsed() > PATIENCE {
                let lock = self.folder.join("lock");
                let what = format!("{}, which a stopped kvet holds, for {task}", lock.display());
                events.send(&RunEvent::Waiting { what });
                said = true;
            }
            tokio::time::sleep(LEDGER_POLL).await;
        }
    }

    fn try_claim(
        &self,
        need: Need,
        ticket: Option<&Ticket>,
        _ledger: &Ledger,
    ) -> io::Result<Result<Claim, String>> {
        let mut held = Vec::new();
        let mut first: Option<String> = None;
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let waiter = name.starts_with("wait-");
            if !waiter && !name.starts_with("claim-") {
                continue;
            }
            if ticket.is_some_and(|own| own.name == name) {
                continue;
            }
            match read_locked(&entry.path()) {
                Holder::Nobody => drop(std::fs::remove_file(entry.path())),
                // Given back at this moment, or another user's.
                Holder::Unknown => {}
                Holder::Somebody(_) if waiter => {
                    if ticket.is_none_or(|own| name < own.name)
                        && first.as_ref().is_none_or(|earlier| name < *earlier)
                    {
                        first = Some(name);
                    }
                }
                // Half-written by a process that is about to fill it: it counts
                // once it can be read, which the ledger's lock makes now.
                Holder::Somebody(text) => held.extend(serde_json::from_slice::<Entry>(&text).ok()),
            }
        }
        if let Some(earlier) = first {
            // wait-TIME-PROCESS-NUMBER
            let process = earlier.split('-').nth(2).unwrap_or_default();
            let whom = match process == std::process::id().to_string() {
                true => "this kvet's own".to_owned(),
                false => format!("another kvet's, process {process}"),
            };
            return Ok(Err(format!("its turn, after {whom}")));
        }
        if let Some(obstacle) = self.obstacle(need, &held, Memory::read()?, resident) {
            return Ok(Err(obstacle));
        }
        let path = self.folder.join(unique("claim"));
        let mut file = File::options().create_new(true).read(true).write(true).open(&path)?;
        file.lock()?;
        let entry = Entry { need, process: None };
        write(&mut file, &entry)?;
        Ok(Ok(Claim { file, path, entry }))
    }

    /// Why `need` does not fit beside what is held, if it does not.
    fn obstacle(
        &self,
        need: Need,
        held: &[Entry],
        memory: Memory,
        resident: impl Fn(u32) -> u64,
    ) -> Option<String> {
        if held.iter().any(|entry| entry.need.alone) || (need.alone && !held.is_empty()) {
            return Some("the host alone".to_owned());
        }
        let cpus: u32 = held.iter().map(|entry| entry.need.cpus).sum();
        if cpus.saturating_add(need.cpus) > self.cpus {
            let free = self.cpus.saturating_sub(cpus);
            return Some(format!("{} CPUs, {free} free", need.cpus));
        }
        // What a guest has touched is no longer available; the rest of its claim
        // is promised to it.
        let promised: u64 = held
            .iter()
            .map(|entry| entry.need.memory.saturating_sub(entry.process.map_or(0, &resident)))
            .sum();
        let mut free = memory.available.saturating_sub(promised).saturating_sub(memory.reserve());
        if let Some(limit) = self.limit {
            let taken: u64 = held.iter().map(|entry| entry.need.memory).sum();
            free = free.min(limit.saturating_sub(taken));
        }
        (need.memory > free).then(|| {
            format!("{} of memory, of which {} are free", ByteSize(need.memory), ByteSize(free))
        })
    }

    fn ticket(&self, _ledger: &Ledger) -> io::Result<Ticket> {
        let name = unique("wait");
        let path = self.folder.join(&name);
        let file = File::options().create_new(true).write(true).open(&path)?;
        file.lock()?;
        Ok(Ticket { name, path, _file: file })
    }
}

/// The lock on all claims, held until it is dropped.
struct Ledger {
    _file: File,
}

/// A place in the queue, given up when it is dropped.
#[derive(Debug)]
struct Ticket {
    name: String,
    path: PathBuf,
    _file: File,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A name that sorts by when it was made and that no other process makes.
fn unique(kind: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanoseconds = now.unwrap_or_default().as_nanos();
    format!("{kind}-{nanoseconds:020}-{}-{count}", std::process::id())
}

fn write(file: &mut File, entry: &Entry) -> io::Result<()> {
    file.rewind()?;
    let text = serde_json::to_vec(entry)?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)
}

/// Who holds a claim or a place in the queue.
enum Holder {
    /// A living process, and what it wrote.
    Somebody(Vec<u8>),
    /// A process that is gone.
    Nobody,
    /// The file cannot be looked at.
    Unknown,
}

fn read_locked(path: &Path) -> Holder {
    let Ok(mut file) = File::open(path) else { return Holder::Unknown };
    match file.try_lock_shared() {
        Ok(()) => Holder::Nobody,
        Err(TryLockError::Error(_)) => Holder::Unknown,
        Err(TryLockError::WouldBlock) => {
            let mut text = Vec::new();
            match file.read_to_end(&mut text) {
                Ok(_) => Holder::Somebody(text),
                Err(_) => Holder::Unknown,
            }
        }
    }
}

/// Memory in bytes that only this process has, so that it is missing from what is
/// available; 0 when the process is gone.
fn resident(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let own = ["RssAnon:", "RssShmem:"].map(|name| kib_field(&text, name).unwrap_or(0));
    own.iter().sum()
}

/// A field of /proc/meminfo or /proc/PID/status, in bytes.
pub(super) fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn budget(folder: &Path, cpus: u32, limit: Option<u64>) -> Budget {
        Budget { folder: folder.to_owned(), cpus, limit }
    }

    fn need(cpus: u32, memory: u64) -> Need {
        Need { cpus, memory, alone: false }
    }

    fn entry(cpus: u32, memory: u64, process: Option<u32>) -> Entry {
        Entry { need: need(cpus, memory), process }
    }

    #[test]
    fn what_a_guest_has_touched_is_counted_once() {
        let budget = budget(Path::new("/nowhere"), 8, None);
        let memory = Memory { total: 16 * GIB, available: 4 * GIB };
        let resident = |process| if process == 7 { GIB } else { 0 };
        let obstacle = |held: &[Entry], wanted| budget.obstacle(wanted, held, memory, resident);
        assert_eq!(obstacle(&[], need(1, 3 * GIB)), None);
        assert!(obstacle(&[], need(1, 4 * GIB)).unwrap().contains("of memory"));
        let untouched = [entry(1, 2 * GIB, None)];
        assert_eq!(obstacle(&untouched, need(1, GIB)), None);
        assert!(obstacle(&untouched, need(1, 2 * GIB)).is_some());
        let touched = [entry(1, 2 * GIB, Some(7))];
        assert_eq!(obstacle(&touched, need(1, 2 * GIB)), None);
    }

    #[test]
    fn guests_that_fill_their_memory_never_come_to_more_than_is_free() {
        let budget = budget(Path::new("/nowhere"), 8, None);
        let guest = need(1, GIB + QEMU_OVERHEAD_BYTES);
        // 16 GiB, of which 4 GiB are free and 0.8 GiB stay so: room for two.
        for quarter in 0..=4 {
            let touched = guest.memory / 4 * quarter;
            for running in 0..=3u64 {
                let memory = Memory { total: 16 * GIB, available: 4 * GIB - running * touched };
                let process = |number| Entry { need: guest, process: Some(number) };
                let held: Vec<_> = (0..running as u32).map(process).collect();
                let fits = budget.obstacle(guest, &held, memory, |_| touched).is_none();
                assert_eq!(fits, running < 2, "{running} guests, {quarter} quarters");
            }
        }
    }

    #[test]
    fn cpus_and_solitude_are_kept() {
        let budget = budget(Path::new("/nowhere"), 2, Some(4 * GIB));
        let memory = Memory { total: 64 * GIB, available: 60 * GIB };
        let obstacle = |held: &[Entry], wanted| budget.obstacle(wanted, held, memory, |_| 0);
        let one = [entry(1, GIB, None)];
        assert_eq!(obstacle(&one, need(1, GIB)), None);
        assert!(obstacle(&one, need(2, GIB)).unwrap().contains("2 CPUs, 1 free"));
        assert!(obstacle(&one, need(1, 4 * GIB)).unwrap().contains("3.0 GiB are free"));
        let alone = Need { alone: true, ..need(1, 0) };
        assert_eq!(obstacle(&[], alone), None);
        assert!(obstacle(&one, alone).is_some());
        assert!(obstacle(&[Entry { need: alone, process: None }], need(1, 0)).is_some());
    }

    #[test]
    fn what_never_fits_is_known_at_once() {
        let budget = budget(Path::new("/nowhere"), 2, Some(GIB));
        assert_eq!(budget.check(need(1, GIB)), Ok(()));
        assert!(budget.check(need(1, 2 * GIB)).unwrap_err().contains("--memory allows 1.0 GiB"));
        let host = Budget { limit: None, ..budget };
        assert!(host.check(need(1, u64::MAX)).unwrap_err().contains("this host has"));
    }

    #[tokio::test]
    async fn claims_are_given_back_and_served_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let budget = budget(folder.path(), 2, None);
        let events = Events::default();
        let claim = |task: &'static str, cpus| {
            let (budget, events) = (budget.clone(), events.clone());
            async move { budget.claim(task, need(cpus, 0), &events).await.unwrap() }
        };
        let first = claim("first", 1).await;
        let second = tokio::spawn(claim("second", 2));
        tokio::time::sleep(POLL * 4).await;
        // It would fit, but the second came before it.
        let third = tokio::spawn(claim("third", 1));
        tokio::time::sleep(POLL * 4).await;
        assert!(!second.is_finished() && !third.is_finished());
        drop(first);
        let second = second.await.unwrap();
        assert!(!third.is_finished());
        drop(second);
        drop(third.await.unwrap());
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name != "lock")
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[tokio::test]
    async fn a_stopped_kvet_with_the_ledger_is_waited_for_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let lock = File::create(folder.path().join("lock")).unwrap();
        lock.lock().unwrap();
        let budget = budget(folder.path(), 2, None);
        let events = Events::default();
        let (sender, receiver) = std::sync::mpsc::channel();
        events.subscribe(move |event| sender.send(event.clone()).unwrap());
        let mut claiming = Box::pin(budget.claim("mine", need(2, 0), &events));
        let waited = tokio::time::timeout(PATIENCE + Duration::from_secs(1), &mut claiming).await;
        assert!(waited.is_err());
        assert!(
            matches!(receiver.try_recv(), Ok(RunEvent::Waiting { what }) if what.contains("stopped kvet"))
        );
        drop(lock);
        claiming.await.unwrap();
    }

    #[tokio::test]
    async fn a_build_that_wants_more_than_is_allowed_does_not_wait_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let budget = budget(folder.path(), 2, Some(64 << 20));
        let events = Events::default();
        let claiming = budget.claim("build", need(2, GIB), &events);
        let claim = tokio::time::timeout(Duration::from_secs(5), claiming).await.unwrap().unwrap();
        assert_eq!(claim.entry.need, need(2, 64 << 20));
    }

    #[tokio::test]
    async fn what_a_dead_process_held_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let dead = serde_json::to_string(&entry(2, 0, None)).unwrap();
        std::fs::write(folder.path().join("claim-1-1-1"), dead).unwrap();
        std::fs::write(folder.path().join("wait-0-1-1"), "").unwrap();
        let budget = budget(folder.path(), 2, None);
        let events = Events::default();
        let claiming = budget.claim("mine", need(2, 0), &events);
        tokio::time::timeout(Duration::from_secs(5), claiming).await.unwrap().unwrap();
        assert!(!folder.path().join("claim-1-1-1").exists());
    }
}
