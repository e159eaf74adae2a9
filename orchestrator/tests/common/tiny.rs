// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel of three source files that is built in a second: what kvet does
//! around a kernel does not depend on the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{Ended, finish};

/// What kvet asks of a kernel's Makefile, and no more.
const MAKEFILE: &str = "VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = 3
EXTRAVERSION =
OBJECTS := mm/a.o mm/b.o init/main.o
tinyconfig olddefconfig:
\t@touch .config
prepare:
\t@:
%.o: %.c
\t@echo '  CC      $@'
\t@gcc -O1 -Wall -c -o $@ $<
vmlinux: $(OBJECTS)
\t@echo '  LD      $@'
\t@rm -f vmlinux.a && ar rcT vmlinux.a $(OBJECTS)
\t@cat $^ > $@
bzImage: vmlinux
\t@mkdir -p arch/x86/boot
\t@cp vmlinux arch/x86/boot/bzImage
kernelrelease:
\t@echo 6.12.3
.PHONY: tinyconfig olddefconfig prepare bzImage kernelrelease
";
const A: &str = "// SPDX-License-Identifier: GPL-2.0\nint one(int x)\n{\n\tint unused_one;\n\n\tif (x > 1)\n\t\treturn 1;\n\treturn x + 1;\n}\n\nint two(int x)\n{\n\treturn x + 2;\n}\n\nint three(int x)\n{\n\treturn x + 3;\n}\n";
const B: &str = "// SPDX-License-Identifier: GPL-2.0\nint four(int x)\n{\n\tint unused_four;\n\n\treturn x + 4;\n}\n";
const MAIN: &str =
    "// SPDX-License-Identifier: GPL-2.0\nint start_kernel(void)\n{\n\treturn 0;\n}\n";

/// A project with a git repository of a tiny kernel, and a cache of its own.
pub struct Tiny {
    folder: tempfile::TempDir,
}

/// git as a user runs it.
pub fn git(folder: &Path, arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(folder).args(arguments);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{role}_NAME"), "Ada Example");
        git.env(format!("GIT_{role}_EMAIL"), "ada@example.org");
    }
    let output = git.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {words}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Tiny {
    /// The repository is at `linux`, its one commit has the tag `v6.12.3`.
    pub fn new() -> Self {
        let tiny = Self { folder: tempfile::tempdir().unwrap() };
        tiny.write("linux/Makefile", MAKEFILE);
        tiny.write("linux/mm/a.c", A);
        tiny.write("linux/mm/b.c", B);
        tiny.write("linux/init/main.c", MAIN);
        tiny.write("linux/.gitignore", "*.o\n*.a\n.config\n/vmlinux\n");
        tiny.git(&["init", "--quiet", "--initial-branch=master"]);
        tiny.commit("linux 6.12.3");
        tiny.git(&["tag", "v6.12.3"]);
        tiny.kernel("git: {repository: linux, revision: v6.12.3}");
        tiny
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn git(&self, arguments: &[&str]) -> String {
        git(&self.path("linux"), arguments)
    }

    /// Replaces `from` by `to` in a file of the kernel.
    pub fn change(&self, file: &str, from: &str, to: &str) {
        let path = format!("linux/{file}");
        let text = fs::read_to_string(self.path(&path)).unwrap();
        assert!(text.contains(from), "{from:?} is not in {text}");
        self.write(&path, &text.replacen(from, to, 1));
    }

    pub fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    /// The kernel's entry in `kernels/`.
    pub fn kernel(&self, source: &str) {
        self.write("kernels/tiny.yaml", &format!("schema: kvet/kernel/1\n{source}\n"));
    }

    /// The plan `mine`; `series` is one entry, `rest` is added.
    pub fn plan(&self, series: &str, rest: &str) {
        let text = format!(
            "schema: kvet/plan/1\nseries: [{series}]\nkernels: [tiny]\nconfigs: {{tiny: {{base: tinyconfig}}}}\nguests: {{up: {{}}}}\ntests: [{{name: selftest_pass}}]\n{rest}"
        );
        self.write("configs/plans/mine.yaml", &text);
    }

    /// A series folder of the commits from `v6.12.3` to `tip`.
    pub fn folder(&self, name: &str, tip: &str, entry: &str) {
        let yaml =
            format!("schema: kvet/series/1\ntitle: a test\nkernels: {{tiny: {{{entry}}}}}\n");
        self.write(&format!("patches/{name}/series.yaml"), &yaml);
        let folder = self.path(&format!("patches/{name}"));
        self.git(&[
            "format-patch",
            "--quiet",
            "-o",
            folder.to_str().unwrap(),
            &format!("v6.12.3..{tip}"),
        ]);
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = super::kvet_command();
        command.current_dir(self.folder.path()).args(arguments);
        command.env("KVET_CACHE_DIR", self.path("cache")).env_remove("KVET_RUNS_DIR");
        // Builds of a second need not wait for what else runs on the host.
        fs::create_dir_all(self.path("runtime")).unwrap();
        command.env("XDG_RUNTIME_DIR", self.path("runtime"));
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command
    }

    pub fn kvet(&self, arguments: &[&str]) -> Ended {
        finish(self.command(arguments).spawn().unwrap(), Instant::now())
    }

    /// `kvet build mine` with more arguments.
    pub fn build(&self, more: &[&str]) -> Ended {
        self.kvet(&[&["build", "mine"], more].concat())
    }

    /// What the last run's first cell says of a variant.
    pub fn variant(&self, name: &str) -> serde_json::Value {
        let text = fs::read(self.path("kvet-runs/latest/result.json")).unwrap();
        let result: serde_json::Value = serde_json::from_slice(&text).unwrap();
        result["cells"][0]["variants"][name].clone()
    }

    pub fn image(&self, variant: &str) -> String {
        self.variant(variant)["image_sha256"].as_str().unwrap_or_default().to_owned()
    }
}

#[track_caller]
pub fn said(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, code, "stdout:\n{}\nstderr:\n{}", ended.stdout, ended.stderr);
    for word in words {
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(all.contains(word), "{word:?} is not in\n{all}");
    }
}
