// SPDX-License-Identifier: MIT OR Apache-2.0
//! kvet's reader of TAP and KTAP against the kernel's own, `kunit.py`: the same
//! tree, names and statuses for a corpus of logs and for generated ones. Where
//! kvet reads more on purpose (`src/ktap/mod.rs` says what) that is left out.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kvet::ktap::{Node, Results, Status, parse_log};
use serde_json::{Value, json};

/// Runs the kernel's parser over files, a line of JSON for each. It may raise, or
/// loop for ever where a plan stands in an unusual place: then it has no opinion.
const DRIVER: &str = r#"
import io, json, signal, sys
# It prints as it parses, to what standard output is when it is imported.
answers, sys.stdout = sys.stdout, io.StringIO()
sys.path.insert(0, sys.argv[1])
import kunit_parser

def late(*_):
    raise TimeoutError()

def tree(test):
    return {"name": test.name.strip(), "status": test.status.name,
            "subtests": [tree(child) for child in test.subtests]}

signal.signal(signal.SIGALRM, late)
for path in sys.argv[2:]:
    with open(path) as log:
        lines = log.read().splitlines()
    signal.alarm(5)
    try:
        test = kunit_parser.parse_run_tests(lines)
        counts = [test.counts.passed, test.counts.failed, test.counts.crashed, test.counts.skipped]
        answer = {"tree": tree(test), "counts": counts}
    except (ValueError, TimeoutError, RecursionError) as error:
        answer = None
    signal.alarm(0)
    print(json.dumps(answer), file=answers)
"#;

/// A folder with the kernel's parser, from the kernel source that the tests keep
/// or from `KVET_TEST_KERNEL`, a kernel tree; or why there is none.
fn kunit(folder: &Path) -> Result<PathBuf, String> {
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Err("there is no python3".to_owned());
    }
    if let Some(tree) = std::env::var_os("KVET_TEST_KERNEL") {
        return Ok(Path::new(&tree).join("tools/testing/kunit"));
    }
    let sources = common::cache().join("sources");
    let source = std::fs::read_dir(&sources)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.join("source.json").is_file())
        .ok_or_else(|| {
            format!("no kernel source in {} and no KVET_TEST_KERNEL", sources.display())
        })?;
    let text = std::fs::read(source.join("source.json")).map_err(|error| error.to_string())?;
    let source_json: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    for name in ["kunit_parser.py", "kunit_printer.py"] {
        let object =
            format!("{}:tools/testing/kunit/{name}", source_json["commit"].as_str().unwrap());
        let output = Command::new("git")
            .arg("--git-dir")
            .arg(source.join("git"))
            .args(["cat-file", "blob", &object])
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("{object} cannot be read"));
        }
        std::fs::write(folder.join(name), output.stdout).unwrap();
    }
    Ok(folder.to_owned())
}

/// kunit.py's answer for each log; none where it has no opinion.
fn theirs(kunit: &Path, files: &[PathBuf]) -> Vec<Value> {
    let output = Command::new("python3")
        .args(["-B", "-c", DRIVER])
        .arg(kunit)
        .args(files)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), files.len());
    answers
}

/// kvet's answer in the same form, without what only kvet reads.
fn ours(log: &str) -> Value {
    let found = parse_log(log);
    let counts = &found.counts;
    let status = if found.found { None } else { Some("FAILURE_TO_PARSE_TESTS") };
    let name = if found.found { "main" } else { "<missing>" };
    json!({
        "tree": tree(&found.main, name, status),
        "counts": [counts.passed, counts.failed, counts.crashed, counts.skipped],
    })
}

fn tree(node: &Node, name: &str, status: Option<&str>) -> Value {
    let status = status.unwrap_or(match node.status {
        Status::Passed => "SUCCESS",
        Status::Failed => "FAILURE",
        Status::Skipped => "SKIPPED",
        Status::Crashed => "TEST_CRASHED",
        Status::NoTests => "NO_TESTS",
        Status::Xfail | Status::Todo => "kvet's own",
    });
    let children = node.subtests.iter().filter(|child| !child.quoted && !child.unplanned);
    let children: Vec<Value> = children.map(|child| tree(child, &child.name, None)).collect();
    json!({"name": name, "status": status, "subtests": children})
}

fn corpus() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ktap");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

/// Compares logs; gives the number on which kunit.py has an opinion.
fn compare(logs: &[(String, String)]) -> Result<usize, String> {
    let folder = tempfile::tempdir().unwrap();
    let kunit = kunit(folder.path())?;
    let files: Vec<PathBuf> = logs
        .iter()
        .map(|(name, log)| {
            let path = folder.path().join(format!("{name}.log"));
            std::fs::write(&path, log).unwrap();
            path
        })
        .collect();
    let mut compared = 0;
    for ((name, log), theirs) in logs.iter().zip(theirs(&kunit, &files)) {
        if theirs.is_null() {
            continue;
        }
        compared += 1;
        let ours = ours(log);
        assert!(ours == theirs, "{name}\n{log}\nkvet:     {ours}\nkunit.py: {theirs}");
    }
    Ok(compared)
}

