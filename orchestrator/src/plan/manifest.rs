// SPDX-License-Identifier: MIT OR Apache-2.0
//! The YAML types of plans, series and kernels, as users write them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use kvet_records::{Format, MEASURE_INSTRUCTIONS, Value};
use serde::{Deserialize, Deserializer, Serialize};

pub use super::input::SeriesEntry;
pub use super::variant::{VariantName, Variants};

/// `schema:` of a plan.
pub const PLAN_SCHEMA: &str = "kvet/plan/1";
/// `schema:` of a `series.yaml`.
pub const SERIES_SCHEMA: &str = "kvet/series/1";
/// `schema:` of a file in `kernels/`.
pub const KERNEL_SCHEMA: &str = "kvet/kernel/1";

/// A plan: series x kernels x configs x guests x tests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// [`PLAN_SCHEMA`].
    pub schema: String,
    /// What is under test.
    pub series: Vec<SeriesEntry>,
    /// Which variants to build and boot; base and patched when absent.
    #[serde(default)]
    pub variants: Option<Variants>,
    /// Names in `kernels/`.
    pub kernels: Vec<String>,
    /// Kernel configs by name.
    pub configs: BTreeMap<String, ConfigEntry>,
    /// Guests by name.
    pub guests: BTreeMap<String, GuestEntry>,
    /// What runs in the guests.
    pub tests: Vec<TestEntry>,
    /// How the tests' measures are taken.
    #[serde(default)]
    pub measures: MeasuresEntry,
    /// How long each phase of a boot may take.
    #[serde(default)]
    pub deadlines: DeadlineEntry,
    /// What to do about splats.
    #[serde(default)]
    pub splats: SplatEntry,
    /// Exit 0 although base and patched are the same image.
    #[serde(default)]
    pub allow_identical: bool,
}

/// One kernel config of a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigEntry {
    /// What the fragments are merged on.
    pub base: BaseEntry,
    /// Names in `configs/kconfig/`, or paths; later ones win.
    #[serde(default)]
    pub fragments: Vec<String>,
    /// The compiler.
    #[serde(default)]
    pub compiler: Compiler,
}

/// `base:` of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseEntry {
    /// The name of a target of `make`.
    Made(ConfigBase),
    /// The path of a `.config`: anything with a `/` or a `.` in it.
    Path(PathBuf),
}

impl<'de> Deserialize<'de> for BaseEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains(['/', '.']) {
            return Ok(Self::Path(text.into()));
        }
        let name = serde::de::value::StrDeserializer::<serde::de::value::Error>::new(&text);
        ConfigBase::deserialize(name).map(Self::Made).map_err(|_| {
            serde::de::Error::custom(format!(
                "unknown variant `{text}`, expected `tinyconfig`, `defconfig` or a path of a .config"
            ))
        })
    }
}

/// A base that `make` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigBase {
    /// `make tinyconfig`.
    Tinyconfig,
    /// `make defconfig`.
    Defconfig,
}

impl ConfigBase {
    /// The make target.
    #[must_use]
    pub fn target(self) -> &'static str {
        match self {
            Self::Tinyconfig => "tinyconfig",
            Self::Defconfig => "defconfig",
        }
    }
}

/// The compiler of a config.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compiler {
    /// gcc and GNU binutils.
    #[default]
    Gcc,
    /// clang and LLVM's binutils: `LLVM=1`, kbuild's integrated assembler.
    Clang,
}

impl Compiler {
    /// Name of the program.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Gcc => "gcc",
            Self::Clang => "clang",
        }
    }

    /// Words on every command line of the kernel's `make`, also where it only
    /// configures: Kconfig asks the compiler what it can do
    /// (Documentation/kbuild/llvm.rst).
    #[must_use]
    pub fn make_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Gcc => &[],
            Self::Clang => &["LLVM=1"],
        }
    }

    /// Programs that must be there beside `make`'s usual ones, each with the Debian
    /// package that brings it.
    #[must_use]
    pub fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Gcc => &[("gcc", "gcc")],
            Self::Clang => &[("clang", "clang"), ("ld.lld", "lld"), ("llvm-ar", "llvm")],
        }
    }
}

/// One guest of a plan. What is absent comes from `extends`, then from the default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestEntry {
    /// Another guest of the plan.
    pub extends: Option<String>,
    /// QEMU machine type.
    pub machine: Option<MachineType>,
    /// Number of virtual CPUs.
    pub vcpus: Option<u32>,
    /// Guest memory.
    pub memory: Option<ByteSize>,
    /// QEMU's CPU model and its switches under TCG, such as `EPYC-v1,-erms`.
    pub cpu: Option<String>,
    /// What the guest starts from.
    pub root: Option<Root>,
    /// The guest's network.
    pub network: Option<Network>,
    /// Words added to the kernel command line, after those of `extends`.
    #[serde(default)]
    pub append: Vec<String>,
}

/// QEMU machine type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineType {
    /// The minimal machine with virtio-mmio only: boots fastest.
    #[default]
    Microvm,
}

/// A guest's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// None at all.
    #[default]
    None,
    /// QEMU's user-mode network, restricted: the guest reaches nothing, and is
    /// reached only through a port of the host's loopback.
    User,
}

/// What a guest starts from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Root {
    /// An initramfs with kvet's init and tests.
    #[default]
    Initramfs,
}

