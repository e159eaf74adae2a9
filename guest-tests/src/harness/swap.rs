// SPDX-License-Identifier: MIT OR Apache-2.0
//! Swap space without a disk.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::mapping::PAGE;
use super::{Stop, TestResult, Why};

const DEVICE: &str = "/dev/zram0";
const SETTINGS: &str = "/sys/block/zram0";

/// Place of the version, 1, in a swap space's first page, in bytes.
const VERSION_AT: usize = 1024;
/// Likewise of the signature, at the page's end.
const SIGNATURE: &[u8; 10] = b"SWAPSPACE2";

/// Swap space on zram: compressed memory. Dropping it reads everything back and
/// frees the memory.
#[derive(Debug)]
pub struct Swap(());

impl Swap {
    /// Makes a swap space of `bytes`, a multiple of the page size, the only one
    /// at a time.
    ///
    /// # Errors
    /// A skip if this kernel cannot swap to zram; a failure if it does not.
    #[expect(unsafe_code, reason = "a system call that rustix does not have")]
    pub fn on_zram(bytes: usize) -> TestResult<Self> {
        if !Path::new("/proc/swaps").exists() || !Path::new(SETTINGS).exists() {
            return Err(Stop::skip(
                "the kernel lacks CONFIG_SWAP or CONFIG_ZRAM (configs/kconfig/swap.config)",
            ));
        }
        let size = Path::new(SETTINGS).join("disksize");
        fs::write(&size, bytes.to_string())
            .why(format_args!("write {bytes} to {}", size.display()))?;
        let mut file = OpenOptions::new().write(true).open(DEVICE).why("open zram")?;
        file.write_all(&header(bytes).why("a swap space beyond all bounds")?)
            .and_then(|()| file.sync_all())
            .why(format_args!("write {DEVICE}"))?;
        drop(file);
        let path = CString::new(DEVICE).why("the name of a device")?;
        // SAFETY: the kernel only reads the path, which outlives the call.
        match unsafe { libc::swapon(path.as_ptr(), 0) } {
            0 => Ok(Self(())),
            _ => Err(io::Error::last_os_error()).why(format_args!("swapon {DEVICE}")),
        }
    }
}

impl Drop for Swap {
    #[expect(unsafe_code, reason = "a system call that rustix does not have")]
    fn drop(&mut self) {
        let path = CString::new(DEVICE).expect("the name has no zero byte");
        // SAFETY: the kernel only reads the path, which outlives the call.
        if unsafe { libc::swapoff(path.as_ptr()) } != 0 {
            eprintln!("swapoff {DEVICE}: {}", io::Error::last_os_error());
        } else if let Err(error) = fs::write(Path::new(SETTINGS).join("reset"), "1") {
            eprintln!("reset {DEVICE}: {error}");
        }
    }
}

/// The first page of a swap space (`union swap_header` of include/linux/swap.h).
fn header(bytes: usize) -> Option<[u8; PAGE]> {
    let last = u32::try_from(bytes / PAGE).ok()?.checked_sub(1)?;
    let mut page = [0; PAGE];
    page[VERSION_AT..VERSION_AT + 4].copy_from_slice(&1_u32.to_ne_bytes());
    page[VERSION_AT + 4..VERSION_AT + 8].copy_from_slice(&last.to_ne_bytes());
    page[PAGE - SIGNATURE.len()..].copy_from_slice(SIGNATURE);
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_its_size_and_signature() {
        let page = header(1 << 20).unwrap();
        assert_eq!(page[1024..1032], [1, 0, 0, 0, 255, 0, 0, 0]);
        assert!(page.ends_with(b"SWAPSPACE2"));
        assert!(header(0).is_none());
    }
}
