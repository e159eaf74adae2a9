// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet new-test`: a test that works as it is written, and a plan that runs it.
//!
//! Where kvet's own guest tests are at hand it is one of these, in Rust; anywhere
//! else it is a shell script that prints TAP.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kvet_records::valid_name;

use crate::fault::Fault;
use crate::plan::Tests;
use crate::plan::manifest::SeriesFile;
use crate::plan::yaml::load;

const RUST: &str = include_str!("test.rs.template");
const SCRIPT: &str = include_str!("test.sh.template");
const PLAN: &str = include_str!("plan.yaml.template");
/// The guest tests' list of themselves.
const LIST: &str = "guest-tests/src/tests/mod.rs";
/// Where the list in [`LIST`] begins.
const LIST_BEGIN: &str = "const OWN: &[&Test] = &[";
/// Longest line that rustfmt leaves whole here.
const MAX_COLUMNS: usize = 100;

/// Writes a test and its plan below `here` or a folder above it; says what was
/// written and what to do next. `tests` are those that there are.
///
/// # Errors
/// A `plan` fault when the name cannot be used or something is missing; nothing is
/// written then.
pub fn new_test(here: &Path, name: &str, script: bool, tests: &Tests) -> Result<String, Fault> {
    let simple = valid_name(name) && !name.contains('.');
    if !simple || name == "mod" || name.len() > 60 {
        return Err(Fault::plan(format!("{name:?} cannot name a test"))
            .help("use small letters, digits and '_', a letter first"));
    }
    if tests.contains_key(name) {
        return Err(
            Fault::plan(format!("there is a test {name} already")).help("choose another name")
        );
    }
    let root = here.ancestors().find(|up| up.join("patches").is_dir()).ok_or_else(|| {
        Fault::plan("no folder `patches` here or above").at(here.display()).help(
            "a plan needs a series: run this where patches/, kernels/ and configs/ are (docs/series.md)",
        )
    })?;
    let chosen = choose_series(root)?;
    let list = root.join(LIST);
    let rust = !script && list.is_file();
    let (test, text, entry) = match rust {
        true => (
            root.join(format!("guest-tests/src/tests/{name}.rs")),
            RUST.replace("NAME", name),
            format!("  - {{name: {name}}}"),
        ),
        false => (
            root.join(format!("tests/{name}.sh")),
            SCRIPT.to_owned(),
            format!("  - {{script: ../../tests/{name}.sh, format: tap}}"),
        ),
    };
    let plan = root.join(format!("configs/plans/{}.yaml", name.replace('_', "-")));
    for file in [&test, &plan] {
        if file.exists() {
            return Err(Fault::plan("the file is there already")
                .at(file.display())
                .help("choose another name, or take the file away"));
        }
    }
    let mut entries = vec![entry];
    if !chosen.declared.is_empty() {
        entries.push("  # What the series declares to change is looked at, too.".to_owned());
        let declared = chosen.declared.iter().filter(|test| tests.contains_key(*test));
        entries.extend(declared.map(|test| format!("  - {{name: {test}}}")));
    }
    let mut files = vec![
        (test.clone(), text),
        (
            plan.clone(),
            PLAN.replace("SERIES", &chosen.name)
                .replace("KERNEL", &chosen.kernel)
                .replace("TESTS", &entries.join("\n")),
        ),
    ];
    if rust {
        files.push((list.clone(), listed(&list, name)?));
    }
    for (file, text) in &files {
        write(file, text)?;
    }
    let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    let mut page = String::new();
    for (file, _) in &files {
        let verb = if *file == list { "changed" } else { "wrote" };
        page.push_str(&format!("{verb} {}\n", shown(file)));
    }
    let command = if rust { "cargo run --package kvet -- run" } else { "kvet run" };
    page.push_str(&format!("next: {command} {}\n", shown(&plan)));
    Ok(page)
}

struct Chosen {
    name: String,
    kernel: String,
    /// Tests for which the series declares a change.
    declared: BTreeSet<String>,
}

/// The first series that is for one of the kernels here.
fn choose_series(root: &Path) -> Result<Chosen, Fault> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root.join("patches"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    for folder in folders {
        let Ok(document) = load::<SeriesFile>(&folder.join("series.yaml")) else { continue };
        let series = &document.value;
        let kernel = series
            .kernels
            .keys()
            .find(|kernel| root.join(format!("kernels/{kernel}.yaml")).is_file());
        if let (Some(kernel), Some(name)) = (kernel, folder.file_name()) {
            return Ok(Chosen {
                name: name.to_string_lossy().into_owned(),
                kernel: kernel.clone(),
                declared: series.expect.iter().map(|expect| expect.test.clone()).collect(),
            });
        }
    }
    Err(Fault::plan("no series here is for one of the kernels in kernels/")
        .at(root.join("patches").display())
        .help("docs/series.md says how to add one"))
}

/// The guest tests' list with one more.
fn listed(file: &Path, name: &str) -> Result<String, Fault> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Fault::io(format!("read {}", file.display()), &error))?;
    add_to_list(&text, name).ok_or_else(|| {
        Fault::plan(format!("no line with `{LIST_BEGIN}`"))
            .at(file.display())
            .help("add the test to the list there by hand, or write a script with --script")
    })
}

