// SPDX-License-Identifier: MIT OR Apache-2.0
//! Series whose makefiles attack the host: each is contained, and the report says
//! what was tried.

mod common;

use std::path::Path;

use common::tiny::{Tiny, said};

/// Whether builds have a sandbox here; says so if not.
fn have_sandbox() -> bool {
    let tiny = Tiny::new();
    tiny.plan("{git: linux, range: v6.12.3..HEAD}", "");
    let ended = tiny.kvet(&["--sandbox", "require", "build", "mine", "--variant", "base"]);
    let missing = ended.stderr.contains("no sandbox for builds");
    if missing {
        eprintln!("skipped: {}", ended.stderr.trim());
    }
    !missing
}

/// A project whose series adds a line to what `make bzImage` runs.
fn attack(line: &str) -> Tiny {
    let tiny = Tiny::new();
    let wanted = "\t@cp vmlinux arch/x86/boot/bzImage\n";
    tiny.change("Makefile", wanted, &format!("{wanted}\t{line}\n"));
    tiny.change("mm/a.c", "x + 3", "x + 4");
    tiny.commit("mm: tidy up");
    tiny.folder("attack", "HEAD", "direction: forward");
    tiny.plan("attack", "");
    tiny
}

/// What the report says that the build of the patched kernel was refused.
fn refused(tiny: &Tiny) -> Vec<String> {
    serde_json::from_value(tiny.variant("patched")["build"]["refused"].clone()).unwrap_or_default()
}

#[test]
fn a_write_to_the_home_folder_is_contained_and_told() {
    if !have_sandbox() {
        return;
    }
    let tiny = attack("@echo alias make=evil >>~/.bashrc; mkdir -p ~/.config/evil");
    let home = tempfile::tempdir().unwrap();
    let ended = finish_at_home(&tiny, home.path());
    said(&ended, 0, &["wrote to the home folder: ~/.bashrc"]);
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    let wrote = |name: &str| format!("wrote to the home folder: ~/{name}");
    assert_eq!(refused(&tiny), [wrote(".bashrc"), wrote(".config")]);
}

/// Builds as a user with that home folder.
fn finish_at_home(tiny: &Tiny, home: &Path) -> common::Ended {
    let mut command = tiny.command(&["build", "mine"]);
    let child = command.env("HOME", home).spawn().unwrap();
    common::finish(child, std::time::Instant::now())
}

#[test]
fn an_ssh_key_is_out_of_reach_and_the_attempt_is_told() {
    if !have_sandbox() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    std::fs::write(home.path().join(".ssh/id_ed25519"), "SECRET").unwrap();
    // By the variable and by the path; what is found would be in the image.
    let key = home.path().join(".ssh/id_ed25519");
    let tiny = attack(&format!("@cat ~/.ssh/id_rsa {} >>vmlinux || :", key.display()));
    let ended = finish_at_home(&tiny, home.path());
    said(&ended, 0, &["read from the home folder: ~/.ssh/id_ed25519 (a decoy)"]);
    assert_eq!(refused(&tiny).len(), 2);
    let stored = Path::new(tiny.variant("patched")["build"]["key"].as_str().unwrap()).to_owned();
    let vmlinux = std::fs::read(tiny.path("cache/images").join(stored).join("vmlinux")).unwrap();
    assert!(!vmlinux.windows(6).any(|window| window == b"SECRET"));
}

#[test]
fn a_network_connection_fails_and_the_attempt_is_told() {
    if !have_sandbox() {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "use IO::Socket::INET; for my $$to (\"127.0.0.1:{port}\", \"192.0.2.1:80\") {{ IO::Socket::INET->new($$to) }}"
    );
    let tiny = attack(&format!("@perl -e '{script}'"));
    let ended = tiny.build(&[]);
    said(&ended, 0, &["its build tried to reach a network (2 packets or connections)"]);
    assert!(listener.accept().is_err(), "the host's loopback was reached");
}

