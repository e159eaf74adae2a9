// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a bootable image holds the kernel that was built with it.
//!
//! The image takes the compressed kernel in by way of an object that only the assembler
//! reads; whatever keeps that object from being made again gives an image of an older
//! kernel, which boots and is wrong.

use std::path::Path;

use memchr::memmem;

use crate::arch::x86_64;
use crate::fault::Fault;
use crate::host::beneath;

/// Most bytes of an image or of a compressed kernel: those of distributions have some 15 MB.
const MAX_BYTES: u64 = 256 << 20;

/// Looks for the compressed kernel of the tree `folder` in its image. A tree that
/// compresses nothing passes.
///
/// # Errors
/// An `infra` fault when the image holds another kernel.
pub fn check(folder: &Path) -> Result<(), Fault> {
    let (place, stem) = x86_64::COMPRESSED;
    let compressed = std::fs::read_dir(folder.join(place)).into_iter().flatten().flatten();
    let names = compressed.filter_map(|entry| entry.file_name().into_string().ok());
    // vmlinux.bin.gz, but not what kbuild writes beside it.
    let mut names = names.filter(|name| {
        name.strip_prefix(stem).is_some_and(|ending| !ending.is_empty() && !ending.contains('.'))
    });
    let Some(name) = names.next() else { return Ok(()) };
    let payload = format!("{place}/{name}");
    let read = |name: &str| {
        beneath::read(folder, name, MAX_BYTES)
            .map_err(|error| Fault::infra(format!("read {name}: {error}")).at(folder.display()))
    };
    let (image, kernel) = (read(x86_64::IMAGE_PATH)?, read(&payload)?);
    match memmem::find(&image, &kernel) {
        Some(_) => Ok(()),
        None => {
            let what = format!("{} does not hold {payload}", x86_64::IMAGE_PATH);
            Err(Fault::infra(what)
                .at(folder.display())
                .help("the tree is not as its build left it; `kvet clean` removes it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_another_kernel_is_refused() {
        let tree = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = tree.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        check(tree.path()).unwrap();
        write("arch/x86/boot/bzImage", b"setup, then kernel 1 and more");
        write("arch/x86/boot/compressed/.vmlinux.bin.gz.cmd", b"cmd");
        write("arch/x86/boot/compressed/vmlinux.bin.gz", b"kernel 1");
        check(tree.path()).unwrap();
        write("arch/x86/boot/compressed/vmlinux.bin.gz", b"kernel 2");
        let fault = check(tree.path()).unwrap_err();
        assert!(fault.what.contains("does not hold"), "{fault}");
    }
}
