// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host can do, what is missing, and the command that installs it.

use super::process::find_program;
use crate::arch::x86_64;

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
}

/// Looks for everything that kvet needs.
#[must_use]
pub fn examine() -> Vec<Finding> {
    let programs = PROGRAMS.iter().map(|&(name, package)| Finding {
        what: name.to_owned(),
        found: find_program(name).map(|path| path.display().to_string()),
        package,
    });
    let headers = HEADERS.iter().map(|&(path, package)| Finding {
        what: path.rsplit('/').next().unwrap_or(path).to_owned(),
        found: std::path::Path::new(path).is_file().then(|| path.to_owned()),
        package,
    });
    programs.chain(headers).collect()
}

/// The findings for people, and the command that installs what is missing.
#[must_use]
pub fn render(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let found = finding.found.as_deref().unwrap_or("MISSING");
        out.push_str(&format!("{:<20} {found}\n", finding.what));
    }
    let mut missing: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.found.is_none())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_the_command_that_installs_it() {
        let finding = |what: &str, found: Option<&str>, package| Finding {
            what: what.to_owned(),
            found: found.map(str::to_owned),
            package,
        };
        let page =
            render(&[finding("git", Some("/usr/bin/git"), "git"), finding("flex", None, "flex")]);
        assert!(page.ends_with("sudo apt-get install flex\n"), "{page}");
    }
}
