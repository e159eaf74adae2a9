// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an ELF file says that it needs, read from the file alone: nothing of the
//! host's is run to find out.

use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, StringTable};

/// Most libraries that one file may name; a browser has about a hundred.
const MAX_NEEDED: usize = 1000;

/// What a file says that it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// The program that loads it, if it is dynamically linked.
    pub interpreter: Option<String>,
    /// Names of libraries, in order.
    pub libraries: Vec<String>,
    /// Folders for its own libraries and those of what it loads (`DT_RPATH`).
    pub rpath: Vec<String>,
    /// Folders for its own libraries (`DT_RUNPATH`), which turn `rpath` off.
    pub runpath: Vec<String>,
}

/// Reads the headers of an x86-64 executable or shared library.
///
/// # Errors
/// Why it is none.
pub fn needs(bytes: &[u8]) -> Result<Needs, String> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err("not an ELF file".to_owned());
    }
    let broken = |error: object::Error| format!("a damaged ELF file: {error}");
    let header = FileHeader64::<Endianness>::parse(bytes)
        .map_err(|_| "not an ELF file for x86-64".to_owned())?;
    let endian = header.endian().map_err(broken)?;
    if header.e_machine(endian) != EM_X86_64 {
        return Err("not an ELF file for x86-64".to_owned());
    }
    if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
        return Err("an ELF file, but neither a program nor a shared library".to_owned());
    }
    let mut needs = Needs::default();
    let segments = header.program_headers(endian, bytes).map_err(broken)?;
    for segment in segments {
        if segment.p_type(endian) == PT_INTERP {
            let path = segment.data(endian, bytes).map_err(|()| "its interpreter is cut off")?;
            needs.interpreter = Some(text(path.split(|&byte| byte == 0).next().unwrap_or(path))?);
        }
    }
    for segment in segments {
        let Some(entries) = segment.dynamic(endian, bytes).map_err(broken)? else { continue };
        let strings = strings(endian, bytes, segments, entries)?;
        for entry in entries {
            let tag = entry.d_tag(endian);
            let list = match tag {
                DT_NEEDED => &mut needs.libraries,
                DT_RPATH => &mut needs.rpath,
                DT_RUNPATH => &mut needs.runpath,
                _ => continue,
            };
            let value = text(entry.string(endian, strings).map_err(broken)?)?;
            match tag {
                DT_NEEDED => list.push(value),
                _ => {
                    list.extend(value.split(':').filter(|part| !part.is_empty()).map(str::to_owned))
                }
            }
            if list.len() > MAX_NEEDED {
                return Err(format!("it names more than {MAX_NEEDED} libraries"));
            }
        }
    }
    if !needs.runpath.is_empty() {
        needs.rpath.clear();
    }
    Ok(needs)
}

/// The string table that the dynamic section points at, by address.
fn strings<'a>(
    endian: Endianness,
    bytes: &'a [u8],
    segments: &[object::elf::ProgramHeader64<Endianness>],
    entries: &[object::elf::Dyn64<Endianness>],
) -> Result<StringTable<'a>, String> {
    use object::elf::{DT_STRSZ, DT_STRTAB};
    let value = |tag: i64| {
        let found = entries.iter().find(|entry| entry.d_tag(endian) == tag);
        found.map(|entry| entry.d_val(endian))
    };
    let (address, size) = match (value(DT_STRTAB), value(DT_STRSZ)) {
        (Some(address), Some(size)) => (address, size),
        _ => return Ok(StringTable::default()),
    };
    for segment in segments {
        if let Ok(Some(data)) = segment.data_range(endian, bytes, address, size) {
            return Ok(StringTable::new(data, 0, data.len() as u64));
        }
    }
    Err("its string table is cut off".to_owned())
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "it names a file that is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn this_test_program_needs_a_loader_and_libc() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = needs(&bytes).unwrap();
        assert!(needs.interpreter.unwrap().contains("ld-linux"));
        assert!(needs.libraries.iter().any(|name| name.starts_with("libc.so")));
    }

    #[test]
    fn the_guest_binary_is_static() {
        assert_eq!(needs(super::super::GUEST_BINARY), Ok(Needs::default()));
    }

    #[test]
    fn other_files_are_told_what_they_are() {
        assert_eq!(needs(b"#!/bin/sh\n").unwrap_err(), "not an ELF file");
        let mut other = super::super::GUEST_BINARY[..4096].to_vec();
        other[18] = 183;
        assert_eq!(needs(&other).unwrap_err(), "not an ELF file for x86-64");
    }

    proptest! {
        #[test]
        fn no_damage_makes_the_reader_panic(at in 0usize..4096, value in any::<u8>(), len in 0usize..8192) {
            let mut bytes = std::fs::read("/bin/sh").unwrap();
            let end = bytes.len();
            bytes[at.min(end - 1)] = value;
            let _ = needs(&bytes);
            let _ = needs(&bytes[..len.min(end)]);
        }
    }
}
