// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds of every prefix of a series, what the compiler says of them, and one
//! series in all its forms; on a kernel that is built in a second.

mod common;

use common::tiny::{Tiny, said};

/// Five patches on branch `five`; the third does not compile, the fourth mends it.
fn five() -> Tiny {
    let tiny = Tiny::new();
    tiny.git(&["checkout", "--quiet", "-b", "five"]);
    tiny.change("mm/a.c", "x + 1", "x + 10");
    tiny.commit("mm: ten for one");
    tiny.change("mm/a.c", "x + 2", "x + 20");
    tiny.commit("mm: twenty for two");
    tiny.change("mm/a.c", "return x + 3", "return no_such_name + 3");
    tiny.commit("mm: name what is not there");
    tiny.change("mm/a.c", "no_such_name + 3", "x + 30");
    tiny.commit("mm: name what is there");
    tiny.change("init/main.c", "return 0", "return 1");
    tiny.commit("init: return one");
    tiny.git(&["checkout", "--quiet", "master"]);
    tiny
}

#[test]
fn a_prefix_that_does_not_build_is_named_and_a_plain_run_passes() {
    let tiny = five();
    tiny.plan("{git: linux, range: v6.12.3..five}", "variants: per-patch\n");
    let ended = tiny.build(&[]);
    said(
        &ended,
        5,
        &[
            "does not build at patch 3 of 5 (mm: name what is not there)",
            "'no_such_name' undeclared",
            "patch 4 mends it",
            "patch-04",
        ],
    );
    let images: Vec<String> =
        ["base", "patch-01", "patch-02", "patch-04", "patched"].map(|name| tiny.image(name)).into();
    for (at, image) in images.iter().enumerate() {
        assert!(!image.is_empty() && !images[..at].contains(image), "{images:?}");
    }
    assert_eq!(tiny.image("patch-03"), "");

    tiny.plan("{git: linux, range: v6.12.3..five}", "");
    said(&tiny.build(&[]), 0, &["patched"]);
    assert_eq!(tiny.image("patched"), images[4]);
}

#[test]
fn one_prefix_can_be_built_alone() {
    let tiny = five();
    tiny.plan("{git: linux, range: v6.12.3..five}", "variants: [base, patch-02]\n");
    said(&tiny.build(&["--variant", "patch-02"]), 0, &["patch-02"]);
    assert_eq!(tiny.image("base"), "");
    said(&tiny.build(&["--variant", "patched"]), 2, &["its variants are: base, patch-02"]);
    tiny.plan("{git: linux, range: v6.12.3..five}", "variants: [base, patch-09]\n");
    said(&tiny.build(&[]), 2, &["no variant patch-09", "has 5 patches"]);
    tiny.plan("{git: linux, range: v6.12.3..five}", "variants: [base, patch-05]\n");
    said(&tiny.build(&["--variant", "patch-05"]), 0, &["patched"]);
}

#[test]
fn one_warning_for_another_is_one_introduced_and_one_fixed() {
    let tiny = Tiny::new();
    tiny.git(&["checkout", "--quiet", "-b", "swap"]);
    // Lines above it move the other function's warning, which is no change.
    tiny.change("mm/a.c", "int one(int x)", "/*\n * one\n */\nint one(int x)");
    tiny.change("mm/a.c", "\tint unused_one;", "\tint unused_other;");
    tiny.change("mm/a.c", "x + 1", "x + 10");
    tiny.commit("mm: another name");
    tiny.git(&["checkout", "--quiet", "master"]);
    tiny.plan("{git: linux, range: v6.12.3..swap}", "");
    let words = [
        "compiler warnings, base to patched: 1 introduced, 1 fixed",
        "+ mm/a.c:7: one: unused variable 'unused_other' [-Wunused-variable]",
        "- mm/a.c:4: one: unused variable 'unused_one' [-Wunused-variable]",
    ];
    said(&tiny.build(&[]), 0, &words);
    // mm/b.c was not compiled again for `patched`, and still has its warning.
    assert_eq!(tiny.variant("base")["build"]["warnings"], 2);
    assert_eq!(tiny.variant("patched")["build"]["warnings"], 2);
    // Images from the store bring their warnings.
    let again = tiny.build(&[]);
    said(&again, 0, &words);
    said(&again, 0, &["from the store"]);
}

#[test]
fn a_warning_goes_with_the_object_that_had_it() {
    let tiny = Tiny::new();
    tiny.git(&["checkout", "--quiet", "-b", "drop"]);
    tiny.change("Makefile", "mm/a.o mm/b.o", "mm/a.o");
    tiny.change("init/main.c", "return 0", "return 1");
    tiny.git(&["rm", "--quiet", "mm/b.c"]);
    tiny.commit("mm: drop b");
    tiny.git(&["checkout", "--quiet", "master"]);
    tiny.plan("{git: linux, range: v6.12.3..drop}", "");
    said(&tiny.build(&[]), 0, &["1 fixed", "- mm/b.c:4: four: unused variable 'unused_four'"]);
}

#[test]
fn a_failed_build_loses_no_warning_of_those_before_and_after() {
    let tiny = five();
    tiny.plan("{git: linux, range: v6.12.3..five}", "variants: per-patch\n");
    let ended = tiny.build(&[]);
    assert!(!ended.stdout.contains("compiler warnings"), "{}", ended.stdout);
    for variant in ["base", "patch-02", "patch-04", "patched"] {
        assert_eq!(tiny.variant(variant)["build"]["warnings"], 2, "{variant}");
    }
}

