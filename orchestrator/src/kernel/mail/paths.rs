// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which paths lie in a kernel tree.

/// Folders at the top of kernel trees, 4.x to 7.x.
const FOLDERS: [&str; 25] = [
    "Documentation",
    "LICENSES",
    "arch",
    "block",
    "certs",
    "crypto",
    "drivers",
    "firmware",
    "fs",
    "include",
    "init",
    "io_uring",
    "ipc",
    "kernel",
    "lib",
    "mm",
    "net",
    "rust",
    "samples",
    "scripts",
    "security",
    "sound",
    "tools",
    "usr",
    "virt",
];

/// Files at the top of kernel trees.
const FILES: [&str; 19] = [
    ".clang-format",
    ".clippy.toml",
    ".cocciconfig",
    ".editorconfig",
    ".get_maintainer.ignore",
    ".gitattributes",
    ".gitignore",
    ".mailmap",
    ".pylintrc",
    ".rustfmt.toml",
    "COPYING",
    "CREDITS",
    "Kbuild",
    "Kconfig",
    "MAINTAINERS",
    "Makefile",
    "README",
    "REPORTING-BUGS",
    ".kunitconfig",
];

/// Whether a path, relative to the tree's top, can be one of a kernel tree.
#[must_use]
pub fn in_kernel_tree(path: &str) -> bool {
    match path.split_once('/') {
        Some((folder, rest)) => !rest.is_empty() && FOLDERS.contains(&folder),
        None => FILES.contains(&path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_of_the_tree_decides() {
        assert!(in_kernel_tree("mm/madvise.c") && in_kernel_tree("Makefile"));
        assert!(
            !in_kernel_tree("txt/notes.txt") && !in_kernel_tree("mm") && !in_kernel_tree("src/x.c")
        );
    }
}
