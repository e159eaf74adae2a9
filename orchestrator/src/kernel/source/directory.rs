// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain folders, taken as they are. A second run reads only what changed: the
//! index that remembers the files' time stamps is kvet's own.

use std::path::Path;

use super::{Imported, Source, Steps, add_all};
use crate::fault::Fault;
use crate::kernel::git;
use crate::store::{Store, key};

/// What a build leaves in a source tree. kbuild itself refuses such a tree as a
/// source (the kernel's Makefile, `outputmakefile`).
const BUILT: [&str; 3] = [".config", "include/config", "vmlinux"];

/// A folder's tree as it is now.
///
/// # Errors
/// A `plan` fault when the folder was built in, or holds repositories; an
/// `infra` fault when it cannot be imported.
pub(super) async fn prepare(
    folder: &Path,
    store: &Store,
    steps: &Steps<'_>,
) -> Result<Source, Fault> {
    let failed = |error| Fault::io(format!("find {}", folder.display()), &error);
    let folder = std::fs::canonicalize(folder).map_err(failed)?;
    if let Some(built) = BUILT.iter().find(|name| folder.join(name).exists()) {
        return Err(Fault::plan(format!("the folder was built in: it has {built}"))
            .at(folder.display())
            .help("run `make mrproper` there, or name a git revision or a tarball instead"));
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let key = format!("directory-{}", key([folder.as_os_str().as_encoded_bytes()]));
    let _lock = store.lock("sources", &key, steps.events).await?;
    let place = store.path("sources", &key);
    let (git_dir, index) = (place.join("git"), place.join("index"));
    if !place.exists() {
        let scratch = store.scratch()?;
        let entry = scratch.path().join("entry");
        git::init(&entry.join("git"), "sha1").await?;
        store.publish(&entry, "sources", &key)?;
    }
    // A killed git leaves its lock; ours says that nobody else is at work.
    let _ = std::fs::remove_file(place.join("index.lock"));
    steps.say("import into git");
    let tree = add_all(&folder, &git_dir, &index).await?;
    if let Some(inner) = repository_inside(&git_dir, &tree).await? {
        return Err(Fault::plan(format!("{inner} is a git repository inside the folder"))
            .at(folder.display())
            .help("take it out, or name a git revision or a tarball instead"));
    }
    let imported =
        Imported::read(&git_dir, tree).await.map_err(|fault| fault.at(folder.display()))?;
    steps.say("ready");
    let origin = format!("folder {name}");
    Ok(imported.source(&key, origin, None))
}

/// The first path that git took for a repository of its own, whose files it
/// leaves out.
async fn repository_inside(git_dir: &Path, tree: &str) -> Result<Option<String>, Fault> {
    let list = git::run(git_dir, ["ls-tree", "-r", "--full-tree", tree]).await?;
    let inner = list.lines().find_map(|line| line.strip_prefix("160000 ")?.split_once('\t'));
    Ok(inner.map(|(_, path)| path.to_owned()))
}
