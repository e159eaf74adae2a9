// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host can do, what is missing, and the command that installs it.

use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use tokio_util::sync::CancellationToken;

use super::process::find_program;
use crate::arch::x86_64;
use crate::fault::escape;
use crate::guest::initramfs;
use crate::plan::Guest;
use crate::plan::manifest::{MachineType, Network, Root};
use crate::store::Store;
use crate::vm::accel::{self, Choice};
use crate::vm::probe_rom;
use crate::vm::spec::{Accelerator, VmSpec};

/// A program that kvet runs, and the Debian package that brings it.
const PROGRAMS: [(&str, &str); 14] = [
    ("git", "git"),
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("perl", "perl"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("apt-get", "apt"),
    ("apt-cache", "apt"),
    ("dpkg-deb", "dpkg"),
    (x86_64::QEMU, x86_64::QEMU_PACKAGE),
];

/// A program that not everything needs, the Debian package that brings it, and
/// what it is for.
const OPTIONAL: [(&str, &str, &str); 5] = [
    ("bwrap", "bubblewrap", "the sandbox of builds"),
    ("ccache", "ccache", "builds that were done before in another tree"),
    ("clang", "clang", "compiler: clang"),
    ("ld.lld", "lld", "compiler: clang"),
    ("llvm-ar", "llvm", "compiler: clang"),
];

/// A header that a kernel build includes, and the Debian package that brings it.
const HEADERS: [(&str, &str); 2] =
    [("/usr/include/libelf.h", "libelf-dev"), ("/usr/include/openssl/ssl.h", "libssl-dev")];

/// What was found of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked for.
    pub what: String,
    /// Where it is; none when it is missing.
    pub found: Option<String>,
    /// The package that brings it.
    pub package: &'static str,
    /// What it is for, where kvet mostly does without.
    pub only_for: Option<&'static str>,
}

impl Finding {
    /// Nothing works without it.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.found.is_none() && self.only_for.is_none()
    }
}

/// Looks for everything that kvet needs.
#[must_use]
pub fn examine() -> Vec<Finding> {
    let program = |name: &str, package, only_for| Finding {
        what: name.to_owned(),
        found: find_program(name).map(|path| path.display().to_string()),
        package,
        only_for,
    };
    let programs = PROGRAMS.iter().map(|&(name, package)| program(name, package, None));
    let optional = OPTIONAL.iter().map(|&(name, package, why)| program(name, package, Some(why)));
    let headers = HEADERS.iter().map(|&(path, package)| Finding {
        what: path.rsplit('/').next().unwrap_or(path).to_owned(),
        found: std::path::Path::new(path).is_file().then(|| path.to_owned()),
        package,
        only_for: None,
    });
    programs.chain(headers).chain(optional).collect()
}

/// The findings for people, and the command that installs what is missing.
#[must_use]
pub fn render(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let found = match (&finding.found, finding.only_for) {
            (Some(found), _) => found.clone(),
            (None, None) => "MISSING".to_owned(),
            (None, Some(why)) => {
                format!("not there; only for {why} (Debian package {})", finding.package)
            }
        };
        out.push_str(&format!("{:<20} {found}\n", finding.what));
    }
    let mut missing: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.is_missing())
        .map(|finding| finding.package)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        out.push_str(&format!(
            "\ninstall what is missing: ./setup, or: sudo apt-get install {}\n",
            missing.join(" ")
        ));
    }
    out
}

/// Whether KVM works, in one line, within fifteen seconds: first a guest without
/// a kernel, then, where the store has a kernel, a boot of it.
pub async fn accelerators(store: &Store, stop: &CancellationToken) -> String {
    let Some(qemu) = find_program(x86_64::QEMU) else {
        return "no accelerator: QEMU is missing\n".to_owned();
    };
    let line = match kvm(&qemu, store, stop).await {
        Ok(how) => format!("{:<20} works: {how}", "KVM"),
        Err(why) => format!("{:<20} not used: {why}\n{:<20} used instead", "KVM", "TCG"),
    };
    escape_lines(&line)
}

async fn kvm(qemu: &Path, store: &Store, stop: &CancellationToken) -> Result<String, String> {
    accel::device()?;
    let scratch = store.scratch().map_err(|fault| fault.to_string())?;
    probe_rom::run(qemu, Accelerator::Kvm, scratch.path()).await?;
    let Some(image) = newest_image(store) else {
        return Ok("a guest without a kernel ran; no kernel was built yet to try a boot".to_owned());
    };
    let initramfs = initramfs::prepare(store).map_err(|fault| fault.to_string())?;
    let guest = Guest {
        name: "probe".to_owned(),
        machine: MachineType::Microvm,
        vcpus: 1,
        memory: ByteSize::mib(256),
        cpu: None,
        root: Root::Initramfs,
        network: Network::None,
        append: Vec::new(),
    };
    let kernel = image.join("image");
    let spec =
        VmSpec::new("probe", &guest, qemu.to_owned(), Accelerator::Kvm, kernel, initramfs, false);
    let chosen = accel::choose(Choice::Kvm, &spec, scratch.path(), store, stop).await;
    chosen.map(|chosen| chosen.reason).map_err(|fault| fault.what)
}

fn newest_image(store: &Store) -> Option<PathBuf> {
    std::fs::read_dir(store.path("images", ""))
        .ok()?
        .flatten()
        .max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok())
        .map(|entry| entry.path())
}

fn escape_lines(text: &str) -> String {
    text.lines().map(|line| escape(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_the_command_that_installs_it() {
        let finding = |what: &str, found: Option<&str>, package| Finding {
            what: what.to_owned(),
            found: found.map(str::to_owned),
            package,
            only_for: None,
        };
        let clang = Finding { only_for: Some("compiler: clang"), ..finding("ld.lld", None, "lld") };
        let page = render(&[
            finding("git", Some("/usr/bin/git"), "git"),
            finding("flex", None, "flex"),
            clang,
        ]);
        assert!(page.ends_with("sudo apt-get install flex\n"), "{page}");
        assert!(
            page.contains("not there; only for compiler: clang (Debian package lld)"),
            "{page}"
        );
    }
}
