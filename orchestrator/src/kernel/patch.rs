// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a patch file is whole. git passes over what it does not take for a
//! part of a diff, so a damaged header costs a hunk without a word; here every
//! line of a diff has to belong to it.

use crate::fault::escape;

/// What is wrong with a patch file, and in which line (from 1).
#[derive(Debug, PartialEq, Eq)]
pub struct Damage {
    /// The line.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to do next.
    pub help: &'static str,
}

/// What a whole patch holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Content {
    /// Files that it changes.
    pub files: usize,
    /// Lines that its hunks add.
    pub added: usize,
    /// Lines that its hunks remove.
    pub removed: usize,
}

/// What the file changes; nothing where it is a mail without a diff, such as a
/// cover letter. A file that is neither diff nor mail is damaged.
///
/// # Errors
/// The first damage.
pub fn check(patch: &[u8]) -> Result<Option<Content>, Damage> {
    let text = String::from_utf8_lossy(patch);
    let lines: Vec<&str> = text.lines().collect();
    let damage = |index: usize, what: String, help| Err(Damage { line: index + 1, what, help });
    let header = lines.iter().take_while(|line| !line.is_empty());
    for (index, line) in header.enumerate() {
        let lower = line.to_ascii_lowercase();
        if let Some(encoding) = lower.strip_prefix("content-transfer-encoding:")
            && matches!(encoding.trim(), "base64" | "quoted-printable")
        {
            let what = format!("the mail is encoded as {}", encoding.trim());
            return damage(index, what, "save it decoded, or as `git format-patch` writes it");
        }
    }
    let mut index = 0;
    let mut content = Content::default();
    let mut inside = false;
    // `diff --git` was read, and no `---` after it yet.
    let mut announced = false;
    while let Some(&line) = lines.get(index) {
        let next = lines.get(index + 1).copied().unwrap_or_default();
        if line.starts_with("diff --git ") {
            content.files += 1;
            (inside, announced) = (true, true);
        } else if line.starts_with("--- ") && next.starts_with("+++ ") {
            content.files += usize::from(!announced);
            (inside, announced) = (true, false);
            index += 1;
        } else if inside && line == "GIT binary patch" {
            // Its lines are checksummed by git.
            index = skip_binary(&lines, index);
            continue;
        } else if let Some((old, new)) = hunk(line) {
            if !inside {
                let what = "a hunk without a file before it".to_owned();
                return damage(index, what, "the patch lost its `---` and `+++` lines");
            }
            match skip_hunk(&lines, index + 1, old, new) {
                Ok(after) => {
                    let count = |sign| {
                        lines[index + 1..after].iter().filter(|line| line.starts_with(sign)).count()
                    };
                    content.added += count('+');
                    content.removed += count('-');
                    index = after;
                }
                Err(at) => {
                    let what =
                        format!("the hunk that starts in line {} is cut or damaged", index + 1);
                    return damage(at, what, "take the patch from its source again");
                }
            }
            continue;
        } else if line == "-- " || line == "--" {
            inside = false;
        } else if inside && !is_extended_header(line) && !line.is_empty() {
            let what = format!("{:?} belongs to no hunk", shorten(line));
            return damage(
                index,
                what,
                "a hunk's header is damaged; take the patch from its source again",
            );
        }
        index += 1;
    }
    if content.files == 0 && !lines.iter().any(|line| line.starts_with("Subject:")) {
        let what =
            if text.trim().is_empty() { "the file is empty" } else { "neither a diff nor a mail" };
        return damage(0, what.to_owned(), "check how the file was saved");
    }
    Ok((content.files > 0).then_some(content))
}

/// The files that a patch names, before and after, without their first `strip` folders.
#[must_use]
pub fn files(patch: &[u8], strip: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(patch);
    let mut files = Vec::new();
    let mut add = |name: &str| {
        let name = name.split('\t').next().unwrap_or(name).trim_end();
        if name != "/dev/null"
            && let Some(name) = name.splitn(strip + 1, '/').nth(strip)
        {
            files.push(name.to_owned());
        }
    };
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let next = lines.get(index + 1).copied().unwrap_or_default();
        if let Some(names) = line.strip_prefix("diff --git a/") {
            // Both names are the same where no other line says them.
            let half = names.len().saturating_sub(3) / 2;
            if let (Some(old), Some(new)) = (names.get(..half), names.get(half + 3..))
                && old == new
            {
                add(&format!("a/{old}"));
            }
        } else if let (Some(old), Some(new)) =
            (line.strip_prefix("--- "), next.strip_prefix("+++ "))
        {
            add(old);
            add(new);
        } else if let Some(name) =
            line.strip_prefix("rename from ").or_else(|| line.strip_prefix("rename to "))
        {
            add(&format!("a/{name}"));
        }
    }
    files.sort();
    files.dedup();
    files
}

fn shorten(line: &str) -> String {
    escape(&line.chars().take(60).collect::<String>())
}

/// The line counts of `@@ -a,b +c,d @@`.
fn hunk(line: &str) -> Option<(usize, usize)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let count =
        |range: &str| range.split_once(',').map_or(Some(1), |(_, count)| count.parse().ok());
    Some((count(old)?, count(new)?))
}

