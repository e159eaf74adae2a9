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
use crate::store::key;

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

/// Headers of the kernel that programs of the build include (the dependency files of
/// every host program of 6.12's tinyconfig, and the `#include "../..."` of scripts/).
const HEADERS: [&str; 10] = [
    "arch/x86/include/asm/cpufeatures.h",
    "arch/x86/include/asm/orc_types.h",
    "arch/x86/include/asm/vmxfeatures.h",
    "include/linux/crc32poly.h",
    "include/linux/license.h",
    "include/linux/mod_devicetable.h",
    "include/linux/module_symbol.h",
    "include/uapi/linux/elf-em.h",
    "include/uapi/linux/elf.h",
    "lib/crc32defs.h",
];

/// What of a variant a build runs, where that differs from its source: a hash of those
/// files, so that only variants that run the same share a tree.
///
/// # Errors
/// An `infra` fault with git's words.
pub(super) async fn what_runs(source: &Source, tree: &Tree) -> Result<Option<String>, Fault> {
    if tree.commit == source.commit {
        return Ok(None);
    }
    let mut diff = git::git(&source.git_dir);
    diff.args(["diff", "--raw", "--no-abbrev", "--no-renames", "-z"]);
    diff.args([&source.commit, &tree.commit, "--"]);
    let output = check(&mut diff, b"").await?;
    // `:MODE MODE BLOB BLOB STATUS`, then the name.
    let fields: Vec<&[u8]> = output.stdout.split(|&byte| byte == 0).collect();
    let pairs = fields.chunks_exact(2);
    let ran: Vec<&[u8]> =
        pairs.filter(|pair| runs(&String::from_utf8_lossy(pair[1]))).flatten().copied().collect();
    Ok((!ran.is_empty()).then(|| key(ran)))
}

/// Whether a file is run by a build, or says what is.
fn runs(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let stem = Path::new(last).extension().and_then(|extension| extension.to_str());
    // Makefile, Makefile.lib, Kbuild, Kconfig and Kconfig.debug, which runs $(shell).
    let says = ["Makefile", "Kbuild", "Kconfig"].iter().any(|word| last.starts_with(word));
    let compiled = matches!(stem, Some("c" | "h" | "S" | "rst" | "txt" | "dts" | "dtsi" | "yaml"));
    let included = HEADERS.contains(&name);
    let ours = PROGRAMS.iter().any(|word| last.starts_with(word)) && stem == Some("c");
    !name.is_empty()
        && (says
            || !compiled
            || ours
            || included
            || FOLDERS.iter().any(|folder| name.starts_with(folder)))
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
            "include/linux/mod_devicetable.h",
        ] {
            assert!(runs(name), "{name}");
        }
    }
}
