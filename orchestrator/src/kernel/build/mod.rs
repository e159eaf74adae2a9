// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds a variant's image in the one tree of its (source, config), so that
//! each variant recompiles only what its patches touch; finished images go to
//! the store by everything that they are made from.

mod fence;
mod payload;
mod record;
mod seed;
mod tree;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::kconfig::Request;
use super::series::Tree;
use super::source::{Source, sha256_of};
use super::warning::Warning;
use crate::arch::x86_64;
use crate::fault::Fault;
use crate::host::budget::Budget;
use crate::host::process::{check, require_program};
use crate::host::sandbox::{Cached, Sandbox};
use crate::plan::Config;
use crate::run::event::{Events, RunEvent};
use crate::store::{Store, key, touch};
pub use record::{Heard, Record};
use tree::{Begin, BuildTree};

/// Changes to how images are built change this.
const RECIPE: &str = "build/2";

/// What is to be built.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// Which image, for people.
    pub task: String,
    /// Where the tree is.
    pub source: Source,
    /// What is built.
    pub tree: Tree,
    /// How it is configured.
    pub config: Config,
    /// Where the build's output goes.
    pub log: PathBuf,
}

/// A built kernel in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Key in the store.
    pub key: String,
    /// SHA-256 of the bootable image, hexadecimal.
    pub image_sha256: String,
    /// SHA-256 of vmlinux, hexadecimal.
    pub vmlinux_sha256: String,
    /// Kernel release, as `uname -r` will say.
    pub release: String,
    /// First line of the compiler's `--version`.
    pub compiler: String,
    /// Steps that the build took.
    pub steps: u32,
    /// Wall-clock seconds that the build took.
    pub seconds: u32,
    /// The compiler's warnings about everything in the image, whichever build
    /// compiled it; none where the tree was made before kvet kept them.
    #[serde(default)]
    pub warnings: Option<Vec<Warning>>,
    /// What the build ran in, such as `bubblewrap 0.8.0`; none where it was built
    /// before kvet had sandboxes.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// What the build tried and was refused.
    #[serde(default)]
    pub refused: Vec<String>,
    /// What ccache did; none where it was not used.
    #[serde(default)]
    pub ccache: Option<Cached>,
    /// The folder that holds it.
    #[serde(skip)]
    pub folder: PathBuf,
    /// It was in the store before this run.
    #[serde(skip)]
    pub stored: bool,
}

impl Image {
    /// What QEMU boots.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// The ELF file with symbols.
    #[must_use]
    pub fn vmlinux(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }
}

/// Builds kernels in the store's trees.
#[derive(Debug, Clone)]
pub struct Builder {
    /// Where trees and images are.
    pub store: Store,
    /// Where progress goes.
    pub events: Events,
    /// Ends a build.
    pub stop: CancellationToken,
    /// CPUs and memory.
    pub budget: Budget,
    /// Parallel jobs of `make`.
    pub jobs: usize,
    /// Where `make` runs.
    pub sandbox: Sandbox,
}

impl Builder {
    /// Gives the image from the store, or builds it.
    ///
    /// # Errors
    /// A `series` fault when a tree with patches does not build, an `infra`
    /// fault when the bare source does not, a `plan` fault when kconfig does not
    /// grant what the config asks for.
    pub async fn build(&self, request: &BuildRequest) -> Result<Image, Fault> {
        let config = Request::read(&request.config).map_err(first)?;
        let compiler = compiler_version(&self.sandbox, &request.config).await?;
        let key = key([
            RECIPE.as_bytes(),
            request.tree.tree.as_bytes(),
            request.config.base.key().as_bytes(),
            config.text().as_bytes(),
            compiler.as_bytes(),
            x86_64::MAKE_TARGET.as_bytes(),
        ]);
        if let Some(image) = self.stored(&key, request).await {
            return Ok(image);
        }
        let _image_lock = self.store.lock("images", &key, &self.events).await?;
        if let Some(image) = self.stored(&key, request).await {
            return Ok(image);
        }
        self.events.send(&RunEvent::BuildStarted { task: request.task.clone() });
        let open = |begin| BuildTree::open(self, request, &config, &compiler, begin);
        let mut tree = open(Begin::AsCopy).await?;
        let mut built = tree.build(&key, &config, &compiler).await;
        if let Err(fault) = &built
            && tree.discard_copy(fault)
        {
            drop(tree);
            self.events.note(format!(
                "{}: does not build in a copy of another config's tree; once more from nothing",
                request.task
            ));
            built = open(Begin::FromNothing).await?.build(&key, &config, &compiler).await;
        }
        match &built {
            Ok(image) => self.finished(request, image, false),
            Err(_) => self.events.send(&RunEvent::BuildFailed { task: request.task.clone() }),
        }
        built
    }

    async fn stored(&self, key: &str, request: &BuildRequest) -> Option<Image> {
        let image = read_image(&self.store, key).await?;
        if !self.sandbox.accepts(image.sandbox.as_deref()) {
            let _ = std::fs::remove_dir_all(&image.folder);
            return None;
        }
        self.finished(request, &image, true);
        Some(image)
    }

    fn finished(&self, request: &BuildRequest, image: &Image, stored: bool) {
        self.events.send(&RunEvent::BuildFinished {
            task: request.task.clone(),
            stored,
            steps: image.steps,
            seconds: f64::from(image.seconds),
            ccache: image.ccache,
        });
    }
}

fn first(mut faults: Vec<Fault>) -> Fault {
    let rest = faults.split_off(1);
    let fault = faults.remove(0);
    rest.iter().fold(fault, |fault, other| fault.evidence(&other.to_string()))
}

/// An image whose bytes are what was published; a damaged one is removed.
async fn read_image(store: &Store, key: &str) -> Option<Image> {
    let folder = store.path("images", key);
    let text = std::fs::read(folder.join("image.json")).ok()?;
    let image: Image = serde_json::from_slice(&text).ok()?;
    let image = Image { folder: folder.clone(), stored: true, ..image };
    let whole = sha256_of(&image.kernel()).await.is_ok_and(|hash| hash == image.image_sha256)
        && sha256_of(&image.vmlinux()).await.is_ok_and(|hash| hash == image.vmlinux_sha256);
    if !whole {
        let _ = std::fs::remove_dir_all(&folder);
        return None;
    }
    touch(&folder);
    Some(image)
}

/// First line of the `--version` of the compiler that a build would find.
///
/// # Errors
/// An `infra` fault when there is none.
pub async fn compiler_version(sandbox: &Sandbox, config: &Config) -> Result<String, Fault> {
    for (program, package) in config.compiler.programs() {
        require_program(program, package)?;
    }
    let output = check(sandbox.program(config.compiler.program()).arg("--version"), b"").await?;
    Ok(output.text().lines().next().unwrap_or_default().to_owned())
}
