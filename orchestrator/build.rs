// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the guest binary, static and for this architecture, so that kvet
//! carries it inside; asks it which tests it has.

use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    let root = root.canonicalize().unwrap_or(root);
    let out = PathBuf::from(variable("OUT_DIR"));
    for part in ["guest-tests/src", "guest-tests/Cargo.toml", "guest-tests/records", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    let target_dir = out.join("guest");
    build(&root, &target_dir);
    let program = target_dir.join(TARGET).join("release/kvet-guest");
    let list = Command::new(&program).arg("list").output();
    let list = list.unwrap_or_else(|error| panic!("run {} list: {error}", program.display()));
    assert!(list.status.success(), "{} list failed", program.display());
    write(&out.join("tests.json"), &list.stdout);
    let bytes = std::fs::read(&program)
        .unwrap_or_else(|error| panic!("read {}: {error}", program.display()));
    write(&out.join("kvet-guest"), &bytes);
}

/// A nested cargo with a target folder of its own, so that it does not wait for
/// the one that runs this script. Paths are remapped and nothing is kept for
/// debugging: the same sources give the same bytes in every clone.
fn build(root: &Path, target_dir: &Path) {
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
        .unwrap_or_default();
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/kvet", root.display()),
        format!("--remap-path-prefix={home}=/cargo"),
        format!("--remap-path-prefix={}=/target", target_dir.display()),
    ];
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(root)
        .args(["build", "--release", "--locked", "--package", "kvet-guest-tests"])
        .args(["--bin", "kvet-guest", "--target", TARGET, "--target-dir"])
        .arg(target_dir)
        .args(["--config", "profile.release.debug=false", "--config", "profile.release.strip=true"])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET");
    let status = cargo.status().unwrap_or_else(|error| panic!("run cargo for the guest: {error}"));
    assert!(status.success(), "the guest binary does not build");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
}