#[test]
fn forks_without_end_are_stopped_and_told() {
    if !have_sandbox() {
        return;
    }
    // What the watchdog is for; with a limit of the kernel's the bomb would only get stuck.
    let tiny = attack("@bomb() { sleep 1234 & bomb & bomb; }; bomb");
    let ended = tiny.build(&[]);
    said(&ended, 5, &["processes at once, stopped"]);
    // The base's image is there all the same.
    assert!(!tiny.image("base").is_empty());
    let left = std::process::Command::new("pgrep").args(["-cf", "sleep 1234"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout).trim(), "0");
}

#[test]
fn a_full_disk_is_prevented_and_told() {
    if !have_sandbox() || !common::tmpfs::can_mount() {
        return;
    }
    let tiny = attack("@while :; do cat vmlinux /dev/zero | head -c 1000000 >>big; done");
    let cache = tiny.path("small");
    std::fs::create_dir(&cache).unwrap();
    std::fs::create_dir_all(tiny.path("runtime")).unwrap();
    let script = "\"$KVET\" build mine && code=0 || code=$?; \
                  df --output=avail -k \"$KVET_CACHE_DIR\" | tail -1; exit $code";
    let mut command = common::tmpfs::unshare(script, &cache, "256m");
    command.current_dir(tiny.path("")).env("KVET", env!("CARGO_BIN_EXE_kvet"));
    command.env("KVET_CACHE_DIR", &cache).env("XDG_RUNTIME_DIR", tiny.path("runtime"));
    let ended = common::finish(command.spawn().unwrap(), std::time::Instant::now());
    said(&ended, 5, &["stopped before the disk is full", "files to the tree"]);
}

#[test]
fn what_a_build_leaves_in_the_place_of_a_file_is_not_followed() {
    if !have_sandbox() {
        return;
    }
    let victim = tempfile::tempdir().unwrap();
    let file = victim.path().join("precious");
    std::fs::write(&file, "mine").unwrap();
    for (place, line) in [
        (".config", "@rm -f .config && ln -s FILE .config"),
        ("vmlinux", "@ln -sf FILE vmlinux && touch -h vmlinux"),
        ("image", "@rm -f arch/x86/boot/bzImage && mkfifo arch/x86/boot/bzImage"),
    ] {
        let tiny = attack(&line.replace("FILE", &file.display().to_string()));
        let ended = tiny.build(&[]);
        assert_ne!(ended.code, 0, "{place}: {}", ended.stdout);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine", "{place}");
    }
}

#[test]
fn a_series_that_changes_what_a_build_runs_has_a_tree_of_its_own() {
    if !have_sandbox() {
        return;
    }
    // It leaves an object for the base's next build.
    let line = "@echo 'int one(void) { return 6; }' | gcc -c -x c -o mm/b.o -";
    let tiny = attack(line);
    said(&tiny.build(&[]), 0, &[]);
    let base = tiny.image("base");
    std::fs::remove_dir_all(tiny.path("cache/images")).unwrap();
    said(&tiny.build(&["--variant", "base"]), 0, &[]);
    assert_eq!(tiny.image("base"), base);
    assert_eq!(trees(&tiny), 2);
    // Its next version cannot find what this one left, either.
    tiny.change("Makefile", line, "@:");
    tiny.commit("kbuild: tidy up more");
    tiny.folder("attack", "HEAD", "direction: forward");
    said(&tiny.build(&[]), 0, &[]);
    assert_eq!(trees(&tiny), 3);
    // What is only compiled changes nothing of that.
    tiny.change("mm/a.c", "x + 4", "x + 5");
    tiny.commit("mm: add one more");
    tiny.folder("attack", "HEAD", "direction: forward");
    said(&tiny.build(&[]), 0, &[]);
    assert_eq!(trees(&tiny), 3);
}

