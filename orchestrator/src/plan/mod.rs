// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the user asked for, resolved: every file read, every name looked up,
//! every default filled in. Nothing later reads a manifest.

pub mod input;
mod kernel_file;
mod mails;
pub mod manifest;
mod measure;
mod patch_files;
mod range;
pub mod resolve;
mod robust;
mod series_file;
mod tests;
pub mod variant;
pub mod yaml;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use kvet_records::{Format, Parameters};
use serde::Serialize;

use crate::kernel::kconfig::Override;

use manifest::{
    Compiler, ConfigBase, DebianEntry, Direction, Expectation, GitEntry, MachineType, Measure,
    Network, Root, SplatAllowance, TarballEntry, VariantName,
};

/// An expanded plan.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// File name without extension.
    pub name: String,
    /// The plan's file.
    pub file: PathBuf,
    /// The folder that holds `kernels/`, `patches/`, `configs/` and `snapshots/`.
    #[serde(skip)]
    pub root: PathBuf,
    /// One (series, kernel, config, guest) each, in the plan's order.
    pub cells: Vec<Cell>,
    /// Combinations that the plan spans but that are not run, with the reason.
    pub skipped: Vec<String>,
    /// How long each phase of a boot may take.
    pub deadlines: Deadlines,
    /// How instructions are counted and judged.
    pub instructions: Instructions,
    /// Splats that are known and do not count.
    pub allow: Vec<SplatAllowance>,
    /// Exit 0 although base and patched are the same image.
    pub allow_identical: bool,
}

/// One (series, kernel, config, guest) of a plan.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// What is under test.
    pub series: Series,
    /// What it is applied to.
    pub kernel: Kernel,
    /// How it is configured.
    pub config: Config,
    /// Where it runs.
    pub guest: Guest,
    /// What runs there.
    pub tests: Vec<Test>,
    /// The kernels to compare, in the order of building.
    pub variants: Vec<VariantName>,
    /// The cell that it repeats on another kernel or CPU, by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variation_of: Option<String>,
}

impl Cell {
    /// `series.kernel.config.guest`: unique in a plan and safe in a path.
    #[must_use]
    pub fn id(&self) -> String {
        format!(
            "{}.{}.{}.{}",
            self.series.name, self.kernel.name, self.config.name, self.guest.name
        )
    }
}

/// A series with everything that its `series.yaml` says for one kernel.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    /// Name of its folder, or of what it was read from: one component of a path.
    pub name: String,
    /// What it was read from, where that is no folder with a `series.yaml`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// One line for people.
    pub title: String,
    /// Where the idea was posted.
    pub link: Option<String>,
    /// Whether the source lacks it or holds it.
    pub direction: Direction,
    /// Applied to every variant, in order.
    pub prerequisites: Vec<PatchSet>,
    /// The patches under test, in order; mails without a diff are not among them.
    pub patches: Vec<PatchFile>,
    /// What stands among them and was passed over, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
    /// What it is meant to change.
    pub expect: Vec<Expectation>,
}

/// A named folder of patches.
#[derive(Debug, Clone, Serialize)]
pub struct PatchSet {
    /// Name of the folder.
    pub name: String,
    /// The patches, in order.
    pub patches: Vec<PatchFile>,
}

/// A patch that was read: a file, a mail, or a commit of a range.
#[derive(Debug, Clone, Serialize)]
pub struct PatchFile {
    /// File name.
    pub name: String,
    /// Its subject without `[PATCH n/m]`, where it has one.
    #[serde(skip)]
    pub subject: Option<String>,
    /// Where it is: a file, a line of an mbox, or a repository and a commit.
    #[serde(skip)]
    pub path: PathBuf,
    /// Leading folders of its names that the tree does not have; 1 for `a/` and `b/`.
    #[serde(skip)]
    pub strip: usize,
    /// Its bytes.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

/// A kernel source by name.
#[derive(Debug, Clone, Serialize)]
pub struct Kernel {
    /// Name in `kernels/`.
    pub name: String,
    /// The file in `kernels/`.
    #[serde(skip)]
    pub file: PathBuf,
    /// Where it comes from.
    #[serde(flatten)]
    pub source: KernelSource,
}

/// Where a kernel source comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelSource {
    /// A Debian source package.
    Debian(DebianEntry),
    /// A revision of a git repository.
    Git {
        /// Repository and revision; the path is absolute.
        #[serde(flatten)]
        entry: GitEntry,
        /// Take the work tree's changes, too, where its `HEAD` is the revision.
        dirty: bool,
    },
    /// A tarball; the path is absolute.
    Tarball(TarballEntry),
    /// A folder, absolute.
    Directory(PathBuf),
}

