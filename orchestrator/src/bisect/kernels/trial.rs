// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trials of a search over commits or the prefixes of a series, with kernels built
//! ahead while a guest runs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::facts::Facts;
use super::judge::Ends;
use super::lab::{self, Aside, Lab};
use super::predicate::Predicate;
use crate::bisect::drive::{Built, Seen, Trial};
use crate::bisect::history::Candidate;
use crate::bisect::outcome::Outcome;
use crate::bisect::search::Search;
use crate::bisect::step::Finding;
use crate::fault::Fault;
use crate::kernel::build::Image;
use crate::kernel::series::Trees;
use crate::plan::manifest::VariantName;
use crate::run::pipeline::Boot;

/// How many kernels are thought of ahead.
const AHEAD: usize = 3;
/// Less likely ones are not worth slowing a guest down.
const LIKELY: f64 = 0.2;

/// Where the kernels of a search come from.
pub trait Origin {
    /// The trees among which the candidate's is, and which it is.
    fn trees(
        &self,
        candidate: &Candidate,
    ) -> impl Future<Output = Result<(Trees, VariantName), Fault>>;

    /// A short name of the candidate, safe in a path.
    fn name(&self, candidate: &Candidate) -> String;
}

type Building<'a> = Pin<Box<dyn Future<Output = Result<Image, Fault>> + 'a>>;

/// A build that was begun before it was known to be needed.
struct Ongoing<'a> {
    id: String,
    name: String,
    began: Instant,
    stop: CancellationToken,
    build: Building<'a>,
}

impl Ongoing<'_> {
    /// Stops it in its own way.
    async fn end(self) {
        self.stop.cancel();
        let _ = self.build.await;
    }
}

/// The kernels of a search over commits or prefixes.
pub struct Kernels<'a, B, V, O> {
    lab: &'a Lab<'a, B, V>,
    origin: &'a O,
    /// Called before each trial.
    watch: Box<dyn Fn(&Search) + 'a>,
    /// By [`Image::image_sha256`].
    images: RefCell<BTreeMap<String, Image>>,
    /// What was built and not asked for yet, by candidate.
    built: RefCell<BTreeMap<String, Result<Image, Fault>>>,
    /// What the ends came to, where it was not asked for yet.
    seen: RefCell<BTreeMap<String, Facts>>,
    ongoing: RefCell<Option<Ongoing<'a>>>,
}

impl<B, V, O> fmt::Debug for Kernels<'_, B, V, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels").finish_non_exhaustive()
    }
}