#[test]
fn the_corpus_is_read_as_kunit_reads_it() {
    let logs = corpus();
    match compare(&logs) {
        Ok(compared) => {
            println!("{compared} of {} logs compared", logs.len());
            assert_eq!(compared, logs.len());
        }
        Err(why) => println!("not run: {why}"),
    }
}

#[test]
fn the_corpus_is_read_as_it_was() {
    for (name, log) in corpus() {
        insta::assert_snapshot!(name, outline(&parse_log(&log)));
    }
}

fn outline(found: &Results) -> String {
    fn add(node: &Node, depth: usize, out: &mut String) {
        let marks = [(node.unplanned, " unplanned"), (node.quoted, " quoted")];
        let marks: String = marks.iter().filter(|mark| mark.0).map(|mark| mark.1).collect();
        let reason =
            if node.reason.is_empty() { String::new() } else { format!(" ({})", node.reason) };
        let indent = "  ".repeat(depth);
        out.push_str(&format!("{indent}{}: {}{reason}{marks}\n", node.name, node.status.word()));
        node.subtests.iter().for_each(|child| add(child, depth + 1, out));
    }
    let mut out = String::new();
    add(&found.main, 0, &mut out);
    out.push_str(&format!("{}; quoted: {}\n", found.counts, found.quoted));
    found.problems.iter().for_each(|problem| out.push_str(&format!("problem: {problem}\n")));
    out
}

/// Knuth's MMIX generator: the same logs every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// A log of nested groups, some without a plan or with one that is too high, some
/// without a version line; with diagnostics between, a prefix or none, and cut
/// off somewhere or not.
fn generated(dice: &mut Dice) -> String {
    let mut lines = vec![format!("{} version 1", "KTAP")];
    let count = 1 + dice.below(4);
    let mut serial = 0;
    if dice.chance(80) {
        lines.push(format!("1..{}", count + dice.below(2) * dice.below(3)));
    }
    for number in 1..=count {
        test(dice, number, 0, &mut serial, &mut lines);
    }
    if dice.chance(40) {
        let keep = 1 + dice.below(lines.len());
        lines.truncate(keep);
        lines.push("BUG: unable to handle page fault for address: ffffc90000000000".to_owned());
    }
    let prefix = ["", "", "[   12.345678] ", "<6>[    1.000000] ", "ttyS0| "][dice.below(5)];
    let mut out = String::new();
    for noise in ["Linux version 6.12.0", "ok, booting"].iter().take(dice.below(3)) {
        out.push_str(&format!("{prefix}{noise}\n"));
    }
    for line in lines {
        out.push_str(&format!("{prefix}{line}\n"));
    }
    out
}

fn test(dice: &mut Dice, number: usize, depth: usize, serial: &mut usize, lines: &mut Vec<String>) {
    let indent = "    ".repeat(depth);
    *serial += 1;
    let name = format!("t{serial} of {depth}");
    if dice.chance(30) {
        lines.push(format!("{indent}# a diagnostic of {name}"));
    }
    if depth < 3 && dice.chance(40) {
        let inner = "    ".repeat(depth + 1);
        if dice.chance(70) {
            lines.push(format!("{inner}KTAP version 1"));
        }
        lines.push(format!("{inner}# Subtest: {name}"));
        if dice.chance(20) {
            lines.push(format!("{inner}# module: m"));
        }
        let count = dice.below(4);
        if dice.chance(75) {
            lines.push(format!("{inner}1..{}", count + dice.below(2) * dice.below(2)));
        }
        for number in 1..=count {
            test(dice, number, depth + 1, serial, lines);
        }
    }
    if dice.chance(5) {
        return;
    }
    let number = if dice.chance(5) { number + 1 } else { number };
    let word = if dice.chance(80) { "ok" } else { "not ok" };
    let dash = if dice.chance(30) { "- " } else { "" };
    let end = ["", "", "", " # SKIP", " # SKIP no such device", " # 12 ms"][dice.below(6)];
    lines.push(format!("{indent}{word} {number} {dash}{name}{end}"));
}

#[test]
fn generated_logs_are_read_as_kunit_reads_them() {
    let mut dice = Dice(1);
    let logs: Vec<(String, String)> =
        (0..400).map(|at| (format!("generated-{at}"), generated(&mut dice))).collect();
    match compare(&logs) {
        Ok(compared) => {
            println!("{compared} of {} logs compared", logs.len());
            assert!(compared * 10 >= logs.len() * 8, "{compared} of {}", logs.len());
        }
        Err(why) => println!("not run: {why}"),
    }
}
