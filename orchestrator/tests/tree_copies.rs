// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tree for another config begins as a copy of one that is there: what is compiled
//! then, what comes out, and which trees are no beginning.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use common::finish;
use common::tiny::{Tiny, said};

/// As kbuild does it: a header that changes only with the symbol, and an object that
/// depends on it.
const MAKEFILE: &str = "\t@touch .config
\t@grep -sc CONFIG_DEEP=y .config >deep.new; true
\t@cmp -s deep.new deep.h || (echo '#define DEEP' `cat deep.new` >deep.h && cp deep.new deep.is)
";

/// A series that changes `mm/a.c`, and configs with and without `CONFIG_DEEP`, which only
/// `mm/b.c` depends on.
fn tiny() -> Tiny {
    let tiny = Tiny::new();
    let configure = MAKEFILE.replace("deep.new deep.h ||", "deep.new deep.is ||");
    tiny.change("Makefile", "\t@touch .config\n", &configure);
    tiny.change("Makefile", "vmlinux: $(OBJECTS)", "mm/b.o: deep.h\nvmlinux: $(OBJECTS)");
    tiny.change("mm/b.c", "int four", "#include \"../deep.h\"\nint deep = DEEP;\nint four");
    tiny.commit("mm: be deep where it is asked for");
    tiny.git(&["tag", "--force", "v6.12.3"]);
    tiny.git(&["checkout", "--quiet", "-b", "topic"]);
    tiny.change("mm/a.c", "return x + 2;", "return x + 20;");
    tiny.commit("mm: twenty for two");
    tiny.folder("mine", "topic", "");
    tiny.write("configs/kconfig/deep.config", "CONFIG_DEEP=y\n");
    tiny
}

/// Builds both variants of a series with a config in a cache; their images, and the steps
/// that each took.
fn build(tiny: &Tiny, series: &str, config: &str, cache: &Path) -> ([String; 2], [u64; 2]) {
    tiny.plan(series, "");
    let plan = fs::read_to_string(tiny.path("configs/plans/mine.yaml")).unwrap();
    let fragments = if config == "deep" {
        "deep: {base: tinyconfig, fragments: [deep]}"
    } else {
        "plain: {base: tinyconfig}"
    };
    let plan = plan.replace("tiny: {base: tinyconfig}", fragments);
    tiny.write("configs/plans/mine.yaml", &plan);
    let mut command = tiny.command(&["build", "mine"]);
    let ended = finish(command.env("KVET_CACHE_DIR", cache).spawn().unwrap(), Instant::now());
    said(&ended, 0, &[]);
    let of = |variant: &str| {
        let found = tiny.variant(variant);
        found["build"]["steps"].as_u64().unwrap()
    };
    (["base", "patched"].map(|variant| tiny.image(variant)), ["base", "patched"].map(of))
}

/// The trees that have a file.
fn tree_with(cache: &Path, file: &str) -> Vec<PathBuf> {
    let trees = fs::read_dir(cache.join("trees")).unwrap().flatten().map(|entry| entry.path());
    trees.filter(|tree| tree.join(file).exists()).collect()
}

#[test]
fn what_two_configs_make_different_is_compiled_and_nothing_else() {
    let tiny = tiny();
    let (one, other) = (tiny.path("cache"), tiny.path("other"));
    let (plain, steps) = build(&tiny, "mine", "plain", &one);
    assert_eq!(steps, [4, 2]);
    // The tree that it begins with holds patched: what base has otherwise is compiled, too.
    let (deep, steps) = build(&tiny, "mine", "deep", &one);
    assert_eq!(steps, [3, 2], "a.c, b.c and the link; a.c and the link");
    assert_eq!(tree_with(&one, "deep.h").len(), 2);
    let (alone, steps) = build(&tiny, "mine", "deep", &other);
    assert_eq!(steps, [4, 2]);
    assert_eq!(deep, alone);
    assert!(!plain.contains(&deep[0]) && !plain.contains(&deep[1]));
    // And the other way round, into the cache that has the deep one only.
    let (again, steps) = build(&tiny, "mine", "plain", &other);
    assert_eq!((again, steps), (plain, [3, 2]));
}

#[test]
fn warnings_of_what_was_not_compiled_again_are_still_known() {
    let tiny = tiny();
    let cache = tiny.path("cache");
    build(&tiny, "mine", "plain", &cache);
    let warnings = |variant: &str| tiny.variant(variant)["build"]["warnings"].as_u64().unwrap();
    let plain = ["base", "patched"].map(warnings);
    assert!(plain[0] >= 2, "{plain:?}");
    let (_, steps) = build(&tiny, "mine", "deep", &cache);
    assert_eq!(steps, [3, 2]);
    assert_eq!(["base", "patched"].map(warnings), plain);
}

