// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields and messages of the samples against `git mailinfo`.

#[path = "mail_help/git.rs"]
mod mail_help;

use std::fs;
use std::path::Path;

use kvet::kernel::mail::read_bytes;
use mail_help::{git, must};

/// Where kvet reads more than `git mailinfo`, by file.
const READS_MORE: [(&str, &str); 5] = [
    ("utf16.eml", "git converts line by line, and lines cannot be found in UTF-16"),
    ("wrong-charset.eml", "git refuses a charset that it does not know"),
    ("attached-mail.eml", "git takes the attached mail's header for the message"),
    ("pgp-signed.eml", "git keeps the armour and misses the separator that it changed"),
    ("attachment-diff.eml", "git keeps the signature that stands before the attachment"),
];

/// Author, subject and message of every sample that is one mail are git's.
#[test]
fn fields_and_messages_are_those_of_git_mailinfo() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mails");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    must(folder, &["init", "--quiet"], b"");
    let (mut wrong, mut compared) = (String::new(), 0);
    for entry in fs::read_dir(samples).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_mail = name.ends_with(".eml") || name.ends_with(".patch");
        if !is_mail || READS_MORE.iter().any(|(file, _)| *file == name) {
            continue;
        }
        let mut mail = fs::read(&path).unwrap();
        let reading = read_bytes(&name, &mail).unwrap();
        let [patch] = reading.patches.as_slice() else {
            continue;
        };
        if mail
            .windows(2)
            .find(|window| window[1] == b'\n')
            .is_some_and(|window| window[0] == b'\r')
        {
            // What `git mailsplit` does before.
            mail.retain(|&byte| byte != b'\r');
        }
        let info = git(folder, &["mailinfo", "--scissors", "msg", "patch"], &mail);
        if !info.status.success() {
            wrong += &format!("{name}: git: {}", String::from_utf8_lossy(&info.stderr));
            continue;
        }
        let info = String::from_utf8(info.stdout).unwrap();
        let field = |key: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim().to_owned()
        };
        let message = must(folder, &["stripspace"], &fs::read(folder.join("msg")).unwrap());
        let author = patch.author.clone().unwrap_or_default();
        compared += 1;
        for (what, ours, gits) in [
            ("author", &author.name, field("Author:")),
            ("email", &author.email, field("Email:")),
            ("subject", &patch.subject, field("Subject:")),
            ("message", &patch.message, String::from_utf8(message).unwrap()),
        ] {
            if *ours != gits {
                wrong += &format!("{name}: {what}\n  kvet {ours:?}\n  git  {gits:?}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 50, "{compared}");
}