/// One test of a plan: one of kvet's own, or a program of any kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestEntry {
    /// Alone: one of kvet's guest tests. With a program: what its test is called;
    /// the program's own name when absent.
    pub name: Option<String>,
    /// Path of an executable of the host.
    pub exec: Option<String>,
    /// Path of a shell script.
    pub script: Option<String>,
    /// A test of the tree under test, as `mm/cow` in `tools/testing/selftests`.
    pub kselftest: Option<String>,
    /// Arguments of the program.
    #[serde(default)]
    pub args: Vec<Value>,
    /// What the program's results are read from.
    pub format: Option<Format>,
    /// Variables of the program's environment.
    #[serde(default)]
    pub environment: BTreeMap<String, Value>,
    /// More files of the host that the program needs.
    #[serde(default)]
    pub files: Vec<String>,
    /// Names in `guests:`; all of them when absent.
    pub guests: Option<Vec<String>>,
    /// The parameters of one of kvet's tests.
    #[serde(default)]
    pub parameters: BTreeMap<String, ParameterEntry>,
    /// What the test is to measure, instead of what it observes.
    #[serde(default)]
    pub measure: Vec<Measure>,
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum ParameterEntry {
    /// One value.
    One(Value),
    /// Several, for a parameter that is a list.
    List(Vec<Value>),
}

/// How samples are obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Counted instructions of one vCPU under TCG.
    Instructions,
    /// Time on the host's clock, which needs KVM.
    Wallclock,
}

impl Measure {
    /// Its name in a plan and in a job.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Instructions => MEASURE_INSTRUCTIONS,
            Self::Wallclock => "wallclock",
        }
    }
}

/// How the tests' measures are taken.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuresEntry {
    /// Counted instructions.
    #[serde(default)]
    pub instructions: InstructionsEntry,
}

/// How instructions are counted and judged.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstructionsEntry {
    /// Start phases of each figure.
    pub phases: Option<u16>,
    /// The smallest change that is one, such as `0.1%`.
    #[serde(default, deserialize_with = "percentage")]
    pub threshold: Option<f64>,
    /// A regression changes the exit code.
    #[serde(default)]
    pub gate: bool,
    /// Repeats the comparison over several configs and CPUs.
    #[serde(default)]
    pub robustness: bool,
}

/// How long each phase of a boot may take.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadlineEntry {
    /// From QEMU's start to the guest's `hello`.
    #[serde(default, deserialize_with = "duration")]
    pub boot: Option<Duration>,
    /// From the guest's `hello` to the job's `end`.
    #[serde(default, deserialize_with = "duration")]
    pub test: Option<Duration>,
}

/// What to do about splats.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplatEntry {
    /// Splats that are known and do not count.
    #[serde(default)]
    pub allow: Vec<SplatAllowance>,
}

/// A splat that is known and does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplatAllowance {
    /// The splat's title or fingerprint; `*` stands for any text.
    pub pattern: String,
    /// Why it does not count.
    pub reason: String,
}

/// `series.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesFile {
    /// [`SERIES_SCHEMA`].
    pub schema: String,
    /// One line for people.
    pub title: String,
    /// Where the idea was posted.
    #[serde(default)]
    pub link: Option<String>,
    /// How the series relates to each kernel that it is for.
    pub kernels: BTreeMap<String, SeriesKernel>,
    /// What the series is meant to change.
    #[serde(default)]
    pub expect: Vec<Expectation>,
}

/// How a series relates to one kernel.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesKernel {
    /// Whether the source lacks the series or holds it.
    #[serde(default)]
    pub direction: Direction,
    /// Folders in `patches/prerequisites/`, applied to every variant in this order.
    #[serde(default)]
    pub prerequisites: Vec<String>,
}

/// Whether the source lacks a series or holds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// `base` is the source, `patched` the source with the series.
    #[default]
    Forward,
    /// `patched` is the source, `base` the source with the series taken out.
    Reverse,
}

/// A change that a series declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Name of the test.
    pub test: String,
    /// Name of the observation.
    pub observation: String,
    /// Its value without the series.
    pub base: Value,
    /// Its value with the series.
    pub patched: Value,
}

/// A file in `kernels/`: exactly one of its sources.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelFile {
    /// [`KERNEL_SCHEMA`].
    pub schema: String,
    /// A Debian source package.
    #[serde(default)]
    pub debian: Option<DebianEntry>,
    /// A revision of a git repository.
    #[serde(default)]
    pub git: Option<GitEntry>,
    /// A tarball.
    #[serde(default)]
    pub tarball: Option<TarballEntry>,
    /// A folder with a kernel's source, taken as it is.
    #[serde(default)]
    pub directory: Option<PathBuf>,
}

/// A Debian source package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DebianEntry {
    /// Name of the package, such as `linux-source-6.12`.
    pub package: String,
}

/// A revision of a git repository, which is only read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitEntry {
    /// The clone: a work tree, or a bare repository.
    pub repository: PathBuf,
    /// What git calls a revision: a tag, a branch, an id.
    pub revision: String,
}

/// A tarball of a kernel's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TarballEntry {
    /// Where it is.
    pub path: PathBuf,
    /// What it must hash to, hexadecimal.
    pub sha256: String,
}

fn percentage<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let wrong = || serde::de::Error::custom(format!("{text:?} is not a percentage such as 0.1%"));
    number.filter(|number| (0.0..=100.0).contains(number)).map(Some).ok_or_else(wrong)
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map(Some).map_err(|error| {
        serde::de::Error::custom(format!("{text:?} is not a duration such as 60s: {error}"))
    })
}
