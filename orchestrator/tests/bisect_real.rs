// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches in a repository of 64 real changes on top of 6.12, each kind of predicate with
//! real builds and boots: how many there are, and how long it takes beside the sum of
//! them; and one in the symbols of two configs. `KVET_BISECT=all` runs everything,
//! `KVET_BISECT=splat,build-beset,config` some of it.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::tiny::git;
use common::{Moments, Project, cache};

/// Changes of each history.
const CHANGES: usize = 64;
/// Files that every kernel of the plan has, changed in turns.
const FILES: [&str; 12] = [
    "mm/madvise.c",
    "kernel/fork.c",
    "fs/open.c",
    "mm/mremap.c",
    "kernel/exit.c",
    "fs/read_write.c",
    "mm/vmscan.c",
    "kernel/signal.c",
    "fs/namei.c",
    "mm/memory.c",
    "kernel/sys.c",
    "fs/proc/base.c",
];
/// What a test of /proc/version sees.
const VERSION: &str = "fs/proc/version.c";
const SHOWN: &str = "\t\tutsname()->version);\n\treturn 0;\n";

const SCRIPT: &str = "#!/bin/sh
lines=0
while read -r line; do lines=$((lines + 1)); done < /proc/version || exit 1
[ $lines -gt 0 ] || exit 1
echo 1..2
if [ $lines = 1 ]; then echo 'ok 1 - one line'; else echo 'not ok 1 - one line'; fi
if [ -e /proc/config.gz ]; then echo 'not ok 2 - no config'; else echo 'ok 2 - no config'; fi
";

const PLAN: &str = "schema: kvet/plan/1
series: [khugepaged-cold]
kernels: [debian-6.12]
configs:
  microvm: {base: tinyconfig, fragments: [microvm]}
guests:
  up: {memory: 512MiB}
tests:
  - {script: ../../version.sh, name: version, format: tap}
  - {name: khugepaged_cold, measure: [instructions], parameters: {memory: 8MiB, reads: 65536, advice: cold}}
deadlines: {boot: 120s, test: 240s}
";

/// Where symbols are taken from that a config may have or not: little to compile each.
const KCONFIGS: [&str; 4] =
    ["crypto/Kconfig", "fs/nls/Kconfig", "block/partitions/Kconfig", "drivers/hwmon/Kconfig"];
/// What these need, and the guilty one with what it needs.
const OPENED: [&str; 8] =
    ["CRYPTO", "NLS", "PARTITION_ADVANCED", "HWMON", "I2C", "MODULES", "IKCONFIG", "IKCONFIG_PROC"];

/// A kind of predicate: its arguments, and the change that is bad.
struct Kind {
    name: &'static str,
    arguments: &'static [&'static str],
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const KINDS: [Kind; 6] = [
    Kind {
        name: "observation",
        arguments: &["--observation", "one_line", "-t", "version"],
        file: VERSION,
        from: SHOWN,
        to: "\t\tutsname()->version);\n\tseq_puts(m, \"and more\\n\");\n\treturn 0;\n",
    },
    Kind {
        name: "splat",
        arguments: &["--splat", "WARNING in version_proc_show", "-t", "version"],
        file: VERSION,
        from: SHOWN,
        to: "\t\tutsname()->version);\n\tWARN_ON_ONCE(m->count);\n\treturn 0;\n",
    },
    Kind {
        name: "fail",
        arguments: &["--fail", "-t", "version"],
        file: VERSION,
        from: SHOWN,
        to: "\t\tutsname()->version);\n\treturn -EIO;\n",
    },
    Kind {
        name: "build",
        arguments: &["--build"],
        file: "mm/mprotect.c",
        from: "#include <linux/mm_inline.h>\n",
        to: "#include <linux/mm_inline.h>\nint kvet_bad(void);\nint kvet_bad(void)\n{\n\treturn undeclared_and_bad;\n}\n",
    },
    Kind {
        name: "metric",
        arguments: &["--metric", "khugepaged.cpu:20", "-t", "khugepaged_cold"],
        file: "mm/khugepaged.c",
        from: "\tVM_BUG_ON(address & ~HPAGE_PMD_MASK);\n\n\tresult = find_pmd_or_thp_or_none(mm, address, &pmd);\n",
        to: "\tVM_BUG_ON(address & ~HPAGE_PMD_MASK);\n\tfor (volatile int lost = 0; lost < 1000000; lost++)\n\t\t;\n\n\tresult = find_pmd_or_thp_or_none(mm, address, &pmd);\n",
    },
    // In every second run or so.
    Kind {
        name: "noisy",
        arguments: &["--noisy", "--splat", "WARNING in version_proc_show", "-t", "version"],
        file: VERSION,
        from: SHOWN,
        to: "\t\tutsname()->version);\n\t{\n\t\tu64 sched_clock(void);\n\n\t\tWARN_ON_ONCE(sched_clock() / 1000 % 2);\n\t}\n\treturn 0;\n",
    },
];

/// A repository of changes on top of the source that the tests' cache holds.
struct History {
    folder: tempfile::TempDir,
    base: String,
}