/// A kernel config by name.
#[derive(Debug, Clone, Serialize)]
pub struct Config {
    /// Name in the plan.
    pub name: String,
    /// What the fragments are merged on.
    pub base: Base,
    /// The compiler.
    pub compiler: Compiler,
    /// The fragments, in order; later ones win.
    pub fragments: Vec<Fragment>,
    /// Where fragments ask for different values of one symbol.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Override>,
}

/// What fragments are merged on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Base {
    /// What a target of `make` writes.
    Made(ConfigBase),
    /// A `.config` that was read.
    Given {
        /// Where it is.
        path: PathBuf,
        /// Its text.
        #[serde(skip)]
        text: String,
    },
}

impl Base {
    /// What tells bases apart: the target of `make`, or the text that is given.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Made(base) => base.target(),
            Self::Given { text, .. } => text,
        }
    }
}

impl From<ConfigBase> for Base {
    fn from(base: ConfigBase) -> Self {
        Self::Made(base)
    }
}

/// A kconfig fragment that was read.
#[derive(Debug, Clone, Serialize)]
pub struct Fragment {
    /// Name in `configs/kconfig/`.
    pub name: String,
    /// Where it is.
    #[serde(skip)]
    pub path: PathBuf,
    /// Its text.
    #[serde(skip)]
    pub text: String,
}

/// A guest by name, defaults filled in.
#[derive(Debug, Clone, Serialize)]
pub struct Guest {
    /// Name in the plan.
    pub name: String,
    /// QEMU machine type.
    pub machine: MachineType,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: ByteSize,
    /// QEMU's CPU model under TCG; none for kvet's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// What it starts from.
    pub root: Root,
    /// Its network.
    pub network: Network,
    /// Words added to kvet's kernel command line.
    pub append: Vec<String>,
}

/// A test to run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Test {
    /// Name of a guest test, or what a program's test is called.
    pub name: String,
    /// Parameters that the plan gives.
    pub parameters: Parameters,
    /// The program that is the test; none for a guest test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// What it measures; none when it observes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measure: Option<Measure>,
}

/// How instructions are counted and judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Instructions {
    /// Start phases of each figure.
    pub phases: u16,
    /// The smallest change that is one, in percent.
    pub threshold_percent: f64,
    /// A regression changes the exit code.
    pub gate: bool,
    /// Repeats the comparison over several configs and CPUs.
    pub robustness: bool,
}

impl Default for Instructions {
    fn default() -> Self {
        Self { phases: 8, threshold_percent: 0.1, gate: false, robustness: false }
    }
}

/// A program that is a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Where it comes from.
    pub source: ProgramSource,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What the plan adds to its environment.
    pub environment: BTreeMap<String, String>,
    /// What its results are read from.
    pub format: Format,
    /// More files of the host that it needs, by absolute path.
    pub files: Vec<PathBuf>,
    /// `file:line:column` of its entry in the plan.
    #[serde(skip)]
    pub place: String,
}

/// Where a program comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramSource {
    /// An executable of the host, by absolute path.
    Exec(PathBuf),
    /// A shell script, by absolute path.
    Script(PathBuf),
    /// A selftest of the tree under test, below `tools/testing/selftests`.
    Kselftest(String),
}

impl Test {
    /// Name and parameters in a form that is unique in a plan and safe in a path.
    #[must_use]
    pub fn id(&self) -> String {
        let mut id = self.name.clone();
        for (name, value) in &self.parameters {
            let value: String = value
                .to_string()
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                .collect();
            id.push_str(&format!(".{name}_{value}"));
        }
        if let Some(measure) = self.measure {
            id.push_str(&format!(".{}", measure.name()));
        }
        id
    }
}

/// How long each phase of a boot may take.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Deadlines {
    /// From QEMU's start to the guest's `hello`; none for the accelerator's default.
    pub boot: Option<Duration>,
    /// From the guest's `hello` to the job's `end`; none for the accelerator's default.
    pub test: Option<Duration>,
}

/// Tests that a guest binary offers, by name.
pub type Tests = BTreeMap<String, kvet_records::TestInfo>;