impl<'a, B: Aside + 'a, V: Boot, O: Origin> Kernels<'a, B, V, O> {
    /// The kernels of `origin`; `watch` is called before each trial.
    #[must_use]
    pub fn new(lab: &'a Lab<'a, B, V>, origin: &'a O, watch: impl Fn(&Search) + 'a) -> Self {
        Self {
            lab,
            origin,
            watch: Box::new(watch),
            images: RefCell::default(),
            built: RefCell::default(),
            seen: RefCell::default(),
            ongoing: RefCell::default(),
        }
    }

    /// Looks at both ends before the search, so that others can be held against them:
    /// what is good and bad is then known, and not only that something differs. Gives
    /// the outcome where there is nothing to search.
    ///
    /// # Errors
    /// What ends a search, and a `plan` fault for an observation that neither end makes,
    /// or a figure that one does not make.
    pub async fn look_at_ends(
        &self,
        good: &Candidate,
        bad: &Candidate,
    ) -> Result<Option<Outcome>, Fault> {
        let predicate = self.lab.predicate;
        if let Some(ends) = self.lab.kept_ends() {
            let checked = ends.check(predicate);
            *self.lab.ends.borrow_mut() = ends;
            return checked.map(|()| None);
        }
        let bad_image = self.make(bad).await?;
        self.built.borrow_mut().insert(bad.id.clone(), bad_image.clone());
        if *predicate == Predicate::Build {
            let bad = bad_image.map_or_else(|fault| Facts::Unbuilt { fault }, |_| Facts::Built);
            return self.lab.keep_ends(Ends { good: None, bad: Some(bad) }).map(|()| None);
        }
        let good_image = self.make(good).await?;
        self.built.borrow_mut().insert(good.id.clone(), good_image.clone());
        if let (Ok(one), Ok(other)) = (&good_image, &bad_image)
            && one.image_sha256 == other.image_sha256
        {
            let (good, bad) = (good.clone(), bad.clone());
            return Ok(Some(Outcome::EndsIdentical { good, bad }));
        }
        let mut ends = Ends::default();
        let pairs = [(bad, bad_image, &mut ends.bad), (good, good_image, &mut ends.good)];
        for (candidate, image, end) in pairs {
            let facts = match image {
                Err(fault) => Facts::Unbuilt { fault },
                Ok(image) => self.lab.boot(&self.origin.name(candidate), &image, 1).await?,
            };
            if matches!(facts, Facts::Booted(_)) {
                self.seen.borrow_mut().insert(candidate.id.clone(), facts.clone());
            }
            // Before the other end is booted for nothing.
            facts.check(predicate)?;
            *end = Some(facts);
        }
        ends.check(predicate)?;
        self.lab.keep_ends(ends)?;
        if predicate.is_absolute() {
            return Ok(None);
        }
        let reason = match &self.lab.ends.borrow().good {
            Some(Facts::Unbuilt { fault }) => Some(format!("it does not build: {}", fault.what)),
            Some(Facts::Booted(booted)) => match (&booted.fault, &booted.skipped) {
                (Some(fault), _) => Some(format!("{} fault: {}", fault.blame, fault.what)),
                (None, Some(why)) => Some(format!("the test cannot run there: {why}")),
                (None, None) => None,
            },
            Some(Facts::Built) | None => None,
        };
        Ok(reason.map(|reason| Outcome::EndUntestable { end: good.clone(), reason }))
    }

    /// Stops what is still built ahead.
    pub async fn end(&self) {
        let ongoing = self.ongoing.borrow_mut().take();
        if let Some(ongoing) = ongoing {
            ongoing.end().await;
        }
    }

    /// Makes a candidate's image now.
    async fn make(&self, candidate: &Candidate) -> Result<Result<Image, Fault>, Fault> {
        let name = self.origin.name(candidate);
        let (trees, variant) = match lab::sort(self.origin.trees(candidate).await)? {
            Ok(found) => found,
            Err(fault) => return Ok(Err(fault)),
        };
        self.lab.build(&name, &trees, variant, &self.lab.cell.config).await
    }

    /// A candidate's image: built ahead, being built, or made now.
    async fn image(&self, candidate: &Candidate) -> Result<Result<Image, Fault>, Fault> {
        let ongoing = self.ongoing.borrow_mut().take();
        let mine = match ongoing {
            Some(ongoing) if ongoing.id == candidate.id => {
                let Ongoing { name, began, build, .. } = ongoing;
                Some(self.note_ahead(&name, began, build.await)?)
            }
            Some(other) => {
                other.end().await;
                None
            }
            None => None,
        };
        let ahead = self.built.borrow_mut().remove(&candidate.id);
        let image = match mine.or(ahead) {
            Some(image) => image,
            None => self.make(candidate).await?,
        };
        if let Ok(image) = &image {
            self.images.borrow_mut().insert(image.image_sha256.clone(), image.clone());
        }
        Ok(image)
    }

    fn note_ahead(
        &self,
        name: &str,
        began: Instant,
        built: Result<Image, Fault>,
    ) -> Result<Result<Image, Fault>, Fault> {
        let result = lab::sort(built)?;
        // With its own time, not that for which nobody looked at it.
        let seconds = match &result {
            Ok(image) => f64::from(image.seconds),
            Err(_) => began.elapsed().as_secs_f64(),
        };
        self.lab.note_build(name, &result, seconds, true);
        Ok(result)
    }

    /// Begins the likeliest build that was not begun yet; false when there is none.
    fn begin_ahead(&self, search: &Search, tried: &mut BTreeSet<String>) -> bool {
        let next = search.ahead(AHEAD).into_iter().find(|ahead| {
            let id = &ahead.candidate.id;
            ahead.probability >= LIKELY
                && !tried.contains(id)
                && !self.built.borrow().contains_key(id)
        });
        let Some(ahead) = next else { return false };
        let candidate = ahead.candidate;
        tried.insert(candidate.id.clone());
        let (builder, stop) = self.lab.build.aside(self.lab.cell.guest.vcpus);
        let (id, name) = (candidate.id.clone(), self.origin.name(&candidate));
        let (lab, origin, log) = (self.lab, self.origin, name.clone());
        let build: Building<'a> = Box::pin(async move {
            let (trees, variant) = origin.trees(&candidate).await?;
            let config = &lab.cell.config;
            lab::build(&builder, lab.source, &trees, variant, config, lab.folder, &log).await
        });
        let began = Instant::now();
        *self.ongoing.borrow_mut() = Some(Ongoing { id, name, began, stop, build });
        true
    }

    /// Boots a kernel while others are built.
    async fn boot(
        &self,
        candidate: &Candidate,
        image: &Image,
        run: u32,
        search: &Search,
    ) -> Result<Facts, Fault> {
        let name = self.origin.name(candidate);
        let mut boot = std::pin::pin!(self.lab.boot(&name, image, run));
        let mut tried = BTreeSet::new();
        loop {
            let ongoing = self.ongoing.borrow_mut().take();
            let Some(mut ongoing) = ongoing else {
                if self.begin_ahead(search, &mut tried) {
                    continue;
                }
                return boot.await;
            };
            tokio::select! {
                biased;
                facts = &mut boot => {
                    *self.ongoing.borrow_mut() = Some(ongoing);
                    return facts;
                }
                built = &mut ongoing.build => {
                    // What ends a search here would end it when it is needed; it may not be.
                    if let Ok(result) = self.note_ahead(&ongoing.name, ongoing.began, built) {
                        self.built.borrow_mut().insert(ongoing.id, result);
                    }
                }
            }
        }
    }
}

