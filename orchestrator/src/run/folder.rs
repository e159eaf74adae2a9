// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder that every run leaves: results, events, raw samples, and the
//! traces of each boot.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::event::{Events, RunEvent};
use super::leftovers;
use super::result::{RUN_SCHEMA, RunResult};
use crate::fault::Fault;
use crate::plan::manifest::VariantName;
use crate::report::json::pretty;
use crate::store::write_atomically;
use crate::transport::virtio::Sample;

/// Files that a run makes from its boots' reports.
const REMADE: [&str; 2] = ["result.json", "samples.jsonl"];

/// A run's folder.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
    id: String,
    /// Held while the run goes on.
    _lock: Arc<File>,
}

impl RunFolder {
    /// Makes `runs_dir/<id>/` and points `runs_dir/latest` at it.
    ///
    /// # Errors
    /// An `infra` fault when the folder cannot be made.
    pub fn create(runs_dir: &Path, plan: &str) -> Result<Self, Fault> {
        let failed = |error: &std::io::Error| {
            Fault::io(format!("make a run folder in {}", runs_dir.display()), error)
                .help("check the path that --runs-dir gives")
        };
        let runs_dir = std::path::absolute(runs_dir).map_err(|error| failed(&error))?;
        std::fs::create_dir_all(&runs_dir).map_err(|error| failed(&error))?;
        leftovers::sweep_runs(&runs_dir);
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
        let mut attempt = 0;
        let (path, id) = loop {
            let suffix = if attempt == 0 { String::new() } else { format!("-{attempt}") };
            let id = format!("{now}-{plan}{suffix}");
            let path = runs_dir.join(&id);
            match std::fs::create_dir(&path) {
                Ok(()) => break (path, id),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => attempt += 1,
                Err(error) => return Err(failed(&error)),
            }
        };
        // The link is replaced by a rename, so that it always leads somewhere.
        let link = runs_dir.join(format!(".latest-{}", std::process::id()));
        if std::os::unix::fs::symlink(&id, &link).is_ok()
            && std::fs::rename(&link, runs_dir.join("latest")).is_err()
        {
            let _ = std::fs::remove_file(&link);
        }
        let lock = Self::lock(&path)?;
        Ok(Self { path, id, _lock: lock })
    }

