// SPDX-License-Identifier: MIT OR Apache-2.0
//! Series that are not applied, and the words that say why.

mod common;

use common::tiny::{Tiny, said};

/// The tiny kernel and a series of one patch file.
fn with_patch(patch: &str) -> Tiny {
    let tiny = Tiny::new();
    tiny.write("one/0001-test.patch", patch);
    tiny.plan("./one", "");
    tiny
}

const WHOLE: &str = "Subject: [PATCH] mm: change two\n\n---\n--- a/mm/a.c\n+++ b/mm/a.c\n@@ -9,6 +9,6 @@ int one(int x)\n }\n \n int two(int x)\n {\n-\treturn x + 2;\n+\treturn x + 22;\n }\n";

#[test]
fn a_conflict_is_shown_with_what_is_expected_and_what_is_there() {
    let tiny = with_patch(&WHOLE.replace("-\treturn x + 2;", "-\treturn x + two;"));
    said(
        &tiny.build(&[]),
        5,
        &[
            "0001-test.patch: the patch does not apply to linux v6.12.3",
            "the hunk at mm/a.c:9 does not match",
            "the hunk expects:",
            "> \treturn x + two;",
            "the source has at mm/a.c:10:",
            "> \treturn x + 2;",
        ],
    );
}

#[test]
fn a_hunk_that_moved_applies_and_is_named() {
    let tiny = with_patch(&WHOLE.replace("@@ -9,6 +9,6 @@", "@@ -4,6 +4,6 @@"));
    said(
        &tiny.build(&[]),
        0,
        &["0001-test.patch: hunk 1 of mm/a.c applied at line 9, 5 line(s) further down"],
    );
}

#[test]
fn a_hunk_that_fits_in_two_places_is_said_to() {
    let again =
        "\tcall(one);\n\tcall(two);\n\tcall(three);\n\tcall(four);\n\tcall(five);\n\tcall(six);\n";
    let tiny = Tiny::new();
    let text = format!(
        "void call(int);\nenum {{one, two, three, four, five, six}};\nvoid f(void)\n{{\n{again}\tcall(7);\n{again}}}\n"
    );
    tiny.write("linux/mm/b.c", &text);
    tiny.commit("mm: calls");
    tiny.kernel("git: {repository: linux, revision: master}");
    tiny.write("one/0001-x.patch", "--- a/mm/b.c\n+++ b/mm/b.c\n@@ -3,6 +3,7 @@\n \tcall(one);\n \tcall(two);\n \tcall(three);\n+\tcall(9);\n \tcall(four);\n \tcall(five);\n \tcall(six);\n");
    tiny.plan("./one", "");
    said(
        &tiny.build(&[]),
        0,
        &["hunk 1 of mm/b.c applied at line 5", "0001-x.patch: fits in more than one place"],
    );
    // git holds a hunk that says line 1 to the first line.
    let patch = std::fs::read_to_string(tiny.path("one/0001-x.patch")).unwrap();
    tiny.write("one/0001-x.patch", &patch.replace("-3,6 +3,7", "-1,6 +1,7"));
    said(&tiny.build(&[]), 5, &["the same lines are at mm/b.c:5", "the file's beginning or end"]);
}

#[test]
fn a_patch_of_which_git_would_take_a_part_is_refused() {
    let second = "@@ -15,4 +15,4 @@ int two(int x)\n int three(int x)\n {\n-\treturn x + 3;\n+\treturn x + 33;\n }\n";
    let both = format!("{WHOLE}{second}");
    said(&with_patch(&both).build(&[]), 0, &["patched"]);
    for (patch, words) in [
        (format!("{WHOLE}{}", second.replace("@@ -15", "@ -15")), "line 14: \"@ -15,4 +15,4 @@"),
        (both.replace("-15,4 +15,4", "-15,3 +15,3"), "belongs to no hunk"),
        (both.replace("-15,4 +15,4", "-15,9 +15,9"), "is cut or damaged"),
        (both.replace("-9,6 +9,6", "-9,5 +9,6"), "is cut or damaged"),
        (both.replace("\n int three", "\nint three"), "is cut or damaged"),
        (format!("{both}> quoted\n"), "\"> quoted\" belongs to no hunk"),
        (both.replace("--- a/mm/a.c\n+++ b/mm/a.c\n", ""), "a hunk without a file before it"),
        ("not found\n".to_owned(), "neither a diff nor a mail"),
        (String::new(), "the file is empty"),
    ] {
        said(&with_patch(&patch).build(&[]), 5, &["0001-test.patch", words]);
    }
}

