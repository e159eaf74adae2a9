// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same inputs give the same bytes: in another folder, for another user, with
//! ccache or without, in the sandbox or out of it.
//!
//! A kernel of three files shows it in every run of the tests; `make reproduce` sets
//! `KVET_REPRODUCE` and shows it of Linux.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use common::tiny::Tiny;

/// Hashes of the images and of what they were linked from, by variant, and how many
/// objects ccache had of all.
type Built = (Vec<String>, [u64; 2]);

/// Builds a plan of `project` as somebody else would.
fn build(project: &Path, place: &Path, plan: &str, more: &[&str], path: Option<&Path>) -> Built {
    let home = place.join("home");
    std::fs::create_dir_all(place.join("runtime")).unwrap();
    std::fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvet"));
    command.current_dir(project).args(["-q", "build", plan]).args(more).env("HOME", &home);
    command.env("KVET_CACHE_DIR", place.join("cache")).env("KVET_RUNS_DIR", place.join("runs"));
    command.env("XDG_RUNTIME_DIR", place.join("runtime")).stdin(Stdio::null());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = common::finish(command.spawn().unwrap(), Instant::now());
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let text = std::fs::read(place.join("runs/latest/result.json")).unwrap();
    let result: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let (mut hashes, mut cached) = (Vec::new(), [0, 0]);
    for variant in ["base", "patched"] {
        let built = &result["cells"][0]["variants"][variant];
        let key = built["build"]["key"].as_str().unwrap();
        assert_eq!(built["build"]["stored"], false);
        let image = std::fs::read(place.join("cache/images").join(key).join("image.json")).unwrap();
        let image: serde_json::Value = serde_json::from_slice(&image).unwrap();
        for hash in ["image_sha256", "vmlinux_sha256"] {
            hashes.push(image[hash].as_str().unwrap().to_owned());
        }
        cached[0] += built["build"]["ccache"]["hits"].as_u64().unwrap_or_default();
        cached[1] += built["build"]["ccache"]["of"].as_u64().unwrap_or_default();
    }
    (hashes, cached)
}

#[test]
fn what_the_assembler_puts_in_is_never_that_of_another_kernel() {
    let tiny = Tiny::new();
    // As the compressed kernel gets into its image (arch/x86/boot/compressed/piggy.S).
    tiny.change("Makefile", "OBJECTS :=", "OBJECTS := init/payload.o init/packed.o");
    tiny.change(
        "Makefile",
        "vmlinux: $(OBJECTS)",
        "init/payload.o: init/payload.S init/data.txt\n\t@gcc -Wp,-MMD,init/.payload.d -D__ASSEMBLY__ -c -o $@ $<\ninit/packed.o: init/data.txt\nvmlinux: $(OBJECTS)",
    );
    let put_in = ".section .rodata\n\t.incbin \"init/data.txt\"\n";
    tiny.write("linux/init/payload.S", put_in);
    tiny.write(
        "linux/init/packed.c",
        "asm(\".section .rodata\\n\\t.incbin \\\"init/data.txt\\\"\\n\");\nint packed;\n",
    );
    tiny.write("linux/init/data.txt", "one kernel\n");
    tiny.commit("init: put something in");
    tiny.git(&["tag", "put-in"]);
    tiny.kernel("git: {repository: linux, revision: put-in}");
    // Of the same size: nothing but its bytes tells it apart.
    tiny.write("linux/init/data.txt", "two kernel\n");
    tiny.commit("init: put something else in");
    let folder = tiny.path("patches/else");
    let folder = folder.to_str().unwrap();
    tiny.write(
        "patches/else/series.yaml",
        "schema: kvet/series/1\ntitle: a test\nkernels: {tiny: {}}\n",
    );
    tiny.git(&["format-patch", "--quiet", "-o", folder, "put-in..HEAD"]);
    tiny.plan("else", "");
    common::tiny::said(&tiny.build(&[]), 0, &[]);
    let image = |variant: &str| {
        let key = tiny.variant(variant)["build"]["key"].as_str().unwrap().to_owned();
        std::fs::read(tiny.path("cache/images").join(key).join("image")).unwrap()
    };
    let holds = |image: &[u8], text: &str| {
        image.windows(text.len()).filter(|part| *part == text.as_bytes()).count()
    };
    let (base, patched) = (image("base"), image("patched"));
    assert_eq!([holds(&base, "one kernel"), holds(&base, "two kernel")], [2, 0]);
    assert_eq!([holds(&patched, "one kernel"), holds(&patched, "two kernel")], [0, 2]);
}

