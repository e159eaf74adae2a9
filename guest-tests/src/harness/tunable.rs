// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of the kernel in small files, put back at the end.

use std::fs;
use std::path::{Path, PathBuf};

use super::{TestResult, Why};

/// Settings changed by a test. Dropping it puts the old values back, the last
/// change first.
#[derive(Debug, Default)]
pub struct Tunables {
    changed: Vec<(PathBuf, String)>,
}

impl Tunables {
    /// Writes `value` to the file `path` and reads it back.
    ///
    /// # Errors
    /// The file cannot be read or written, or then shows another value.
    pub fn set(&mut self, path: impl AsRef<Path>, value: &str) -> TestResult {
        let path = path.as_ref();
        let old = read(path)?;
        if old == value {
            return Ok(());
        }
        fs::write(path, value).why(format_args!("write {value:?} to {}", path.display()))?;
        self.changed.push((path.to_owned(), old));
        let now = read(path)?;
        (now == value)
            .then_some(())
            .why(format_args!("{} is {now:?} after {value:?} was written", path.display()))
    }
}

impl Drop for Tunables {
    fn drop(&mut self) {
        for (path, old) in self.changed.drain(..).rev() {
            if let Err(error) = fs::write(&path, &old) {
                eprintln!("put {old:?} back into {}: {error}", path.display());
            }
        }
    }
}

/// Current value of the setting in the file `path`.
///
/// # Errors
/// The file cannot be read.
pub fn read(path: &Path) -> TestResult<String> {
    let text = fs::read_to_string(path).why(format_args!("read {}", path.display()))?;
    Ok(chosen(text.trim()).to_owned())
}

/// The chosen word of a file such as `always [madvise] never`, or all of it.
fn chosen(text: &str) -> &str {
    text.split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_is_the_setting() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("[always] madvise never"), "always");
        assert_eq!(chosen("10000"), "10000");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn settings_are_put_back_in_reverse_order() {
        let path = std::env::temp_dir().join(format!("kvet-tunable-{}", std::process::id()));
        fs::write(&path, "1\n").unwrap();
        let mut tunables = Tunables::default();
        tunables.set(&path, "2").unwrap();
        tunables.set(&path, "2").unwrap();
        tunables.set(&path, "3").unwrap();
        assert_eq!(read(&path).unwrap(), "3");
        drop(tunables);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_missing_setting_is_a_failure_that_names_it() {
        let stop = Tunables::default().set("/nonexistent/setting", "1").unwrap_err();
        assert!(
            matches!(stop, super::super::Stop::Fail(why) if why.contains("/nonexistent/setting"))
        );
    }
}
