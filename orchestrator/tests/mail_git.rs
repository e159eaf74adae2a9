// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reading of mails against git itself: what `git format-patch` writes comes
//! back bit for bit in whatever encoding it travels, and mailboxes give the tree
//! that `git am` gives.

#[path = "mail_help/git.rs"]
mod mail_help;
#[path = "mail_help/wrap.rs"]
mod mail_wrap;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kvet::kernel::mail::read_bytes;
use kvet::kernel::mail::reading::Reading;
use mail_help::{git, must};
use mail_wrap::{Rng, Wrapping, wrap};
use proptest::prelude::*;

fn line(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap().trim().to_owned()
}

fn write(folder: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// The diff in a patch of `git format-patch`: behind the message, before the signature.
fn diff_of(patch: &[u8]) -> &[u8] {
    let find = |needle: &[u8]| patch.windows(needle.len()).position(|window| window == needle);
    let start = find(b"\n\ndiff --git ").expect("a diff") + 2;
    let end = patch.windows(5).rposition(|window| window == b"\n-- \n").expect("a signature") + 1;
    &patch[start..end]
}

fn odd_line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[a-z\t ]{0,60}".prop_map(String::into_bytes),
        1 => prop::sample::select(vec![
            &b"From me Thu Jan  1 00:00:00 1970"[..], b"From here", b">From there", b"-- ", b"--", b"---",
            b"--- a/mm/x.c", b"+++ b/mm/x.c", b"- a/mm/x.c", b"-- a/mm/x.c", b"++ b/mm/x.c", b"@@ -1 +1 @@",
            b"diff --git a/q b/q", b"Index: q", b"=3D", b"=", b".", b"ends in a blank ", b"tab\t", b"\r", b"cr\r",
            b"\xff\xfe\xa0", b"\xc2\xa0non-breaking", b"\\ No newline at end of file", b"GIT binary patch", b"> quoted",
            b"Subject: x", b"--=_b", b"--=_b--", b"-----BEGIN PGP SIGNATURE-----", b"-- >8 --", b"\x0c", b"\x1b[2J",
        ]).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>().prop_filter("one line", |&byte| byte != b'\n' && byte != 0), 0..40),
        1 => "[a-z]{990,1100}".prop_map(String::into_bytes),
    ]
}

/// A file's content, with or without a line end at its end, sometimes binary.
fn content() -> impl Strategy<Value = Vec<u8>> {
    (prop::collection::vec(odd_line(), 0..12), any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(lines, end, binary)| {
            let mut bytes = lines.join(&b"\n"[..]);
            if end && !bytes.is_empty() {
                bytes.push(b'\n');
            }
            if binary {
                bytes.extend_from_slice(b"\0\x01\x02");
            }
            bytes
        },
    )
}

