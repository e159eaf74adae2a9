// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the command line may say.

use std::num::NonZeroU16;
use std::path::PathBuf;

use bytesize::ByteSize;
use clap::builder::NonEmptyStringValueParser as NotEmpty;
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::bisect::BisectArgs;
use super::signals::Signals;
use crate::host::sandbox;
use crate::plan::manifest::{SeriesEntry, VariantName};
use crate::plan::resolve::Overrides;
use crate::vm::accel::Choice;

/// Vets a Linux kernel patch series in virtual machines.
#[derive(Debug, Parser)]
#[command(name = "kvet", version, max_term_width = 100)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
    #[clap(skip)]
    pub(super) signals: Signals,
}

#[derive(Debug, Args)]
pub(super) struct Global {
    /// No progress, only the report.
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// More progress.
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub(super) verbose: bool,
    /// Colours in reports.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
    /// Parallel jobs of a kernel build; one for each CPU by default.
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) jobs: Option<u16>,
    /// Most memory that all builds and guests of this user may take [default: what is free].
    #[arg(long, global = true, value_name = "SIZE")]
    pub(super) memory: Option<ByteSize>,
    /// Folder for sources, trees and images [default: ~/.cache/kvet].
    #[arg(long, global = true, value_name = "DIR", env = "KVET_CACHE_DIR")]
    pub(super) cache_dir: Option<PathBuf>,
    /// Folder for the runs' results.
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "kvet-runs",
        env = "KVET_RUNS_DIR"
    )]
    pub(super) runs_dir: PathBuf,
    /// Whether kernels are built in a sandbox, which needs bubblewrap.
    #[arg(long, global = true, value_enum, default_value_t = sandbox::Choice::Auto)]
    pub(super) sandbox: sandbox::Choice,
    /// What executes the guests.
    #[arg(long, global = true, value_enum, default_value_t = Choice::Auto)]
    pub(super) accel: Choice,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// What this host can do, what is missing, and the command that installs it.
    Doctor,
    /// Build every variant of a plan, boot nothing.
    Build {
        /// A plan's path, or its name in configs/plans/.
        plan: PathBuf,
        /// Only this variant: base, patched or patch-NN (may be repeated).
        #[arg(long, value_name = "V")]
        variant: Vec<VariantName>,
        #[command(flatten)]
        input: InputArgs,
    },
    /// Run a plan: build, boot, test and compare.
    Run {
        /// A plan's path, or its name in configs/plans/.
        plan: PathBuf,
        /// Only this test.
        #[arg(short, long, value_name = "TEST")]
        test: Option<String>,
        /// Only this variant: base, patched or patch-NN (may be repeated).
        #[arg(long, value_name = "V")]
        variant: Vec<VariantName>,
        #[command(flatten)]
        input: InputArgs,
        /// A splat that both variants have is not acceptable either.
        #[arg(long)]
        strict: bool,
        /// Boots of each variant for each test; all must observe the same.
        #[arg(long, value_name = "N", default_value = "1")]
        boots: NonZeroU16,
        /// Boot from power-on every time instead of restoring a saved machine.
        #[arg(long)]
        cold: bool,
        /// Go on with an interrupted run of this plan: its finished boots are kept.
        #[arg(long, value_name = "RUN")]
        resume: Option<PathBuf>,
        /// Print the resolved plan and stop.
        #[arg(long)]
        dry_run: bool,
    },
    /// Everything to check before a series is sent.
    ///
    /// Whether it applies, what checkpatch says, whether every patch builds in each
    /// config without new warnings, boots under the kernel's own checks without new
    /// splats, behaves as declared at every patch, and counts no more instructions. The
    /// tests are chosen by what the series touches (configs/validate.yaml).
    Validate {
        /// A name in kernels/, or a git repository; `PATH@REV` for another revision than
        /// its HEAD.
        #[arg(long, value_name = "K", value_parser = NotEmpty::new())]
        kernel: String,
        /// The series: a name in patches/, a folder of patches, a patch file, an mbox, a
        /// maildir, `-` for mails on standard input, or commits as [REPOSITORY:]A..B.
        #[arg(long, value_name = "INPUT", value_parser = NotEmpty::new())]
        series: String,
        /// Run the tests of this plan in its guests, instead of choosing (may be
        /// repeated).
        #[arg(long, value_name = "PLAN")]
        plan: Vec<PathBuf>,
        /// Only this config of the table (may be repeated).
        #[arg(long, value_name = "NAME")]
        config: Vec<String>,
        /// Stop at the first failed check.
        #[arg(long)]
        fail_fast: bool,
        /// Go on with an interrupted run of this validation: its finished boots are kept.
        #[arg(long, value_name = "RUN")]
        resume: Option<PathBuf>,
        /// Print what would be checked and stop.
        #[arg(long)]
        dry_run: bool,
    },
    /// Find the commit, the patch or the config symbol that makes the difference.
    Bisect(Box<BisectArgs>),
    /// Make the cache folder smaller; what was not used for longest goes first.
    Clean {
        /// Most that may stay, such as 20GB [default: all but what a killed kvet left].
        #[arg(long, value_name = "SIZE", value_parser = size)]
        keep: Option<ByteSize>,
        /// Only say what would go.
        #[arg(long)]
        dry_run: bool,
    },
    /// Show pending behaviour snapshots.
    Review {
        /// Only this plan's.
        plan: Option<PathBuf>,
    },
    /// Accept pending behaviour snapshots.
    Accept {
        /// Only this plan's.
        plan: Option<PathBuf>,
    },
    /// Throw pending behaviour snapshots away.
    Reject {
        /// Only this plan's.
        plan: Option<PathBuf>,
    },
    /// Does kvet tell the truth on this host? Breaks kernels in every way it knows
    /// and checks what it says of each.
    Selftest {
        /// Only this row of the table (may be repeated).
        #[arg(long, value_name = "ROW")]
        only: Vec<String>,
        /// Only the rows of this kernel (may be repeated).
        #[arg(long, value_name = "CONFIG")]
        config: Vec<String>,
        /// Guests at once; one for each CPU by default.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
        guests: Option<u16>,
    },
    /// Write a test of your own that works, to start from, and a plan that runs it.
    NewTest {
        /// What it is called: small letters, digits and '_'.
        name: String,
        /// A shell script, also where kvet's guest tests are at hand.
        #[arg(long)]
        script: bool,
    },
    /// Would the tests of kvet's own series notice a mistake in them?
    #[command(hide = true)]
    Mutants {
        /// Only this mutant (may be repeated).
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// Guests at once; one for each CPU by default.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
        guests: Option<u16>,
    },
    /// What kvet reads out of a file.
    #[command(subcommand)]
    Inspect(Inspect),
    /// Print the report of a run again.
    Report {
        /// The run's folder.
        run: PathBuf,
        /// The report's form.
        #[arg(long, value_enum, default_value_t = Format::Terminal)]
        format: Format,
    },
}

