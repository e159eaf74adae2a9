// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kvet bisect`: what it may be told, and what of a plan it works with.

mod bench;
mod searches;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::{ArgGroup, Args};

use super::Cli;
use super::arguments::Format;
use crate::bisect::kernels::{Predicate, record};
use crate::bisect::rates::{DEFAULT_ERROR, Rates, Rule};
use crate::fault::{ExitCode, Fault};
use crate::guest::{self, payload};
use crate::plan::manifest::{SeriesEntry, VariantName};
use crate::plan::resolve::{Overrides, find_plan, resolve_with};
use crate::plan::{Cell, KernelSource, Plan, Test};
use crate::report::bisect::render;
use crate::report::json::pretty;

/// The flag that has kvet answer `git bisect run`.
const GIT_BISECT_RUN: &str = "--git-bisect-run";
/// Trials at either end of a noisy search, unless the user says how many.
const RUNS: u32 = 10;
/// Most trials of a noisy search.
const MOST_NOISY: u32 = 2000;

/// What `git bisect run` is to be told.
static ANSWER: OnceLock<u8> = OnceLock::new();

/// What the process exits with: for `git bisect run` what that reads, where a mistake
/// has to end the bisection and must not be taken for a bad commit.
pub(super) fn status(code: ExitCode) -> u8 {
    if !std::env::args_os().any(|argument| argument == GIT_BISECT_RUN) {
        return code.into();
    }
    let mistake = || match code {
        ExitCode::Acceptable => 0,
        ExitCode::Interrupted => code.into(),
        other => 128 + u8::from(other),
    };
    ANSWER.get().copied().unwrap_or_else(mistake)
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("predicate").required(true).args(["observation", "metric", "splat", "build", "fail"]))]
pub(super) struct BisectArgs {
    /// The plan that says how kernels are configured and tested: a path, or a name in
    /// configs/plans/.
    plan: PathBuf,
    /// A good commit of a git repository (may be repeated).
    #[arg(long, value_name = "REV", requires = "bad")]
    good: Vec<String>,
    /// The bad commit.
    #[arg(long, value_name = "REV", requires = "good")]
    bad: Option<String>,
    /// Search the patches of this series, or of the plan's own [INPUT as for `run`].
    #[arg(long, value_name = "INPUT", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["good", "config_good"])]
    series: Option<String>,
    /// A good config: a name in the plan, or a .config.
    #[arg(long, value_name = "CONFIG", requires = "config_bad", conflicts_with = "good")]
    config_good: Option<String>,
    /// The bad config.
    #[arg(long, value_name = "CONFIG", requires = "config_good")]
    config_bad: Option<String>,
    /// The test that is run, by its name or by its name with parameters.
    #[arg(
        short,
        long,
        value_name = "TEST",
        required_unless_present = "build",
        conflicts_with = "build"
    )]
    test: Option<String>,
    /// Bad is where this has the bad end's value, or VALUE.
    #[arg(long, value_name = "NAME[=VALUE]")]
    observation: Option<String>,
    /// Bad is where this counted figure is more than PERCENT above the good end's (below
    /// it when negative), or above or below VALUE [default: nearer to the bad end's].
    #[arg(long, value_name = "NAME[{k=v,...}][:PERCENT|>VALUE|<VALUE]")]
    metric: Option<String>,
    /// Bad is where this splat shows: a fingerprint, or a title in which * stands for
    /// any text.
    #[arg(long, value_name = "PATTERN")]
    splat: Option<String>,
    /// Bad is what does not build.
    #[arg(long)]
    build: bool,
    /// Bad is where the test or the kernel fails as at the bad end.
    #[arg(long)]
    fail: bool,
    /// The repository [default: that of the plan's kernel, or the current folder's].
    #[arg(long, value_name = "REPO")]
    git: Option<PathBuf>,
    /// The kernel of the plan, where it has several.
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// The config of the plan, where it has several.
    #[arg(long, value_name = "NAME")]
    config: Option<String>,
    /// The guest of the plan, where it has several.
    #[arg(long, value_name = "NAME")]
    guest: Option<String>,
    /// The kernel that configs are searched for.
    #[arg(long, value_name = "V", default_value = "patched", requires = "config_good")]
    variant: VariantName,
    /// What is called bad does not show in every run of a bad kernel, or sometimes in a
    /// good one: repeat runs until the answer is sure enough.
    #[arg(long, conflicts_with_all = ["build", "metric", "config_good"])]
    noisy: bool,
    /// Runs of each end of a noisy search, at least [default: 10].
    #[arg(long, value_name = "N", requires = "noisy", value_parser = clap::value_parser!(u32).range(1..=200))]
    runs: Option<u32>,
    /// The probability of a wrong answer at which a noisy search ends [default: 0.001].
    #[arg(long, value_name = "P", requires = "noisy")]
    error: Option<f64>,
    /// Go on with a search: its folder.
    #[arg(long, value_name = "RUN", conflicts_with = "git_bisect_run")]
    resume: Option<PathBuf>,
    /// Judge what is checked out, for `git bisect run`: exit code 0 for good, 1 for bad,
    /// 125 to skip, 128 and above where nothing can be said.
    #[arg(long, conflicts_with_all = ["good", "series", "config_good", "noisy"])]
    git_bisect_run: bool,
    /// With --git-bisect-run, take uncommitted changes, too.
    #[arg(long, requires = "git_bisect_run")]
    dirty: bool,
}