/// Number of build trees in the cache.
fn trees(tiny: &Tiny) -> usize {
    let entries = std::fs::read_dir(tiny.path("cache/trees")).unwrap().flatten();
    entries.filter(|entry| entry.path().is_dir()).count()
}

#[test]
fn an_attempt_cannot_be_taken_back() {
    if !have_sandbox() {
        return;
    }
    let tiny = attack(
        "@perl -e 'use IO::Socket::INET; IO::Socket::INET->new(\"192.0.2.1:80\")'; rm -f /kvet/out/network; mkfifo /kvet/out/network; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do touch ~/.x$$i; done; cat ~/.ssh/id_rsa >/dev/null",
    );
    let read = "read from the home folder: ~/.ssh/id_rsa (a decoy)";
    said(&tiny.build(&[]), 0, &["tried to reach a network (1 packet or connection)", read]);
}

#[test]
fn what_was_built_without_a_sandbox_is_built_again_where_one_is_required() {
    if !have_sandbox() {
        return;
    }
    let tiny = attack("@:");
    said(&tiny.kvet(&["--sandbox", "off", "build", "mine"]), 0, &[]);
    said(&tiny.build(&[]), 0, &["base     78352d4010cc  linux 6.12.3  from the store"]);
    said(&tiny.kvet(&["--sandbox", "require", "build", "mine"]), 0, &[]);
    assert_eq!(tiny.variant("base")["build"]["stored"], false);
    let sandbox = tiny.variant("base")["build"]["sandbox"].as_str().unwrap().to_owned();
    assert!(sandbox.starts_with("bubblewrap "), "{sandbox}");
    said(&tiny.kvet(&["--sandbox", "require", "build", "mine"]), 0, &["from the store"]);
}

#[test]
fn what_a_build_leaves_broken_is_the_series_fault_and_heals() {
    if !have_sandbox() {
        return;
    }
    let tiny = attack("@rm -rf .config; mkdir .config");
    said(&tiny.build(&[]), 5, &["series fault", "the tree is made anew"]);
    tiny.change("Makefile", "@rm -rf .config; mkdir .config", "@:");
    tiny.commit("kbuild: repent");
    tiny.folder("attack", "HEAD", "direction: forward");
    said(&tiny.build(&[]), 0, &[]);
}

#[test]
fn the_report_says_what_builds_ran_in() {
    let tiny = Tiny::new();
    tiny.change("mm/a.c", "int one", "/* one */ int one");
    tiny.commit("mm: say one");
    tiny.folder("attack", "HEAD", "direction: forward");
    tiny.plan("attack", "");
    let ended = tiny.kvet(&["--sandbox", "off", "build", "mine"]);
    said(&ended, 6, &["identical"]);
    let environment = |tiny: &Tiny| {
        let text = std::fs::read(tiny.path("kvet-runs/latest/result.json")).unwrap();
        let result: serde_json::Value = serde_json::from_slice(&text).unwrap();
        result["environment"]["sandbox"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(environment(&tiny), "none (--sandbox off)");
    assert_eq!(tiny.variant("base")["build"]["sandbox"], "none (--sandbox off)");
    let folder = tempfile::tempdir().unwrap();
    let bin = common::without("bwrap", &folder.path().join("bin"));
    let kvet = |arguments: &[&str]| {
        let mut command = tiny.command(arguments);
        let child = command.env("PATH", &bin).spawn().unwrap();
        common::finish(child, std::time::Instant::now())
    };
    said(&kvet(&["build", "mine"]), 6, &["builds run without a sandbox: bwrap is not installed"]);
    let ended = kvet(&["--sandbox", "require", "build", "mine"]);
    said(&ended, 3, &["no sandbox for builds", "sudo apt-get install bubblewrap"]);
    if have_sandbox() {
        said(&tiny.build(&[]), 6, &[]);
        assert!(environment(&tiny).starts_with("bubblewrap "));
    }
}
