// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet validate` on series that are broken, each in another way: it names the patch
//! and the reason.
//!
//! Two that cost little are looked at in every run of the tests; `KVET_BROKEN=all` looks
//! at all eight, in some twenty minutes. Each is three patches, and the second is to
//! blame; the config is the one that shows it.

mod common;

use common::Project;

/// Where in mm/madvise.c of 6.12 the second patch adds its lines: before MADV_COLD and
/// its like are done.
const BEFORE: &str = " \tif (end == start)\n \t\treturn 0;\n \n";
const AFTER: &str = " #ifdef CONFIG_MEMORY_FAILURE\n \tif (behavior == MADV_HWPOISON || behavior == MADV_SOFT_OFFLINE)\n \t\treturn madvise_inject_error(behavior, start, start + len_in);\n";
const FUNCTION: &str =
    "int do_madvise(struct mm_struct *mm, unsigned long start, size_t len_in, int behavior)";

/// A series that is broken.
struct Broken {
    name: &'static str,
    config: &'static str,
    /// What patch 2 adds.
    adds: &'static [&'static str],
    /// Patch 3 takes it out again.
    mended: bool,
    /// The check that fails, and what it says.
    check: &'static str,
    says: &'static [&'static str],
    code: i32,
}

const BROKEN: [Broken; 7] = [
    Broken {
        name: "does-not-build",
        config: "microvm",
        adds: &["behavior = madvise_no_such_name(behavior);"],
        mended: true,
        check: "builds",
        says: &["does not build at patch 2 of 3 (mm: madvise: second)", "madvise_no_such_name"],
        code: 5,
    },
    Broken {
        name: "warning",
        config: "microvm",
        adds: &["if (behavior == MADV_COLD) {", "\tint unused_cold;", "}", ""],
        mended: false,
        check: "builds",
        says: &[
            "new warning at patch 2 of 3 (mm: madvise: second): mm/madvise.c:",
            "unused variable 'unused_cold'",
        ],
        code: 5,
    },
    Broken {
        name: "lock-order",
        config: "lockdep",
        adds: &[
            "if (behavior == MADV_COLD) {",
            "\tstatic DEFINE_SPINLOCK(one);",
            "\tstatic DEFINE_SPINLOCK(other);",
            "",
            "\tspin_lock(&one);",
            "\tspin_lock(&other);",
            "\tspin_unlock(&other);",
            "\tspin_unlock(&one);",
            "\tspin_lock(&other);",
            "\tspin_lock(&one);",
            "\tspin_unlock(&one);",
            "\tspin_unlock(&other);",
            "}",
            "",
        ],
        mended: false,
        check: "boots",
        says: &[
            "new splat: possible deadlock in do_madvise",
            "at patch 2 of 3 (mm: madvise: second)",
        ],
        code: 1,
    },
    Broken {
        name: "sleep-in-atomic",
        config: "lockdep",
        adds: &[
            "if (behavior == MADV_COLD) {",
            "\tstatic DEFINE_SPINLOCK(lock);",
            "",
            "\tspin_lock(&lock);",
            "\tkfree(kmalloc(64, GFP_KERNEL));",
            "\tspin_unlock(&lock);",
            "}",
            "",
        ],
        mended: false,
        check: "boots",
        says: &[
            "new splat: BUG: sleeping function called from invalid context in do_madvise",
            "at patch 2 of 3 (mm: madvise: second)",
        ],
        code: 1,
    },
    Broken {
        name: "use-after-free",
        config: "kasan",
        adds: &[
            "if (behavior == MADV_COLD) {",
            "\tint *count = kmalloc(64, GFP_KERNEL);",
            "",
            "\tif (count) {",
            "\t\tkfree(count);",
            "\t\tif (READ_ONCE(count[1]) == 42)",
            "\t\t\treturn -ENOMEM;",
            "\t}",
            "}",
            "",
        ],
        mended: false,
        check: "boots",
        says: &[
            "new splat: KASAN: slab-use-after-free Read in do_madvise",
            "at patch 2 of 3 (mm: madvise: second)",
        ],
        code: 1,
    },
    Broken {
        name: "leak",
        config: "kmemleak",
        adds: &[
            "if (behavior == MADV_COLD) {",
            "\tint *count = kmalloc(64, GFP_KERNEL);",
            "",
            "\tif (count)",
            "\t\tWRITE_ONCE(count[1], 42);",
            "}",
            "",
        ],
        mended: false,
        check: "boots",
        says: &["new splat: memory leak in do_madvise", "at patch 2 of 3 (mm: madvise: second)"],
        code: 1,
    },
    Broken {
        name: "wrong-in-between",
        config: "microvm",
        adds: &["if (behavior == MADV_COLD)", "\treturn 0;", ""],
        mended: true,
        check: "behaviour",
        says: &["broken at patch 2 of 3 (mm: madvise: second)", "fixed at 3 of 3"],
        code: 1,
    },
];

/// A patch as git writes it.
fn patch(subject: &str, line: usize, before: &str, lines: &str, after: &str) -> String {
    let count =
        |text: &str, signs: &[char]| text.lines().filter(|line| line.starts_with(signs)).count();
    let all = format!("{before}{lines}{after}");
    let (old, new) = (count(&all, &[' ', '-']), count(&all, &[' ', '+']));
    format!(
        "From: A Developer <developer@example.org>\nSubject: [PATCH] mm: madvise: {subject}\n\nFor a test of what looks at it.\n\nSigned-off-by: A Developer <developer@example.org>\n---\ndiff --git a/mm/madvise.c b/mm/madvise.c\n--- a/mm/madvise.c\n+++ b/mm/madvise.c\n@@ -{line},{old} +{line},{new} @@ {FUNCTION}\n{all}"
    )
}

