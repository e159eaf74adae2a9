// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers for people.

/// From here on a figure's digits say nothing more, and it is shown as a power.
const HUGE: f64 = 1e15;

/// A figure with its thousands set apart: `26,804,096`, `38.029`.
#[must_use]
pub(super) fn grouped(value: f64) -> String {
    let text = plain(value);
    let whole = text.split('.').next().unwrap_or_default();
    let digits = whole.trim_start_matches('-');
    if value.abs() >= HUGE || digits.len() < 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return text;
    }
    let mut out = whole[..whole.len() - digits.len()].to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + &text[whole.len()..]
}

/// A figure: whole from a thousand on or when it is whole, else with three decimals.
#[must_use]
pub(super) fn plain(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "-".to_owned(),
        size if size >= HUGE => format!("{value:.3e}"),
        size if size >= 1000.0 || size.fract() == 0.0 => unsigned_zero(format!("{value:.0}")),
        _ => unsigned_zero(format!("{value:.3}")),
    }
}

/// A change in percent: `+1.19`, `-22.93`, `0.00`.
#[must_use]
pub(super) fn change(percent: f64) -> String {
    if !percent.is_finite() {
        return "-".to_owned();
    }
    let text = unsigned_zero(format!("{percent:.2}"));
    if percent > 0.0 && text != "0.00" { format!("+{text}") } else { text }
}

/// A range in percent; `0` only where there is none at all.
#[must_use]
pub(super) fn range(percent: f64) -> String {
    match percent {
        percent if !percent.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        percent if percent.abs() < 0.01 => "<0.01".to_owned(),
        percent => format!("{percent:.2}"),
    }
}

fn unsigned_zero(text: String) -> String {
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|byte| matches!(byte, b'0' | b'.')) => rest.to_owned(),
        _ => text,
    }
}

/// `1 build`, `2 builds`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thousands_stand_apart() {
        let shown = [0.0, 999.0, 1000.0, -26_804_095.5, 38.0290, 999.9999, 1e20, f64::INFINITY];
        assert_eq!(
            shown.map(grouped),
            ["0", "999", "1,000", "-26,804,096", "38.029", "1,000.000", "1.000e20", "-"]
        );
    }

    #[test]
    fn a_change_has_a_sign_unless_it_is_none() {
        let shown = [1.191, -22.93, 0.0, -0.001, 0.001, f64::NAN];
        assert_eq!(shown.map(change), ["+1.19", "-22.93", "0.00", "0.00", "0.00", "-"]);
        let shown = [0.0, 0.003, 0.5, f64::NEG_INFINITY];
        assert_eq!(shown.map(range), ["0", "<0.01", "0.50", "-"]);
    }

    proptest! {
        #[test]
        fn any_number_is_short(value in any::<f64>()) {
            prop_assert!(grouped(value).len() <= 24, "{}", grouped(value));
        }
    }
}
