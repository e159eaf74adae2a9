// SPDX-License-Identifier: MIT OR Apache-2.0
//! ccache in a folder of kvet's own, and what it did for a build.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::beneath;
use crate::host::process::find_program;
use crate::store::Store;

/// ccache for a session's compilers.
#[derive(Debug, Clone)]
pub struct CompilerCache {
    /// ccache's program.
    pub program: PathBuf,
    /// Its folder, a part of the store.
    pub folder: PathBuf,
    /// The compilers that it stands for.
    pub compilers: Vec<&'static str>,
    /// Nothing may be added.
    pub read_only: bool,
}

impl CompilerCache {
    /// What stands for a compiler. In depend mode ccache does not see what an object
    /// takes in by the assembler's `.incbin`, which dependency files do not name: the
    /// compressed kernel is the content of one such object, and two kernels of one
    /// compressed size would be the same to it. So assembler files, and C files that
    /// have the word, are compiled without it.
    pub(super) fn stand_in(&self, compiler: &str) -> String {
        let compiler = self.compiler(compiler);
        let (cache, compiler) = (quote(&self.program), quote(&compiler));
        format!(
            "#!/bin/sh\nfor word do\n\tcase $word in\n\t*.S) plain=1 ;;\n\t*.c) if grep -q incbin -- \"$word\"; then plain=1; fi ;;\n\tesac\ndone\nif [ \"${{plain-}}\" ]; then\n\texport CCACHE_DISABLE=1\n\texec {compiler} \"$@\"\nfi\nexec {cache} {compiler} \"$@\"\n"
        )
    }

    /// The compiler in `PATH` that is not ccache under its name.
    fn compiler(&self, name: &str) -> PathBuf {
        let cache = std::fs::canonicalize(&self.program).ok();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut places = std::env::split_paths(&path).map(|folder| folder.join(name));
        let real = |place: &PathBuf| {
            std::fs::canonicalize(place).is_ok_and(|file| file.is_file() && Some(file) != cache)
        };
        places.find(real).unwrap_or_else(|| name.into())
    }
}

/// A path as one word of a shell.
fn quote(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// Most bytes of compiled objects that are kept: some hundred full builds of a
/// small kernel.
pub(super) const CCACHE_SIZE: &str = "4G";

/// A line for each compilation; an allmodconfig kernel has 30,000 of some 100 bytes.
const MAX_STATS_BYTES: u64 = 32 << 20;

/// What ccache did for a build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached {
    /// Compilations that it had.
    pub hits: u32,
    /// Compilations that it could have had.
    pub of: u32,
}

impl Cached {
    /// What the statistics log in a session's folder says; nothing where there is none.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let text = beneath::read(folder, "ccache", MAX_STATS_BYTES).ok()?;
        Some(Self::count(&String::from_utf8_lossy(&text)))
    }

    /// Counts in a statistics log: a comment with the file, then what happened.
    fn count(text: &str) -> Self {
        let mut cached = Self::default();
        for line in text.lines() {
            match line {
                "direct_cache_hit" | "preprocessed_cache_hit" => {
                    cached.hits += 1;
                    cached.of += 1;
                }
                "cache_miss" => cached.of += 1,
                _ => {}
            }
        }
        cached
    }
}

/// Whether ccache can be used, and where.
#[must_use]
pub fn compiler_cache(
    store: &Store,
    compilers: &[&'static str],
    read_only: bool,
) -> Option<CompilerCache> {
    let program = find_program("ccache")?;
    let folder = store.path("ccache", "objects");
    std::fs::create_dir_all(&folder).ok()?;
    Some(CompilerCache { program, folder, compilers: compilers.to_vec(), read_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_in_other_files_is_compiled_without_ccache() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // In the place of ccache and of what it would run.
        std::fs::write(at("ccache"), "#!/bin/sh\necho cached\n").unwrap();
        std::fs::set_permissions(at("ccache"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let cache = CompilerCache {
            program: at("ccache"),
            folder: at("objects"),
            compilers: vec!["true"],
            read_only: false,
        };
        std::fs::write(at("stand-in"), cache.stand_in("true")).unwrap();
        std::fs::write(at("plain.c"), "int x;\n").unwrap();
        std::fs::write(at("takes.c"), "asm(\".incbin \\\"file\\\"\");\n").unwrap();
        std::fs::write(at("piggy.S"), "").unwrap();
        let cached = |arguments: &[&str]| {
            let mut sh = std::process::Command::new("/bin/sh");
            sh.current_dir(folder.path()).arg("stand-in").args(arguments);
            let output = sh.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            !output.stdout.is_empty()
        };
        assert!(cached(&["-O2", "-c", "-o", "plain.o", "plain.c"]));
        assert!(cached(&["--version"]));
        assert!(!cached(&["-c", "takes.c"]));
        assert!(!cached(&["-D__ASSEMBLY__", "-c", "-o", "piggy.o", "piggy.S"]));
    }

    #[test]
    fn ccaches_log_is_counted() {
        let log = "# mm/a.c\ndirect_cache_hit\n# mm/b.c\ncache_miss\n# -\nautoconf_test\n# mm/c.c\npreprocessed_cache_hit\n";
        assert_eq!(Cached::count(log), Cached { hits: 2, of: 3 });
    }
}
