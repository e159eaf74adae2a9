// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a count sees: changes of known size in a path of the kernel, and a change that
//! is none.
//!
//! A change of ten instructions and the one that is none are looked at in every run of
//! the tests; `KVET_CHANGES=20`, which `make stats` sets, looks at twenty of 5 to 500
//! instructions, both signs.

mod common;

use std::fmt::Write as _;
use std::time::Instant;

use common::{Project, finish};

/// Functions of mm/madvise.c with other names and in another order.
const RENAME: &str = include_str!("sensitivity/rename.patch");

/// A change by so many instructions of each call of `process_madvise`.
#[derive(Debug, Clone, Copy)]
struct Change {
    instructions: i64,
    /// In a loop, not in a row.
    looped: bool,
}

impl Change {
    fn name(self) -> String {
        let sign = if self.instructions < 0 { "less" } else { "more" };
        let how = if self.looped { "loop" } else { "row" };
        format!("{sign}-{}-{how}", self.instructions.abs())
    }

    /// The statement whose instructions are counted.
    fn statement(self) -> String {
        let count = self.instructions.abs();
        match self.looped {
            false => format!("asm volatile(\".rept {count}\\n\\tnop\\n\\t.endr\");"),
            // One to set the counter, two each round.
            true => {
                assert_eq!(count % 2, 1);
                let rounds = (count - 1) / 2;
                format!(
                    "asm volatile(\"mov ${rounds}, %%ecx\\n1:\\tdec %%ecx\\n\\tjnz 1b\" ::: \"ecx\", \"cc\");"
                )
            }
        }
    }

    /// A patch that adds the statement.
    fn patch(self, sign: char) -> String {
        let (before, after) = if sign == '+' { (6, 7) } else { (7, 6) };
        format!(
            "From: A Developer <developer@example.org>\nSubject: [PATCH] mm: madvise: {}\n\nSigned-off-by: A Developer <developer@example.org>\n---\ndiff --git a/mm/madvise.c b/mm/madvise.c\n--- a/mm/madvise.c\n+++ b/mm/madvise.c\n@@ -1627,{before} +1627,{after} @@ SYSCALL_DEFINE5(process_madvise, int, pidfd, const struct iovec __user *, vec,\n \t\tgoto release_mm;\n \t}}\n \n{sign}\t{}\n \tret = madvise_vector(mm, &iter, behavior);\n \n release_mm:\n",
            self.name(),
            self.statement()
        )
    }

    /// Writes the series. What it takes out, a prerequisite has put in.
    fn write(self, project: &Project) {
        let name = self.name();
        let more = match self.instructions < 0 {
            true => {
                let path = format!("patches/prerequisites/{name}/0001-test.patch");
                project.write(&path, &self.patch('+'));
                format!(", {name}")
            }
            false => String::new(),
        };
        let sign = if self.instructions < 0 { '-' } else { '+' };
        let entry = format!("prerequisites: [madvise-self, madvise-lock-once{more}]");
        let text = common::series_yaml(&entry, "");
        project.write(&format!("patches/{name}/series.yaml"), &text);
        project.write(&format!("patches/{name}/0001-test.patch"), &self.patch(sign));
    }
}

fn changes(count: usize) -> Vec<Change> {
    // The first is the one of every test run.
    let sizes = [
        (10, false),
        (-5, false),
        (5, true),
        (-9, true),
        (14, false),
        (-17, true),
        (25, false),
        (-33, true),
        (40, false),
        (-60, false),
        (81, true),
        (-101, true),
        (130, false),
        (-160, false),
        (201, true),
        (-251, true),
        (300, false),
        (-350, false),
        (421, true),
        (-500, false),
    ];
    let change = |&(instructions, looped)| Change { instructions, looped };
    sizes.iter().take(count).map(change).collect()
}

/// `(base, patched, verdict)` of a metric of the series `name`, medians.
fn metric(result: &serde_json::Value, name: &str, metric: &str) -> (f64, f64, String) {
    let cells = result["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["series"] == name).unwrap();
    let metrics = cell["tests"][0]["metrics"].as_array().unwrap();
    let found = metrics.iter().find(|found| found["name"] == metric).unwrap();
    let median = |variant: &str| found["figures"][variant]["median"].as_f64().unwrap();
    (median("base"), median("patched"), found["verdict"].as_str().unwrap().to_owned())
}

#[test]
fn a_change_is_found_to_the_instruction_and_new_names_are_none() {
    let count = std::env::var("KVET_CHANGES").map_or(1, |count| count.parse().unwrap());
    if count == 1 {
        println!("one change of known size; KVET_CHANGES=20 looks at twenty");
    }
    let project = Project::new();
    let changes = changes(count);
    let entry = "prerequisites: [madvise-self, madvise-lock-once]";
    project.write("patches/rename/series.yaml", &common::series_yaml(entry, ""));
    project.write("patches/rename/0001-test.patch", RENAME);
    let mut names = vec!["rename".to_owned()];
    for change in &changes {
        change.write(&project);
        names.push(change.name());
    }
    let plan = format!(
        "schema: kvet/plan/1\nseries: [{}]\nkernels: [debian-6.12]\nconfigs:\n  microvm: {{base: tinyconfig, fragments: [microvm]}}\nguests:\n  up: {{memory: 512MiB}}\ntests:\n  - name: process_madvise\n    parameters: {{memory: 8MiB, vlen: 1, advice: dontneed}}\n    measure: [instructions]\nmeasures:\n  instructions: {{phases: 2}}\n",
        names.join(", ")
    );
    project.write("configs/plans/mine.yaml", &plan);
    let began = Instant::now();
    let ended = finish(project.command(&["run", "mine"]).spawn().unwrap(), began);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let result = project.result();

    let (base, patched, verdict) = metric(&result, "rename", "call");
    println!("rename: {base} to {patched}, {verdict}");
    assert_eq!(verdict, "unchanged", "{base} to {patched}");
    assert_eq!(metric(&result, "rename", "latency").2, "unchanged");

    let mut wrong = String::new();
    for change in changes {
        let (base, patched, verdict) = metric(&result, &change.name(), "call");
        let whole = metric(&result, &change.name(), "latency");
        let found = patched - base;
        let true_size = change.instructions as f64;
        println!(
            "{:+} instructions a call: {base} to {patched}, {found:+}, {verdict}; 2048 calls {:+}",
            change.instructions,
            whole.1 - whole.0
        );
        let expected = if change.instructions > 0 { "regressed" } else { "improved" };
        let near = (found - true_size).abs() <= true_size.abs() * 0.02;
        if verdict != expected || !near || (change.instructions == 10 && found != true_size) {
            let _ = writeln!(wrong, "{change:?}: {found:+}, {verdict}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    println!("in {:.0} s", began.elapsed().as_secs_f64());
}