/// What is searched.
enum Searched<'a> {
    Commits {
        good: &'a [String],
        bad: &'a str,
    },
    Series,
    Configs {
        good: &'a str,
        bad: &'a str,
    },
    /// Nothing: one commit is judged.
    Checkout,
}

impl BisectArgs {
    fn predicate(&self) -> Result<Predicate, Fault> {
        match (&self.observation, &self.metric, &self.splat) {
            (Some(text), _, _) => Predicate::observation(text),
            (_, Some(text), _) => Predicate::metric(text),
            (_, _, Some(pattern)) => Ok(Predicate::Splat(pattern.clone())),
            _ if self.build => Ok(Predicate::Build),
            _ => Ok(Predicate::Fail),
        }
    }

    fn searched(&self) -> Result<Searched<'_>, Fault> {
        match (&self.bad, &self.series, &self.config_good, &self.config_bad) {
            _ if self.git_bisect_run => Ok(Searched::Checkout),
            (Some(bad), ..) => Ok(Searched::Commits { good: &self.good, bad }),
            (_, Some(_), ..) => Ok(Searched::Series),
            (_, _, Some(good), Some(bad)) => Ok(Searched::Configs { good, bad }),
            _ => Err(Fault::plan("nothing to search").help(
                "name --good and --bad commits, a --series, or --config-good and --config-bad",
            )),
        }
    }

    fn rule(&self, predicate: &Predicate) -> Result<Rule, Fault> {
        if !predicate.is_absolute() && (self.noisy || self.git_bisect_run) {
            return Err(Fault::plan(format!("what is bad depends on the ends: {predicate}")).help(
                match predicate {
                    Predicate::Metric { .. } => {
                        "say which figure is bad: --metric 'NAME>VALUE' or 'NAME<VALUE'"
                    }
                    _ => "say which value is bad: --observation NAME=VALUE",
                },
            ));
        }
        if !self.noisy {
            return Ok(Rule::EXACT);
        }
        let rates = Rates::Estimated { trials: self.runs.unwrap_or(RUNS) };
        Rule::noisy(rates, self.error.unwrap_or(DEFAULT_ERROR))
    }

    /// The plan, with nothing in it but the one cell and test that are used.
    fn plan(&self, predicate: &Predicate, searched: &Searched<'_>) -> Result<Plan, Vec<Fault>> {
        let one = |fault| vec![fault];
        let file = find_plan(&self.plan).map_err(one)?;
        let series = self.series.iter().filter(|text| !text.is_empty());
        let series = series.map(|text| SeriesEntry::from_argument(text)).collect();
        let overrides = Overrides { series, ..Overrides::default() };
        let mut plan = resolve_with(&file, &guest::tests(), &overrides)?;
        let (cell, test) = self.choose(&plan, predicate, searched).map_err(one)?;
        let (mut cell, tests) = (cell.clone(), test.cloned().into_iter().collect());
        cell.tests = tests;
        plan.cells = vec![cell];
        payload::check(&plan)?;
        Ok(plan)
    }

    fn choose<'a>(
        &self,
        plan: &'a Plan,
        predicate: &Predicate,
        searched: &Searched<'_>,
    ) -> Result<(&'a Cell, Option<&'a Test>), Fault> {
        let asked = |wanted: &Option<String>, name: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == name)
        };
        let fits = |cell: &&Cell| {
            cell.variation_of.is_none()
                && asked(&self.kernel, &cell.kernel.name)
                && asked(&self.config, &cell.config.name)
                && asked(&self.guest, &cell.guest.name)
        };
        let at = |fault: Fault| fault.at(plan.file.display());
        let cells: Vec<&Cell> = plan.cells.iter().filter(fits).collect();
        if cells.is_empty() {
            let ids: Vec<String> = plan.cells.iter().map(Cell::id).collect();
            return Err(at(Fault::plan("the plan has no such kernel, config and guest together"))
                .help(format!("it has (series.kernel.config.guest): {}", ids.join(", "))));
        }
        let mut found: Vec<(&Cell, Option<&Test>)> = Vec::new();
        match &self.test {
            None => found.extend(cells.iter().map(|&cell| (cell, None))),
            Some(name) => {
                let measured = matches!(predicate, Predicate::Metric { .. });
                let named = |test: &&Test| test.name == *name || test.id() == *name;
                let fits = |test: &&Test| named(test) && test.measure.is_some() == measured;
                for &cell in &cells {
                    found.extend(cell.tests.iter().filter(fits).map(|test| (cell, Some(test))));
                }
                if found.is_empty() {
                    let there = cells.iter().flat_map(|cell| &cell.tests);
                    let known = there.clone().any(|test| named(&test));
                    let mut ids: Vec<String> = there.map(Test::id).collect();
                    ids.sort();
                    ids.dedup();
                    let what = match (known, measured) {
                        (false, _) => format!("the plan has no test {name:?}"),
                        (true, true) => format!("the plan measures nothing in test {name:?}"),
                        (true, false) => format!("the plan only measures in test {name:?}"),
                    };
                    let help = match (known, measured) {
                        (true, true) => "give it `measure: [instructions]` in the plan".to_owned(),
                        _ => format!("its tests are: {}", ids.join(", ")),
                    };
                    return Err(at(Fault::plan(what)).help(help));
                }
            }
        }
        // What the search replaces may differ.
        let key = |(cell, test): &(&Cell, Option<&Test>)| {
            let series = match searched {
                Searched::Series | Searched::Configs { .. } => {
                    format!("--series {} --kernel {}", cell.series.name, cell.kernel.name)
                }
                Searched::Commits { .. } | Searched::Checkout => String::new(),
            };
            let config = match searched {
                Searched::Configs { .. } => String::new(),
                _ => format!("--config {}", cell.config.name),
            };
            let (guest, test) = match test {
                None => (String::new(), String::new()),
                Some(test) => (format!("--guest {}", cell.guest.name), format!("-t {}", test.id())),
            };
            [series, config, guest, test].join(" ").trim().to_owned()
        };
        let mut keys: Vec<String> = found.iter().map(key).collect();
        keys.sort();
        keys.dedup();
        match (&keys[..], found.first()) {
            ([_], Some(&first)) => Ok(first),
            _ => Err(at(Fault::plan("the plan has several of what is to be run"))
                .evidence(&keys.join("\n"))
                .help("name one of these")),
        }
    }

    /// The repository whose commits are meant.
    fn repository(&self, plan: &Plan) -> Result<PathBuf, Fault> {
        if let Some(repository) = &self.git {
            return Ok(repository.clone());
        }
        let here = std::env::current_dir()
            .map_err(|error| Fault::io("find the current folder", &error))?;
        let top = here.ancestors().find(|up| up.join(".git").exists());
        let of_plan = plan.cells.first().and_then(|cell| match &cell.kernel.source {
            KernelSource::Git { entry, .. } => Some(entry.repository.clone()),
            _ => None,
        });
        // What is checked out is where `git bisect run` is.
        let candidates = match self.git_bisect_run {
            true => [top.map(Path::to_owned), of_plan],
            false => [of_plan, top.map(Path::to_owned)],
        };
        candidates.into_iter().flatten().next().ok_or_else(|| {
            Fault::plan("no git repository").help("name a clone of the kernel with --git")
        })
    }
}

