// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trials of a search over the symbols of two configs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use super::facts::Facts;
use super::judge::Ends;
use super::lab::Lab;
use super::predicate::Predicate;
use crate::bisect::config::{Config, ConfigTrial, digest};
use crate::bisect::drive::{Built, Seen};
use crate::fault::Fault;
use crate::kernel::build::Image;
use crate::kernel::kconfig::symbols;
use crate::kernel::olddefconfig::Resolver;
use crate::kernel::series::Trees;
use crate::plan::Base;
use crate::plan::manifest::VariantName;
use crate::run::pipeline::{Boot, Build};

/// What Kconfig makes of a `.config`.
pub trait Resolve {
    /// The text that `make olddefconfig` leaves.
    fn resolve(&self, text: &str) -> impl Future<Output = Result<String, Fault>>;
}

impl Resolve for Resolver {
    async fn resolve(&self, text: &str) -> Result<String, Fault> {
        Self::resolve(self, text).await
    }
}

/// The kernels of a search over configs.
#[derive(Debug)]
pub struct ConfigKernels<'a, B, V, R> {
    lab: &'a Lab<'a, B, V>,
    resolver: &'a R,
    trees: Trees,
    variant: VariantName,
    /// Symbols that either end sets to y or m: where they are not set, that has to be
    /// said, since Kconfig would take their defaults.
    switches: BTreeSet<String>,
    /// Texts of resolved configs, by digest.
    texts: RefCell<BTreeMap<String, String>>,
    images: RefCell<BTreeMap<String, Image>>,
    /// What the ends came to, where it was not asked for yet, by digest.
    seen: RefCell<BTreeMap<String, End>>,
}

/// What an end's build gave, and what its boot came to.
#[derive(Debug)]
struct End {
    made: Result<Image, Fault>,
    booted: Option<Facts>,
}

/// The symbols of a `.config`, as the search knows them.
#[must_use]
pub fn read(text: &str) -> Config {
    let set = symbols(text).into_iter().filter(|(_, value)| value != "n");
    set.map(|(name, value)| (name.strip_prefix("CONFIG_").unwrap_or(&name).to_owned(), value))
        .collect()
}

impl<'a, B: Build, V: Boot, R: Resolve> ConfigKernels<'a, B, V, R> {
    /// The kernels of one variant in configs between two.
    #[must_use]
    pub fn new(
        lab: &'a Lab<'a, B, V>,
        resolver: &'a R,
        trees: Trees,
        variant: VariantName,
        ends: [&Config; 2],
    ) -> Self {
        let switch = |(_, value): &(&String, &String)| matches!(value.as_str(), "y" | "m");
        let switches = ends.into_iter().flat_map(|end| end.iter().filter(switch));
        Self {
            lab,
            resolver,
            trees,
            variant,
            switches: switches.map(|(name, _)| name.clone()).collect(),
            texts: RefCell::default(),
            images: RefCell::default(),
            seen: RefCell::default(),
        }
    }

    /// Looks at both ends before the search.
    ///
    /// # Errors
    /// What ends a search, and a `plan` fault for an observation that neither end makes,
    /// or a figure that one does not make.
    pub async fn look_at_ends(&self, good: &Config, bad: &Config) -> Result<(), Fault> {
        let predicate = self.lab.predicate;
        if let Some(ends) = self.lab.kept_ends() {
            let checked = ends.check(predicate);
            *self.lab.ends.borrow_mut() = ends;
            return checked;
        }
        let (good, bad) = (self.resolve(good).await?, self.resolve(bad).await?);
        if good == bad {
            return Ok(());
        }
        let mut ends = Ends::default();
        for (config, end) in [(&bad, &mut ends.bad), (&good, &mut ends.good)] {
            let made = self.make(config).await?;
            let facts = match &made {
                Err(fault) => Facts::Unbuilt { fault: fault.clone() },
                Ok(_) if *predicate == Predicate::Build => Facts::Built,
                Ok(image) => self.lab.boot(&name(config), image, 1).await?,
            };
            let booted = matches!(facts, Facts::Booted(_)).then(|| facts.clone());
            self.seen.borrow_mut().insert(digest(config), End { made, booted });
            // Before the other end is built for nothing.
            facts.check(predicate)?;
            *end = Some(facts);
        }
        ends.check(predicate)?;
        self.lab.keep_ends(ends)
    }

    async fn make(&self, config: &Config) -> Result<Result<Image, Fault>, Fault> {
        let text = self.texts.borrow().get(&digest(config)).cloned();
        let text = text.ok_or_else(|| Fault::infra("a config is built that was not resolved"))?;
        let name = name(config);
        let path = PathBuf::from(format!("{name}.config"));
        let config = crate::plan::Config {
            name: name.clone(),
            base: Base::Given { path, text },
            fragments: Vec::new(),
            overrides: Vec::new(),
            ..self.lab.cell.config.clone()
        };
        self.lab.build(&name, &self.trees, self.variant, &config).await
    }

    fn text(&self, request: &Config) -> String {
        let mut text = String::new();
        for (name, value) in request {
            let _ = writeln!(text, "CONFIG_{name}={value}");
        }
        for name in self.switches.iter().filter(|name| !request.contains_key(*name)) {
            let _ = writeln!(text, "# CONFIG_{name} is not set");
        }
        text
    }
}

/// What a config's build and boots are called.
fn name(config: &Config) -> String {
    format!("config-{}", &digest(config)[..12])
}

impl<B: Build, V: Boot, R: Resolve> ConfigTrial for ConfigKernels<'_, B, V, R> {
    async fn resolve(&self, request: &Config) -> Result<Config, Fault> {
        let text = self.resolver.resolve(&self.text(request)).await?;
        let config = read(&text);
        self.texts.borrow_mut().insert(digest(&config), text);
        Ok(config)
    }

    async fn build(&self, config: &Config) -> Result<Built, Fault> {
        let known = self.seen.borrow().get(&digest(config)).map(|end| end.made.clone());
        let made = match known {
            Some(made) => made,
            None => self.make(config).await?,
        };
        let facts = match made {
            Ok(image) if self.lab.predicate.boots() => {
                let key = image.image_sha256.clone();
                self.images.borrow_mut().insert(key.clone(), image);
                return Ok(Built::Image(key));
            }
            Ok(_) => Facts::Built,
            Err(fault) => Facts::Unbuilt { fault },
        };
        let Seen { finding, evidence } = self.lab.judge(&facts);
        Ok(Built::Decided { finding, evidence })
    }

    async fn run(&self, config: &Config, image: &str) -> Result<Seen, Fault> {
        let known = self.seen.borrow().get(&digest(config)).and_then(|end| end.booted.clone());
        let facts = match known {
            Some(facts) => facts,
            None => {
                let image = self.images.borrow().get(image).cloned();
                let image =
                    image.ok_or_else(|| Fault::infra("an image is run that was not built"))?;
                self.lab.boot(&name(config), &image, 1).await?
            }
        };
        Ok(self.lab.judge(&facts))
    }
}
