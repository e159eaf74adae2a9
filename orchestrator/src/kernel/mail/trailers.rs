// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trailers at the end of a commit's message (git-interpret-trailers(1)).

use serde::Serialize;

/// `Signed-off-by: Ada Example <ada@example.org>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trailer {
    /// What stands before the colon.
    pub key: String,
    /// What stands behind it, on one line.
    pub value: String,
}

/// The trailers of a message: those of its last paragraph, if that is made of
/// trailers, or holds one that git writes itself and at least a quarter of them.
#[must_use]
pub fn trailers(message: &str) -> Vec<Trailer> {
    let lines: Vec<&str> = message.trim_end().lines().collect();
    let start = lines.iter().rposition(|line| line.trim().is_empty()).map_or(0, |at| at + 1);
    let mut trailers: Vec<Trailer> = Vec::new();
    let mut others = 0;
    let mut known = false;
    for line in &lines[start..] {
        if line.starts_with([' ', '\t'])
            && let Some(last) = trailers.last_mut()
        {
            last.value.push(' ');
            last.value.push_str(line.trim());
        } else if let Some((key, value)) = trailer(line) {
            known |= key == "Signed-off-by";
            trailers.push(Trailer { key: key.to_owned(), value: value.to_owned() });
        } else if line.starts_with("(cherry picked from commit ") {
            known = true;
        } else {
            others += 1;
        }
    }
    let enough = others == 0 || known && trailers.len() * 3 >= others;
    if enough { trailers } else { Vec::new() }
}

fn trailer(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let key = key.trim_end();
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!key.is_empty() && key.bytes().all(is_key)).then_some((key, value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(message: &str) -> Vec<String> {
        trailers(message).into_iter().map(|trailer| trailer.key).collect()
    }

    #[test]
    fn the_last_paragraph_holds_the_trailers() {
        let message = "Why: because.\n\nFixes: 0123456789ab (\"x\")\nCc: stable@example.org\n [ada: typo]\nSigned-off-by: Ada\n <ada@example.org>\n";
        assert_eq!(keys(message), ["Fixes", "Cc", "Signed-off-by"]);
        assert_eq!(trailers(message)[2].value, "Ada <ada@example.org>");
        assert_eq!(keys("words\n\n[ada: typo]\nSigned-off-by: A <a@example.org>\n").len(), 1);
        assert!(keys("note: this is\nprose and no trailer\nat all\n").is_empty());
        assert!(keys("").is_empty());
    }
}