/// What is built in the place of what the plan says.
#[derive(Debug, Args)]
pub(super) struct InputArgs {
    /// Vet this series instead of the plan's: a name in patches/, a folder of
    /// patches, a patch file, an mbox, a maildir, `-` for mails on standard input, or
    /// commits as [REPOSITORY:]A..B (may be repeated).
    #[arg(long, value_name = "INPUT", value_parser = NotEmpty::new())]
    pub(super) series: Vec<String>,
    /// Take the uncommitted changes of a git source's work tree, too.
    #[arg(long)]
    pub(super) dirty: bool,
}

impl InputArgs {
    pub(super) fn overrides(&self) -> Overrides {
        let series = self.series.iter().map(|text| SeriesEntry::from_argument(text)).collect();
        Overrides { series, dirty: self.dirty, ..Overrides::default() }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Inspect {
    /// Splats in a serial log.
    Console {
        /// The log; `-` for standard input.
        log: PathBuf,
        /// JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// The patches in mails, a maildir, a patch file or a folder, and what is passed over.
    ///
    /// Exit code 0 for a complete series, 5 for one that is incomplete or damaged.
    Series {
        /// An mbox, mail, patch, maildir or folder; `-` for standard input.
        input: PathBuf,
        /// JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Results in a log with TAP or KTAP.
    Ktap {
        /// The log; `-` for standard input.
        log: PathBuf,
        /// JSON instead of text.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Terminal,
    /// All of it, for programs.
    Json,
    /// Tables for a series' cover letter: ASCII, at most 72 columns.
    CoverLetter,
}

/// A size with its unit: 20 alone would be 20 bytes, which nobody means.
fn size(text: &str) -> Result<ByteSize, String> {
    let wrong = || "a size has a unit, such as 20GB or 512MiB".to_owned();
    if text != "0" && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    text.parse().map_err(|_| wrong())
}
