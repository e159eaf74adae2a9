// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was tried on the network of a sandbox, which has none but loopback: the
//! counters of its own network namespace tell.

use std::path::Path;

/// Counters that only an attempt moves: connections, datagrams, and packets for
/// which there was no route (RFC 4022, RFC 4113, RFC 4293).
const COUNTERS: [&str; 6] = [
    "Ip.OutNoRoutes",
    "Tcp.ActiveOpens",
    "Udp.OutDatagrams",
    "Ip6OutNoRoutes",
    "Udp6OutDatagrams",
    "Icmp.OutMsgs",
];
/// `snmp` and `snmp6` of a few commands.
const MAX_BYTES: u64 = 1 << 20;

/// The sum of the attempts of a session's commands, in words.
pub(super) fn attempts(file: &Path) -> Option<String> {
    let (folder, name) = (file.parent()?, file.file_name()?.to_str()?);
    let text = crate::host::beneath::read(folder, name, MAX_BYTES).ok()?;
    match count(&String::from_utf8_lossy(&text)) {
        0 => None,
        1 => Some("tried to reach a network (1 packet or connection)".to_owned()),
        count => Some(format!("tried to reach a network ({count} packets or connections)")),
    }
}

/// `snmp` has a line of names and a line of values for each protocol, `snmp6` a
/// line for each counter.
fn count(text: &str) -> u64 {
    let mut names: Vec<&str> = Vec::new();
    let mut sum = 0u64;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((first, rest)) = words.split_first() else {
            continue;
        };
        if let Some(protocol) = first.strip_suffix(':') {
            if rest.iter().all(|word| word.parse::<i64>().is_err()) {
                names = rest.to_vec();
                continue;
            }
            for (name, value) in names.iter().zip(rest) {
                if COUNTERS.contains(&format!("{protocol}.{name}").as_str()) {
                    sum = sum.saturating_add(value.parse().unwrap_or(0));
                }
            }
        } else if COUNTERS.contains(first) {
            sum = sum.saturating_add(rest.first().and_then(|v| v.parse().ok()).unwrap_or(0));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_summed_over_protocols_and_commands() {
        let one = "Ip: Forwarding OutNoRoutes\nIp: 2 3\nTcp: RtoMin MaxConn ActiveOpens\nTcp: 200 -1 1\nUdp: InDatagrams OutDatagrams\nUdp: 9 2\nIp6OutNoRoutes                 \t4\nIp6InReceives \t7\n";
        assert_eq!(count(one), 10);
        assert_eq!(count(&one.repeat(2)), 20);
        assert_eq!(count("nonsense\nTcp:\n: 1 2\n"), 0);
    }
}
