// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet bisect` on a kernel of three files: commits with merges, patches and symbols
//! whose builds fail. No guest is booted.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Instant;

use common::tiny::{Tiny, git, said};
use common::{Ended, finish, wait_until};

/// What a compiler does not take, and what it does not take for another reason.
const BROKEN: &str = "int broken(void)\n{\n\treturn undeclared_thing;\n}\n";
const OTHER: &str = "int other(void)\n{\n\treturn 1 +;\n}\n";

/// Commits of a history: each adds a function to a file of its own, `bad` breaks the
/// build for good, and those of `unbuildable` break it until the next one. Every eighth
/// is on a branch that is merged later.
fn history(tiny: &Tiny, length: usize, bad: usize, unbuildable: &[usize]) -> Vec<String> {
    let makefile = fs::read_to_string(tiny.path("linux/Makefile")).unwrap();
    let makefile = makefile.replace("OBJECTS :=", "OBJECTS := mm/c.o mm/d.o");
    tiny.write("linux/Makefile", &makefile);
    tiny.write("linux/mm/c.c", "int c;\n");
    tiny.write("linux/mm/d.c", "int d;\n");
    tiny.commit("mm: begin");
    tiny.git(&["tag", "good"]);
    let mut ids = Vec::new();
    let mut body = String::new();
    let mut number = 0;
    while number < length {
        if number % 8 == 3 && number + 2 < length && !(number..number + 3).contains(&bad) {
            // A commit beside the line, and the merge.
            tiny.git(&["checkout", "--quiet", "-b", "side"]);
            tiny.write(&format!("linux/mm/side{number}.h"), "int side(int);\n");
            tiny.commit(&format!("mm: change {number}"));
            ids.push(tiny.git(&["rev-parse", "HEAD"]).trim().to_owned());
            tiny.git(&["checkout", "--quiet", "master"]);
            tiny.write("linux/mm/d.c", &format!("int d = {number};\n"));
            tiny.commit(&format!("mm: change {}", number + 1));
            ids.push(tiny.git(&["rev-parse", "HEAD"]).trim().to_owned());
            let message = format!("Merge change {}", number + 2);
            tiny.git(&["merge", "--quiet", "--no-ff", "--message", &message, "side"]);
            tiny.git(&["branch", "--quiet", "--delete", "side"]);
            ids.push(tiny.git(&["rev-parse", "HEAD"]).trim().to_owned());
            number += 3;
            continue;
        }
        let _ = writeln!(body, "int change{number}(int x)\n{{\n\treturn x + {number};\n}}");
        if number == bad {
            body.push_str(BROKEN);
        }
        tiny.write("linux/mm/c.c", &body);
        let other = if unbuildable.contains(&number) { OTHER } else { "" };
        tiny.write("linux/mm/b.c", &format!("int four(int x)\n{{\n\treturn x + 4;\n}}\n{other}"));
        tiny.commit(&format!("mm: change {number}"));
        ids.push(tiny.git(&["rev-parse", "HEAD"]).trim().to_owned());
        number += 1;
    }
    ids
}

fn tiny() -> Tiny {
    let tiny = Tiny::new();
    tiny.plan("none", "");
    tiny.write(
        "patches/none/series.yaml",
        "schema: kvet/series/1\ntitle: nothing\nkernels: {tiny: {}}\n",
    );
    tiny.write(
        "patches/none/0001-nothing.patch",
        "--- /dev/null\n+++ b/mm/nothing.h\n@@ -0,0 +1 @@\n+/* nothing */\n",
    );
    tiny
}

