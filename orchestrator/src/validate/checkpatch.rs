// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `scripts/checkpatch.pl` of the tree without the series on each patch, in the
//! sandbox of builds: it is a program of that tree. Never the series' own copy, which
//! could find itself in order.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fault::{Fault, escape};
use crate::host::process::{check, find_program};
use crate::kernel::build::Builder;
use crate::kernel::git;
use crate::kernel::make::ask;
use crate::kernel::series::Tree;
use crate::kernel::source::Source;
use crate::plan::PatchFile;

/// The script.
const SCRIPT: &str = "scripts/checkpatch.pl";
/// What it reads of a tree, as of 6.12: its lists of words, the names that must be
/// there for it to take a folder for a kernel (`top_of_kernel_tree`), and the headers
/// that it looks up.
const PATHS: [&str; 12] = [
    SCRIPT,
    "scripts/spelling.txt",
    "scripts/const_structs.checkpatch",
    "scripts/get_maintainer.pl",
    "COPYING",
    "CREDITS",
    "Kbuild",
    "MAINTAINERS",
    "Makefile",
    "README",
    "include/linux",
    "include/asm-generic",
];
/// Folders that must only be there.
const FOLDERS: [&str; 10] = [
    "Documentation",
    "arch",
    "include",
    "drivers",
    "fs",
    "init",
    "ipc",
    "kernel",
    "lib",
    "scripts",
];
/// Where the patches are, below the tree.
const OURS: &str = "kvet-patches";
/// Most findings of a patch that are kept.
const MAX_FINDINGS: usize = 50;

/// What the script says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// It cannot be run, and why.
    Skipped(String),
    /// Of each patch, in their order.
    Patches(Vec<Findings>),
}

/// What it says of a patch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// What it calls errors.
    pub errors: Vec<String>,
    /// What it calls warnings.
    pub warnings: Vec<String>,
}

/// Who runs the script.
pub trait Checkpatch {
    /// What the script of `base` says of each patch.
    fn checkpatch(
        &self,
        source: &Source,
        base: &Tree,
        patches: &[PatchFile],
    ) -> impl Future<Output = Result<Checked, Fault>>;
}

impl Checkpatch for Builder {
    async fn checkpatch(
        &self,
        source: &Source,
        base: &Tree,
        patches: &[PatchFile],
    ) -> Result<Checked, Fault> {
        if find_program("perl").is_none() {
            return Ok(Checked::Skipped("perl is not installed".to_owned()));
        }
        let script = format!("{}:{SCRIPT}", base.commit);
        if !git::has_object(&source.git_dir, &script).await {
            return Ok(Checked::Skipped(format!("the tree without the series has no {SCRIPT}")));
        }
        let scratch = self.store.scratch()?;
        let tree = scratch.path().join("tree");
        checkout(source, base, patches, &tree, &scratch.path().join("index")).await?;
        let mut session = self.sandbox.session(&self.store, &tree, &[], None, self.jobs)?;
        let mut all = Vec::new();
        for number in 0..patches.len() {
            let mut run = session.command("perl", "");
            run.args([SCRIPT, "--terse", "--show-types", "--color=never"]);
            run.arg(format!("{OURS}/{number}.patch"));
            let (status, said) = ask(&mut run, session.watchdog(), &self.stop).await?;
            if self.stop.is_cancelled() {
                return Err(Fault::interrupted());
            }
            let clean = status.is_some_and(|status| status.success());
            match read(&said, clean) {
                Some(findings) => all.push(findings),
                // Its own errors are perl's: the script of an old tree and a new perl.
                None => {
                    let words = said.lines().next().map(escape).unwrap_or_default();
                    let status = status.map_or("stopped".to_owned(), |status| status.to_string());
                    return Ok(Checked::Skipped(format!(
                        "{SCRIPT} does not run ({status}): {words}"
                    )));
                }
            }
        }
        Ok(Checked::Patches(all))
    }
}

/// Reads `--terse` output: `FILE:LINE: ERROR:TYPE: text`, and a last line with the
/// totals, without which it has not come to its end. Where there is nothing to say it
/// says nothing, and ends with 0: `clean`.
fn read(said: &str, clean: bool) -> Option<Findings> {
    if clean && said.trim().is_empty() {
        return Some(Findings::default());
    }
    let mut findings = Findings::default();
    for line in said.lines() {
        let Some((_, rest)) = line.split_once(": ") else { continue };
        let place = line.split(": ").next().unwrap_or_default();
        let place = place.rsplit_once(':').map_or("", |(_, number)| number);
        let (list, rest) = if let Some(rest) = rest.strip_prefix("ERROR:") {
            (&mut findings.errors, rest)
        } else if let Some(rest) = rest.strip_prefix("WARNING:") {
            (&mut findings.warnings, rest)
        } else {
            continue;
        };
        if list.len() < MAX_FINDINGS {
            list.push(escape(&format!("line {place}: {}", rest.trim())));
        }
    }
    let total = |line: &str| line.starts_with("total: ") && line.contains(" errors, ");
    said.lines().any(total).then_some(findings)
}

/// The part of the tree that the script reads, and the patches beside it.
async fn checkout(
    source: &Source,
    base: &Tree,
    patches: &[PatchFile],
    tree: &Path,
    index: &Path,
) -> Result<(), Fault> {
    let failed = |error| Fault::io("make a tree for checkpatch", &error);
    std::fs::create_dir(tree).map_err(failed)?;
    let mut wanted: Vec<String> = PATHS.map(str::to_owned).into();
    let touched =
        patches.iter().flat_map(|patch| crate::kernel::patch::files(&patch.bytes, patch.strip));
    wanted.extend(touched.filter(|file| !file.starts_with(':') && !file.contains('\n')));
    let mut list = vec!["ls-tree", "--name-only", "-z", base.commit.as_str(), "--"];
    list.extend(wanted.iter().map(String::as_str));
    let there = git::run(&source.git_dir, list).await?;
    let mut checkout = git::git(&source.git_dir);
    checkout.env("GIT_INDEX_FILE", index).env("GIT_LITERAL_PATHSPECS", "1");
    checkout.arg("--work-tree").arg(tree).current_dir(tree);
    checkout.args(["checkout", "--quiet", &base.commit, "--"]);
    checkout.args(there.split('\0').filter(|name| !name.is_empty()));
    check(&mut checkout, b"").await?;
    for folder in FOLDERS {
        std::fs::create_dir_all(tree.join(folder)).map_err(failed)?;
    }
    std::fs::create_dir(tree.join(OURS)).map_err(failed)?;
    for (number, patch) in patches.iter().enumerate() {
        let file = tree.join(OURS).join(format!("{number}.patch"));
        std::fs::write(file, &patch.bytes).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_warnings_are_read_and_an_end_is_asked_for() {
        let said = "kvet-patches/0.patch:12: ERROR:CODE_INDENT: code indent should use tabs where possible\nkvet-patches/0.patch:7: WARNING:LONG_LINE: line length of 130 exceeds 100 columns\ntotal: 1 errors, 1 warnings, 20 lines checked\n";
        let findings = read(said, false).unwrap();
        assert_eq!(
            findings.errors,
            ["line 12: CODE_INDENT: code indent should use tabs where possible"]
        );
        assert_eq!(findings.warnings.len(), 1);
        let clean = read("total: 0 errors, 0 warnings, 3 lines checked\n", true).unwrap();
        assert_eq!(clean, Findings::default());
        assert_eq!(read("", true), Some(Findings::default()));
        assert_eq!(read("Can't locate X.pm in @INC\n", true), None);
        assert_eq!(read("", false), None);
    }
}
