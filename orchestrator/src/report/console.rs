// SPDX-License-Identifier: MIT OR Apache-2.0
//! What kvet reads out of a serial log, for people.

use std::fmt::Write as _;

use crate::fault::escape;
use crate::vm::splat::Findings;

/// Most lines of a splat's text that are shown; the JSON has all.
const MAX_TEXT_LINES: usize = 60;

/// The findings of one log.
#[must_use]
pub fn render(findings: &Findings) -> String {
    let mut out = String::new();
    for splat in &findings.splats {
        let _ = writeln!(out, "{}", escape(&splat.title));
        let _ = write!(out, "  lines {}-{}", splat.first_line, splat.last_line);
        let _ = write!(out, ", fingerprint {}", splat.fingerprint);
        if let Some(function) = &splat.function {
            let _ = write!(out, ", in {}", escape(function));
        }
        if splat.count > 1 {
            let _ = write!(out, ", {} times", splat.count);
        }
        if let Some(taint) = &splat.taint {
            let _ = write!(out, ", taint {}", escape(taint));
        }
        if splat.fatal {
            out.push_str(", fatal");
        }
        out.push('\n');
        for line in splat.text.lines().take(MAX_TEXT_LINES) {
            let _ = writeln!(out, "    {}", escape(line));
        }
        let more = splat.text.lines().count().saturating_sub(MAX_TEXT_LINES);
        if more > 0 {
            let _ = writeln!(out, "    ... {more} lines more");
        }
        out.push('\n');
    }
    match (findings.splats.len(), findings.more) {
        (0, _) => out.push_str("nothing found\n"),
        (count, 0) => {
            let _ = writeln!(out, "{count} found");
        }
        (count, more) => {
            let _ = writeln!(out, "{count} found, and {more} more that were only counted");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::splat::examine;

    #[test]
    fn a_log_for_people_cannot_move_their_cursor() {
        let log = "[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000008\n[    1.0] RIP: 0010:victim+0x1/0x2\n[    1.0] \u{1b}[2Jx\n[    1.0] Call Trace:\n[    1.0]  <TASK>\n[    1.0]  victim+0x1/0x2\n[    1.0]  </TASK>\n[    1.0] ---[ end trace 0000000000000000 ]---\n";
        let page = render(&examine(log.as_bytes()));
        assert!(page.contains("in victim"), "{page}");
        assert!(!page.contains('\u{1b}'));
        assert_eq!(render(&examine(b"all is well\n")), "nothing found\n");
    }
}
