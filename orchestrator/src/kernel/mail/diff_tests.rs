// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use proptest::prelude::*;

const DIFF: &str = "diff --git a/mm/a.c b/mm/a.c\nindex 1..2 100644\n--- a/mm/a.c\n+++ b/mm/a.c\n@@ -1,3 +1,3 @@ int f(void)\n one\n-two\n+TWO\n three\n@@ -9 +9 @@\n-x\n+y\n\\ No newline at end of file\n";

fn read(text: &str) -> Option<Diff> {
    find(&Text::new(text.as_bytes(), 1), 0)
}

fn damages(text: &str) -> Vec<(usize, DamageKind)> {
    let diff = read(text).unwrap_or_default();
    diff.damages.iter().map(|damage| (damage.line, damage.kind)).collect()
}

#[test]
fn a_whole_diff_ends_where_its_last_hunk_ends() {
    let diff = read(&format!("words\n{DIFF}-- \n2.47\n")).unwrap();
    assert_eq!((diff.lines, diff.added, diff.removed), (1..14, 2, 2));
    assert!(diff.damages.is_empty() && !diff.trailing);
    assert!(read("words\n- and\n+ a list\n").is_none());
}

#[test]
fn what_git_would_pass_over_is_damage() {
    use DamageKind::{Header, Miscounted, Truncated, Wrapped};
    for (text, expected) in [
        (DIFF.replace("@@ -9 +9", "@ -9 +9"), (10, Miscounted)),
        (DIFF.replace("@@ -9 +9", "> @@ -9 +9"), (10, Miscounted)),
        (DIFF.replace("\n three", "\nthree"), (9, Wrapped)),
        (DIFF.replace(" three\n", ""), (9, Truncated)),
        (DIFF.replace("1,3 +1,3", "1,2 +1,2"), (9, Miscounted)),
        (DIFF.replace("-two\n+TWO", " two"), (5, Miscounted)),
        (DIFF.replace("@@ -1,3 +1,3 @@", "@@ -1,3 +1,x @@"), (5, Header)),
        (DIFF.replace("--- a/mm/a.c\n+++ b/mm/a.c\n", ""), (3, Header)),
        (DIFF.replace("--- a/mm/a.c", "--- a/mm/b.c"), (1, Header)),
        (DIFF[DIFF.find("@@").unwrap()..].to_owned(), (1, Header)),
        ("diff --git a/mm/a.c b/mm/a.c\nindex 1..2 100644\n".to_owned(), (1, Header)),
        ("--- a/mm/a.c\n+++ b/mm/a.c\nwords\n".to_owned(), (3, Header)),
    ] {
        let found = damages(&text);
        assert_eq!(found.first(), Some(&expected), "{text}\n{found:?}");
    }
}

#[test]
fn text_between_and_behind_files_is_no_damage() {
    let second = DIFF.replace("mm/a.c", "mm/b.c");
    for text in [
        format!("{DIFF}{second}"),
        format!("{DIFF}\nIndex: mm/b.c\n=====\n{second}"),
        format!("{DIFF}\nThanks,\nAda\n"),
        format!("{DIFF}-- \n2.47\n\n___\n- list footer\n"),
        format!("{DIFF}Thanks,\n"),
    ] {
        assert_eq!(damages(&text), [], "{text}");
    }
}

#[test]
fn every_line_that_a_client_broke_is_named() {
    let text = DIFF.replace(" three", " three\nfour").replace("+TWO", "+TWO\nTWO");
    assert_eq!(damages(&text), [(9, DamageKind::Wrapped), (11, DamageKind::Wrapped)]);
}

#[test]
fn lines_that_look_like_headers_inside_a_hunk_belong_to_it() {
    let text = "--- a/mm/a.c\n+++ b/mm/a.c\n@@ -1,3 +1,3 @@\n x\n--- a/y\n+++ b/y\n -- \n";
    let diff = read(text).unwrap();
    assert_eq!((diff.files.len(), diff.added, diff.removed), (1, 1, 1));
    assert!(diff.damages.is_empty());
}

#[test]
fn a_binary_patch_is_read_to_its_end() {
    let head = "diff --git a/mm/a b/mm/a\nindex 1..2 100644\nGIT binary patch\n";
    let text = format!("{head}literal 4\nLc${{NkU|;|M00aO5\n\nliteral 0\nHcmV?d00001\n\n");
    let diff = read(&text).unwrap();
    assert!(diff.damages.is_empty(), "{:?}", diff.damages);
    assert!(diff.files[0].binary && diff.lines == (0..9));
    assert_eq!(damages(&format!("{head}literal 4\nLc${{Nk\n\n")), [(5, DamageKind::Wrapped)]);
    assert_eq!(damages(&format!("{head}literal 0\nHcmV?d00001\n")), [(4, DamageKind::Truncated)]);
    assert_eq!(damages(head), [(3, DamageKind::Truncated)]);
}

#[test]
fn indentation_by_blanks_is_damage_only_where_no_tab_is_left() {
    let hunk = |file: &str, line: &str| {
        format!("--- a/{file}\n+++ b/{file}\n@@ -1,2 +1,2 @@\n {line}\n-old\n+new\n")
    };
    let blanks = "        return 1;";
    assert_eq!(damages(&hunk("mm/a.c", blanks)), [(4, DamageKind::Whitespace)]);
    assert_eq!(damages(&hunk("mm/a.c", "    return 1;")), [(4, DamageKind::Whitespace)]);
    assert_eq!(damages(&hunk("tools/a.py", blanks)), []);
    assert_eq!(damages(&hunk("mm/a.c", "\treturn 1;")), []);
    let both = hunk("mm/a.c", blanks).replace("+new", "+\tnew");
    assert_eq!(damages(&both), []);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(@@ -[0-9]{1,3},[0-9]{0,20} \\+1 @@\n|diff --git |--- a|\\+\\+\\+ b|[ +-]x|GIT binary patch\n|literal 1\n|a/x b/x|\n|-- \n|\u{a0}){0,30}") {
        let _ = read(&text);
    }

    #[test]
    fn a_diff_cut_after_any_line_is_whole_only_behind_its_hunks(count in 6_usize..13) {
        let text: String = DIFF.split_inclusive('\n').take(count).collect();
        // Behind the first hunk, and before and behind the mark that the file has no last line end.
        let whole = [9, 12, 13].contains(&count);
        prop_assert_eq!(damages(&text).is_empty(), whole, "{}", text);
    }
}
