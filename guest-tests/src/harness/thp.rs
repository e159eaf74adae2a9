// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of transparent huge pages.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Stop, TestResult, Tunables, Why, tunable};

/// Folder of the settings.
pub const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// The settings that every test starts from, and their values. All of them are
/// written, since a kernel with 512 MiB or less turns several off at boot.
const SETTINGS: [(&str, &str); 8] = [
    ("enabled", "madvise"),
    ("defrag", "madvise"),
    ("use_zero_page", "1"),
    ("shmem_enabled", "never"),
    ("khugepaged/defrag", "1"),
    ("khugepaged/max_ptes_none", "511"),
    ("khugepaged/max_ptes_swap", "64"),
    ("khugepaged/max_ptes_shared", "256"),
];

/// Size of a PMD's huge page in bytes.
///
/// # Errors
/// A skip if the kernel has no transparent huge pages.
pub fn huge_page_size() -> TestResult<usize> {
    let path = Path::new(FOLDER).join("hpage_pmd_size");
    if !path.exists() {
        return Err(Stop::skip("the kernel has no transparent huge pages"));
    }
    let text = tunable::read(&path)?;
    text.parse().why(format_args!("{} is {text:?}", path.display()))
}

/// Brings every setting into the state that tests start from: huge pages only
/// where advised, only of a PMD's size, and khugepaged as by default.
///
/// # Errors
/// A skip if the kernel has no transparent huge pages; a failure if a setting
/// cannot be written.
pub fn start_state(tunables: &mut Tunables) -> TestResult {
    let pmd_kib = huge_page_size()? / 1024;
    for (name, value) in SETTINGS {
        let path = Path::new(FOLDER).join(name);
        // Some came with a version of the kernel or with a part of it.
        if path.exists() {
            tunables.set(path, value)?;
        }
    }
    for folder in sizes(Path::new(FOLDER))? {
        let pmd = folder.ends_with(format!("hugepages-{pmd_kib}kB"));
        for (name, value) in
            [("enabled", if pmd { "inherit" } else { "never" }), ("shmem_enabled", "never")]
        {
            if folder.join(name).exists() {
                tunables.set(folder.join(name), value)?;
            }
        }
    }
    Ok(())
}

/// The folders of the single sizes, in order. Kernels before 6.8 have none.
pub(super) fn sizes(folder: &Path) -> TestResult<Vec<PathBuf>> {
    let what = format_args!("list {}", folder.display()).to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).why(&what)? {
        let entry = entry.why(&what)?;
        if entry.file_name().to_string_lossy().starts_with("hugepages-") {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