#[test]
fn a_series_that_is_in_the_source_leaves_nothing_to_do() {
    let tiny = with_patch(WHOLE);
    tiny.change("mm/a.c", "x + 2", "x + 22");
    tiny.commit("mm: change two");
    tiny.kernel("git: {repository: linux, revision: master}");
    said(&tiny.build(&[]), 6, &["nothing to do: linux master", "already holds the series one"]);
}

/// The source holds the second of three patches, and nothing else of the series.
#[test]
fn patches_that_are_in_the_source_are_named_one_by_one() {
    let tiny = Tiny::new();
    tiny.git(&["checkout", "--quiet", "-b", "three"]);
    for (file, from, to) in [
        ("mm/a.c", "x + 1", "x + 11"),
        ("mm/b.c", "x + 4", "x + 44"),
        ("mm/a.c", "x + 3", "x + 33"),
    ] {
        tiny.change(file, from, to);
        tiny.commit(&format!("change {from}"));
    }
    tiny.folder("three", "three", "");
    tiny.git(&["checkout", "--quiet", "master"]);
    tiny.git(&["cherry-pick", "three~1"]);
    tiny.kernel("git: {repository: linux, revision: master}");
    tiny.plan("three", "");
    said(
        &tiny.build(&[]),
        5,
        &[
            "1 of 3 patches is in linux master",
            "already",
            "2 of 3: 0002-change-x-4.patch (change x + 4)",
        ],
    );
    // Two that build on each other are known together.
    tiny.git(&["checkout", "--quiet", "-b", "stack", "v6.12.3"]);
    for (from, to) in [("x + 1", "x + 11"), ("x + 11", "x + 111"), ("x + 3", "x + 33")] {
        tiny.change("mm/a.c", from, to);
        tiny.commit(&format!("change {from}"));
    }
    tiny.folder("stack", "stack", "");
    tiny.kernel("git: {repository: linux, revision: stack~1}");
    tiny.plan("stack", "");
    said(&tiny.build(&[]), 5, &["2 of 3 patches are in linux stack~1", "1 of 3:", "2 of 3:"]);
}

#[test]
fn a_reversed_series_that_is_not_there_leaves_nothing_to_do() {
    let tiny = Tiny::new();
    tiny.git(&["checkout", "--quiet", "-b", "two"]);
    tiny.change("mm/a.c", "x + 1", "x + 11");
    tiny.commit("one");
    tiny.folder("two", "two", "direction: reverse");
    tiny.plan("two", "");
    said(&tiny.build(&[]), 6, &["does not hold the series two", "direction: forward"]);
}

#[test]
fn a_series_for_another_project_is_told_from_a_stale_one() {
    let existing = WHOLE.replace("mm/a.c", "txt/changelog");
    said(
        &with_patch(&existing).build(&[]),
        5,
        &["does not apply", "it touches txt/changelog, of which linux v6.12.3", "another project?"],
    );
    let new = "Subject: x\n\n--- /dev/null\n+++ b/txt/changelog\n@@ -0,0 +1 @@\n+x\n";
    said(
        &with_patch(new).build(&[]),
        5,
        &["the series one changes nothing under the kernel's tree", "it touches txt/changelog"],
    );
}

