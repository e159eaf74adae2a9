// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line of a stack: which function, and how far it can be trusted.
//!
//! | architecture, version | shape |
//! |---|---|
//! | x86 since v4.11 | ` func+0x1/0x2 [module]`, `RIP: 0010:func+0x1/0x2` |
//! | x86 before, mips, riscv | ` [<ffffffff81234567>] func+0x1/0x2`, `RIP: 0010:[<...>]  [<...>] func+0x1/0x2` |
//! | x86, 32 bits | `EIP: func+0x1/0x2`, `EIP is at func+0x1/0x2` |
//! | arm64 | `pc : func+0x1/0x2`, `PC is at func+0x1/0x2` (before v4.19), ` func+0x1/0x2 (P)` (v6.14) |
//! | arm | ` (func) from [<c0123456>] (caller+0x1/0x2)`, ` func from caller+0x1/0x2` (v5.19) |
//! | powerpc | `[c0000000] [c0000000] func+0x1/0x2 (unreliable)`, `NIP [c0000000] func+0x1/0x2` |
//! | s390 | `([<00000000>] func+0x1/0x2)`, `Krnl PSW : 0704 0000 (func+0x1/0x2)` |
//! | sparc | `[0000000000456789] func+0x1/0x2`, `TPC: <func+0x1/0x2>` |
//! | decoded by scripts/decode_stacktrace.sh or syzkaller | ` func file.c:12 [inline]`, ` func+0x1/0x2 file.c:12` |

/// A function named by a stack, an instruction pointer or an `at:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Name without compiler suffixes.
    pub name: &'a str,
    /// False for frames that the unwinder only guessed (`? func`, `(unreliable)`).
    pub reliable: bool,
    /// Whether a decoder added this frame for an inlined call.
    pub inline: bool,
}

/// What a line says about the instruction pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer<'a> {
    /// It was in this function.
    At(Frame<'a>),
    /// It was in user space.
    User,
    /// It was nowhere (a jump through a bad pointer) or has no symbol.
    Nowhere,
}

/// Strips what compilers add to a symbol: `.isra.0`, `.constprop.0`, `.part.0`, `.cold`,
/// `.llvm.123`, `.lto_priv.0`; the dot that powerpc's first ABI puts before it; and the
/// `__pi_` and `__efistub_` alias prefixes of arm64 and riscv.
#[must_use]
pub fn base_name(symbol: &str) -> &str {
    let s = symbol.trim_start_matches('.');
    let s = s.split('.').next().unwrap_or(s);
    s.strip_prefix("__pi_").or_else(|| s.strip_prefix("__efistub_")).unwrap_or(s)
}

/// KSYM_NAME_LEN since v6.1. A longer name is none, and would cost memory.
const SYMBOL_MAX: usize = 512;

fn symbol_end(s: &str) -> usize {
    s.bytes()
        .take(SYMBOL_MAX)
        .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$')))
        .unwrap_or(s.len().min(SYMBOL_MAX))
}

/// `NAME+0xHEX/0xHEX` at the start of `s`: the name and what follows.
fn symbol(s: &str) -> Option<(&str, &str)> {
    let end = symbol_end(s);
    let name = &s[..end];
    let first = *name.as_bytes().first()?;
    if !(first.is_ascii_alphabetic() || matches!(first, b'_' | b'.' | b'$')) {
        return None;
    }
    let rest = s[end..].strip_prefix("+0x")?;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    let rest = rest.strip_prefix("/0x").unwrap_or(rest);
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    let base = base_name(name);
    (!base.is_empty()).then_some((base, rest))
}

/// Drops `[<addr>]`, `[addr]`, `0010:` and bare addresses before a symbol.
fn skip_addresses(mut s: &str) -> &str {
    loop {
        s = s.trim_start_matches([' ', '\t', '(', '<']);
        let b = s.as_bytes();
        if b.first() == Some(&b'[') {
            let Some(end) = b.iter().take(24).position(|&c| c == b']') else {
                return s;
            };
            let inside = s[1..end].trim_matches(['<', '>']).trim_start_matches("0x");
            if inside.len() < 4 || !inside.bytes().all(|c| c.is_ascii_hexdigit()) {
                return s;
            }
            s = &s[end + 1..];
            continue;
        }
        let digits = b.iter().take_while(|c| c.is_ascii_hexdigit()).count();
        match b.get(digits) {
            Some(b':') if digits == 4 || digits == 2 => s = &s[digits + 1..],
            Some(b' ' | b':') if digits >= 8 => s = &s[digits + 1..],
            _ => return s,
        }
    }
}

