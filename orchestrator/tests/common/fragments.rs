// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kconfig fragments that there are, and trees to configure.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{cache, root};

/// A file of `configs/kconfig/`.
#[derive(Debug)]
pub struct Fragment {
    pub name: String,
    /// What it is merged after, then itself.
    pub chain: Vec<String>,
}

/// All fragments, by name. What one is merged after stands in its first comment:
/// `Merged after a.config and b.config`.
pub fn fragments() -> Vec<Fragment> {
    let folder = root().join("configs/kconfig");
    let mut fragments: Vec<Fragment> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "config"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let mut chain = merged_after(&std::fs::read_to_string(&path).unwrap());
            assert!(name == "microvm" || !chain.is_empty(), "{name}: say what it is merged after");
            chain.push(name.clone());
            Fragment { name, chain }
        })
        .collect();
    fragments.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(fragments.len() > 10, "{fragments:?}");
    fragments
}

fn merged_after(text: &str) -> Vec<String> {
    let head: Vec<&str> = text.lines().map_while(|line| line.strip_prefix('#')).collect();
    let words: Vec<&str> = head.iter().flat_map(|line| line.split_whitespace()).collect();
    let at = words.windows(2).position(|pair| pair == ["Merged", "after"]);
    let words = words.iter().skip(at.map_or(words.len(), |at| at + 2));
    words
        .map(|word| word.trim_end_matches([',', ';', '.']))
        .take_while(|word| *word == "and" || word.ends_with(".config"))
        .filter_map(|word| word.strip_suffix(".config").map(str::to_owned))
        .collect()
}

/// What kconfig itself reads, and what `make` needs to get there.
const PATHS: [&str; 7] = [
    ":(glob)**/Kconfig*",
    "Makefile",
    "scripts",
    ":(glob)arch/x86/Makefile*",
    "arch/x86/configs",
    "kernel/configs",
    "include/linux/compiler-version.h",
];

/// A folder for each kernel source that the tests keep, named as it, in which
/// `make` can configure; or why there is none.
pub fn kconfig_trees(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let sources = cache().join("sources");
    let mut trees = Vec::new();
    for entry in std::fs::read_dir(&sources).into_iter().flatten().flatten() {
        let Ok(text) = std::fs::read(entry.path().join("source.json")) else { continue };
        let source: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let commit = source["commit"].as_str().unwrap_or_default();
        let tree = folder.join(entry.file_name());
        std::fs::create_dir(&tree).unwrap();
        let mut git = Command::new("git");
        git.arg("--git-dir").arg(entry.path().join("git")).arg("--work-tree").arg(&tree);
        git.env("GIT_INDEX_FILE", folder.join("index")).current_dir(&tree);
        let output = git.args(["checkout", commit, "--"]).args(PATHS).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {words}", tree.display());
        trees.push(tree);
    }
    match trees.is_empty() {
        true => Err(format!("there is no kernel source in {}", sources.display())),
        false => Ok(trees),
    }
}

/// The `.config` that targets of `make` leave, one after another.
pub fn configure(tree: &Path, target: &str) -> String {
    let mut make = Command::new("make");
    make.args(["-C", tree.to_str().unwrap(), "ARCH=x86_64", target]).env("KCONFIG_SEED", "1");
    let output = make.stdin(std::process::Stdio::null()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {target}: {words}", tree.display());
    std::fs::read_to_string(tree.join(".config")).unwrap()
}