#[test]
fn a_series_without_a_change_says_so() {
    let tiny = with_patch("Subject: [PATCH 0/1] words\n\nonly words\n");
    said(
        &tiny.build(&[]),
        6,
        &[
            "passed over: 0001-test.patch: a mail without a diff",
            "identical: the series changes nothing: it touches no file of the kernel's tree",
        ],
    );
}

#[test]
fn a_missing_file_and_a_file_that_is_there_already_are_named() {
    let missing = WHOLE.replace("mm/a.c", "mm/none.c");
    said(&with_patch(&missing).build(&[]), 5, &["mm/none.c: does not exist in index"]);
    let there = "Subject: x\n\n--- /dev/null\n+++ b/mm/a.c\n@@ -0,0 +1 @@\n+x\n";
    said(&with_patch(there).build(&[]), 5, &["mm/a.c: already exists in index"]);
}

#[test]
fn binary_patches_apply_with_their_bytes_and_are_refused_by_name_without() {
    let tiny = Tiny::new();
    tiny.git(&["checkout", "--quiet", "-b", "logo"]);
    std::fs::write(tiny.path("linux/mm/logo.bin"), b"\0\x01\xff\0logo").unwrap();
    tiny.change("init/main.c", "return 0", "return 1");
    tiny.commit("mm: a logo");
    tiny.git(&["checkout", "--quiet", "master"]);
    tiny.plan("{git: linux, range: master..logo}", "");
    said(&tiny.build(&[]), 0, &["patched"]);
    let range = tiny.image("patched");
    tiny.folder("logo", "logo", "");
    tiny.plan("logo", "");
    said(&tiny.build(&[]), 0, &["patched"]);
    assert_eq!(tiny.image("patched"), range);
    let named = "Subject: x\n\ndiff --git a/mm/logo.bin b/mm/logo.bin\nnew file mode 100644\nindex 0000000..1234567\nBinary files /dev/null and b/mm/logo.bin differ\n";
    said(
        &with_patch(named).build(&[]),
        5,
        &["cannot apply binary patch to 'mm/logo.bin'", "git format-patch --binary"],
    );
}

#[test]
fn a_range_with_a_merge_or_without_commits_is_refused() {
    let tiny = Tiny::new();
    tiny.git(&["checkout", "--quiet", "-b", "side"]);
    tiny.change("mm/b.c", "x + 4", "x + 44");
    tiny.commit("side");
    tiny.git(&["checkout", "--quiet", "-b", "merged", "master"]);
    tiny.change("mm/a.c", "x + 1", "x + 11");
    tiny.commit("main");
    tiny.git(&["merge", "--quiet", "--no-edit", "side"]);
    for (range, words) in [
        ("v6.12.3..merged", "is a merge, which has no patch"),
        ("merged..v6.12.3", "the range holds no commit"),
        ("v6.12.3...merged", "write A..B"),
        ("v6.12.3..nowhere", "no commit \"nowhere\""),
        ("merged", "is not a range A..B"),
    ] {
        tiny.plan(&format!("{{git: linux, range: {range}}}"), "");
        said(&tiny.build(&[]), 2, &[words]);
    }
}

#[test]
fn mails_that_are_not_one_whole_series_are_refused() {
    let tiny = Tiny::new();
    tiny.git(&["checkout", "--quiet", "-b", "two"]);
    for (file, from, to) in [("mm/a.c", "x + 1", "x + 11"), ("mm/b.c", "x + 4", "x + 44")] {
        tiny.change(file, from, to);
        tiny.commit(&format!("mm: change {from}"));
    }
    let mails = tiny.git(&["format-patch", "--stdout", "v6.12.3..two"]);
    let second = mails.rfind("\nFrom ").unwrap() + 1;
    tiny.plan("{mbox: mails.mbox}", "");
    for (text, words) in [
        (mails[..second].to_owned(), "1 of 2 patches: 2 missing"),
        (mails.replace("\n \tint unused_four;", "\n \tint\n unused_four;"), "mails.mbox:"),
        (String::new(), "mails.mbox: "),
    ] {
        tiny.write("mails.mbox", &text);
        said(&tiny.build(&[]), 5, &["series fault: ", words, "help: "]);
    }
    tiny.plan("{mbox: none.mbox}", "");
    said(&tiny.build(&[]), 2, &["none.mbox: cannot be read"]);
}