/// Whether `s` begins with a source position such as `mm/slub.c:123`.
fn source(s: &str) -> bool {
    let word = s.split_ascii_whitespace().next().unwrap_or("");
    let Some((file, line)) = word.split_once(':') else {
        return false;
    };
    [".c", ".h", ".S", ".rs"].iter().any(|e| file.ends_with(e))
        && line.bytes().next().is_some_and(|b| b.is_ascii_digit())
}

/// Reads a line of a call trace.
#[must_use]
pub fn parse(text: &str) -> Option<Frame<'_>> {
    let mut s = skip_addresses(text);
    let mut reliable = true;
    if let Some(rest) = s.strip_prefix("? ") {
        reliable = false;
        s = skip_addresses(rest);
    }
    if let Some((name, rest)) = symbol(s) {
        let ok = rest.is_empty()
            || rest.starts_with([' ', ')', '<', '>', ',', '\t', ']'])
            || rest.starts_with("()");
        if !ok || rest.contains(" is ") {
            return None;
        }
        reliable &= !rest.contains("(unreliable)");
        return Some(Frame { name, reliable, inline: rest.ends_with("[inline]") });
    }
    let end = symbol_end(s);
    let (name, rest) = (&s[..end], &s[end..]);
    let first = *name.as_bytes().first()?;
    if !(first.is_ascii_alphabetic() || first == b'_') {
        return None;
    }
    let base = base_name(name);
    if let Some(rest) = rest.strip_prefix(' ') {
        if source(rest) {
            return Some(Frame { name: base, reliable, inline: rest.ends_with("[inline]") });
        }
        if rest.starts_with("from ") && rest.contains("+0x") {
            return Some(Frame { name: base, reliable, inline: false });
        }
    }
    let module = || rest.starts_with(" [") && rest.contains("]) from ");
    (rest.starts_with(") from ") || module()).then_some(Frame {
        name: base,
        reliable,
        inline: false,
    })
}

/// Reads a line that names the instruction pointer, on any architecture.
#[must_use]
pub fn pointer(text: &str) -> Option<Pointer<'_>> {
    let s = text.trim_start();
    let rest = [
        "RIP: ",
        "RIP  ",
        "EIP: ",
        "EIP is at ",
        "IP: ",
        "PC is at ",
        "pc : ",
        "epc : ",
        "epc   : ",
        "NIP ",
        "TPC: ",
        "Krnl PSW : ",
        "era: ",
        "ERA: ",
        "ip is at ",
        "pc: ",
        "PC: ",
    ]
    .iter()
    .find_map(|p| s.strip_prefix(p))?;
    if ["0033:", "0023:", "002b:", "0073:"].iter().any(|p| rest.starts_with(p)) {
        return Some(Pointer::User);
    }
    if s.starts_with("EIP: ") && rest.contains("EFLAGS") {
        return None;
    }
    let rest = skip_addresses(rest);
    if let Some((name, rest)) = symbol(rest) {
        let inline = rest.ends_with("[inline]");
        return Some(Pointer::At(Frame { name, reliable: true, inline }));
    }
    let end = symbol_end(rest);
    if end > 0 && rest.get(end + 1..).is_some_and(source) {
        let inline = rest.ends_with("[inline]");
        return Some(Pointer::At(Frame { name: base_name(&rest[..end]), reliable: true, inline }));
    }
    Some(Pointer::Nowhere)
}

/// Reads the function behind ` at: ` in lockdep's lines about a lock.
#[must_use]
pub fn at(text: &str) -> Option<Frame<'_>> {
    let rest = match text.split_once(" at: ") {
        Some((_, rest)) => rest,
        None => text.strip_prefix("at: ")?,
    };
    parse(rest)
}