#[test]
fn one_series_gives_one_image_whatever_its_form() {
    let tiny = five();
    tiny.folder("five", "five", "");
    let files: Vec<String> = std::fs::read_dir(tiny.path("patches/five"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".patch"))
        .collect();
    let mut sorted = files.clone();
    sorted.sort();
    let listed = format!("{{patches: [{}]}}", sorted.join(", "));
    let absolute = tiny.path("linux");
    let range = format!("{}:v6.12.3..five", absolute.display());
    let mut images = Vec::new();
    for (entry, more) in [
        ("five", vec![]),
        (listed.as_str(), vec![]),
        ("{git: linux, range: v6.12.3..five}", vec![]),
        ("five", vec!["--series", range.as_str()]),
        ("five", vec!["--series", "./patches/five"]),
    ] {
        tiny.plan(entry, "");
        said(&tiny.build(&more), 0, &["patched"]);
        images.push((tiny.image("base"), tiny.image("patched")));
    }
    // As mail: an mbox with a cover letter and a reply among its mails, the same in
    // a file that is called a patch, on standard input, and as a maildir.
    let mails = tiny.git(&["format-patch", "--stdout", "--cover-letter", "-v2", "v6.12.3..five"]);
    let reply = "From a Mon Sep 17 00:00:00 2001\nFrom: Bo Example <bo@example.org>\nSubject: Re: [PATCH v2 2/5] mm: twenty\nIn-Reply-To: <x@example.org>\n\n> -\treturn x + 2;\nno\n\n";
    tiny.write("mails.mbox", &format!("{mails}{reply}"));
    tiny.write("all.patch", &mails);
    for (number, mail) in mails.split("From ").filter(|mail| mail.contains("Subject")).enumerate() {
        tiny.write(&format!("maildir/cur/{number}:2,S"), mail.split_once('\n').unwrap().1);
    }
    std::fs::create_dir_all(tiny.path("maildir/new")).unwrap();
    let stdin = || {
        let mut command = tiny.command(&["build", "mine", "--series", "-"]);
        command.stdin(std::fs::File::open(tiny.path("mails.mbox")).unwrap());
        common::finish(command.spawn().unwrap(), std::time::Instant::now())
    };
    tiny.plan("{mbox: mails.mbox}", "");
    for ended in [
        tiny.build(&[]),
        tiny.build(&["--series", "./mails.mbox"]),
        tiny.build(&["--series", "./all.patch"]),
        tiny.build(&["--series", "./maildir"]),
        stdin(),
    ] {
        said(&ended, 0, &["patched"]);
        images.push((tiny.image("base"), tiny.image("patched")));
    }
    assert_ne!(images[0].0, images[0].1);
    assert!(images.iter().all(|pair| *pair == images[0]), "{images:?}");
    // It is what git itself makes of the branch.
    tiny.git(&["checkout", "--quiet", "five"]);
    tiny.kernel("git: {repository: linux, revision: five}");
    tiny.plan("./one", "variants: [base]\n");
    tiny.write("one/0001.patch", "--- a/mm/b.c\n+++ b/mm/b.c\n@@ -1,2 +1,3 @@\n // SPDX-License-Identifier: GPL-2.0\n+/* b */\n int four(int x)\n");
    said(&tiny.build(&[]), 0, &["base"]);
    assert_eq!(tiny.image("base"), images[0].1);
}

#[test]
fn a_series_in_the_source_is_taken_out_patch_by_patch() {
    let tiny = five();
    tiny.folder("five", "five", "");
    tiny.plan("five", "variants: [base, patch-02, patched]\n");
    said(&tiny.build(&[]), 0, &["patch-02"]);
    let forward = ["base", "patch-02", "patched"].map(|name| tiny.image(name));
    tiny.folder("five", "five", "direction: reverse");
    tiny.kernel("git: {repository: linux, revision: five}");
    said(&tiny.build(&[]), 0, &["patch-02"]);
    assert_eq!(["base", "patch-02", "patched"].map(|name| tiny.image(name)), forward);
}

#[test]
fn a_range_may_be_declared_by_a_series_yaml_and_leaves_out_what_is_not_committed() {
    let tiny = five();
    tiny.folder("declared", "five~4", "prerequisites: [before]");
    tiny.git(&["format-patch", "--quiet", "-o", "../patches/prerequisites/before", "-1", "five"]);
    tiny.git(&["checkout", "--quiet", "five"]);
    let range = "{git: linux, range: v6.12.3..five~1, name: mine, series_yaml: declared}";
    tiny.plan(range, "");
    said(&tiny.build(&[]), 0, &["mine on tiny", "series from v6.12.3..five~1 in"]);
    let with = tiny.image("base");
    tiny.plan("{git: linux, range: v6.12.3..five}", "");
    tiny.change("mm/b.c", "x + 4", "x + 40");
    said(
        &tiny.build(&[]),
        0,
        &["passed over: uncommitted changes in 1 file(s) of the work tree (mm/b.c)"],
    );
    assert_ne!(tiny.image("base"), with);
    tiny.plan("{git: linux, range: v6.12.3..five, series_yaml: declred}", "");
    said(&tiny.build(&[]), 2, &["no series \"declred\"", "did you mean `declared`?"]);
}
