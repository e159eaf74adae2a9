// SPDX-License-Identifier: MIT OR Apache-2.0
//! The searches of `kvet bisect`, from their ends to their reports.

use std::path::Path;

use super::bench::{Bench, Request, other_predicate, shown};
use crate::bisect::config::{
    self, Config, ConfigEntry, ConfigOutcome, ConfigStart, Configs, differing,
};
use crate::bisect::drive::{Cost, drive};
use crate::bisect::git_log::git_log;
use crate::bisect::history::{Candidate, History};
use crate::bisect::kernels::range::{self, Commits, Range, short};
use crate::bisect::kernels::record::{
    Ended, Record, Side, config_cost, config_sides, cost, side, skipped,
};
use crate::bisect::kernels::{ConfigKernels, Facts, Kernels, Lab, Origin, Prefixes, read_config};
use crate::bisect::log::{Entry, Journal, LogFile, Start, replay};
use crate::bisect::outcome::Outcome;
use crate::bisect::search::Search;
use crate::bisect::step::{Finding, bounded_fault};
use crate::fault::{ExitCode, Fault, escape};
use crate::host::clone::UserClone;
use crate::kernel::build::Builder;
use crate::kernel::kconfig::read_base;
use crate::kernel::olddefconfig::Resolver;
use crate::kernel::series::{Tree, Trees};
use crate::kernel::source::{self, Sharing, Source};
use crate::plan::Base;
use crate::plan::manifest::{GitEntry, VariantName};
use crate::plan::resolve::{find_plan, resolve};
use crate::run::host::Booter;
use crate::run::pipeline::Build;
use crate::store::write_atomically;

/// What `git bisect replay` takes.
const GIT_LOG: &str = "git-bisect.log";
/// Most builds of a search of configs.
const MOST_CONFIGS: u32 = 100;

type HostLab<'a> = Lab<'a, Builder, Booter>;

