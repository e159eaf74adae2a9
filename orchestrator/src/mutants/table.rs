// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of mutants, `patches/mutants/mutants.yaml`.

use std::path::Path;

use serde::Deserialize;

use crate::fault::Fault;
use crate::kernel::edit::Edit;
use crate::plan::yaml::{Document, closest, load};

/// `schema:` of the table.
const SCHEMA: &str = "kvet/mutants/1";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    mutants: Vec<Mutant>,
}

/// A series with a small mistake, or with a change that is none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Its name.
    pub name: String,
    /// What is wrong with it, for people.
    pub what: String,
    /// The plan, whose one series is changed.
    pub plan: String,
    /// A test of that plan.
    pub test: String,
    /// A guest of that plan in which the test runs.
    pub guest: String,
    /// What is changed in the tree with the series.
    pub edits: Vec<Edit>,
    /// Observations each of which must differ from those of the series.
    #[serde(default)]
    red: Vec<String>,
    /// How the guest must end other than by completing its job: a halt reason,
    /// or `test_failed`; with `red`, `any` if the mutant may end it in any way.
    #[serde(default)]
    end: Option<String>,
    /// It is harmless, and why: nothing may differ.
    #[serde(default)]
    green: Option<String>,
    /// It is harmful but nothing shows it, and why not.
    #[serde(default)]
    survives: Option<String>,
}

/// What must be seen of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// At least these observations differ, and the job completes, if it need not
    /// end otherwise.
    Red {
        /// Names of observations.
        names: Vec<String>,
        /// The guest may end in any way.
        any_end: bool,
    },
    /// The job does not complete, for this reason.
    End(String),
    /// Nothing differs.
    Green(Harm),
}

/// Whether a mutant that nothing shows does harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// No.
    None,
    /// Yes.
    Unseen,
}

impl Mutant {
    /// What must be seen of it; none if the table does not say exactly one thing.
    #[must_use]
    pub fn expect(&self) -> Option<Expect> {
        match (self.red.as_slice(), &self.end, &self.green, &self.survives) {
            ([_, ..], end, None, None) if end.as_deref().is_none_or(|end| end == "any") => {
                Some(Expect::Red { names: self.red.clone(), any_end: end.is_some() })
            }
            ([], Some(end), None, None) => Some(Expect::End(end.clone())),
            ([], None, Some(_), None) => Some(Expect::Green(Harm::None)),
            ([], None, None, Some(_)) => Some(Expect::Green(Harm::Unseen)),
            _ => None,
        }
    }
}

/// Reads the table, and keeps the mutants named in `only`; all if that is empty.
///
/// # Errors
/// A `plan` fault with the place of the mistake.
pub fn read(file: &Path, only: &[String]) -> Result<Vec<(Mutant, Expect)>, Fault> {
    select(load(file)?, only)
}

fn select(document: Document<File>, only: &[String]) -> Result<Vec<(Mutant, Expect)>, Fault> {
    let File { schema, mutants } = &document.value;
    if schema != SCHEMA {
        return Err(document.fault("schema", format!("schema {schema:?}, not {SCHEMA}")));
    }
    let names: Vec<&str> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
    if let Some(wrong) = only.iter().find(|name| !names.contains(&name.as_str())) {
        let fault = Fault::plan(format!("there is no mutant {wrong:?}"));
        return Err(match closest(wrong, names) {
            Some(near) => fault.help(format!("did you mean `{near}`?")),
            None => fault.help(format!("{} lists what there is", document.file().display())),
        });
    }
    let mut chosen = Vec::new();
    for (at, mutant) in mutants.iter().enumerate() {
        let place = format!("mutants.{at}");
        let Some(expect) = mutant.expect() else {
            let what = format!("{}: one of red, end, green and survives is needed", mutant.name);
            return Err(document.fault(&place, what));
        };
        if names[..at].contains(&mutant.name.as_str()) {
            return Err(document.fault(&place, format!("a second mutant {}", mutant.name)));
        }
        if mutant.edits.is_empty() {
            return Err(document.fault(&place, format!("{} changes nothing", mutant.name)));
        }
        if only.is_empty() || only.contains(&mutant.name) {
            chosen.push((mutant.clone(), expect));
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::plan::resolve::resolve;
    use crate::plan::yaml::parse;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn the_table_is_whole() {
        let rows = read(&root().join("patches/mutants/mutants.yaml"), &[]).unwrap();
        let count = |wanted: fn(&Expect) -> bool| rows.iter().filter(|row| wanted(&row.1)).count();
        let red = count(|expect| matches!(expect, Expect::Red { .. } | Expect::End(_)));
        let harmless = count(|expect| *expect == Expect::Green(Harm::None));
        assert!(red >= 12 && harmless >= 3, "{red} red, {harmless} harmless");
        let tests = crate::guest::tests();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.0.plan.as_str()).collect();
        for name in names {
            let plan = resolve(&root().join(format!("configs/plans/{name}.yaml")), &tests).unwrap();
            for (mutant, _) in rows.iter().filter(|row| row.0.plan == name) {
                super::super::find_cell(&plan, mutant).unwrap();
            }
        }
    }

    fn table(rows: &str) -> Result<Vec<(Mutant, Expect)>, Fault> {
        let text = format!("schema: kvet/mutants/1\nmutants:\n{rows}");
        select(parse(Path::new("t.yaml"), text)?, &[])
    }

    const ROW: &str = "what: w, plan: p, test: t, guest: g, edits: [{file: f, old: a, new: b}]";

    #[test]
    fn a_row_says_one_thing() {
        assert_eq!(
            table(&format!("  - {{name: a, {ROW}, red: [x]}}")).unwrap()[0].1,
            Expect::Red { names: vec!["x".into()], any_end: false }
        );
        for wrong in [
            "",
            ", red: [x], green: y",
            ", end: oops, survives: y",
            ", red: [x], end: oops",
            ", red: []",
        ] {
            let fault = table(&format!("  - {{name: a, {ROW}{wrong}}}")).unwrap_err();
            assert!(fault.to_string().contains("t.yaml:3"), "{fault}");
        }
    }

    #[test]
    fn names_are_used_once() {
        let row = format!("  - {{name: a, {ROW}, red: [x]}}\n");
        assert!(table(&format!("{row}{row}")).unwrap_err().to_string().contains("second"));
    }
}
