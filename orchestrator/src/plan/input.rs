// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user may call a series, in a plan or with `--series`. Another form of
//! input is another variant of [`Input`] and its reader in [`Input::read`].

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use super::kernel_file::expand_home;
use super::{PatchFile, mails, patch_files, range};
use crate::fault::Fault;

/// An entry of a plan's `series:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeriesEntry {
    /// A name in `patches/`, or the path of a folder or of a patch file.
    Named(String),
    /// Anything else.
    Given {
        /// Where the patches are.
        input: Input,
        /// What the series is called.
        name: Option<String>,
        /// A name in `patches/` or a path of a folder whose `series.yaml` says
        /// what the series is meant to change.
        series_yaml: Option<String>,
    },
}

/// Where a series' patches are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The `*.patch` files of a folder, by name.
    Folder(PathBuf),
    /// Patch files, in this order.
    Files(Vec<PathBuf>),
    /// Mails: an mbox, a maildir, a folder of mails, or `-` for standard input.
    Mail(PathBuf),
    /// The commits of a range `A..B`, oldest first.
    Range {
        /// The repository, which is only read.
        git: PathBuf,
        /// `A..B`; what stands on neither side is `HEAD`.
        range: String,
    },
}

/// What was read of an input.
#[derive(Debug, Clone, Default)]
pub struct Taken {
    /// The patches, in order.
    pub patches: Vec<PatchFile>,
    /// What was not taken for a patch, with the reason.
    pub passed_over: Vec<String>,
    /// What the series calls itself, where it does.
    pub title: Option<String>,
}

impl Input {
    /// Reads the patches.
    ///
    /// # Errors
    /// A `plan` fault with the place of what cannot be read.
    pub fn read(&self) -> Result<Taken, Fault> {
        match self {
            Self::Folder(folder) => patch_files::folder(folder),
            Self::Files(files) => patch_files::files(files),
            Self::Mail(place) => mails::read(place),
            Self::Range { git, range } => range::read(git, range),
        }
    }

    /// The same input with its paths below `root`, where they are relative.
    #[must_use]
    pub fn below(self, root: &Path) -> Self {
        let place = |path: PathBuf| root.join(expand_home(&path));
        match self {
            Self::Folder(folder) => Self::Folder(place(folder)),
            Self::Files(files) => Self::Files(files.into_iter().map(place).collect()),
            Self::Mail(path) if path == Path::new("-") => Self::Mail(path),
            Self::Mail(path) => Self::Mail(place(path)),
            Self::Range { git, range } => Self::Range { git: place(git), range },
        }
    }

    /// A name that may be one component of a path.
    #[must_use]
    pub fn name(&self) -> String {
        let stem =
            |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = match self {
            Self::Folder(folder) => {
                folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            Self::Files(files) => files.first().map_or(String::new(), |file| stem(file)),
            Self::Mail(path) if path == Path::new("-") => "stdin".to_owned(),
            Self::Mail(path) => stem(path),
            Self::Range { range, .. } => range.clone(),
        };
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let name: String = name.chars().map(plain).take(100).collect();
        let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        if name.is_empty() { "series".to_owned() } else { name.to_owned() }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::Files(files) => {
                let names: Vec<String> =
                    files.iter().map(|file| file.display().to_string()).collect();
                f.write_str(&names.join(" "))
            }
            Self::Mail(path) if path == Path::new("-") => f.write_str("standard input"),
            Self::Mail(path) => write!(f, "{}", path.display()),
            Self::Range { git, range } => write!(f, "{range} in {}", git.display()),
        }
    }
}

impl SeriesEntry {
    /// Reads `--series`: a path, `-`, `A..B` or `REPOSITORY:A..B`, or a name in
    /// `patches/`. Paths are relative to the current folder.
    #[must_use]
    pub fn from_argument(text: &str) -> Self {
        let here = |path: &str| {
            let path = expand_home(Path::new(path));
            std::path::absolute(&path).unwrap_or(path)
        };
        let given = |input| Self::Given { input, name: None, series_yaml: None };
        if text == "-" {
            return given(Input::Mail(text.into()));
        }
        let path = here(text);
        if path.exists() && (path.is_file() || text.contains('/') || text == ".") {
            return Self::Named(path.to_string_lossy().into_owned());
        }
        let (git, range) = text.rsplit_once(':').unwrap_or((".", text));
        // `..` alone between slashes is a folder, not a range.
        if range.contains("..") && range.split('/').all(|part| part != "..") {
            return given(Input::Range { git: here(git), range: range.to_owned() });
        }
        Self::Named(text.to_owned())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    #[serde(default)]
    patches: Option<Vec<PathBuf>>,
    #[serde(default)]
    mbox: Option<PathBuf>,
    #[serde(default)]
    git: Option<PathBuf>,
    #[serde(default)]
    range: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    series_yaml: Option<String>,
}

impl<'de> Deserialize<'de> for SeriesEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = SeriesEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name, a path, or {git: REPOSITORY, range: A..B}, {mbox: FILE} or {patches: [FILE]}")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SeriesEntry, E> {
                Ok(SeriesEntry::Named(text.to_owned()))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                map: A,
            ) -> Result<SeriesEntry, A::Error> {
                let given = Given::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                let input = match (given.patches, given.mbox, given.git, given.range) {
                    (Some(files), None, None, None) => Input::Files(files),
                    (None, Some(path), None, None) => Input::Mail(path),
                    (None, None, Some(git), Some(range)) => Input::Range { git, range },
                    _ => {
                        return Err(serde::de::Error::custom(
                            "a series is {git: REPOSITORY, range: A..B}, {mbox: FILE} or {patches: [FILE]}",
                        ));
                    }
                };
                let (name, series_yaml) = (given.name, given.series_yaml);
                Ok(SeriesEntry::Given { input, name, series_yaml })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_names_a_folder_without_leaving_it() {
        let name = |range: &str| Input::Range { git: "/r".into(), range: range.into() }.name();
        assert_eq!(name("v6.12..topic"), "v6.12..topic");
        assert_eq!(name("../..x..y/z"), "x..y-z");
        assert_eq!(name(".."), "series");
        assert_eq!(name("HEAD~3..HEAD"), "HEAD-3..HEAD");
    }

    #[test]
    fn an_argument_is_a_path_a_range_or_a_name() {
        let range = |git: &str, range: &str| SeriesEntry::Given {
            input: Input::Range { git: git.into(), range: range.into() },
            name: None,
            series_yaml: None,
        };
        assert_eq!(SeriesEntry::from_argument("/repo:a..b"), range("/repo", "a..b"));
        assert_eq!(SeriesEntry::from_argument("/a:b:HEAD~2.."), range("/a:b", "HEAD~2.."));
        let here = std::env::current_dir().unwrap();
        assert_eq!(SeriesEntry::from_argument("a..b/c"), range(here.to_str().unwrap(), "a..b/c"));
        let mails =
            SeriesEntry::Given { input: Input::Mail("-".into()), name: None, series_yaml: None };
        assert_eq!(SeriesEntry::from_argument("-"), mails);
        assert_eq!(SeriesEntry::from_argument("cold"), SeriesEntry::Named("cold".into()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        assert_eq!(SeriesEntry::from_argument(path), SeriesEntry::Named(path.into()));
    }
}