impl<'a, B: Aside + 'a, V: Boot, O: Origin> Trial for Kernels<'a, B, V, O> {
    async fn build(&self, candidate: &Candidate, search: &Search) -> Result<Built, Fault> {
        (self.watch)(search);
        let facts = match self.image(candidate).await? {
            Ok(image) if self.lab.predicate.boots() => {
                return Ok(Built::Image(image.image_sha256));
            }
            Ok(_) => Facts::Built,
            Err(fault) => Facts::Unbuilt { fault },
        };
        let Seen { finding, evidence } = self.lab.judge(&facts);
        Ok(Built::Decided { finding, evidence })
    }

    async fn run(
        &self,
        candidate: &Candidate,
        image: &str,
        search: &Search,
    ) -> Result<Seen, Fault> {
        (self.watch)(search);
        let seen = self.seen.borrow_mut().remove(&candidate.id);
        let facts = match seen {
            Some(facts) => facts,
            None => {
                let known = self.images.borrow().get(image).cloned();
                let made = match known {
                    Some(image) => Ok(image),
                    // An earlier process built it.
                    None => self.image(candidate).await?,
                };
                match made {
                    Ok(made) if made.image_sha256 == image => {
                        let runs = search.record(&candidate.id).map_or(0, |record| record.tried());
                        self.boot(candidate, &made, runs + 1, search).await?
                    }
                    Ok(_) => {
                        let reason = "it builds to another image than before".to_owned();
                        return Ok(Seen {
                            evidence: String::new(),
                            finding: Finding::Skip { reason },
                        });
                    }
                    Err(fault) => Facts::Unbuilt { fault },
                }
            }
        };
        Ok(self.lab.judge(&facts))
    }
}

/// The prefixes of a series, whose candidates are named after variants.
#[derive(Debug)]
pub struct Prefixes {
    /// Their trees.
    pub trees: Trees,
}

impl Origin for Prefixes {
    async fn trees(&self, candidate: &Candidate) -> Result<(Trees, VariantName), Fault> {
        let variant = candidate.id.parse().map_err(Fault::plan)?;
        Ok((self.trees.clone(), variant))
    }

    fn name(&self, candidate: &Candidate) -> String {
        candidate.id.clone()
    }
}