impl History {
    fn new() -> Self {
        let sources = fs::read_dir(cache().join("sources")).into_iter().flatten().flatten();
        let place = sources
            .map(|entry| entry.path())
            .find(|path| path.file_name().unwrap().to_string_lossy().contains("linux-source-6.12"))
            .expect("no 6.12 source in the tests' cache: run the test `end_to_end` first");
        let text = fs::read(place.join("source.json")).unwrap();
        let source: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let repository = folder.path().join("linux");
        fs::create_dir(&repository).unwrap();
        git(&repository, &["init", "--quiet", "--bare"]);
        let objects = fs::canonicalize(place.join("git/objects")).unwrap();
        fs::write(repository.join("objects/info/alternates"), format!("{}\n", objects.display()))
            .unwrap();
        Self { folder, base: source["commit"].as_str().unwrap().to_owned() }
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("linux")
    }

    /// Writes the history of a kind as a branch; the ids of its changes.
    fn write(&self, branch: &str, kind: &Kind, bad: usize, beset: bool) -> Vec<String> {
        let mut files: BTreeMap<&str, String> = BTreeMap::new();
        let mut stream = String::new();
        let breaks = "\nint kvet_other(void)\n{\n\treturn undeclared_elsewhere;\n}\n";
        for number in 0..CHANGES {
            let mut changed: BTreeMap<&str, String> = BTreeMap::new();
            let mut change = |file: &'static str, how: &dyn Fn(&str) -> String| {
                let text = files.entry(file).or_insert_with(|| {
                    git(&self.repository(), &["show", &format!("{}:{file}", self.base)])
                });
                *text = how(text);
                changed.insert(file, text.clone());
            };
            let file = FILES[number % FILES.len()];
            change(file, &|text| match number % 4 {
                1 => format!("{text}\n/* Note {number} of {branch}. */\n"),
                3 => format!("/* Note {number} of {branch}. */\n{text}"),
                _ => {
                    format!("{text}\nint kvet_{}_{number} = {number};\n", branch.replace('-', "_"))
                }
            });
            if number == bad {
                change(kind.file, &|text| {
                    assert!(text.contains(kind.from), "{} is not in {}", kind.from, kind.file);
                    text.replacen(kind.from, kind.to, 1)
                });
            }
            // Two that do not build and an oops, next to the bad one; each is mended by
            // the next change. Before the bad one there is one that can be tried: without
            // it, nothing could tell the bad one from one that does not build.
            let near = |distance: i64| beset && number as i64 == bad as i64 + distance;
            if near(-2) || near(2) {
                change("mm/mlock.c", &|text| format!("{text}{breaks}"));
            }
            if near(-1) || near(3) {
                change("mm/mlock.c", &|text| text.replace(breaks, ""));
            }
            if near(-4) {
                change(VERSION, &|text| {
                    text.replace("\tseq_printf(m, linux", "\tBUG_ON(m);\n\tseq_printf(m, linux")
                });
            }
            if near(-3) {
                change(VERSION, &|text| text.replace("\tBUG_ON(m);\n", ""));
            }
            let message = match number == bad {
                true => format!("{branch}: change {number}, which is bad"),
                false => format!("{branch}: change {number}"),
            };
            let _ = write!(
                stream,
                "commit refs/heads/{branch}\nmark :{}\ncommitter Ada Example <ada@example.org> {} +0000\ndata {}\n{message}\n",
                number + 1,
                1_767_225_600 + number,
                message.len()
            );
            match number {
                0 => writeln!(stream, "from {}", self.base).unwrap(),
                _ => writeln!(stream, "from :{number}").unwrap(),
            }
            for (file, text) in changed {
                let _ = write!(stream, "M 644 inline {file}\ndata {}\n{text}\n", text.len());
            }
        }
        let marks = self.folder.path().join("marks");
        let mut import = Command::new("git")
            .current_dir(self.repository())
            .args(["fast-import", "--quiet", "--force"])
            .arg(format!("--export-marks={}", marks.display()))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        import.stdin.take().unwrap().write_all(stream.as_bytes()).unwrap();
        assert!(import.wait().unwrap().success());
        let ids: BTreeMap<usize, String> = fs::read_to_string(marks)
            .unwrap()
            .lines()
            .map(|line| line[1..].split_once(' ').unwrap())
            .map(|(mark, id)| (mark.parse().unwrap(), id.to_owned()))
            .collect();
        ids.into_values().collect()
    }
}

/// A cache with nothing in it but what a compiler would have anyway.
fn fresh_cache(folder: &Path) -> PathBuf {
    let place = folder.join("cache");
    fs::create_dir(&place).unwrap();
    for part in ["ccache", "probes"] {
        std::os::unix::fs::symlink(cache().join(part), place.join(part)).unwrap();
    }
    place
}