/// The index after a hunk's lines, or that of the line that breaks it.
fn skip_hunk(
    lines: &[&str],
    mut index: usize,
    mut old: usize,
    mut new: usize,
) -> Result<usize, usize> {
    while old > 0 || new > 0 {
        let line = lines.get(index).ok_or(index.saturating_sub(1))?;
        let (from_old, from_new) = match line.as_bytes().first() {
            // Some mailers strip the blank of an empty context line.
            Some(b' ') | None => (1, 1),
            Some(b'-') => (1, 0),
            Some(b'+') => (0, 1),
            Some(b'\\') => (0, 0),
            Some(_) => return Err(index),
        };
        old = old.checked_sub(from_old).ok_or(index)?;
        new = new.checked_sub(from_new).ok_or(index)?;
        index += 1;
    }
    if lines.get(index).is_some_and(|line| line.starts_with('\\')) {
        index += 1;
    }
    Ok(index)
}

fn skip_binary(lines: &[&str], index: usize) -> usize {
    let rest =
        lines[index..].iter().position(|line| line.starts_with("diff --git ") || *line == "-- ");
    rest.map_or(lines.len(), |rest| index + rest)
}

/// git-diff(1), "generating patch text with -p": what may stand between
/// `diff --git` and the first hunk.
fn is_extended_header(line: &str) -> bool {
    const HEADERS: [&str; 15] = [
        // quilt's
        "Index: ",
        "index ",
        "old mode ",
        "new mode ",
        "deleted file mode ",
        "new file mode ",
        "copy from ",
        "copy to ",
        "rename from ",
        "rename to ",
        "similarity index ",
        "dissimilarity index ",
        "Binary files ",
        "diff ",
        "Only in ",
    ];
    let rule = line.len() > 60 && line.bytes().all(|byte| byte == b'=');
    rule || HEADERS.iter().any(|header| line.starts_with(header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIFF: &str = "Subject: [PATCH] x\n\nwhy\n---\n a.c | 2 +-\n\ndiff --git a/a.c b/a.c\nindex 1..2 100644\n--- a/a.c\n+++ b/a.c\n@@ -1,3 +1,3 @@ int f(void)\n one\n-two\n+TWO\n three\n@@ -9 +9 @@\n-x\n+y\n\\ No newline at end of file\n-- \n2.47\n";

    #[test]
    fn whole_patches_and_mails_without_a_diff_are_taken() {
        let content = |files, added, removed| Ok(Some(Content { files, added, removed }));
        assert_eq!(check(DIFF.as_bytes()), content(1, 2, 2));
        assert_eq!(check(b"Subject: [PATCH 0/2] cover\n\nwords\n---\n"), Ok(None));
        let plain = "--- linux.orig/a.c\n+++ linux/a.c\n@@ -1 +1 @@\n-a\n+b\n";
        assert_eq!(check(plain.repeat(2).as_bytes()), content(2, 2, 2));
        let quilt = format!("Index: l/a.c\n{}\n{plain}", "=".repeat(67));
        assert_eq!(check(quilt.repeat(2).as_bytes()), content(2, 2, 2));
        assert_eq!(
            check(b"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"),
            content(1, 0, 0)
        );
    }

    #[test]
    fn the_files_of_a_patch_are_those_of_both_sides() {
        assert_eq!(files(DIFF.as_bytes(), 1), ["a.c"]);
        let patch = "diff --git a/x/y b/x/y\nnew file mode 100644\n--- /dev/null\n+++ b/x/y\ndiff --git a/o b/n\nrename from o\nrename to n\n--- l.orig/p/q\t2026\n+++ l/p/q\n";
        assert_eq!(files(patch.as_bytes(), 1), ["n", "o", "p/q", "x/y"]);
    }

    #[test]
    fn what_git_would_pass_over_is_damage() {
        for (patch, line) in [
            (DIFF.replace("@@ -9 +9", "@ -9 +9"), 16),
            (DIFF.replace("@@ -9 +9", "> @@ -9 +9"), 16),
            (DIFF.replace("\n three", "\nthree"), 15),
            (DIFF.replace(" three\n", ""), 15),
            (
                DIFF.replace(
                    "diff --git a/a.c b/a.c\nindex 1..2 100644\n--- a/a.c\n+++ b/a.c\n",
                    "",
                ),
                7,
            ),
            (String::new(), 1),
            ("404 not found\n".to_owned(), 1),
            ("Subject: x\nContent-Transfer-Encoding: base64\n\nZGlm\n".to_owned(), 2),
        ] {
            assert_eq!(check(patch.as_bytes()).map_err(|damage| damage.line), Err(line), "{patch}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_check_panic(text in "(@@ -[0-9]{1,3},[0-9]{0,20} \\+1 @@|diff --git |--- a|\\+\\+\\+ b|[ +-]x|\n){0,20}") {
            let _ = (check(text.as_bytes()), files(text.as_bytes(), 1));
        }
    }
}
