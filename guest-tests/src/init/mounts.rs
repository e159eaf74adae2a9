// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file systems that tests expect.

use std::fs;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::console;

/// Mount point, file system, and whether a guest is of no use without it.
const MOUNTS: [(&str, &str, bool); 9] = [
    ("/proc", "proc", true),
    ("/sys", "sysfs", true),
    ("/dev", "devtmpfs", true),
    ("/dev/pts", "devpts", false),
    ("/dev/shm", "tmpfs", false),
    ("/tmp", "tmpfs", false),
    ("/run", "tmpfs", false),
    ("/sys/kernel/tracing", "tracefs", false),
    ("/sys/kernel/debug", "debugfs", false),
];

/// Links in /dev that shells and programs of every kind take for granted.
const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Mounts all that this kernel has.
pub fn mount_all() -> Result<(), String> {
    for (target, kind, needed) in MOUNTS {
        // Below /sys the kernel makes the folder if it has the file system.
        let _ = fs::create_dir_all(target);
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        // Programs under test are unpacked into /tmp; the rest holds none.
        let flags = if kind == "tmpfs" { MountFlags::NOSUID } else { flags };
        match mount(kind, target, kind, flags, None) {
            // Busy: the kernel has mounted it itself (CONFIG_DEVTMPFS_MOUNT).
            Ok(()) | Err(Errno::BUSY) => {}
            Err(error) if needed => return Err(format!("mount {kind} on {target}: {error}")),
            // This kernel does without; a test that needs it skips.
            Err(Errno::NODEV | Errno::NOENT) => {}
            Err(error) => console::say(&format!("mount {kind} on {target}: {error}")),
        }
    }
    for (link, target) in LINKS {
        if let Err(error) = std::os::unix::fs::symlink(target, link) {
            console::say(&format!("link {link}: {error}"));
        }
    }
    Ok(())
}
