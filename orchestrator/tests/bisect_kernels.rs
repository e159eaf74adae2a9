// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches over the patches of a series with fakes for building and booting: what each
//! kind of predicate blames, what it skips, and what is built ahead. No kernel, no QEMU.

mod common;

use std::cell::{Cell as Flag, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use common::case::{completed, halted, image, plan, source, warning};
use kvet::bisect::drive::{Cost, drive};
use kvet::bisect::history::{Candidate, History};
use kvet::bisect::kernels::record::{cost, side, skipped};
use kvet::bisect::kernels::{Aside, Kernels, Lab, Predicate, Prefixes, Work};
use kvet::bisect::log::Entry;
use kvet::bisect::outcome::Outcome;
use kvet::bisect::rates::{Rates, Rule};
use kvet::bisect::search::Search;
use kvet::fault::{Blame, Fault};
use kvet::guest::payload::Payload;
use kvet::kernel::build::Image;
use kvet::kernel::series::{Tree, Trees};
use kvet::kernel::source::Source;
use kvet::plan::manifest::VariantName;
use kvet::plan::{Cell, Config, Plan};
use kvet::run::event::Events;
use kvet::run::folder::RunFolder;
use kvet::run::pipeline::{Boot, Bootable, Build};
use kvet::vm::accel::Chosen;
use kvet::vm::halt::{BootReport, HaltReason};
use kvet::vm::splat::scan;
use kvet_records::Job;
use tokio_util::sync::CancellationToken;

/// Patches of the series.
const PATCHES: usize = 16;
/// The bad one.
const BAD: usize = 11;

/// What each prefix is.
#[derive(Clone)]
struct Model {
    /// The image, or why there is none.
    image: Rc<dyn Fn(usize) -> Result<usize, Fault>>,
    /// What its boot reports, the first, second, ... time.
    report: Rc<dyn Fn(usize, usize) -> Result<BootReport, Fault>>,
    /// Milliseconds of a build and of a boot.
    pace: (u64, u64),
}

impl Model {
    fn new(report: impl Fn(usize, usize) -> Result<BootReport, Fault> + 'static) -> Self {
        Self { image: Rc::new(Ok), report: Rc::new(report), pace: (0, 0) }
    }
}

/// What the fakes were asked for.
#[derive(Default)]
struct Asked {
    builds: RefCell<Vec<usize>>,
    boots: RefCell<Vec<usize>>,
    /// Builds that were told to stop.
    stopped: Flag<usize>,
    building: Flag<usize>,
    most_at_once: Flag<usize>,
}

#[derive(Clone)]
struct Fake {
    model: Model,
    asked: Rc<Asked>,
    stop: CancellationToken,
}

impl Build for Fake {
    async fn prepare(&self, _cell: &Cell) -> Result<(Source, Trees), Fault> {
        Err(Fault::infra("not asked for"))
    }

    async fn build(
        &self,
        _task: &str,
        _source: &Source,
        _trees: &Trees,
        variant: VariantName,
        _config: &Config,
        _log: PathBuf,
    ) -> Result<Image, Fault> {
        let at = variant.patches(PATCHES);
        self.asked.builds.borrow_mut().push(at);
        self.asked.building.set(self.asked.building.get() + 1);
        self.asked.most_at_once.set(self.asked.most_at_once.get().max(self.asked.building.get()));
        let slow = tokio::time::sleep(Duration::from_millis(self.model.pace.0));
        let whole = self.stop.run_until_cancelled(slow).await;
        self.asked.building.set(self.asked.building.get() - 1);
        if whole.is_none() {
            self.asked.stopped.set(self.asked.stopped.get() + 1);
            return Err(Fault::interrupted());
        }
        let image_of = (self.model.image)(at)?;
        Ok(image(&format!("key-{at}"), &format!("{image_of:064}")))
    }

    async fn payload(
        &self,
        _task: &str,
        _cell: &Cell,
        _source: &Source,
        _trees: &Trees,
        _log: PathBuf,
    ) -> Result<Payload, Fault> {
        Ok(Payload::default())
    }
}

impl Aside for Fake {
    fn aside(&self, _vcpus: u32) -> (Self, CancellationToken) {
        let stop = self.stop.child_token();
        (Self { stop: stop.clone(), ..self.clone() }, stop)
    }
}

impl Boot for Fake {
    async fn boot(
        &self,
        _task: &str,
        _cell: &Cell,
        bootable: Bootable<'_>,
        _job: Job,
        _plan: &Plan,
        _folder: PathBuf,
    ) -> Result<BootReport, Fault> {
        let at: usize = bootable.image.image_sha256.parse().unwrap();
        tokio::time::sleep(Duration::from_millis(self.model.pace.1)).await;
        let earlier = self.asked.boots.borrow().iter().filter(|&&other| other == at).count();
        self.asked.boots.borrow_mut().push(at);
        (self.model.report)(at, earlier)
    }

    fn accelerator(&self) -> Option<Chosen> {
        None
    }
}

struct Found {
    outcome: Result<Outcome, Fault>,
    log: Vec<Entry>,
    asked: Rc<Asked>,
    work: Vec<Work>,
}

impl Found {
    fn first_bad(&self) -> &str {
        match &self.outcome {
            Ok(Outcome::Found { first_bad, .. }) => &first_bad.id,
            other => panic!("{other:?} {:?}", self.log),
        }
    }
}

fn history() -> History {
    let name = |at| VariantName::prefix(at, PATCHES).to_string();
    let line = (0..=PATCHES).map(|at| Candidate::new(name(at), format!("change {at}")));
    History::line(line.collect()).unwrap()
}

/// Searches in a folder, which an earlier life of the search may have left.
fn search_in(
    folder: &RunFolder,
    model: &Model,
    predicate: &Predicate,
    rule: Rule,
    log: Vec<Entry>,
) -> Found {
    let root = folder.path().to_owned();
    let plan = plan(&root);
    let tree = |name: String| Tree { commit: name.clone(), tree: name };
    let every = VariantName::every(PATCHES);
    let variants = every.iter().map(|&name| (name, tree(name.to_string()))).collect();
    let trees = Trees { variants, ..Trees::default() };
    let source = source();
    let asked = Rc::new(Asked::default());
    let fake = Fake { model: model.clone(), asked: asked.clone(), stop: CancellationToken::new() };
    let events = Events::default();
    let cell = &plan.cells[0];
    let lab = Lab {
        plan: &plan,
        cell,
        test: cell.tests.first(),
        predicate,
        build: &fake,
        boot: &fake,
        folder,
        events: &events,
        source: &source,
        payload: Payload::default(),
        ends: RefCell::default(),
        work: RefCell::default(),
    };
    let prefixes = Prefixes { trees };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (outcome, log) = runtime.block_on(async {
        let mut log = log;
        let history = history();
        let good = history.ends()[0].candidate.clone();
        let bad = history.candidate(history.bad()).clone();
        let mut search = Search::new(history.clone(), rule).unwrap();
        if !log.is_empty() {
            search = kvet::bisect::log::replay(&log, "log", history, rule).unwrap();
        } else {
            log.push(Entry::Start(kvet::bisect::log::Start::new(search.history(), rule, "p")));
        }
        let kernels = Kernels::new(&lab, &prefixes, |_| {});
        let looked = match rule.is_exact() {
            true => kernels.look_at_ends(&good, &bad).await,
            false => Ok(None),
        };
        let outcome = match looked {
            Ok(None) => drive(&mut search, &kernels, &mut log, 500, &mut Cost::default()).await,
            Ok(Some(outcome)) => Ok(outcome),
            Err(fault) => Err(fault),
        };
        kernels.end().await;
        (outcome, log)
    });
    let work = lab.work.borrow().clone();
    Found { outcome, log, asked, work }
}

fn search(model: &Model, predicate: &Predicate, rule: Rule) -> Found {
    let runs = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(runs.path(), "bisect").unwrap();
    search_in(&folder, model, predicate, rule, Vec::new())
}

fn kicks(at: usize) -> BootReport {
    completed(&[("kicks", if at >= BAD { 9 } else { 5 })])
}

fn oops() -> BootReport {
    let log = "BUG: kernel NULL pointer dereference, address: 0000000000000008\nRIP: 0010:other+0x1/0x2\nCall Trace:\n <TASK>\n other+0x1/0x2\n </TASK>\n---[ end trace 0000000000000000 ]---\n";
    let splats = scan(log.as_bytes());
    let (kind, title) = (splats[0].kind, splats[0].title.clone());
    BootReport { splats, ..halted(HaltReason::Kernel { kind, title }) }
}

fn panic() -> BootReport {
    BootReport { splats: warning().splats, ..halted(HaltReason::GuestHang { seconds: 60 }) }
}

#[test]
fn each_kind_of_predicate_finds_its_patch() {
    let observation = |text| Predicate::observation(text).unwrap();
    let bad_or = |bad: fn() -> BootReport| {
        Model::new(move |at, _| Ok(if at >= BAD { bad() } else { completed(&[("kicks", 5)]) }))
    };
    let cases = [
        (observation("kicks"), Model::new(|at, _| Ok(kicks(at)))),
        (observation("kicks=9"), Model::new(|at, _| Ok(kicks(at)))),
        (Predicate::Splat("WARNING in bro*".to_owned()), bad_or(warning)),
        (Predicate::Fail, bad_or(panic)),
    ];
    for (predicate, model) in cases {
        let found = search(&model, &predicate, Rule::EXACT);
        assert_eq!(found.first_bad(), "patch-11", "{predicate}");
        let (builds, boots) = cost(&found.log);
        assert_eq!((builds, boots), (6, 6), "{predicate}");
        // Both sides can be shown, with their boots.
        let side = |id| side(&found.log, id).unwrap();
        assert!(side("patch-11").word == "bad" && side("patch-10").word == "good");
        assert!(side("patch-11").evidence.contains("boot: boots/patch-11/khugepaged_cold"));
    }
}

#[test]
fn what_fails_for_another_reason_is_skipped_and_not_blamed() {
    let mut model = Model::new(|at, _| Ok(if at == 12 { oops() } else { kicks(at) }));
    model.image = Rc::new(|at| match at {
        9 | 13 => Err(Fault::series("it does not build").evidence("a.c:1:1: error: other")),
        at => Ok(at),
    });
    let found = search(&model, &Predicate::observation("kicks").unwrap(), Rule::EXACT);
    assert_eq!(found.first_bad(), "patch-11");
    let reasons: Vec<String> = skipped(&found.log).into_iter().map(|side| side.evidence).collect();
    assert!(!reasons.is_empty(), "{:?}", found.log);
    for reason in reasons {
        assert!(reason.contains("does not build") || reason.contains("kernel fault"), "{reason}");
    }
    // The oops is not the failure that is searched for, either.
    let mut failing = Model::new(|at, _| {
        Ok(match at {
            10 => oops(),
            at if at >= BAD => panic(),
            _ => completed(&[]),
        })
    });
    failing.image = Rc::new(Ok);
    assert_eq!(
        search(&failing, &Predicate::Fail, Rule::EXACT).outcome.unwrap(),
        Outcome::Among {
            candidates: vec![
                Candidate::new("patch-10", "change 10"),
                Candidate::new("patch-11", "change 11")
            ],
            confidence: kvet::bisect::outcome::Confidence(1.0),
        }
    );
}

#[test]
fn the_same_image_is_not_booted_twice() {
    // Patches change the image in threes.
    let mut model = Model::new(|at, _| Ok(completed(&[("kicks", if at >= 9 { 9 } else { 5 })])));
    model.image = Rc::new(|at| Ok(at / 3 * 3));
    let found = search(&model, &Predicate::observation("kicks").unwrap(), Rule::EXACT);
    assert_eq!(found.first_bad(), "patch-09");
    let mut boots = found.asked.boots.borrow().clone();
    let all = boots.len();
    boots.sort_unstable();
    boots.dedup();
    assert_eq!(boots.len(), all, "{boots:?}");
    model.image = Rc::new(|_| Ok(0));
    let found = search(&model, &Predicate::observation("kicks").unwrap(), Rule::EXACT);
    assert!(matches!(found.outcome, Ok(Outcome::EndsIdentical { .. })), "{:?}", found.outcome);
    assert!(found.asked.boots.borrow().is_empty());
}

#[test]
fn kernels_are_built_ahead_one_at_a_time_and_none_twice_for_nothing() {
    let mut model = Model::new(|at, _| Ok(kicks(at)));
    model.pace = (20, 30);
    let predicate = Predicate::observation("kicks").unwrap();
    let found = search(&model, &predicate, Rule::EXACT);
    assert_eq!(found.first_bad(), "patch-11");
    assert!(found.work.iter().any(|work| work.ahead), "{:?}", found.work);
    assert_eq!(found.asked.most_at_once.get(), 1);
    let mut builds = found.asked.builds.borrow().clone();
    let all = builds.len();
    builds.sort_unstable();
    builds.dedup();
    assert!(all - builds.len() <= found.asked.stopped.get(), "{builds:?}");
    // One that is slower than a boot is stopped where another is needed.
    model.pace = (60, 5);
    let found = search(&model, &predicate, Rule::EXACT);
    assert_eq!(found.first_bad(), "patch-11");
    assert_eq!(found.asked.most_at_once.get(), 1);
    assert!(found.asked.stopped.get() > 0);
}

#[test]
fn the_hosts_faults_end_a_search_that_then_goes_on() {
    let runs = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(runs.path(), "bisect").unwrap();
    let predicate = Predicate::observation("kicks").unwrap();
    let broken = Model::new(|at, _| match at {
        0 | PATCHES => Ok(kicks(at)),
        _ => Err(Fault::infra("no QEMU")),
    });
    let first = search_in(&folder, &broken, &predicate, Rule::EXACT, Vec::new());
    assert_eq!(first.outcome.unwrap_err().blame, Blame::Infra);
    assert!(matches!(first.log.last(), Some(Entry::Stopped { .. })));
    let model = Model::new(|at, _| Ok(kicks(at)));
    let second = search_in(&folder, &model, &predicate, Rule::EXACT, first.log);
    assert_eq!(second.first_bad(), "patch-11");
    // The ends were known.
    assert!(!second.asked.boots.borrow().contains(&0), "{:?}", second.asked.boots);
}

#[test]
fn a_splat_that_shows_in_some_boots_is_found_by_repetition() {
    let model = Model::new(|at, earlier| {
        let shows = at >= BAD && (at * 7 + earlier * 5) % 3 != 0;
        Ok(if shows { warning() } else { completed(&[("kicks", 5)]) })
    });
    let rule = Rule::noisy(Rates::Estimated { trials: 10 }, 0.01).unwrap();
    let found = search(&model, &Predicate::Splat("WARNING in *".to_owned()), rule);
    assert_eq!(found.first_bad(), "patch-11");
    let (_, boots) = cost(&found.log);
    assert!(boots >= 20, "{boots}");
}

#[test]
fn ends_that_say_nothing_are_named() {
    let predicate = Predicate::observation("kicks").unwrap();
    let of = |model: &Model| search(model, &predicate, Rule::EXACT).outcome;
    let same = Model::new(|_, _| Ok(completed(&[("kicks", 5)])));
    assert!(matches!(of(&same), Ok(Outcome::BadEndIsGood { .. })));
    let broken = Model::new(|at, _| Ok(if at == 0 { oops() } else { kicks(at) }));
    assert!(matches!(of(&broken), Ok(Outcome::EndUntestable { end, .. }) if end.id == "base"));
    let broken = Model::new(|at, _| Ok(if at == PATCHES { oops() } else { kicks(at) }));
    assert!(matches!(of(&broken), Ok(Outcome::EndUntestable { end, .. }) if end.id == "patched"));
    let fault = search(&same, &Predicate::observation("kick").unwrap(), Rule::EXACT);
    let fault = fault.outcome.unwrap_err();
    assert_eq!(fault.blame, Blame::Plan);
    assert!(fault.help.unwrap().contains("kicks"));
}