#[test]
fn a_tree_with_a_file_that_is_not_the_commits_is_no_beginning() {
    let tiny = tiny();
    let cache = tiny.path("cache");
    build(&tiny, "mine", "plain", &cache);
    let tree = tree_with(&cache, "deep.h").remove(0);
    // Of the same size and time, as a program of a build could leave it.
    let file = tree.join("init/main.c");
    let text = fs::read_to_string(&file).unwrap();
    let time = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, text.replace("return 0", "return 7")).unwrap();
    fs::File::options().append(true).open(&file).unwrap().set_modified(time).unwrap();
    // What would be copied with the tree.
    fs::write(tree.join("mark"), "").unwrap();
    let (deep, steps) = build(&tiny, "mine", "deep", &cache);
    assert_eq!(steps, [4, 2]);
    assert_eq!(tree_with(&cache, "mark"), [tree]);
    assert_eq!(deep, build(&tiny, "mine", "deep", &tiny.path("other")).0);
}

#[test]
fn a_tree_whose_last_build_did_not_end_well_is_no_beginning() {
    let tiny = tiny();
    let cache = tiny.path("cache");
    build(&tiny, "mine", "plain", &cache);
    let tree = tree_with(&cache, "deep.h").remove(0);
    fs::write(tree.with_extension("building"), "").unwrap();
    assert_eq!(build(&tiny, "mine", "deep", &cache).1, [4, 2]);
}

#[test]
fn what_a_series_runs_of_its_own_gets_into_no_tree_of_others() {
    let tiny = tiny();
    let cache = tiny.path("cache");
    tiny.change("Makefile", "prepare:\n", "prepare:\n\t@touch left-behind\n");
    tiny.git(&["checkout", "--quiet", "-b", "runs"]);
    tiny.commit("build: leave something behind");
    tiny.folder("runs", "runs", "");
    // Its patched kernel begins with the tree of base, which runs nothing of its own.
    let (_, steps) = build(&tiny, "runs", "plain", &cache);
    assert_eq!(steps, [4, 2]);
    assert_eq!(tree_with(&cache, "left-behind").len(), 1);
    // Base again begins with base's tree, and patched with patched's.
    let (_, steps) = build(&tiny, "runs", "deep", &cache);
    assert_eq!(steps, [2, 2], "b.c and the link, each");
    assert_eq!(tree_with(&cache, "left-behind").len(), 2);
    assert_eq!(tree_with(&cache, "Makefile").len(), 4);
    let (_, steps) = build(&tiny, "mine", "deep", &cache);
    assert_eq!(steps[1], 2);
    assert_eq!(tree_with(&cache, "left-behind").len(), 2);
}

/// The same with another makefile below the series.
fn tiny_with(from: &str, to: &str) -> Tiny {
    let tiny = tiny();
    tiny.git(&["checkout", "--quiet", "master"]);
    tiny.change("Makefile", from, to);
    tiny.commit("make: do it in another way");
    tiny.git(&["tag", "--force", "v6.12.3"]);
    tiny.git(&["checkout", "--quiet", "-b", "other"]);
    tiny.change("mm/a.c", "return x + 2;", "return x + 20;");
    tiny.commit("mm: twenty for two");
    fs::remove_dir_all(tiny.path("patches/mine")).unwrap();
    tiny.folder("mine", "other", "");
    tiny
}

#[test]
fn what_the_other_config_left_behind_is_not_the_series_fault() {
    // A config that leaves a file, and another that cannot do with it.
    let prepare =
        "prepare:\n\t@if grep -q DEEP .config; then touch left; else test ! -e left; fi\n";
    let tiny = tiny_with("prepare:\n\t@:\n", prepare);
    let cache = tiny.path("cache");
    build(&tiny, "mine", "deep", &cache);
    let (plain, steps) = build(&tiny, "mine", "plain", &cache);
    assert_eq!(steps, [4, 2], "from nothing, and then as ever");
    assert_eq!(tree_with(&cache, "left").len(), 1);
    assert_eq!(plain, build(&tiny, "mine", "plain", &tiny.path("alone")).0);
}

#[test]
fn a_kernel_that_does_not_list_what_it_links_is_no_beginning() {
    let tiny = tiny_with("rm -f vmlinux.a && ar rcT vmlinux.a $(OBJECTS)", ":");
    let cache = tiny.path("cache");
    build(&tiny, "mine", "plain", &cache);
    assert_eq!(build(&tiny, "mine", "deep", &cache).1, [4, 2]);
}
