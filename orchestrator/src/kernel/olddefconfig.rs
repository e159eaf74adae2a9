// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks a kernel's Kconfig what it makes of a `.config`, without building anything: in a
//! checkout of what `make olddefconfig` reads.

use std::cell::RefCell;
use std::io::sink;
use std::path::PathBuf;

use super::build::{Builder, Heard};
use super::git;
use super::kconfig::Request;
use super::make::{Made, make, run};
use super::series::Tree;
use super::source::Source;
use crate::fault::Fault;
use crate::host::beneath;
use crate::host::process::{check, require_program};
use crate::host::sandbox::Session;
use crate::plan::manifest::Compiler;
use crate::plan::{Base, Config};
use crate::store::Scratch;

/// Largest `.config`.
const MAX_BYTES: u64 = 16 << 20;
/// Folders that are read, beside every Kconfig file and the files of the top.
const FOLDERS: [&str; 3] = ["scripts/", "arch/x86/", "kernel/configs/"];

/// A tree in which configs are resolved.
pub struct Resolver {
    builder: Builder,
    compiler: Compiler,
    tree: PathBuf,
    session: RefCell<Option<Session>>,
    _scratch: Scratch,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl Resolver {
    /// Checks out what Kconfig reads of a tree.
    ///
    /// # Errors
    /// An `infra` fault.
    pub async fn open(
        builder: &Builder,
        source: &Source,
        of: &Tree,
        compiler: Compiler,
    ) -> Result<Self, Fault> {
        for (program, package) in [("make", "make"), ("flex", "flex"), ("bison", "bison")] {
            require_program(program, package)?;
        }
        let scratch = builder.store.scratch()?;
        let (tree, index) = (scratch.path().join("tree"), scratch.path().join("index"));
        std::fs::create_dir(&tree)
            .map_err(|error| Fault::io(format!("make {}", tree.display()), &error))?;
        let command = || {
            let mut git = git::git(&source.git_dir);
            git.env("GIT_INDEX_FILE", &index).arg("--work-tree").arg(&tree).current_dir(&tree);
            git
        };
        check(command().args(["read-tree", &of.commit]), b"").await?;
        let list = check(command().args(["ls-files", "-z"]), b"").await?;
        let wanted = list.stdout.split_inclusive(|&byte| byte == 0).filter(|name| reads(name));
        let names: Vec<u8> = wanted.flatten().copied().collect();
        check(command().args(["checkout-index", "-q", "-z", "--stdin"]), &names).await?;
        let programs: Vec<_> = compiler.programs().iter().map(|(program, _)| *program).collect();
        let session = builder.sandbox.session(&builder.store, &tree, &programs, None, 1)?;
        Ok(Self {
            builder: builder.clone(),
            compiler,
            tree,
            session: RefCell::new(Some(session)),
            _scratch: scratch,
        })
    }

    /// The `.config` that a config of a plan asks for, before it is resolved.
    ///
    /// # Errors
    /// A `plan` fault when its base or its fragments make no config.
    pub async fn asked(&self, config: &Config) -> Result<String, Fault> {
        let request = Request::read(config).map_err(|mut faults| faults.remove(0))?;
        let mut text = match &config.base {
            Base::Made(base) => {
                self.make(base.target()).await?;
                self.read()?
            }
            Base::Given { text, .. } => format!("{}\n", text.trim_end()),
        };
        text.push_str(&request.text());
        Ok(text)
    }

    /// What `make olddefconfig` leaves of a `.config`.
    ///
    /// # Errors
    /// A `plan` fault when Kconfig fails, an `infra` fault when it cannot be run.
    pub async fn resolve(&self, text: &str) -> Result<String, Fault> {
        beneath::write(&self.tree, ".config", text.as_bytes())
            .map_err(|error| Fault::io("write .config", &error))?;
        self.make("olddefconfig").await?;
        self.read()
    }

    fn read(&self) -> Result<String, Fault> {
        let bytes = beneath::read(&self.tree, ".config", MAX_BYTES)
            .map_err(|error| Fault::io("read .config", &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn make(&self, target: &str) -> Result<(), Fault> {
        let session = self.session.borrow_mut().take();
        let mut session = session.ok_or_else(|| Fault::infra("Kconfig is at work already"))?;
        let mut command = make(&session, "");
        command.args(self.compiler.make_arguments()).arg(target);
        let (mut heard, stop) = (Heard::new(target), &self.builder.stop);
        let made =
            run(&mut command, session.watchdog(), &mut sink(), stop, &mut heard, |_| {}).await;
        *self.session.borrow_mut() = Some(session);
        match made? {
            Made::Done { .. } => Ok(()),
            Made::Interrupted => Err(Fault::interrupted()),
            Made::Failed { error, disk_full: true } => {
                Err(Fault::infra(format!("make {target} found no space"))
                    .evidence(&error.join("\n")))
            }
            Made::Failed { error, .. } => {
                Err(Fault::plan(format!("the kernel cannot be configured (make {target})"))
                    .evidence(&error.join("\n"))
                    .help("does that work in the kernel's tree?"))
            }
        }
    }
}

/// Whether Kconfig reads a file of the tree, by its name, which ends in a zero byte.
fn reads(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let name = name.trim_end_matches('\0');
    let last = name.rsplit('/').next().unwrap_or(name);
    last.starts_with("Kconfig")
        || !name.contains('/')
        || FOLDERS.iter().any(|folder| name.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::reads;

    #[test]
    fn a_fraction_of_a_tree_is_read() {
        for name in ["Makefile", "mm/Kconfig.debug", "scripts/kconfig/conf.c", "arch/x86/Makefile"]
        {
            assert!(reads(format!("{name}\0").as_bytes()), "{name}");
        }
        for name in ["mm/madvise.c", "drivers/gpu/Makefile", "arch/arm64/Makefile"] {
            assert!(!reads(format!("{name}\0").as_bytes()), "{name}");
        }
    }
}
