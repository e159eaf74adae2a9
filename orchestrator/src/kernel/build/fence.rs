// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which series change what a build *runs*, and not only what it compiles. Those
//! get a tree of their own and may not add to ccache's objects, since a program of
//! theirs could leave something in either that others' images are made from.

use std::path::Path;

use crate::fault::Fault;
use crate::host::process::check;
use crate::kernel::git;
use crate::kernel::series::Tree;
use crate::kernel::source::Source;

/// Folders whose programs run on the host during a build.
const FOLDERS: [&str; 7] = [
    "scripts/",
    "tools/",
    "usr/",
    "certs/",
    "arch/x86/tools/",
    "arch/x86/boot/",
    "arch/x86/entry/vdso/",
];
/// Names that make programs of the kernel's tree outside these begin with
/// (Documentation/kbuild/makefiles.rst, "Host Program support", and every
/// `hostprogs` of 6.12).
const PROGRAMS: [&str; 8] =
    ["gen_", "gen-", "gen", "mk", "conmakehash", "relocs", "extract", "crc32"];

/// Whether a variant differs from its source in what a build runs.
///
/// # Errors
/// An `infra` fault with git's words.
pub(super) async fn changes_what_runs(source: &Source, tree: &Tree) -> Result<bool, Fault> {
    if tree.commit == source.commit {
        return Ok(false);
    }
    let mut diff = git::git(&source.git_dir);
    diff.args(["diff", "--name-only", "--no-renames", "-z", &source.commit, &tree.commit, "--"]);
    let output = check(&mut diff, b"").await?;
    Ok(output.stdout.split(|&byte| byte == 0).any(|name| runs(&String::from_utf8_lossy(name))))
}

/// Whether a file is run by a build, or says what is.
fn runs(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let stem = Path::new(last).extension().and_then(|extension| extension.to_str());
    // Makefile, Makefile.lib, Kbuild, Kconfig and Kconfig.debug, which runs $(shell).
    let says = ["Makefile", "Kbuild", "Kconfig"].iter().any(|word| last.starts_with(word));
    let compiled = matches!(stem, Some("c" | "h" | "S" | "rst" | "txt" | "dts" | "dtsi" | "yaml"));
    let ours = PROGRAMS.iter().any(|word| last.starts_with(word)) && stem == Some("c");
    !name.is_empty()
        && (says || !compiled || ours || FOLDERS.iter().any(|folder| name.starts_with(folder)))
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn what_is_only_compiled_shares_a_tree() {
        for name in ["mm/madvise.c", "include/linux/mm.h", "Documentation/mm/ksm.rst", ""] {
            assert!(!runs(name), "{name}");
        }
        for name in [
            "Makefile",
            "mm/Makefile",
            "mm/Kconfig",
            "scripts/kallsyms.c",
            "scripts/checksyscalls.sh",
            "lib/gen_crc32table.c",
            "lib/raid6/mktables.c",
            "tools/objtool/check.c",
            "kernel/gen_kheaders.sh",
            "drivers/x/helper.pl",
            "arch/x86/boot/tools/build.c",
            "include/Kbuild",
        ] {
            assert!(runs(name), "{name}");
        }
    }
}