fn record(tiny: &Tiny) -> serde_json::Value {
    let text = fs::read(tiny.path("kvet-runs/latest/bisect.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn log(tiny: &Tiny) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(tiny.path("kvet-runs/latest/bisect.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn bisect(tiny: &Tiny, more: &[&str]) -> Ended {
    tiny.kvet(&[&["bisect", "mine"], more].concat())
}

const RANGE: [&str; 5] = ["--good", "good", "--bad", "master", "--build"];

#[test]
fn the_commit_that_breaks_the_build_is_found_among_others_that_do_not_build() {
    let tiny = tiny();
    let ids = history(&tiny, 64, 41, &[39, 42]);
    let before = tiny.git(&["status", "--porcelain"]) + &tiny.git(&["for-each-ref"]);
    let ended = bisect(&tiny, &RANGE);
    said(
        &ended,
        0,
        &[
            "first bad:",
            "mm: change 41",
            "author  Ada Example <ada@example.org>",
            "undeclared_thing",
            "To: Ada Example <ada@example.org>",
            "Subject: bisected to: mm: change 41",
        ],
    );
    assert!(ended.stdout.contains(&ids[41]), "{}", ended.stdout);
    let record = record(&tiny);
    assert!(record["builds"].as_u64().unwrap() <= 11, "{}", ended.stdout);
    assert_eq!(record["boots"], 0);
    // The clone is as it was, and its git takes the log.
    assert_eq!(before, tiny.git(&["status", "--porcelain"]) + &tiny.git(&["for-each-ref"]));
    let replayed = tiny.path("kvet-runs/latest/git-bisect.log");
    let said = tiny.git(&["bisect", "replay", replayed.to_str().unwrap()]);
    assert!(said.contains(&ids[41]) || tiny.git(&["bisect", "log"]).contains(&ids[41]), "{said}");
}

#[test]
fn each_position_is_found_in_few_builds() {
    for bad in [0, 7, 12] {
        let tiny = tiny();
        let ids = history(&tiny, 13, bad, &[]);
        let ended = bisect(&tiny, &RANGE);
        said(&ended, 0, &[&ids[bad]]);
        assert!(record(&tiny)["builds"].as_u64().unwrap() <= 6, "{}", ended.stdout);
    }
}

#[test]
fn a_killed_search_goes_on_where_it_was() {
    let tiny = tiny();
    let ids = history(&tiny, 40, 29, &[]);
    let mut child = tiny.command(&[&["bisect", "mine"], &RANGE[..]].concat()).spawn().unwrap();
    wait_until("a second trial", || log(&tiny).len() >= 3);
    child.kill().unwrap();
    let ended = finish(child, Instant::now());
    assert_eq!(ended.code, -1, "{}", ended.stdout);
    let earlier = log(&tiny);
    let run = fs::canonicalize(tiny.path("kvet-runs/latest")).unwrap();
    let run = run.to_str().unwrap();
    // Not with other arguments.
    let other = ["--good", "good", "--bad", "master~1", "--build", "--resume", run];
    said(&bisect(&tiny, &other), 2, &["another search", "resume with the arguments"]);
    said(&bisect(&tiny, &[&RANGE[..], &["--resume", run]].concat()), 0, &[&ids[29]]);
    let later = log(&tiny);
    assert_eq!(later[..earlier.len()], earlier);
    let mut tried: Vec<&str> = later
        .iter()
        .filter(|entry| entry["entry"] == "trial")
        .map(|entry| entry["candidate"]["id"].as_str().unwrap())
        .collect();
    let all = tried.len();
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried.len(), all, "a candidate was tried twice: {later:?}");
    // Once more it only says what it knows.
    said(&bisect(&tiny, &[&RANGE[..], &["--resume", run]].concat()), 0, &[&ids[29]]);
}

#[test]
fn an_interrupt_leaves_a_log_to_go_on_from() {
    let tiny = tiny();
    let ids = history(&tiny, 40, 29, &[]);
    let child = tiny.command(&[&["bisect", "mine"], &RANGE[..]].concat()).spawn().unwrap();
    wait_until("a trial", || log(&tiny).len() >= 2);
    let process = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let ended = finish(child, Instant::now());
    if ended.code == 0 {
        println!("not shown: the search was done before the signal came");
        return;
    }
    said(&ended, 130, &["--resume"]);
    let run = fs::canonicalize(tiny.path("kvet-runs/latest")).unwrap();
    said(
        &bisect(&tiny, &[&RANGE[..], &["--resume", run.to_str().unwrap()]].concat()),
        0,
        &[&ids[29]],
    );
}

#[test]
fn git_bisect_run_works_with_kvet() {
    let tiny = tiny();
    let ids = history(&tiny, 13, 9, &[7]);
    tiny.git(&["bisect", "start", "master", "good"]);
    let plan = tiny.path("configs/plans/mine.yaml");
    let kvet = tiny.command(&["bisect", plan.to_str().unwrap(), "--git-bisect-run", "--build"]);
    let words: Vec<_> = kvet.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
    let mut run = Command::new("git");
    run.args(["bisect", "run", kvet.get_program().to_str().unwrap()]).args(&words);
    for (name, value) in kvet.get_envs() {
        match value {
            Some(value) => run.env(name, value),
            None => run.env_remove(name),
        };
    }
    run.env("KVET_RUNS_DIR", tiny.path("kvet-runs")).current_dir(tiny.path("linux"));
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(&format!("{} is the first bad commit", ids[9])), "{said}");
}

#[test]
fn a_mistake_ends_a_git_bisection() {
    let tiny = tiny();
    let code = |more: &[&str]| tiny.kvet(&[&["bisect"], more].concat()).code;
    let mine = ["mine", "--git-bisect-run", "--git", "linux"];
    assert_eq!(code(&["nothing", "--git-bisect-run", "--build"]), 130);
    assert_eq!(code(&["mine", "--git-bisect-run", "--bild"]), 130);
    assert_eq!(code(&[&mine[..], &["--observation", "x", "-t", "selftest_pass"]].concat()), 130);
    assert_eq!(code(&[&mine[..], &["--build"]].concat()), 0);
    // Uncommitted changes are no part of a commit, unless they are to be.
    tiny.change("mm/a.c", "return 1;", "return undeclared;");
    assert_eq!(code(&[&mine[..], &["--build"]].concat()), 0);
    assert_eq!(code(&[&mine[..], &["--build", "--dirty"]].concat()), 1);
}

#[test]
fn the_patch_that_breaks_the_build_is_found() {
    let tiny = tiny();
    for number in 1..=5 {
        let extra = if number == 4 { BROKEN } else { "" };
        let text = fs::read_to_string(tiny.path("linux/mm/b.c")).unwrap();
        tiny.write("linux/mm/b.c", &format!("{text}int more{number};\n{extra}"));
        tiny.commit(&format!("mm: more {number}"));
    }
    tiny.folder("five", "master", "");
    let ended = bisect(&tiny, &["--series", "five", "--build"]);
    said(&ended, 0, &["first bad: patch-04 patch 4 of 5: mm: more 4", "5 patches of five"]);
    assert!(record(&tiny)["builds"].as_u64().unwrap() <= 5, "{}", ended.stdout);
    // The plan's own.
    said(&bisect(&tiny, &["--series", "--build"]), 6, &["the bad end is good"]);
}

#[test]
fn the_symbol_that_breaks_the_build_is_found_among_300() {
    let tiny = tiny();
    let makefile = fs::read_to_string(tiny.path("linux/Makefile")).unwrap();
    // As kbuild does, what a config changes is compiled again.
    let broken =
        "-include .config\nifeq ($(CONFIG_S137),y)\nCHECK := false\nelse\nCHECK := true\nendif\n";
    let makefile = makefile.replace("%.o: %.c\n", "%.o: %.c .config\n").replace(
        "\t@gcc -O1",
        "\t@$(CHECK) || { echo 'mm/a.c:1:1: error: S137'; exit 1; }\n\t@gcc -O1",
    );
    tiny.write("linux/Makefile", &makefile.replacen("OBJECTS", &format!("{broken}OBJECTS"), 1));
    tiny.commit("make: look at the config");
    tiny.kernel("git: {repository: linux, revision: master}");
    let text = |value: fn(usize) -> bool| -> String {
        (0..300)
            .map(|at| match value(at) {
                true => format!("CONFIG_S{at:03}=y\n"),
                false => format!("# CONFIG_S{at:03} is not set\n"),
            })
            .collect()
    };
    tiny.write("good.config", &text(|_| false));
    tiny.write("bad.config", &text(|_| true));
    let ends = ["--config-good", "good.config", "--config-bad", "bad.config", "--build"];
    let ended = bisect(&tiny, &ends);
    said(
        &ended,
        0,
        &[
            "this symbol makes the difference",
            "S137: good not set, bad y",
            "300 symbols",
            "1 symbol not as in the good config: bad",
            "not as in the good config: good",
        ],
    );
    let builds = record(&tiny)["builds"].as_u64().unwrap();
    assert!(builds <= 12, "{builds} builds:\n{}", ended.stdout);
    let exchanged = ["--config-good", "bad.config", "--config-bad", "good.config", "--build"];
    said(&bisect(&tiny, &exchanged), 6, &["the bad config is good"]);
    let unknown = ["--config-good", "good.config", "--config-bad", "nosuch", "--build"];
    said(&bisect(&tiny, &unknown), 2, &["neither a config of the plan nor a .config", "tiny"]);
}

#[test]
fn mistakes_are_named_with_what_to_do() {
    let tiny = tiny();
    history(&tiny, 6, 3, &[]);
    let wrong = |more: &[&str], words: &[&str]| said(&bisect(&tiny, more), 2, words);
    wrong(
        &["--good", "nosuch", "--bad", "master", "--build"],
        &["no commit \"nosuch\"", "rev-parse"],
    );
    wrong(&["--good", "good", "--bad", "--build", "--build"], &["--bad"]);
    wrong(&["--good", "master", "--bad", "good", "--build"], &["ancestor", "exchange the ends"]);
    wrong(
        &["--good", "master", "--bad", "master", "--build"],
        &["both ends are", "an older commit"],
    );
    wrong(&["--build"], &["nothing to search", "--good"]);
    wrong(&["--good", "good", "--bad", "master"], &["--observation"]);
    wrong(&["--good", "good", "--bad", "master", "--fail"], &["--test"]);
    wrong(
        &["--good", "good", "--bad", "master", "--fail", "-t", "nosuch"],
        &["no test \"nosuch\"", "selftest_pass"],
    );
    wrong(
        &["--good", "good", "--bad", "master", "--metric", "m", "-t", "selftest_pass"],
        &["measures nothing", "measure: [instructions]"],
    );
    wrong(
        &["--good", "good", "--bad", "master", "--metric", "m:x", "-t", "selftest_pass"],
        &["no number"],
    );
    wrong(
        &[
            "--good",
            "good",
            "--bad",
            "master",
            "--observation",
            "a",
            "-t",
            "selftest_pass",
            "--noisy",
        ],
        &["NAME=VALUE"],
    );
    wrong(
        &["--good", "good", "--bad", "master", "--build", "--config", "nosuch"],
        &["no such kernel, config and guest"],
    );
    wrong(
        &["--good", "good", "--bad", "master", "--build", "--resume", "nosuch"],
        &["no folder of a search"],
    );
    wrong(
        &["--good", "good", "--bad", "master", "--build", "--git", "configs"],
        &["no git repository"],
    );
    let orphan = tiny.path("linux");
    git(&orphan, &["checkout", "--quiet", "--orphan", "alone"]);
    tiny.commit("alone");
    git(&orphan, &["checkout", "--quiet", "master"]);
    wrong(&["--good", "alone", "--bad", "master", "--build"], &["no commit in common"]);
    // Ends that are not what they are called.
    tiny.git(&["tag", "fine", "good~0"]);
    let good_is_bad = ["--good", "master~1", "--bad", "master", "--build"];
    said(&bisect(&tiny, &good_is_bad), 6, &["the good end is bad", "name an older good end"]);
    let bad_is_good = ["--good", "good", "--bad", "good~0^{commit}", "--build"];
    wrong(&bad_is_good, &["both ends are"]);
    said(
        &bisect(&tiny, &["--good", "v6.12.3", "--bad", "good", "--build"]),
        6,
        &["the bad end is good"],
    );
}

#[test]
fn a_good_end_that_is_no_ancestor_is_searched_from_the_merge_base() {
    let tiny = tiny();
    let ids = history(&tiny, 9, 6, &[]);
    tiny.git(&["checkout", "--quiet", "-b", "stable", "good"]);
    tiny.write("linux/mm/side.h", "int stable(int);\n");
    tiny.commit("mm: stable");
    tiny.git(&["checkout", "--quiet", "master"]);
    said(&bisect(&tiny, &["--good", "stable", "--bad", "master", "--build"]), 0, &[&ids[6]]);
}
