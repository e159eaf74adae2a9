// SPDX-License-Identifier: MIT OR Apache-2.0
//! A `.config` that a plan gives for fragments to be merged on.

use std::path::Path;

use super::line::{Line, parse};
use crate::fault::Fault;

/// Largest `.config`; a distribution's has 300 kB.
const MAX_BYTES: u64 = 4 << 20;

/// Reads a `.config`.
///
/// # Errors
/// A `plan` fault with the line that is none of kconfig's; one without a place
/// where there is no such file to read.
pub fn read_base(file: &Path) -> Result<String, Fault> {
    let shown = file.display();
    let fault = |what: String| {
        Fault::plan(what).help(
            "`base:` is tinyconfig, defconfig, or the path of a .config, absolute or relative to the folder that the plan is in",
        )
    };
    let data = std::fs::metadata(file).map_err(|error| fault(format!("read {shown}: {error}")))?;
    if !data.is_file() || data.len() > MAX_BYTES {
        return Err(fault(format!("{shown} is not a file of at most {MAX_BYTES} bytes")));
    }
    let bytes = std::fs::read(file).map_err(|error| fault(format!("read {shown}: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut symbols = 0usize;
    for (index, line) in text.lines().enumerate() {
        match parse(line) {
            Line::Symbol(..) => symbols += 1,
            Line::Nothing => {}
            Line::Wrong(what) => {
                let line: String = line.chars().take(120).collect();
                return Err(Fault::plan(format!("not a .config: {what}"))
                    .at(format!("{shown}:{}:1", index + 1))
                    .evidence(&line)
                    .help("give a .config as `make` leaves it in a kernel tree"));
            }
        }
    }
    if symbols == 0 {
        return Err(Fault::plan("not a .config: it sets no symbol")
            .at(format!("{shown}:1:1"))
            .help("give a .config as `make` leaves it in a kernel tree"));
    }
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String, Fault> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config"), bytes).unwrap();
        read_base(&folder.path().join("config"))
    }

    #[test]
    fn what_is_no_config_is_told_with_its_line() {
        let text = "#\n# Linux/x86 6.12.0 Kernel Configuration\n#\nCONFIG_CC_VERSION_TEXT=\"gcc (A \\\"b\\\") 12\"\n# CONFIG_A is not set\n";
        assert_eq!(read(text.as_bytes()).unwrap(), text);
        let fault = read(format!("{text}int main(void)\n").as_bytes()).unwrap_err();
        assert!(fault.place.as_ref().unwrap().ends_with("config:6:1"), "{fault}");
        assert_eq!(fault.evidence, ["int main(void)"]);
        assert!(read(b"# nothing\n").unwrap_err().place.unwrap().ends_with(":1:1"));
        read(b"\x7fELF\xff\x00\n").unwrap_err();
        read_base(Path::new("/dev/zero")).unwrap_err();
        read_base(Path::new("/nonexistent")).unwrap_err();
    }
}