#[test]
fn where_else_a_series_applies_is_said() {
    let tiny = Tiny::new();
    for (tag, from, to) in [
        ("v6.13-rc1", "x + 3", "x + 30"),
        ("v6.13", "x + 30", "x + 300"),
        ("v6.14-rc1", "x + 300", "x + 3000"),
    ] {
        tiny.change("mm/a.c", from, to);
        tiny.git(&["add", "--all"]);
        // Tags that are seconds apart are told apart.
        let date = format!("2026-01-01T00:00:{:02}Z", to.len());
        let mut commit = std::process::Command::new("git");
        commit.current_dir(tiny.path("linux")).args([
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.org",
        ]);
        commit.args(["commit", "--quiet", "--message", tag]).env("GIT_COMMITTER_DATE", date);
        assert!(commit.status().unwrap().success());
        tiny.git(&["tag", tag]);
    }
    let patch = "Subject: [PATCH] mm: three\n\n--- a/mm/a.c\n+++ b/mm/a.c\n@@ -15,4 +15,4 @@ int two(int x)\n int three(int x)\n {\n-\treturn x + 300;\n+\treturn x + 33;\n }\n";
    tiny.write("one/0001.patch", patch);
    tiny.plan("./one", "");
    let before = tiny.git(&["for-each-ref"]);
    said(
        &tiny.build(&[]),
        5,
        &[
            "the hunk at mm/a.c:15 does not match",
            "it applies to v6.13, the newest tag of the last 4",
        ],
    );
    assert_eq!(tiny.git(&["for-each-ref"]), before);
    tiny.write("one/0001.patch", &patch.replace("x + 300;", "x + 301;"));
    said(&tiny.build(&[]), 5, &["it applies to none of the last 4 tags"]);
}

#[test]
fn a_prerequisite_that_does_not_apply_is_the_plans_fault() {
    let tiny = Tiny::new();
    tiny.git(&["checkout", "--quiet", "-b", "x"]);
    tiny.change("mm/a.c", "x + 1", "x + 11");
    tiny.commit("one");
    tiny.folder("x", "x", "prerequisites: [before]");
    tiny.write("patches/prerequisites/before/0001.patch", &WHOLE.replace("x + 2;", "x + 9;"));
    tiny.plan("x", "");
    said(&tiny.build(&[]), 2, &["prerequisite before: does not apply", "mm/a.c:9"]);
}

#[test]
fn a_series_that_nobody_has_is_refused_with_those_that_are_there() {
    let tiny = with_patch(WHOLE);
    tiny.folder("five", "v6.12.3", "");
    said(
        &tiny.build(&["--series", "fife"]),
        2,
        &["--series: no series \"fife\"", "did you mean `five`?"],
    );
    tiny.plan("{git: linux}", "");
    said(
        &tiny.build(&[]),
        2,
        &["a series is {git: REPOSITORY, range: A..B}, {mbox: FILE} or {patches: [FILE]}"],
    );
    tiny.plan("./one", "variants: per-patches\n");
    said(&tiny.build(&[]), 2, &["per-patch", "mine.yaml:7"]);
    tiny.plan("{patches: [one/0001-test.patch], name: ../x}", "");
    said(&tiny.build(&[]), 2, &["cannot name a series"]);
}

#[test]
fn a_patch_that_is_in_the_series_twice_is_said_to_be() {
    let tiny = with_patch(WHOLE);
    let second = WHOLE.replace("mm: change two", "mm: once more");
    tiny.write("one/0002-again.patch", &second);
    said(
        &tiny.build(&[]),
        5,
        &["patch 2 of 2 repeats patch 1", "mm: once more", "take one of them out"],
    );
}