#[test]
fn other_folders_users_caches_and_rooms_give_the_same_bytes() {
    let linux = std::env::var_os("KVET_REPRODUCE").is_some();
    let tiny = Tiny::new();
    let (project, plan) = match linux {
        true => (common::root(), "khugepaged-cold"),
        false => {
            println!("a kernel of three files; KVET_REPRODUCE=1 builds Linux");
            tiny.change("mm/a.c", "x + 3", "x + 4");
            tiny.commit("mm: add one more");
            tiny.folder("more", "HEAD", "direction: forward");
            tiny.plan("more", "");
            (tiny.path(""), "mine")
        }
    };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let one = folder.path().join("one");
    let (first, cold) = build(&project, &one, plan, &[], None);
    for part in ["images", "trees"] {
        std::fs::remove_dir_all(one.join("cache").join(part)).unwrap();
    }
    let (second, warm) = build(&project, &one, plan, &[], None);
    assert_eq!(second, first, "with ccache cold and warm");
    // The folder's name has another length, so that a path in an image would move things.
    let other = folder.path().join("another/place/with/a/longer/name");
    std::fs::create_dir_all(&other).unwrap();
    let clone = other.join("clone");
    std::fs::create_dir(&clone).unwrap();
    for part in ["configs", "kernels", "patches", "linux"] {
        let from = project.join(part);
        if from.exists() {
            let copied = Command::new("cp").arg("-r").arg(from).arg(&clone).status();
            assert!(copied.unwrap().success());
        }
    }
    let bin = common::without("ccache", &other.join("bin"));
    let (third, none) = build(&clone, &other, plan, &["--sandbox", "off"], Some(&bin));
    assert_eq!(third, first, "in another clone, without sandbox and ccache");
    assert_eq!(none, [0, 0]);
    match cold[1] {
        0 => println!("ccache is not installed: nothing was shown of it"),
        _ => {
            assert!(warm[0] * 10 >= warm[1] * 9, "ccache had {} of {} objects", warm[0], warm[1]);
            println!(
                "ccache had {} of {} objects, then {} of {}",
                cold[0], cold[1], warm[0], warm[1]
            );
        }
    }
    println!("images {first:?}");
}

#[test]
fn what_the_assembler_takes_in_is_never_that_of_another_build() {
    let tiny = Tiny::new();
    // An object whose content is in another file, as the compressed kernel is.
    // Its dependencies are written down, as kbuild has it: ccache then trusts them.
    tiny.change("Makefile", "init/main.o\n", "init/main.o mm/data.o mm/blob.o\n");
    let rule = |object: &str, source: &str| {
        format!("{object}: {source} mm/payload\n\t@gcc -Wp,-MMD,$@.d -c -o $@ $<\n")
    };
    let rules = [rule("mm/data.o", "mm/data.S"), rule("mm/blob.o", "mm/blob.c")].concat();
    tiny.change("Makefile", "vmlinux: $(OBJECTS)", &format!("{rules}vmlinux: $(OBJECTS)"));
    tiny.write("linux/mm/data.S", ".incbin \"mm/payload\"\n");
    tiny.write(
        "linux/mm/blob.c",
        "asm(\".section .rodata; .incbin \\\"mm/payload\\\"; .text\");\n",
    );
    tiny.write("linux/mm/payload", "taken-in-1\n");
    tiny.commit("mm: take a file in");
    tiny.git(&["tag", "--force", "v6.12.3"]);
    tiny.write("linux/mm/payload", "taken-in-2\n");
    tiny.commit("mm: another file");
    tiny.folder("more", "HEAD", "direction: forward");
    tiny.plan("more", "");
    let ended = tiny.kvet(&["build", "mine"]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let image = |variant: &str| {
        let text = std::fs::read(tiny.path("kvet-runs/latest/result.json")).unwrap();
        let result: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let key =
            result["cells"][0]["variants"][variant]["build"]["key"].as_str().unwrap().to_owned();
        std::fs::read(tiny.path("cache/images").join(key).join("image")).unwrap()
    };
    let count =
        |bytes: &[u8], word: &[u8]| bytes.windows(word.len()).filter(|at| *at == word).count();
    assert_eq!(
        (count(&image("base"), b"taken-in-1"), count(&image("base"), b"taken-in-2")),
        (2, 0)
    );
    assert_eq!(
        (count(&image("patched"), b"taken-in-1"), count(&image("patched"), b"taken-in-2")),
        (0, 2)
    );
}
