// SPDX-License-Identifier: MIT OR Apache-2.0
//! A series that was first sent for comments (`[RFC PATCH v3]`) and then as a patch.
//! Its version often starts at 1 again, so versions do not say which is newer.

use super::choose::name;
use super::entry::Entry;
use super::group::Group;
use super::reading::Reason;

/// The groups of a chain that are candidates: those for comments, and the others.
/// Both are given only where it cannot be told which is newer. What was replaced is
/// passed over, and a note says so.
pub fn decide(
    chain: &[usize],
    groups: &[Group],
    entries: &mut [Entry],
    notes: &mut Vec<String>,
) -> (Vec<usize>, Vec<usize>) {
    let (rfcs, posted): (Vec<usize>, Vec<usize>) =
        chain.iter().copied().partition(|&group| groups[group].rfc);
    let newest = |part: &[usize]| {
        part.iter()
            .filter(|&&group| !groups[group].members.is_empty())
            .map(|&group| groups[group].version)
            .max()
    };
    let (Some(rfc), Some(patch)) = (newest(&rfcs), newest(&posted)) else {
        return (Vec::new(), chain.to_vec());
    };
    let order = order(&rfcs, &posted, groups, entries);
    let alike = rfcs.iter().all(|&one| {
        posted.iter().all(|&other| groups[one].is_numbered() == groups[other].is_numbered())
    });
    match order {
        // Versions and times say the same.
        Order::RfcFirst | Order::Unknown if patch > rfc => (Vec::new(), chain.to_vec()),
        Order::PatchFirst if rfc > patch => (Vec::new(), chain.to_vec()),
        Order::RfcFirst if alike => {
            for &group in &rfcs {
                for &at in &groups[group].members {
                    let detail = format!("sent as a patch since, as {}", name(patch));
                    entries[at].passed.get_or_insert((Reason::Superseded, detail));
                }
                for &at in &groups[group].covers {
                    let detail = format!("of RFC {}", name(groups[group].version));
                    entries[at].passed.get_or_insert((Reason::Cover, detail));
                }
            }
            notes.push(format!(
                "{} was sent after RFC {} and is taken for the newer one",
                name(patch),
                name(rfc)
            ));
            (Vec::new(), posted)
        }
        _ if !alike && patch > rfc => (Vec::new(), chain.to_vec()),
        _ => (rfcs, posted),
    }
}

enum Order {
    RfcFirst,
    PatchFirst,
    Unknown,
}

/// Which was sent first: what answers the other is later, whatever the dates say,
/// which may be those of commits; otherwise the dates, if all agree.
fn order(rfcs: &[usize], posted: &[usize], groups: &[Group], entries: &[Entry]) -> Order {
    let mails = |part: &[usize]| -> Vec<usize> {
        part.iter()
            .flat_map(|&group| groups[group].covers.iter().chain(&groups[group].members))
            .copied()
            .collect()
    };
    let (rfcs, posted) = (mails(rfcs), mails(posted));
    let answers = |part: &[usize], others: &[usize]| {
        let ids: std::collections::HashSet<&str> =
            others.iter().filter_map(|&at| entries[at].message_id.as_deref()).collect();
        part.iter().any(|&at| entries[at].references.iter().any(|id| ids.contains(id.as_str())))
    };
    match (answers(&posted, &rfcs), answers(&rfcs, &posted)) {
        (true, false) => return Order::RfcFirst,
        (false, true) => return Order::PatchFirst,
        (true, true) => return Order::Unknown,
        (false, false) => {}
    }
    let span = |part: &[usize]| -> Option<(i64, i64)> {
        let sent: Option<Vec<i64>> = part.iter().map(|&at| entries[at].sent).collect();
        let sent = sent?;
        Some((*sent.iter().min()?, *sent.iter().max()?))
    };
    match (span(&rfcs), span(&posted)) {
        (Some((_, rfc)), Some((patch, _))) if rfc < patch => Order::RfcFirst,
        (Some((rfc, _)), Some((_, patch))) if patch < rfc => Order::PatchFirst,
        _ => Order::Unknown,
    }
}