    /// Opens the folder of a run that was interrupted, to go on with it.
    ///
    /// # Errors
    /// A `plan` fault when there is none, or when the run is still going on.
    pub fn reopen(run: &Path) -> Result<Self, Fault> {
        let wrong = |what: String| {
            Fault::plan(what)
                .at(run.display())
                .help("name a run's folder, such as kvet-runs/latest")
        };
        let path = std::fs::canonicalize(run)
            .map_err(|error| wrong(format!("cannot be resumed: {error}")))?;
        let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let lock = Self::lock(&path)?;
        leftovers::sweep_run(&path);
        // Both are made anew from the boots' reports; a resume that is refused puts
        // them back.
        for name in REMADE {
            match std::fs::rename(path.join(name), path.join(format!("{name}.before"))) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Fault::io(format!("set {name} aside"), &error));
                }
                _ => {}
            }
        }
        Ok(Self { path, id, _lock: lock })
    }

    /// The folder `name` of a run that is a part of this one: made, or reopened where an
    /// earlier life of the run made it.
    ///
    /// # Errors
    /// An `infra` fault when it cannot be made.
    pub fn below(&self, name: &str) -> Result<Self, Fault> {
        let path = self.path.join(name);
        if path.exists() {
            return Self::reopen(&path);
        }
        std::fs::create_dir(&path)
            .map_err(|error| Fault::io(format!("make {}", path.display()), &error))?;
        let lock = Self::lock(&path)?;
        Ok(Self { path, id: name.to_owned(), _lock: lock })
    }

    /// Ends a resumed run: what it was before is dropped, or put back when the
    /// resume was refused.
    pub fn settle(&self, refused: bool) {
        for name in REMADE {
            let (now, before) = (self.path.join(name), self.path.join(format!("{name}.before")));
            let _ =
                if refused { std::fs::rename(before, now) } else { std::fs::remove_file(before) };
        }
    }

    fn lock(path: &Path) -> Result<Arc<File>, Fault> {
        let failed = |error: std::io::Error| Fault::io(format!("lock {}", path.display()), &error);
        let file = File::create(path.join("lock")).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Arc::new(file)),
            Err(TryLockError::WouldBlock) => Err(Fault::plan("this run is still going on")
                .at(path.display())
                .help("wait for it, or interrupt it first")),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// The run's id: the folder's name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder for the traces of one boot. The parts are validated names.
    #[must_use]
    pub fn boot(&self, cell: &str, variant: VariantName, test: &str) -> PathBuf {
        self.path.join("boots").join(cell).join(variant.to_string()).join(test)
    }

    /// The file for the output of one build.
    ///
    /// # Errors
    /// An `infra` fault when its folder cannot be made.
    pub fn build_log(&self, cell: &str, variant: impl std::fmt::Display) -> Result<PathBuf, Fault> {
        let folder = self.path.join("builds").join(cell);
        std::fs::create_dir_all(&folder)
            .map_err(|error| Fault::io(format!("make {}", folder.display()), &error))?;
        Ok(folder.join(format!("{variant}.log")))
    }

    /// Writes every event from now on to `events.jsonl`.
    ///
    /// # Errors
    /// An `infra` fault when the file cannot be made.
    pub fn record_events(&self, events: &Events) -> Result<(), Fault> {
        #[derive(Serialize)]
        struct Line<'a> {
            elapsed_ms: u128,
            #[serde(flatten)]
            event: &'a RunEvent,
        }
        let path = self.path.join("events.jsonl");
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|error| Fault::io(format!("write {}", path.display()), &error))?;
        let began = Instant::now();
        events.subscribe(move |event| {
            let line = Line { elapsed_ms: began.elapsed().as_millis(), event };
            if let Ok(mut text) = serde_json::to_vec(&line) {
                text.push(b'\n');
                // Events are for people; a full disk shows in the results.
                let _ = file.write_all(&text);
            }
        });
        Ok(())
    }

    /// Appends raw samples to `samples.jsonl`.
    ///
    /// # Errors
    /// An `infra` fault when the file cannot be written.
    pub fn record_samples(&self, boot: &str, samples: &[Sample]) -> Result<(), Fault> {
        #[derive(Serialize)]
        struct Line<'a> {
            boot: &'a str,
            #[serde(flatten)]
            sample: &'a Sample,
        }
        let path = self.path.join("samples.jsonl");
        let write = || -> std::io::Result<()> {
            let mut file = File::options().create(true).append(true).open(&path)?;
            for sample in samples {
                let mut text = serde_json::to_vec(&Line { boot, sample })?;
                text.push(b'\n');
                file.write_all(&text)?;
            }
            Ok(())
        };
        write().map_err(|error| Fault::io(format!("write {}", path.display()), &error))
    }

    /// Writes what a program said to `output.log` and `errors.log` beside its
    /// boot's other traces.
    ///
    /// # Errors
    /// An `infra` fault when these cannot be written.
    pub fn record_output(
        &self,
        boot: &Path,
        output: &[String],
        errors: &[String],
    ) -> Result<(), Fault> {
        for (name, lines) in [("output.log", output), ("errors.log", errors)] {
            let path = boot.join(name);
            let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            std::fs::create_dir_all(boot)
                .and_then(|()| std::fs::write(&path, text))
                .map_err(|error| Fault::io(format!("write {}", path.display()), &error))?;
        }
        Ok(())
    }

    /// Writes `result.json`.
    ///
    /// # Errors
    /// An `infra` fault when it cannot be written.
    pub fn write_result(&self, result: &RunResult) -> Result<(), Fault> {
        write_atomically(&self.path.join("result.json"), &pretty(result))
    }
}

/// Reads the result of a run: its folder, or its `result.json`.
///
/// # Errors
/// A `plan` fault when there is none.
pub fn read_result(run: &Path) -> Result<RunResult, Fault> {
    let file = if run.is_dir() { run.join("result.json") } else { run.to_owned() };
    let wrong = |what: String| {
        Fault::plan(what).at(file.display()).help("name a run's folder, such as kvet-runs/latest")
    };
    let text = std::fs::read(&file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let result: RunResult = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("not a result of kvet: {error}")))?;
    if result.schema != RUN_SCHEMA {
        return Err(wrong(format!("schema {:?}; this kvet reads {RUN_SCHEMA}", result.schema)));
    }
    Ok(result)
}