fn add_to_list(text: &str, name: &str) -> Option<String> {
    // Modules, sorted, as rustfmt keeps them.
    let line = format!("pub mod {name};");
    let is_module = |line: &&str| line.starts_with("pub mod ");
    let after = text.lines().filter(is_module).find(|other| **other > *line.as_str());
    let text = match after {
        Some(other) => text.replacen(other, &format!("{line}\n{other}"), 1),
        None => {
            let last = text.lines().rfind(|line| is_module(line))?;
            text.replacen(last, &format!("{last}\n{line}"), 1)
        }
    };
    let begin = text.find(LIST_BEGIN)? + LIST_BEGIN.len();
    let end = begin + text[begin..].find(']')?;
    let mut items: Vec<&str> =
        text[begin..end].split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    let own = format!("&{name}::TEST");
    items.push(&own);
    items.sort_unstable();
    let short = items.join(", ");
    let list = if LIST_BEGIN.len() + short.len() + "];".len() <= MAX_COLUMNS {
        short
    } else {
        format!("\n    {},\n", items.join(",\n    "))
    };
    Some(format!("{}{list}{}", &text[..begin], &text[end..]))
}

fn write(file: &Path, text: &str) -> Result<(), Fault> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, text))
        .map_err(|error| Fault::io(format!("write {}", file.display()), &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::resolve::resolve;

    const LIST_TEXT: &str =
        "pub mod alpha;\npub mod omega;\n\nconst OWN: &[&Test] = &[&alpha::TEST, &omega::TEST];\n";

    fn project() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| super::write(&folder.path().join(name), text).unwrap();
        write(
            "kernels/debian-6.12.yaml",
            "schema: kvet/kernel/1\ndebian: {package: linux-source-6.12}\n",
        );
        write("configs/kconfig/microvm.config", "CONFIG_64BIT=y\n");
        write(
            "patches/mine/series.yaml",
            "schema: kvet/series/1\ntitle: t\nkernels: {debian-6.12: {}}\nexpect:\n  - {test: khugepaged_cold, observation: a, base: 1, patched: 2}\n",
        );
        write("patches/mine/0001-x.patch", "Subject: [PATCH] x\n\nx\n---\n");
        folder
    }

    fn tests() -> Tests {
        crate::guest::tests()
    }

    #[test]
    fn a_script_and_its_plan_are_good_as_they_are_written() {
        let project = project();
        let page = new_test(project.path(), "my_test", false, &tests()).unwrap();
        assert_eq!(
            page,
            "wrote tests/my_test.sh\nwrote configs/plans/my-test.yaml\nnext: kvet run configs/plans/my-test.yaml\n"
        );
        let plan = resolve(&project.path().join("configs/plans/my-test.yaml"), &tests()).unwrap();
        let names: Vec<&str> = plan.cells[0].tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["my_test", "khugepaged_cold"]);
        let again = new_test(project.path(), "my_test", false, &tests()).unwrap_err();
        assert!(again.what.contains("there already"));
    }

    #[test]
    fn the_script_says_ok_here_too() {
        let project = project();
        new_test(project.path(), "my_test", false, &tests()).unwrap();
        let text = std::fs::read_to_string(project.path().join("tests/my_test.sh")).unwrap();
        // Whatever this machine is, it may not be changed: another path.
        let text =
            text.replace("/sys/kernel/mm/transparent_hugepage/enabled", "/proc/no/such/file");
        let output = std::process::Command::new("sh").args(["-c", &text]).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let results = crate::ktap::parse_log(&shown);
        assert_eq!((results.counts.passed, results.counts.skipped), (1, 1), "{shown}");
        assert!(results.problems.is_empty() && output.status.success());
    }

    #[test]
    fn a_rust_test_is_added_to_the_list() {
        let project = project();
        super::write(&project.path().join(LIST), LIST_TEXT).unwrap();
        let page = new_test(project.path(), "my_test", false, &tests()).unwrap();
        assert!(page.contains("changed guest-tests/src/tests/mod.rs"), "{page}");
        let list = std::fs::read_to_string(project.path().join(LIST)).unwrap();
        assert_eq!(
            list,
            "pub mod alpha;\npub mod my_test;\npub mod omega;\n\nconst OWN: &[&Test] = &[&alpha::TEST, &my_test::TEST, &omega::TEST];\n"
        );
        assert!(project.path().join("guest-tests/src/tests/my_test.rs").is_file());
        let page = new_test(&project.path().join("kernels"), "shell_test", true, &tests()).unwrap();
        assert!(page.contains("wrote tests/shell_test.sh"), "{page}");
    }

    #[test]
    fn the_real_list_can_be_added_to() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(root.join(LIST)).unwrap();
        let more = add_to_list(&text, "zz_last").unwrap();
        assert!(more.contains("pub mod zz_last;") && more.contains("&zz_last::TEST"), "{more}");
    }

    #[test]
    fn names_that_cannot_be_are_refused_before_anything_is_written() {
        let project = project();
        for name in ["", "My", "a-b", "a.b", "../x", "mod", "khugepaged_cold"] {
            assert!(new_test(project.path(), name, false, &tests()).is_err(), "{name}");
        }
        assert!(!project.path().join("tests").exists());
        let empty = tempfile::tempdir().unwrap();
        assert!(new_test(empty.path(), "a", false, &tests()).unwrap_err().what.contains("patches"));
    }
}