/// The `.config` of the plan's kernel, and the same with hundreds of symbols more.
fn configs(project: &Project, history: &History) -> [String; 2] {
    let ended = project.kvet(&["build", "real", "--variant", "base"]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let result = project.result();
    let key = result["cells"][0]["variants"]["base"]["build"]["key"].as_str().unwrap();
    let good = fs::read_to_string(cache().join("images").join(key).join("config")).unwrap();
    let mut more: Vec<String> = OPENED.map(str::to_owned).into();
    for file in KCONFIGS {
        let text = git(&history.repository(), &["show", &format!("{}:{file}", history.base)]);
        more.extend(
            text.lines().filter_map(|line| line.strip_prefix("config ")).map(str::to_owned),
        );
    }
    let is_more = |line: &str| {
        let name = line.trim_start_matches("# ").trim_start_matches("CONFIG_");
        let name = name.split(['=', ' ']).next().unwrap_or_default();
        more.iter().any(|one| one == name)
    };
    let kept = good.lines().filter(|line| !is_more(line)).map(str::to_owned);
    let set = more.iter().map(|name| format!("CONFIG_{name}=y"));
    let bad: Vec<String> = kept.chain(set).collect();
    [good, bad.join("\n") + "\n"]
}

#[test]
fn the_symbol_that_adds_a_file_is_found_among_hundreds() {
    let wanted = std::env::var("KVET_BISECT").unwrap_or_default();
    if wanted != "all" && !wanted.split(',').any(|word| word == "config") {
        println!("not run: KVET_BISECT=config runs it");
        return;
    }
    let project = Project::new();
    project.write("configs/plans/real.yaml", PLAN);
    project.write("version.sh", SCRIPT);
    let history = History::new();
    let [good, bad] = configs(&project, &history);
    project.write("good.config", &good);
    project.write("bad.config", &bad);
    let cache = fresh_cache(history.folder.path());
    let mut arguments = vec!["bisect", "real", "--variant", "base", "-t", "version"];
    arguments.extend(["--config-good", "good.config", "--config-bad", "bad.config"]);
    arguments.extend(["--observation", "no_config"]);
    let mut command = project.command(&arguments);
    command.env("KVET_CACHE_DIR", &cache);
    let ended = common::finish(command.spawn().unwrap(), std::time::Instant::now());
    println!("{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(ended.code, 0);
    assert!(ended.stdout.contains("IKCONFIG_PROC: good"), "another symbol is named");
    let text = fs::read(project.path().join("kvet-runs/latest/bisect.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let builds = record["builds"].as_u64().unwrap();
    assert!(builds <= 12, "{builds} builds, those of the ends among them");
}

#[test]
fn the_bad_change_among_64_is_found_by_each_kind_of_predicate() {
    let Some(wanted) = std::env::var_os("KVET_BISECT") else {
        println!("not run: takes hours of builds and boots; KVET_BISECT=all runs it");
        return;
    };
    let wanted = wanted.into_string().unwrap();
    let project = Project::new();
    project.write("configs/plans/real.yaml", PLAN);
    project.write("version.sh", SCRIPT);
    let history = History::new();
    let cache = fresh_cache(history.folder.path());
    let mut moments = Moments(9);
    let mut wrong = Vec::new();
    let mut ran = 0;
    for kind in &KINDS {
        for beset in [false, true] {
            let name = if beset { format!("{}-beset", kind.name) } else { kind.name.to_owned() };
            let bad = 4 + moments.below(CHANGES - 8);
            if wanted != "all" && !wanted.split(',').any(|word| word == name) {
                continue;
            }
            ran += 1;
            let ids = history.write(&name, kind, bad, beset);
            let repository = history.repository();
            let good = format!("{name}~{CHANGES}");
            let mut arguments = vec!["bisect", "real", "--git", repository.to_str().unwrap()];
            arguments.extend(["--good", &good, "--bad", &name]);
            arguments.extend(kind.arguments);
            let mut command = project.command(&arguments);
            command.env("KVET_CACHE_DIR", &cache);
            let ended = common::finish(command.spawn().unwrap(), std::time::Instant::now());
            let text = fs::read(project.path().join("kvet-runs/latest/bisect.json"));
            let record: serde_json::Value =
                text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
            let number = |name: &str| record[name].as_f64().unwrap_or(f64::NAN);
            let works = record["work"].as_array().cloned().unwrap_or_default();
            let sum: f64 = works.iter().filter_map(|work| work["seconds"].as_f64()).sum();
            let (builds, boots, seconds) = (number("builds"), number("boots"), number("seconds"));
            println!(
                "{name}: bad {bad}, {builds} builds, {boots} boots, {seconds:.0} s; one after another {sum:.0} s, ratio {:.2}",
                seconds / sum
            );
            println!("{}\n{}", ended.stdout, ended.stderr);
            let most = if beset { 11.0 } else { 8.0 };
            let right = ended.code == 0
                && ended.stdout.contains(&format!("commit  {}", ids[bad]))
                && builds <= most
                && seconds <= 1.4 * sum;
            if !right {
                wrong.push(name);
            }
        }
    }
    assert!(ran > 0 || wanted == "config", "KVET_BISECT={wanted} names nothing");
    assert!(wrong.is_empty(), "not as it should be: {wrong:?}");
}
