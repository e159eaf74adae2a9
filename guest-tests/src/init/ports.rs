// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two virtio-serial ports to the host.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kvet_records::{JOB_PORT, MAX_LINE_BYTES, RECORDS_PORT, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest wait for the host's description of its ports. It comes in messages
/// that the driver handles after its probe, some milliseconds after boot.
/// The host's own deadline for a boot is shorter on most hosts; this is for one
/// who starts the guest by hand.
const PORTS_DEADLINE: Duration = Duration::from_secs(120);

/// Time between two looks for something that cannot be polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// When to send heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heart {
    /// Time between two; `None` for none at all.
    pub interval: Option<Duration>,
}

impl Heart {
    /// Every second, or what `kvet.heartbeat_ms=` on the kernel's command line
    /// says, 0 for none. A host on which idle guest time passes much faster than
    /// its own (icount with `sleep=off`) turns them off.
    pub fn from_command_line(command_line: &str) -> Self {
        let milliseconds = command_line
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("kvet.heartbeat_ms=")?.parse().ok())
            .next_back()
            .unwrap_or(1000);
        Self { interval: (milliseconds > 0).then(|| Duration::from_millis(milliseconds)) }
    }
}

/// How the guest waits for its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Asleep.
    Asleep,
    /// Looking again and again: `kvet.wait=spin` on the kernel's command line. Where
    /// idle guest time passes much faster than the host's, a guest that slept would
    /// find that hours have passed when its job comes.
    Spinning,
}

impl Wait {
    /// What the command line asks for.
    pub fn from_command_line(command_line: &str) -> Self {
        match command_line.split_whitespace().any(|word| word == "kvet.wait=spin") {
            true => Self::Spinning,
            false => Self::Asleep,
        }
    }
}

/// The open ports.
#[derive(Debug)]
pub struct Ports {
    /// Where records go.
    pub records: File,
    job: File,
    heart: Heart,
    wait: Wait,
    last_beat: Instant,
}

impl Ports {
    /// Waits for both ports to appear and opens them.
    pub fn open(heart: Heart, wait: Wait) -> Result<Self, String> {
        let start = Instant::now();
        loop {
            let found = list().map_err(|error| format!("look for virtio-serial ports: {error}"))?;
            if let (Some(job), Some(records)) = (found.get(JOB_PORT), found.get(RECORDS_PORT)) {
                return Ok(Self {
                    records: open(OpenOptions::new().write(true), records)?,
                    job: open(OpenOptions::new().read(true), job)?,
                    heart,
                    wait,
                    last_beat: start,
                });
            }
            if start.elapsed() > PORTS_DEADLINE {
                let names: Vec<_> = found.into_keys().collect();
                return Err(format!(
                    "no virtio-serial ports {JOB_PORT} and {RECORDS_PORT}, only {names:?}"
                ));
            }
            sleep(LOOK_INTERVAL);
        }
    }

    /// Sends one record. Waits for the host if it reads slowly.
    pub fn send(&mut self, record: &Record) -> Result<(), String> {
        let mut line = serde_json::to_vec(record).map_err(|error| format!("send: {error}"))?;
        line.push(b'\n');
        self.records.write_all(&line).map_err(|error| format!("send a record: {error}"))
    }

    /// Time until the next heartbeat, for a poll; `None` to wait for ever.
    pub fn until_beat(&self) -> Option<Timespec> {
        let left = self.heart.interval?.saturating_sub(self.last_beat.elapsed());
        Timespec::try_from(left).ok()
    }

    /// Sends a heartbeat if it is time for one.
    pub fn beat_if_due(&mut self) -> Result<(), String> {
        if self.heart.interval.is_some_and(|interval| self.last_beat.elapsed() >= interval) {
            self.last_beat = Instant::now();
            self.send(&Record::Heartbeat { uptime_ms: uptime_ms() })?;
        }
        Ok(())
    }

    /// Waits for the host's one line, with its end removed.
    pub fn wait_for_job(&mut self) -> Result<Vec<u8>, String> {
        let mut line = Vec::new();
        loop {
            let timeout = match self.wait {
                Wait::Asleep => self.until_beat(),
                Wait::Spinning => Some(Timespec::default()),
            };
            let mut ready = [PollFd::new(&self.job, PollFlags::IN)];
            let count = match poll(&mut ready, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => 0,
                other => other.map_err(|error| format!("wait for the job: {error}"))?,
            };
            self.beat_if_due()?;
            if count == 0 {
                continue;
            }
            let mut buffer = [0; 4096];
            let count = match self.job.read(&mut buffer) {
                // Nobody is connected at the host's end yet, which a poll reports
                // at once, again and again.
                Ok(0) => {
                    if self.wait == Wait::Asleep {
                        sleep(LOOK_INTERVAL);
                    }
                    continue;
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("read the job: {error}")),
            };
            line.extend_from_slice(&buffer[..count]);
            if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
                line.truncate(end);
                return Ok(line);
            }
            if line.len() > MAX_LINE_BYTES {
                // It ends somewhere; what is read now is already too long.
                return Ok(line);
            }
        }
    }
}

fn open(options: &OpenOptions, device: &str) -> Result<File, String> {
    let path = format!("/dev/{device}");
    options.open(&path).map_err(|error| format!("open {path}: {error}"))
}

/// Device names by port name. Ports whose name has not come yet are left out.
fn list() -> io::Result<BTreeMap<String, String>> {
    let entries = match fs::read_dir("/sys/class/virtio-ports") {
        // The driver makes the folder when it registers.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other?,
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        if let Ok(name) = fs::read_to_string(entry.path().join("name")) {
            let device = entry.file_name().to_string_lossy().into_owned();
            found.insert(name.trim_end().to_owned(), device);
        }
    }
    Ok(found)
}

/// Time since boot, or 0 if the kernel does not say.
fn uptime_ms() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    parse_uptime_ms(&text).unwrap_or(0)
}

/// The first number of /proc/uptime, which has two decimals, in milliseconds.
fn parse_uptime_ms(text: &str) -> Option<u64> {
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    let hundredths: u64 = hundredths.parse().ok()?;
    seconds.checked_mul(1000)?.checked_add(hundredths.checked_mul(10)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_sets_the_heartbeat() {
        let interval = |line: &str| Heart::from_command_line(line).interval;
        assert_eq!(interval("console=ttyS0"), Some(Duration::from_secs(1)));
        assert_eq!(interval("a kvet.heartbeat_ms=250 b"), Some(Duration::from_millis(250)));
        assert_eq!(interval("kvet.heartbeat_ms=0"), None);
        assert_eq!(interval("kvet.heartbeat_ms=x"), Some(Duration::from_secs(1)));
        assert_eq!(interval("kvet.heartbeat_ms=5 kvet.heartbeat_ms=0\n"), None);
    }

    #[test]
    fn the_command_line_says_how_to_wait() {
        assert_eq!(Wait::from_command_line("console=ttyS0"), Wait::Asleep);
        assert_eq!(Wait::from_command_line("a kvet.wait=spin\n"), Wait::Spinning);
    }

    #[test]
    fn uptime_is_in_milliseconds() {
        assert_eq!(parse_uptime_ms("12.34 20.00\n"), Some(12_340));
        assert_eq!(parse_uptime_ms("0.00 0.00\n"), Some(0));
        assert_eq!(parse_uptime_ms(""), None);
        assert_eq!(parse_uptime_ms("x.y"), None);
    }
}