impl Cli {
    /// Prints the report of a search again.
    pub(super) fn report_search(&self, run: &Path, format: Format) -> Result<ExitCode, Fault> {
        let record = record::read(run)?;
        match format {
            Format::Terminal => super::print(&render(&record)),
            Format::Json => super::print(&String::from_utf8_lossy(&pretty(&record))),
            Format::CoverLetter => {
                return Err(Fault::plan("a search has no cover letter")
                    .at(run.display())
                    .help("its report ends with a text for the author"));
            }
        }
        Ok(record.exit_code)
    }

    pub(super) async fn bisect(&self, args: &BisectArgs) -> Result<ExitCode, Vec<Fault>> {
        let one = |fault| vec![fault];
        let predicate = args.predicate().map_err(one)?;
        let searched = args.searched().map_err(one)?;
        let rule = args.rule(&predicate).map_err(one)?;
        let plan = args.plan(&predicate, &searched)?;
        let bench = bench::Request { cli: self, args, plan: &plan, predicate: &predicate, rule };
        match searched {
            Searched::Commits { good, bad } => bench.commits(good, bad).await,
            Searched::Series => bench.series().await,
            Searched::Configs { good, bad } => bench.configs(good, bad).await,
            Searched::Checkout => {
                let found = bench.checkout().await;
                let _ = ANSWER.set(crate::bisect::exit::git_bisect_run(&found));
                found.map(|_| ExitCode::Acceptable)
            }
        }
        .map_err(one)
    }
}