fn message() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "Words.",
        "From here on.",
        ">From there.",
        "-- ",
        "",
        "caf\u{e9}",
        "key: value",
        "> quoted",
        "@@ -1 +1 @@",
        "    diff --git a/x b/x",
        "-----BEGIN PGP SIGNED",
        "=C3=A9",
        "* a list",
    ]);
    prop::collection::vec(line, 1..6).prop_map(|lines| {
        format!("mm: x\n\n{}\n\nSigned-off-by: Ada <ada@example.org>\n", lines.join("\n"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_git_writes_comes_back_bit_for_bit(
        before in prop::collection::vec(content(), 1..3),
        after in prop::collection::vec(content(), 1..3),
        message in message(),
        seed in any::<u64>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        must(folder, &["init", "--quiet", "--initial-branch=main"], b"");
        let name = |at: usize| format!("mm/file{at}.txt");
        let files = |all: &[Vec<u8>]| all.iter().enumerate().map(|(at, content)| (name(at), content.clone())).collect();
        write(folder, &files(&before));
        must(folder, &["add", "--all"], b"");
        must(folder, &["commit", "--quiet", "--allow-empty", "--message=base"], b"");
        for at in after.len()..before.len() {
            fs::remove_file(folder.join(name(at))).unwrap();
        }
        write(folder, &files(&after));
        must(folder, &["add", "--all"], b"");
        must(folder, &["commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "--file=-"], message.as_bytes());
        let patch = must(folder, &["format-patch", "--stdout", "--binary", "-1"], b"");
        prop_assume!(patch.windows(13).any(|window| window == b"\n\ndiff --git "));
        let diff = diff_of(&patch);
        let mut rng = Rng(seed);
        for wrapping in Wrapping::ALL {
            let mail = wrap(&patch, wrapping, &mut rng);
            let reading = read_bytes("x", &mail).unwrap();
            let told = || format!("{wrapping:?}\n{}\n{:#?}", String::from_utf8_lossy(&mail), reading.problems);
            prop_assert_eq!(reading.patches.len(), 1, "{}", told());
            prop_assert!(reading.patches[0].diff == diff, "{}\nread:\n{}", told(), String::from_utf8_lossy(&reading.patches[0].diff));
            prop_assert!(reading.problems.iter().all(|problem| problem.may_apply()), "{}", told());
            prop_assert_eq!(&reading.patches[0].subject, "mm: x");
            let written = reading.patches[0].to_mail(1, 1);
            prop_assert!(diff_of(&written) == diff);
        }
    }
}

/// A series in a repository: its patches as git writes them, and the trees.
struct Series {
    patches: Vec<Vec<u8>>,
    base: String,
    tree: String,
}

/// What happens to a mailbox before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Nothing, or another encoding.
    Valid(Wrapping),
    /// The patches are in another order. `git am` takes them as they come.
    Reordered,
    /// Answers with quoted diffs between the patches. `git am` ends at them.
    Replies,
    /// A cover letter before the patches. `git am` ends at it.
    Cover,
    /// One patch is missing.
    Missing,
    /// A line of a hunk is gone.
    LineLost,
    /// A line is broken in two.
    Wrapped,
    /// Tabs are blanks.
    Expanded,
    /// The mailbox ends too early.
    Truncated,
    /// A hunk's header is damaged. `git am` leaves the hunk out without a word.
    HunkLost,
    /// A context line says something else.
    Changed,
}

fn series(folder: &Path, rng: &mut Rng) -> Series {
    must(folder, &["checkout", "--quiet", "--force", "--detach", "base"], b"");
    let base = line(must(folder, &["rev-parse", "HEAD"], b""));
    let count = 1 + rng.below(3);
    for number in 0..count {
        let name = format!("mm/file{}.c", rng.below(3));
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..1 + rng.below(3) {
            let at = 4 + rng.below(lines.len() - 8);
            match rng.below(3) {
                0 => lines
                    .insert(at, format!("\tadded_{number}({at}, a_long_argument, another_one);")),
                1 => {
                    lines[at] =
                        format!("\tchanged_{number}({at}, to_something_longer, than_before);")
                }
                _ => drop(lines.remove(at)),
            }
        }
        fs::write(folder.join(&name), lines.join("\n") + "\n").unwrap();
        if rng.below(3) == 0 {
            fs::write(
                folder.join(format!("mm/new{number}.h")),
                format!("#define N {}\n", rng.below(99)),
            )
            .unwrap();
        }
        must(folder, &["add", "--all"], b"");
        let subject =
            format!("mm: change {number}\n\nFrom here on.\n\nSigned-off-by: Ada <ada@example.org>");
        must(folder, &["commit", "--quiet", "--message", &subject], b"");
    }
    let all = must(
        folder,
        &["format-patch", "--stdout", "--numbered", "--thread", &format!("{base}..")],
        b"",
    );
    let text = String::from_utf8(all).unwrap();
    let starts: Vec<usize> = text
        .match_indices("From ")
        .map(|(at, _)| at)
        .filter(|&at| {
            (at == 0 || text.as_bytes()[at - 1] == b'\n')
                && text[at..].lines().next().is_some_and(|line| line.ends_with("2001"))
        })
        .collect();
    let patches = starts
        .iter()
        .enumerate()
        .map(|(index, &start)| {
            let end = starts.get(index + 1).copied().unwrap_or(text.len());
            text.as_bytes()[start..end].to_vec()
        })
        .collect();
    Series { patches, base, tree: line(must(folder, &["rev-parse", "HEAD^{tree}"], b"")) }
}

/// The lines of a patch that belong to its hunks, without those at their ends.
fn hunk_lines(patch: &[u8], wanted: &[u8]) -> Vec<usize> {
    let lines: Vec<&[u8]> = patch.split(|&byte| byte == b'\n').collect();
    let Some(first) = lines.iter().position(|line| line.starts_with(b"@@ ")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().skip(first) {
        let inside = line.first().is_some_and(|marker| wanted.contains(marker));
        if inside && !line.starts_with(b"--") && !line.starts_with(b"+++") {
            found.push(at);
        }
    }
    found
}

fn edit(patch: &mut Vec<u8>, at: usize, change: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
    let lines: Vec<&[u8]> = patch.split(|&byte| byte == b'\n').collect();
    let mut out: Vec<Vec<u8>> = Vec::new();
    for (index, line) in lines.into_iter().enumerate() {
        match index == at {
            true => out.extend(change(line)),
            false => out.push(line.to_vec()),
        }
    }
    *patch = out.join(&b"\n"[..]);
}

/// The mailbox; none where the series has no place for the damage.
fn mailbox(series: &Series, fate: Fate, rng: &mut Rng) -> Option<Vec<u8>> {
    let mut patches = series.patches.clone();
    let victim = rng.below(patches.len());
    let pick = |lines: Vec<usize>, rng: &mut Rng| {
        (!lines.is_empty()).then(|| lines[rng.below(lines.len())])
    };
    match fate {
        Fate::Valid(wrapping) => {
            patches = patches.iter().map(|patch| wrap(patch, wrapping, rng)).collect();
        }
        Fate::Reordered => {
            if patches.len() < 2 {
                return None;
            }
            patches.rotate_left(1);
        }
        Fate::Replies => {
            let quoted = String::from_utf8_lossy(&patches[0])
                .lines()
                .map(|line| format!("> {line}\n"))
                .collect::<String>();
            let reply = format!(
                "From bob@example.com Mon Jan  5 10:00:00 2026\nFrom: Bob <bob@example.com>\nSubject: Re: [PATCH 1/1] mm: change 0\nDate: Mon, 5 Jan 2026 10:00:00 +0000\n\n{quoted}\nNo.\n\n"
            );
            patches.insert(victim, reply.into_bytes());
        }
        Fate::Cover => {
            let cover = format!(
                "From ada@example.org Mon Jan  5 10:00:00 2026\nFrom: Ada Example <ada@example.org>\nSubject: [PATCH 0/{}] mm: changes\nDate: Mon, 5 Jan 2026 10:00:00 +0000\n\nWords.\n\n",
                patches.len()
            );
            patches.insert(0, cover.into_bytes());
        }
        Fate::Missing => {
            if patches.len() < 2 {
                return None;
            }
            patches.remove(victim);
        }
        Fate::LineLost => {
            let at = pick(hunk_lines(&patches[victim], b" +-"), rng)?;
            edit(&mut patches[victim], at, |_| Vec::new());
        }
        Fate::Wrapped => {
            let long: Vec<usize> = hunk_lines(&patches[victim], b"+")
                .into_iter()
                .filter(|&at| {
                    patches[victim]
                        .split(|&byte| byte == b'\n')
                        .nth(at)
                        .is_some_and(|line| line.len() > 40)
                })
                .collect();
            let at = pick(long, rng)?;
            edit(&mut patches[victim], at, |line| {
                let blank = line.iter().rposition(|&byte| byte == b' ').unwrap();
                vec![line[..blank].to_vec(), line[blank + 1..].to_vec()]
            });
        }
        Fate::Expanded => {
            let text = String::from_utf8_lossy(&patches[victim]).replace('\t', "        ");
            patches[victim] = text.into_bytes();
        }
        Fate::Truncated => {
            let all = patches.concat();
            let last = series.patches.last()?;
            let start = last.windows(3).position(|window| window == b"@@ ")?;
            let cut = all.len() - last.len() + start + rng.below(last.len() - start);
            return Some(all[..cut].to_vec());
        }
        Fate::HunkLost => {
            let lines = patches[victim].split(|&byte| byte == b'\n');
            let starts = lines.enumerate().filter(|(_, line)| line.starts_with(b"@@ "));
            let at = pick(starts.map(|(at, _)| at).skip(1).collect(), rng)?;
            edit(&mut patches[victim], at, |line| vec![line[1..].to_vec()]);
        }
        Fate::Changed => {
            let at = pick(hunk_lines(&patches[victim], b" -"), rng)?;
            edit(&mut patches[victim], at, |line| vec![[line, b"x"].concat()]);
        }
    }
    Some(patches.concat())
}

/// The tree that `git am` makes, or what it says.
fn git_am(folder: &Path, base: &str, mailbox: &[u8], fate: Fate) -> Result<String, String> {
    must(folder, &["checkout", "--quiet", "--force", "--detach", base], b"");
    let file = folder.join(".git/mailbox");
    fs::write(&file, mailbox).unwrap();
    let mut arguments = vec!["am", "--quiet"];
    if fate == Fate::Valid(Wrapping::Mboxrd) {
        arguments.push("--patch-format=mboxrd");
    }
    arguments.push(".git/mailbox");
    let output = git(folder, &arguments, b"");
    if output.status.success() {
        return Ok(line(must(folder, &["rev-parse", "HEAD^{tree}"], b"")));
    }
    git(folder, &["am", "--quit"], b"");
    must(folder, &["reset", "--quiet", "--hard", base], b"");
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The tree that the reading's patches make, or what the reading or git says.
fn kvet_am(folder: &Path, base: &str, reading: &Reading) -> Result<String, String> {
    if !reading.complete {
        return Err(reading.problems.iter().map(|problem| format!("{}\n", problem.what)).collect());
    }
    must(folder, &["read-tree", "--reset", base], b"");
    for patch in &reading.patches {
        let mail = patch.to_mail(reading.version, reading.patches.len());
        let output = git(folder, &["apply", "--cached", "--whitespace=nowarn", "-"], &mail);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    Ok(line(must(folder, &["write-tree"], b"")))
}

/// Mailboxes of one worker: what each came to, counted by its fate.
fn work(seed: u64, count: usize) -> BTreeMap<String, usize> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut rng = Rng(seed);
    must(folder, &["init", "--quiet", "--initial-branch=main"], b"");
    let files = (0..3)
        .map(|file| {
            let lines: String =
                (0..40).map(|at| format!("\tline_{file}_{}({at});\n", at % 13)).collect();
            (format!("mm/file{file}.c"), lines.into_bytes())
        })
        .collect();
    write(folder, &files);
    must(folder, &["add", "--all"], b"");
    must(folder, &["commit", "--quiet", "--message=base"], b"");
    must(folder, &["tag", "base"], b"");
    let all: Vec<Series> = (0..6).map(|_| series(folder, &mut rng)).collect();
    let mut fates = vec![
        Fate::Reordered,
        Fate::Replies,
        Fate::Cover,
        Fate::Missing,
        Fate::LineLost,
        Fate::Wrapped,
        Fate::Expanded,
        Fate::Truncated,
        Fate::Changed,
        Fate::HunkLost,
    ];
    fates.extend(Wrapping::GIT.map(Fate::Valid));
    let mut outcomes = BTreeMap::new();
    let mut done = 0;
    while done < count {
        let series = &all[rng.below(all.len())];
        let fate = fates[rng.below(fates.len())];
        let Some(mailbox) = mailbox(series, fate, &mut rng) else {
            continue;
        };
        done += 1;
        let outcome = judge(folder, series, fate, &mailbox);
        *outcomes.entry(format!("{fate:?}: {outcome}")).or_default() += 1;
    }
    outcomes
}

fn judge(folder: &Path, series: &Series, fate: Fate, mailbox: &[u8]) -> &'static str {
    let reading = read_bytes("box", mailbox).unwrap();
    let git = git_am(folder, &series.base, mailbox, fate);
    let kvet = kvet_am(folder, &series.base, &reading);
    let told = || {
        format!(
            "{fate:?}\n{}\ngit: {git:?}\nkvet: {kvet:?}\n{:#?}",
            String::from_utf8_lossy(mailbox),
            reading.problems
        )
    };
    // A problem says where it is, or what is missing.
    for problem in &reading.problems {
        assert!(
            problem.place.is_some() || !reading.missing.is_empty() || reading.patches.is_empty(),
            "{}",
            told()
        );
    }
    match fate {
        // kvet reads more than git: numbers decide, answers and cover letters are passed over.
        Fate::Reordered | Fate::Replies | Fate::Cover => {
            assert_eq!(kvet.as_ref(), Ok(&series.tree), "{}", told());
            if git.is_err() { "kvet reads what git refuses" } else { "both agree" }
        }
        // kvet is stricter than git: a series with a hole is none, and where git
        // takes a part of a patch without a word, the reading says which line is lost.
        Fate::Missing | Fate::Truncated | Fate::LineLost | Fate::HunkLost => {
            match (&git, &kvet) {
                (Ok(tree), Ok(other)) => assert_eq!(tree, other, "{}", told()),
                (Ok(_), Err(_)) => {
                    assert!(!reading.complete, "{}", told());
                    return "kvet refuses what git takes in part";
                }
                (Err(_), result) => assert!(result.is_err(), "{}", told()),
            }
            if git.is_ok() { "both agree" } else { "both refuse" }
        }
        // Damage that the reading alone sees.
        Fate::Wrapped | Fate::Expanded => {
            assert!(
                git.is_err() && !reading.complete && !reading.problems.is_empty(),
                "{}",
                told()
            );
            "both refuse"
        }
        Fate::Valid(_) | Fate::Changed => {
            assert_eq!(git.is_ok(), kvet.is_ok(), "{}", told());
            match (&git, &kvet) {
                (Ok(tree), Ok(other)) => {
                    assert_eq!(tree, other, "{}", told());
                    "both agree"
                }
                _ => "both refuse",
            }
        }
    }
}

#[test]
fn two_hundred_mailboxes_give_the_trees_of_git_am() {
    let outcomes = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=2).map(|seed| scope.spawn(move || work(seed, 100))).collect();
        let mut all: BTreeMap<String, usize> = BTreeMap::new();
        for worker in workers {
            for (outcome, count) in worker.join().unwrap() {
                *all.entry(outcome).or_default() += count;
            }
        }
        all
    });
    for (outcome, count) in &outcomes {
        println!("{count:4} {outcome}");
    }
    assert_eq!(outcomes.values().sum::<usize>(), 200);
    let agreed: usize = outcomes
        .iter()
        .filter(|(name, _)| name.starts_with("Valid") && name.ends_with("both agree"))
        .map(|(_, count)| count)
        .sum();
    let valid: usize =
        outcomes.iter().filter(|(name, _)| name.starts_with("Valid")).map(|(_, count)| count).sum();
    assert!(valid > 60 && agreed == valid, "{outcomes:#?}");
}