fn signed(sign: char, lines: &[&str]) -> String {
    let tab = |line: &&str| {
        if line.is_empty() { format!("{sign}\n") } else { format!("{sign}\t{line}\n") }
    };
    lines.iter().map(tab).collect()
}

/// A patch that changes a comment: nothing that is built.
fn comment(subject: &str, word: &str) -> String {
    let before = " \n /*\n";
    let line = format!("+ * {word}\n");
    let after = "  * Any behaviour which results in changes to the vma->vm_flags needs to\n  * take mmap_lock for writing. Others, which simply traverse vmas, need\n";
    let before = if word == "Second." {
        " \n /*\n+ * First.\n".replace('+', " ")
    } else {
        before.to_owned()
    };
    patch(subject, 44, &before, &line, after)
}

/// Three patches: a comment, the bad one, and one that mends it or is a comment, too.
fn series(project: &Project, broken: &Broken) {
    let bad = patch("second", 1453, BEFORE, &signed('+', broken.adds), AFTER);
    let last = match broken.mended {
        true => patch("third", 1453, BEFORE, &signed('-', broken.adds), AFTER),
        false => comment("third", "Second."),
    };
    write(project, broken.name, "", &[comment("first", "First."), bad, last]);
}

fn write(project: &Project, name: &str, entry: &str, patches: &[String]) {
    // What a change of behaviour is declared to be is no matter here.
    project.write(&format!("patches/{name}/series.yaml"), &common::series_yaml(entry, ""));
    for (number, patch) in (1..).zip(patches) {
        project.write(&format!("patches/{name}/{number:04}-test.patch"), patch);
    }
}

/// Validates in one config and looks at one check.
#[track_caller]
fn validate(project: &Project, name: &str, config: &str, check: &str, says: &[&str], code: i32) {
    let arguments = ["validate", "--kernel", "debian-6.12", "--series", name, "--fail-fast"];
    let arguments = [&arguments[..], &["--config", config]].concat();
    let ended = project.kvet(&arguments);
    let all = format!("{}\n{}", ended.stdout, ended.stderr);
    let text = std::fs::read(project.path().join("kvet-runs/latest/validate.json")).expect(&all);
    let result: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let checks = result["checks"].as_array().unwrap();
    let found = checks.iter().find(|one| one["name"] == check).unwrap();
    println!("{name}, {:.0} s: {}", ended.took.as_secs_f64(), found["evidence"]);
    assert_eq!(
        (found["outcome"].as_str(), found["patch"].as_u64()),
        (Some("failed"), Some(2)),
        "{all}"
    );
    let words = format!("{} {}", found["evidence"], found["details"]);
    for word in says {
        assert!(words.contains(word), "{word:?} is not in {found:#}\n{all}");
    }
    assert_eq!(ended.code, code, "{all}");
    // What comes before it passes.
    let before = checks.iter().take_while(|one| one["name"] != check);
    for one in before {
        let evidence = one["evidence"].as_str().unwrap_or_default();
        let cannot = ["perl is not installed", "none of the chosen tests"];
        let skipped = cannot.iter().any(|why| evidence.contains(why));
        assert!(one["outcome"] == "ok" || skipped, "{one:#}\n{all}");
    }
}

fn look_at(names: &[&str]) {
    let project = Project::new();
    for broken in BROKEN.iter().filter(|broken| names.contains(&broken.name)) {
        series(&project, broken);
        let Broken { name, config, check, says, code, .. } = *broken;
        validate(&project, name, config, check, says, code);
    }
}

fn all() -> bool {
    let all = std::env::var("KVET_BROKEN").is_ok_and(|which| which == "all");
    if !all {
        println!("not run: KVET_BROKEN=all runs it");
    }
    all
}

#[test]
fn what_the_compiler_says_is_told_with_its_patch() {
    look_at(&["does-not-build", "warning"]);
}

#[test]
fn what_lockdep_says_is_told_with_its_patch() {
    if all() {
        look_at(&["lock-order", "sleep-in-atomic"]);
    }
}

#[test]
fn a_use_after_free_and_a_leak_are_told_with_their_patch() {
    if all() {
        look_at(&["use-after-free", "leak"]);
    }
}

#[test]
fn what_is_wrong_only_in_the_middle_is_told_with_its_patch() {
    if all() {
        look_at(&["wrong-in-between"]);
    }
}

/// Each call of `process_madvise` costs so many instructions more: 3 % of one with one
/// range of one page, which takes some 3,200.
const MORE: usize = 100;

#[test]
fn three_percent_more_instructions_are_told_with_their_patch() {
    if !all() {
        return;
    }
    let project = Project::new();
    let adds = format!("+\tasm volatile(\".rept {MORE}\\n\\tnop\\n\\t.endr\");\n");
    let before = " \t\tgoto release_mm;\n \t}\n \n";
    let after = " \tret = madvise_vector(mm, &iter, behavior);\n \n release_mm:\n";
    let bad = patch("second", 1627, before, &adds, after);
    let entry = "prerequisites: [madvise-self, madvise-lock-once]";
    write(
        &project,
        "slower",
        entry,
        &[comment("first", "First."), bad, comment("third", "Second.")],
    );
    let says = ["process_madvise", "regressed +", "at patch 2 of 3 (mm: madvise: second)"];
    validate(&project, "slower", "microvm", "performance", &says, 1);
}
