// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::kernel::mail::subject::Subject;

const ADA: &str = "ada@example.org";

/// A patch or cover letter of a subject, with an id and what it answers.
fn mail(subject: &str, id: &str, parent: &str) -> Entry {
    let subject = Subject::parse(subject);
    let mut content = [0; 16];
    for (at, byte) in subject.text.bytes().chain(id.bytes()).enumerate() {
        content[at % 16] ^= byte;
    }
    Entry {
        cover: subject.number.is_some_and(|(number, _)| number == 0),
        raw_subject: subject.text.clone(),
        subject,
        sender: ADA.to_owned(),
        message_id: (!id.is_empty()).then(|| id.to_owned()),
        references: if parent.is_empty() { Vec::new() } else { vec![parent.to_owned()] },
        content,
        ..Entry::default()
    }
}

fn chosen(entries: &mut [Entry]) -> (Vec<usize>, Vec<ProblemKind>) {
    let choice = choose(entries);
    (
        choice.patches.iter().map(|&(_, at)| at).collect(),
        choice.problems.iter().map(|(_, kind, _)| *kind).collect(),
    )
}

#[test]
fn mails_without_any_reference_are_one_series_if_no_number_comes_twice() {
    let mut mails = [mail("[PATCH 2/2] b", "", ""), mail("[PATCH 1/2] a", "", "")];
    assert_eq!(chosen(&mut mails), (vec![1, 0], vec![]));
    let mut mails = [
        mail("[PATCH 1/2] a", "", ""),
        mail("[PATCH 2/2] b", "", ""),
        mail("[PATCH 1/2] c", "", ""),
        mail("[PATCH 2/2] d", "", ""),
    ];
    assert_eq!(chosen(&mut mails), (vec![], vec![ProblemKind::Ambiguous]));
}

#[test]
fn threads_are_never_mixed_into_a_series_that_looks_complete() {
    let mut mails = [mail("[PATCH 1/2] a", "a", "x"), mail("[PATCH 2/2] b", "b", "y")];
    assert_eq!(chosen(&mut mails), (vec![], vec![ProblemKind::Ambiguous]));
    let mut mails = [mail("[PATCH 1/2] a", "a", "x"), mail("[PATCH 2/2] b", "b", "x")];
    assert_eq!(chosen(&mut mails), (vec![0, 1], vec![]));
}

#[test]
fn a_version_of_somebody_else_does_not_win() {
    let mut mails = [
        mail("[PATCH 1/2] a", "a", ""),
        mail("[PATCH 2/2] b", "b", "a"),
        Entry { sender: "bob@example.com".to_owned(), ..mail("[PATCH v2] c", "c", "b") },
    ];
    assert_eq!(chosen(&mut mails), (vec![0, 1], vec![]));
    assert!(matches!(mails[2].passed, Some((Reason::Stray, _))));
}

#[test]
fn a_resent_series_replaces_the_one_that_it_repeats() {
    let mut mails = [
        mail("[PATCH v2 1/1] a", "a", ""),
        mail("[RESEND PATCH v2 1/1] a", "b", ""),
        mail("[PATCH 1/1] a", "c", ""),
    ];
    assert_eq!(chosen(&mut mails), (vec![1], vec![]));
}

#[test]
fn a_new_version_without_a_number_has_that_of_the_patch_it_answers() {
    let mut mails = [
        mail("[PATCH 0/2] cover", "0", ""),
        mail("[PATCH 1/2] a", "1", "0"),
        mail("[PATCH 2/2] b", "2", "0"),
        mail("[PATCH v2] b", "3", "2"),
    ];
    assert_eq!(chosen(&mut mails), (vec![1, 3], vec![]));
    assert!(matches!(mails[2].passed, Some((Reason::Superseded, _))));
}

#[test]
fn a_new_version_that_is_no_answer_is_not_filled_up() {
    let mut mails = [
        mail("[PATCH 1/2] a", "1", "0"),
        mail("[PATCH 2/2] b", "2", "0"),
        mail("[PATCH v2 2/2] b", "3", "0"),
    ];
    let (patches, problems) = chosen(&mut mails);
    assert_eq!((patches, problems), (vec![2], vec![ProblemKind::Incomplete]));
}

#[test]
fn one_patch_of_a_new_version_that_answers_the_cover_letter_is_filled_up() {
    let series = |subject: &str| {
        [
            mail("[PATCH 0/2] cover", "0", ""),
            mail("[PATCH 1/2] a", "1", "0"),
            mail("[PATCH 2/2] b", "2", "0"),
            mail(subject, "3", "0"),
        ]
    };
    assert_eq!(chosen(&mut series("[PATCH v2 2/2] b")), (vec![1, 3], vec![]));
    // The first of a whole new series answers the cover letter too, and what has
    // another subject replaces nothing.
    assert_eq!(chosen(&mut series("[PATCH v2 1/2] a")), (vec![3], vec![ProblemKind::Incomplete]));
    assert_eq!(chosen(&mut series("[PATCH v2 2/2] c")), (vec![3], vec![ProblemKind::Incomplete]));
}

#[test]
fn numbers_are_told_in_ranges() {
    assert_eq!(ranges(&[1, 3, 4, 6, 7, 8]), "1, 3, 4, 6-8");
    assert_eq!(ranges(&[]), "");
}

proptest::proptest! {
    /// In whatever order mails come, the same series is read.
    #[test]
    fn order_does_not_matter(seed in proptest::prelude::any::<u64>()) {
        let mut mails = vec![
            mail("[PATCH 0/3] cover", "0", ""),
            mail("[PATCH 1/3] a", "1", "0"),
            mail("[PATCH 2/3] b", "2", "0"),
            mail("[PATCH 3/3] c", "3", "0"),
            mail("[PATCH v2 0/3] cover", "v0", "0"),
            mail("[PATCH v2 1/3] a", "v1", "v0"),
            mail("[PATCH v2 2/3] b", "v2", "v0"),
            mail("[PATCH v2 3/3] c", "v3", "v0"),
        ];
        let mut state = seed;
        for at in (1..mails.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            mails.swap(at, (state >> 33) as usize % (at + 1));
        }
        let (patches, problems) = chosen(&mut mails);
        let ids: Vec<&str> = patches.iter().filter_map(|&at| mails[at].message_id.as_deref()).collect();
        proptest::prop_assert_eq!(ids, ["v1", "v2", "v3"]);
        proptest::prop_assert!(problems.is_empty());
    }
}