/// The first `NAME+0x1/0x2` in `text`, as in `... in func+0x1/0x2`.
#[must_use]
pub fn anywhere(text: &str) -> Option<&str> {
    let plus = text.find("+0x")?;
    let start = text[..plus]
        .rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')))
        .map_or(0, |i| i + text[i..].chars().next().map_or(1, char::len_utf8));
    symbol(&text[start..]).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_architecture_are_read() {
        for (text, name) in [
            (" frob_widget+0x1f/0x30", "frob_widget"),
            (" frob_widget.isra.0+0x1f/0x30 [widget]", "frob_widget"),
            (" frob_widget.part.3.cold+0x1f/0x30", "frob_widget"),
            (" [<ffffffff81234567>] frob_widget+0x1f/0x30", "frob_widget"),
            (" [<ffffffff81234567>] ? frob_widget+0x1f/0x30", "frob_widget"),
            (" ? frob_widget+0x1f/0x30 drivers/widget.c:12", "frob_widget"),
            (" frob_widget drivers/widget.c:12 [inline]", "frob_widget"),
            ("[c00000000f] [c000000001234567] .frob_widget+0x1f/0x30 (unreliable)", "frob_widget"),
            ("([<0000000000123456>] frob_widget+0x1f/0x30)", "frob_widget"),
            (" [<0000000000123456>] frob_widget+0x1f/0x30 ", "frob_widget"),
            ("[<c0108c9c>] (frob_widget) from [<c0105338>] (caller+0x10/0x14)", "frob_widget"),
            (
                "[<c0108c9c>] (frob_widget+0x1/0x2) from [<c0105338>] (caller+0x10/0x14)",
                "frob_widget",
            ),
            (
                "[<7f0d0248>] (frob_widget [widget]) from [<7f0d04ac>] (caller+0xc8/0x258 [widget])",
                "frob_widget",
            ),
            (" frob_widget from caller+0x10/0x14", "frob_widget"),
            (" frob_widget+0x1f/0x30 (P)", "frob_widget"),
            ("[0000000000456789] frob_widget+0x1f/0x30", "frob_widget"),
        ] {
            assert_eq!(parse(text).map(|f| f.name), Some(name), "{text}");
        }
    }

    #[test]
    fn guessed_and_inlined_frames_are_marked() {
        assert!(!parse(" ? f+0x1/0x2").unwrap().reliable);
        assert!(!parse("[c0000000] [c0000000] f+0x1/0x2 (unreliable)").unwrap().reliable);
        assert!(parse(" f a.h:1 [inline]").unwrap().inline);
    }

    #[test]
    fn other_lines_are_no_frames() {
        for text in [
            "Hardware name: QEMU Standard PC",
            "R10: 0000000000000000 R11: 0000000000000246",
            "page: refcount:0 mapcount:0",
            " <TASK>",
            "",
            "Modules linked in: a b c",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn instruction_pointers_are_read() {
        for text in [
            "RIP: 0010:f+0x1/0x2",
            "RIP: 0010:[<ffffffff81234567>]  [<ffffffff81234567>] f+0x1/0x2",
            "RIP  [<ffffffff81234567>] f+0x1/0x2",
            "RIP: 0010:f mm/f.c:12 [inline]",
            "RIP: e030:f+0x1/0x2",
            "IP: [<ffffffff81234567>] f+0x1/0x2",
            "IP: f+0x1/0x2",
            "EIP: f+0x1/0x2",
            "EIP is at f+0x1/0x2",
            "PC is at f+0x1/0x2",
            "pc : f+0x1/0x2",
            "pc : [<ffff000008123456>] f+0x1/0x2",
            "epc : f+0x1/0x2",
            "epc   : 80123456 f+0x1/0x2",
            "NIP [c000000000123456] f+0x1/0x2",
            "Krnl PSW : 0704c00180000000 0000000000123456 (f+0x1/0x2)",
            "Krnl PSW : 0704c00180000000 0000000000123456 f (mm/f.c:12 (discriminator 2))",
            "TPC: <f+0x1/0x2>",
        ] {
            let Some(Pointer::At(frame)) = pointer(text) else { panic!("{text}") };
            assert_eq!(frame.name, "f", "{text}");
        }
        assert_eq!(pointer("RIP: 0033:0x45ac8a"), Some(Pointer::User));
        assert_eq!(pointer("RIP: 0010:0x0"), Some(Pointer::Nowhere));
        assert_eq!(pointer("RIP: 0010:          (null)"), Some(Pointer::Nowhere));
    }

    #[test]
    fn lockdep_positions_are_read() {
        let text = "ffff8880 (&w->lock){+.+.}-{3:3}, at: f+0x1/0x2";
        assert_eq!(at(text).map(|f| f.name), Some("f"));
        assert_eq!(at(" (w){+.+.}, at: [<ffffffff81234567>] f+0x1/0x2").map(|f| f.name), Some("f"));
        assert_eq!(anywhere("BUG: KASAN: x in f.constprop.0+0x1/0x2 [m]"), Some("f"));
    }
}