impl Request<'_> {
    pub(super) async fn commits(&self, good: &[String], bad: &str) -> Result<ExitCode, Fault> {
        let repository = self.args.repository(self.plan)?;
        let clone = UserClone::open(&repository)?;
        // Before anything else: most mistakes are here.
        let range = range::read(&clone, good, bad)?;
        let bench = self.bench().await?;
        let searched = format!(
            "{} commits of {}, good {}, bad {}",
            range.history.suspects().len(),
            escape(&clone.name()),
            escape(&good.join(" ")),
            escape(bad)
        );
        let result = self.search_commits(&bench, &clone, range, searched).await;
        self.finish(&bench, result)
    }

    async fn search_commits(
        &self,
        bench: &Bench,
        clone: &UserClone,
        range: Range,
        searched: String,
    ) -> Result<Record, Fault> {
        let commits = Commits {
            repository: clone.path().to_owned(),
            kernel: clone.name(),
            store: bench.store.clone(),
            events: bench.events.clone(),
        };
        let first_good = range.good.first().cloned().unwrap_or_default();
        let source = commits.source(&first_good).await?;
        let good = Tree { commit: source.commit.clone(), tree: source.tree.clone() };
        let bad = commits.tree(&range.bad).await?;
        let payload = self.payload(bench, &source, &good, &bad).await?;
        let lab = self.lab(bench, &source, payload)?;
        let path = bench.folder.path().join(GIT_LOG);
        let history = range.history.clone();
        let (outcome, entries) =
            self.search(bench, &lab, &commits, history, &first_good, Some(&path)).await?;
        let mut record = self.changes(bench, &lab, searched, outcome, &entries)?;
        if let Ended::Changes(Outcome::Found { first_bad, .. }) = &record.ended {
            let author = range.authors.get(&first_bad.id);
            record.author = author.map(|author| (author.name.clone(), author.mail.clone()));
            let parents = range.parents.get(&first_bad.id).cloned().unwrap_or_default();
            let sides =
                parents.iter().filter_map(|parent| without(&range.history, &entries, parent));
            record.before = sides.collect();
            record.before.dedup();
        }
        Ok(record)
    }

    pub(super) async fn series(&self) -> Result<ExitCode, Fault> {
        let cell = self.cell()?;
        let total = cell.series.patches.len();
        let mut line = vec![Candidate::new("base", "without the series")];
        for (index, patch) in cell.series.patches.iter().enumerate() {
            let subject = patch.subject.as_deref().unwrap_or(&patch.name);
            let variant = VariantName::prefix(index + 1, total).to_string();
            line.push(Candidate::new(
                variant,
                format!("patch {} of {total}: {subject}", index + 1),
            ));
        }
        if total == 0 {
            return Err(Fault::plan(format!("the series {} has no patch", cell.series.name))
                .at(self.plan.file.display()));
        }
        let history = History::line(line)?;
        let bench = self.bench().await?;
        let searched = format!("{total} patches of {}, on {}", cell.series.name, cell.kernel.name);
        let result = self.search_series(&bench, history, searched).await;
        self.finish(&bench, result)
    }

    async fn search_series(
        &self,
        bench: &Bench,
        history: History,
        searched: String,
    ) -> Result<Record, Fault> {
        let (source, trees) = bench.builder.prepare(self.cell()?).await?;
        let (good, bad) = (
            trees.variants[&VariantName::Base].clone(),
            trees.variants[&VariantName::Patched].clone(),
        );
        let payload = self.payload(bench, &source, &good, &bad).await?;
        let lab = self.lab(bench, &source, payload)?;
        let prefixes = Prefixes { trees };
        let before = history.clone();
        let (outcome, entries) = self.search(bench, &lab, &prefixes, history, "base", None).await?;
        let mut record = self.changes(bench, &lab, searched, outcome, &entries)?;
        if let Ended::Changes(Outcome::Found { first_bad, .. }) = &record.ended {
            let parent = before.point(&first_bad.id).map(|at| {
                if at == 0 { "base".to_owned() } else { before.candidate(at - 1).id.clone() }
            });
            record.before =
                parent.and_then(|parent| without(&before, &entries, &parent)).into_iter().collect();
        }
        Ok(record)
    }

    /// A search over commits or patches; its outcome and its log.
    async fn search<O: Origin>(
        &self,
        bench: &Bench,
        lab: &HostLab<'_>,
        origin: &O,
        history: History,
        good: &str,
        git: Option<&Path>,
    ) -> Result<(Outcome, Vec<Entry>), Fault> {
        let entries: Vec<Entry> = bench.entries()?;
        let start = Start::new(&history, self.rule, &self.logged_predicate(lab.source)?);
        let name = shown(&bench.log());
        let mut search = match entries.first() {
            None => Search::new(history, self.rule)?,
            Some(Entry::Start(then)) if then.predicate != start.predicate => {
                return Err(other_predicate(&then.predicate, &start.predicate));
            }
            Some(_) => replay(&entries, &name, history, self.rule)?,
        };
        let begin = Entry::Start(start);
        let mut log = bench.open_log(entries.is_empty().then_some(&begin))?;
        let write_git_log = |search: &Search| {
            if let Some(path) = git
                && let Err(fault) = write_atomically(path, git_log(search).as_bytes())
            {
                bench.events.note(fault.what);
            }
        };
        let kernels = Kernels::new(lab, origin, write_git_log);
        let ends = search.history().clone();
        let good = ends.point(good).map(|at| ends.candidate(at).clone());
        let bad = ends.candidate(ends.bad()).clone();
        let looked = match good {
            Some(good) if self.rule.is_exact() => kernels.look_at_ends(&good, &bad).await,
            Some(_) | None => Ok(None),
        };
        let result = match looked {
            Ok(None) => {
                let most = if self.rule.is_exact() { u32::MAX } else { super::MOST_NOISY };
                drive(&mut search, &kernels, &mut log, most, &mut Cost::default()).await
            }
            Ok(Some(outcome)) => keep(&mut log, &Entry::Outcome(outcome.clone())).map(|()| outcome),
            Err(fault) => {
                keep(&mut log, &Entry::Stopped { fault: bounded_fault(&fault) })?;
                Err(fault)
            }
        };
        kernels.end().await;
        write_git_log(&search);
        Ok((result?, bench.entries()?))
    }

    /// The account of a search over commits or patches.
    fn changes(
        &self,
        bench: &Bench,
        lab: &HostLab<'_>,
        searched: String,
        outcome: Outcome,
        entries: &[Entry],
    ) -> Result<Record, Fault> {
        let bad = match (&outcome, entries.first()) {
            (Outcome::Found { first_bad, .. }, _) => side(entries, &first_bad.id),
            // What the end showed that is not what it is called.
            (_, Some(Entry::Start(start))) => side(entries, &start.bad),
            _ => None,
        };
        let (builds, boots) = cost(entries);
        let record = self.record(bench, searched, Ended::Changes(outcome));
        Ok(Record {
            setting: self.setting(true)?,
            bad,
            skipped: skipped(entries),
            builds,
            boots,
            work: lab.work.borrow().clone(),
            ..record
        })
    }

    pub(super) async fn configs(&self, good: &str, bad: &str) -> Result<ExitCode, Fault> {
        let ends = [self.config(good)?, self.config(bad)?];
        if ends[0].compiler != ends[1].compiler {
            return Err(Fault::plan("the two configs are for different compilers")
                .help("give both the same `compiler:`"));
        }
        let bench = self.bench().await?;
        let result = self.search_configs(&bench, &ends, [good, bad]).await;
        self.finish(&bench, result)
    }

    /// A config of the plan, or a `.config`.
    fn config(&self, name: &str) -> Result<crate::plan::Config, Fault> {
        let file = find_plan(&self.args.plan)?;
        let plan = resolve(&file, &crate::guest::tests()).map_err(|mut faults| faults.remove(0))?;
        let mut names: Vec<&str> = Vec::new();
        for cell in &plan.cells {
            if cell.config.name == name {
                return Ok(cell.config.clone());
            }
            names.push(&cell.config.name);
        }
        names.sort_unstable();
        names.dedup();
        let path = Path::new(name);
        if !path.is_file() {
            return Err(Fault::plan(format!(
                "{name:?} is neither a config of the plan nor a .config"
            ))
            .at(plan.file.display())
            .help(format!("its configs are: {}", names.join(", "))));
        }
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let text = read_base(&path)?;
        Ok(crate::plan::Config {
            name: "given".to_owned(),
            base: Base::Given { path, text },
            fragments: Vec::new(),
            overrides: Vec::new(),
            ..self.cell()?.config.clone()
        })
    }

    async fn search_configs(
        &self,
        bench: &Bench,
        ends: &[crate::plan::Config; 2],
        names: [&str; 2],
    ) -> Result<Record, Fault> {
        let (source, trees) = bench.builder.prepare(self.cell()?).await?;
        let source = Source { sharing: Sharing::Configs, ..source };
        let total = self.cell()?.series.patches.len();
        let variant = VariantName::prefix(self.args.variant.patches(total), total);
        let variant = if total == 0 { VariantName::Patched } else { variant };
        let tree = trees.variants[&variant].clone();
        let resolver = Resolver::open(&bench.builder, &source, &tree, ends[0].compiler).await?;
        let good = read_config(&resolver.asked(&ends[0]).await?);
        let bad = read_config(&resolver.asked(&ends[1]).await?);
        let payload = self.payload(bench, &source, &tree, &tree).await?;
        let lab = self.lab(bench, &source, payload)?;
        let searched = format!(
            "{} symbols between {} and {}, {variant} of {} on {}",
            differing(&good, &bad).len(),
            escape(names[0]),
            escape(names[1]),
            self.cell()?.series.name,
            self.cell()?.kernel.name
        );
        let kernels = ConfigKernels::new(&lab, &resolver, trees, variant, [&good, &bad]);
        let (outcome, entries) = self.narrow(bench, &lab, &kernels, good, bad).await?;
        let (builds, boots) = config_cost(&entries);
        let record = self.record(bench, searched, Ended::Configs(outcome));
        let (setting, work) = (self.setting(false)?, lab.work.borrow().clone());
        let [bad, before] = config_sides(&entries);
        let before = before.into_iter().collect();
        Ok(Record { setting, builds, boots, work, bad, before, ..record })
    }

    async fn narrow(
        &self,
        bench: &Bench,
        lab: &HostLab<'_>,
        kernels: &ConfigKernels<'_, Builder, Booter, Resolver>,
        good: Config,
        bad: Config,
    ) -> Result<(ConfigOutcome, Vec<ConfigEntry>), Fault> {
        let entries: Vec<ConfigEntry> = bench.entries()?;
        let start = ConfigStart::new(&good, &bad, &self.logged_predicate(lab.source)?);
        let known = match entries.first() {
            None => Vec::new(),
            Some(ConfigEntry::Start(then)) if then.predicate != start.predicate => {
                return Err(other_predicate(&then.predicate, &start.predicate));
            }
            Some(_) => config::replay(&entries, &shown(&bench.log()), &start)?,
        };
        let begin = ConfigEntry::Start(start);
        let mut log = bench.open_log(entries.is_empty().then_some(&begin))?;
        if let Err(fault) = kernels.look_at_ends(&good, &bad).await {
            keep(&mut log, &ConfigEntry::Stopped { fault: bounded_fault(&fault) })?;
            return Err(fault);
        }
        let configs = Configs { good, bad, groups: Vec::new(), known, most: MOST_CONFIGS };
        let outcome =
            config::drive(configs, kernels, &mut log, &mut config::Cost::default()).await?;
        Ok((outcome, bench.entries()?))
    }

    /// Judges what is checked out, for `git bisect run`.
    pub(super) async fn checkout(&self) -> Result<Finding, Fault> {
        let repository = self.args.repository(self.plan)?;
        let clone = UserClone::open(&repository)?;
        let bench = self.bench().await?;
        let result = self.judge_checkout(&bench, &clone).await;
        bench.events.close();
        let finding = result?;
        let reason = match &finding {
            Finding::Skip { reason } => format!(": {reason}"),
            Finding::Good | Finding::Bad => String::new(),
        };
        let line = format!("{}{}\n", finding.word(), escape(&reason));
        super::super::print(&line);
        Ok(finding)
    }

    async fn judge_checkout(&self, bench: &Bench, clone: &UserClone) -> Result<Finding, Fault> {
        let id = clone.commit("HEAD")?;
        let entry = GitEntry { repository: clone.path().to_owned(), revision: id.clone() };
        let (store, events, kernel) = (&bench.store, &bench.events, clone.name());
        let source =
            source::prepare_revision(&entry, self.args.dirty, &kernel, store, events).await?;
        let tree = Tree { commit: source.commit.clone(), tree: source.tree.clone() };
        let payload = self.payload(bench, &source, &tree, &tree).await?;
        let lab = self.lab(bench, &source, payload)?;
        let variants = [(VariantName::Patched, tree)].into();
        let trees = Trees { variants, ..Trees::default() };
        let config = &self.cell()?.config;
        let facts = match lab.build(short(&id), &trees, VariantName::Patched, config).await? {
            Err(fault) => Facts::Unbuilt { fault },
            Ok(image) if self.predicate.boots() => lab.boot(short(&id), &image, 1).await?,
            Ok(_) => Facts::Built,
        };
        Ok(lab.judge(&facts).finding)
    }
}

fn keep<E>(log: &mut LogFile, entry: &E) -> Result<(), Fault>
where
    LogFile: Journal<E>,
{
    log.keep(entry)
}

/// What was seen without a change: at its parent, or else at a good candidate that has
/// all of its parent.
fn without(history: &History, entries: &[Entry], parent: &str) -> Option<Side> {
    if let Some(side) = side(entries, parent) {
        return Some(side);
    }
    let parent = history.point(parent)?;
    let suspects = history.suspects().len();
    let good = entries.iter().filter_map(|entry| match entry {
        Entry::Trial(step) if step.finding == Finding::Good => history.point(&step.candidate.id),
        _ => None,
    });
    let has_parent = |&at: &usize| at < suspects && parent < suspects && history.below(at)[parent];
    let at = good.filter(has_parent).min()?;
    side(entries, &history.candidate(at).id)
}
