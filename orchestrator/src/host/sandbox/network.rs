// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was tried on the network of a sandbox, which has none but loopback: the
//! counters of its own network namespace tell.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

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
pub(super) fn attempts(file: &File) -> Option<String> {
    let mut text = Vec::new();
    let read = At { file, offset: 0 }.take(MAX_BYTES + 1).read_to_end(&mut text);
    if read.is_err() || text.len() as u64 > MAX_BYTES {
        return Some("spoilt the count of what it tried on the network".to_owned());
    }
    match count(&String::from_utf8_lossy(&text)) {
        0 => None,
        1 => Some("tried to reach a network (1 packet or connection)".to_owned()),
        count => Some(format!("tried to reach a network ({count} packets or connections)")),
    }
}

/// Reads a file from its beginning, wherever its end is being written.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
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
