// SPDX-License-Identifier: MIT OR Apache-2.0
//! kvet's reading of Kconfig files against the kernel's own: what kvet takes for
//! visible, set and selected has to agree with what kconfig wrote to `.config`.

mod common;

use common::fragments::{configure, kconfig_trees};
use kvet::kernel::kconfig::{
    Definition, Expression, Kind, Settled, Symbols, Tree, Tristate, Values, symbols,
};

/// Each makes another part of the kernel's 17,000 symbols visible.
const TARGETS: [&str; 5] = ["tinyconfig", "defconfig", "allnoconfig", "allyesconfig", "randconfig"];

/// Whether all of it holds; none where that cannot be known.
fn all<'a>(conditions: impl Iterator<Item = &'a Expression>, values: &dyn Values) -> Option<bool> {
    let found: Vec<Option<Tristate>> = conditions.map(|one| one.evaluate(values)).collect();
    match found.contains(&Some(Tristate::N)) {
        true => Some(false),
        false => (!found.contains(&None)).then_some(true),
    }
}

/// Where kvet and kconfig disagree about a `.config`, and how many symbols it has.
fn differences(tree: &Tree, config: &Symbols) -> (Vec<String>, usize) {
    let values = Settled { tree, config };
    let mut wrong = Vec::new();
    let mut compared = 0;
    for name in config.keys().map(|name| name.trim_start_matches("CONFIG_")) {
        if !tree.symbols.contains_key(name) {
            wrong.push(format!("{name} is in .config and not in the tree"));
        }
    }
    for (name, definitions) in &tree.symbols {
        if !matches!(tree.kind(name), Some(Kind::Bool | Kind::Tristate)) {
            continue;
        }
        let holds = |definition: &Definition, visible: bool| {
            let more = definition.visible.iter().filter(|_| visible);
            let conditions = definition.depends.iter().chain(more);
            all(conditions.map(|condition| &condition.expression), &values)
        };
        let prompts: Vec<Option<bool>> =
            definitions.iter().filter(|one| one.prompt).map(|one| holds(one, true)).collect();
        let depends: Vec<Option<bool>> = definitions.iter().map(|one| holds(one, false)).collect();
        let selects = tree.selects.get(name).into_iter().flatten();
        let selected = selects.clone().any(|select| {
            let by = values.value(&select.by).unwrap_or("n");
            let depends = select.depends.iter().map(|condition| &condition.expression);
            by != "n" && all(depends.chain([&select.condition]), &values) != Some(false)
        });
        let listed = config.get(&format!("CONFIG_{name}")).map(String::as_str);
        let visible = prompts.contains(&Some(true));
        let may_be_visible = visible || prompts.contains(&None);
        compared += 1;
        match listed {
            None if visible => wrong.push(format!("{name} is visible, and not in .config")),
            // What is implied is written down whatever came of it.
            Some("n") if !may_be_visible && !tree.implied.contains(name) => {
                wrong.push(format!("{name} is in .config as n, and not visible"));
            }
            Some("y" | "m") if !selected && depends.iter().all(|one| *one == Some(false)) => {
                wrong.push(format!("{name} is set, and neither selected nor possible"));
            }
            Some("n") | None if selected && !depends.contains(&None) => {
                wrong.push(format!("{name} is selected, and n"));
            }
            _ => {}
        }
    }
    (wrong, compared)
}

#[test]
fn kvet_and_kconfig_agree_about_what_is_visible_and_what_is_selected() {
    let folder = tempfile::tempdir().unwrap();
    let trees = match kconfig_trees(folder.path()) {
        Ok(trees) => trees,
        Err(why) => {
            println!("not run: {why}");
            return;
        }
    };
    for path in trees {
        let tree = Tree::read(&path, "x86");
        assert!(tree.symbols.len() > 10_000, "{}: {:?}", path.display(), tree.unread);
        for target in TARGETS {
            let config = symbols(&configure(&path, target));
            let (wrong, compared) = differences(&tree, &config);
            println!("{}: {target}: {compared} symbols", path.display());
            assert!(
                wrong.is_empty(),
                "{} differ: {:#?}",
                wrong.len(),
                &wrong[..wrong.len().min(20)]
            );
        }
    }
}
