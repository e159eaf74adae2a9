// SPDX-License-Identifier: MIT OR Apache-2.0
//! kvet's reading of Kconfig files against the kernel's own: what kvet takes for
//! visible, set and selected has to agree with what kconfig wrote to `.config`.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kvet::kernel::kconfig::{Kind, Settled, Symbols, Tree, Tristate, Values, symbols};
use serde_json::Value;

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
/// Each makes another part of the kernel's 18,000 symbols visible.
const TARGETS: [&str; 5] = ["tinyconfig", "defconfig", "allnoconfig", "allyesconfig", "randconfig"];

/// A tree of Kconfig files to work in, from the kernel sources that the tests keep;
/// or why there is none.
fn trees(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let sources = common::cache().join("sources");
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

fn config(tree: &Path, target: &str) -> Symbols {
    let mut make = Command::new("make");
    make.args(["-C", tree.to_str().unwrap(), "ARCH=x86_64", target]).env("KCONFIG_SEED", "1");
    let output = make.stdin(Stdio::null()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {target}: {words}", tree.display());
    symbols(&std::fs::read_to_string(tree.join(".config")).unwrap())
}

/// Whether all of it holds; none where that cannot be known.
fn all<'a>(
    conditions: impl Iterator<Item = &'a kvet::kernel::kconfig::Expression>,
    values: &dyn Values,
) -> Option<bool> {
    let found: Vec<Option<Tristate>> = conditions.map(|one| one.evaluate(values)).collect();
    match found.contains(&Some(Tristate::N)) {
        true => Some(false),
        false => (!found.contains(&None)).then_some(true),
    }
}

/// Where kvet and kconfig disagree about a `.config`, and how many symbols it has.
fn differences(tree: &Tree, config: &Symbols) -> (Vec<String>, usize) {
    let values = Settled { tree, config };
    let mut wrong = Vec::new();
    let mut compared = 0;
    for name in config.keys().map(|name| name.trim_start_matches("CONFIG_")) {
        if !tree.symbols.contains_key(name) {
            wrong.push(format!("{name} is in .config and not in the tree"));
        }
    }
    for (name, definitions) in &tree.symbols {
        if !matches!(tree.kind(name), Some(Kind::Bool | Kind::Tristate)) {
            continue;
        }
        let holds = |definition: &kvet::kernel::kconfig::Definition, visible: bool| {
            let more = definition.visible.iter().filter(|_| visible);
            let conditions = definition.depends.iter().chain(more);
            all(conditions.map(|condition| &condition.expression), &values)
        };
        let prompts: Vec<Option<bool>> =
            definitions.iter().filter(|one| one.prompt).map(|one| holds(one, true)).collect();
        let depends: Vec<Option<bool>> = definitions.iter().map(|one| holds(one, false)).collect();
        let selects = tree.selects.get(name).into_iter().flatten();
        let selected = selects.clone().any(|select| {
            let by = values.value(&select.by).unwrap_or("n");
            let depends = select.depends.iter().map(|condition| &condition.expression);
            by != "n" && all(depends.chain([&select.condition]), &values) != Some(false)
        });
        let listed = config.get(&format!("CONFIG_{name}")).map(String::as_str);
        let visible = prompts.contains(&Some(true));
        let may_be_visible = visible || prompts.contains(&None);
        compared += 1;
        match listed {
            None if visible => wrong.push(format!("{name} is visible, and not in .config")),
            // What is implied is written down whatever came of it.
            Some("n") if !may_be_visible && !tree.implied.contains(name) => {
                wrong.push(format!("{name} is in .config as n, and not visible"));
            }
            Some("y" | "m") if !selected && depends.iter().all(|one| *one == Some(false)) => {
                wrong.push(format!("{name} is set, and neither selected nor possible"));
            }
            Some("n") | None if selected && !depends.contains(&None) => {
                wrong.push(format!("{name} is selected, and n"));
            }
            _ => {}
        }
    }
    (wrong, compared)
}

#[test]
fn kvet_and_kconfig_agree_about_what_is_visible_and_what_is_selected() {
    let folder = tempfile::tempdir().unwrap();
    let trees = match trees(folder.path()) {
        Ok(trees) => trees,
        Err(why) => {
            println!("not run: {why}");
            return;
        }
    };
    for path in trees {
        let tree = Tree::read(&path, "x86");
        assert!(tree.symbols.len() > 10_000, "{}: {:?}", path.display(), tree.unread);
        for target in TARGETS {
            let config = config(&path, target);
            let (wrong, compared) = differences(&tree, &config);
            println!("{}: {target}: {compared} symbols", path.display());
            assert!(
                wrong.is_empty(),
                "{} differ: {:#?}",
                wrong.len(),
                &wrong[..wrong.len().min(20)]
            );
        }
    }
}
