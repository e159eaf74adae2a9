// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drives the guest binary as a task: what only a process of its own can show.

use std::fs::File;
use std::io::{BufRead, BufReader, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

struct Task {
    requests: File,
    replies: BufReader<File>,
}

impl Task {
    fn ask(&mut self, request: &str) -> String {
        writeln!(self.requests, "{request}").unwrap();
        self.hear()
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.replies.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }
}

fn start() -> (Child, Task) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kvet-guest"))
        .arg("task")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let requests = OwnedFd::from(child.stdin.take().unwrap()).into();
    let replies = OwnedFd::from(child.stdout.take().unwrap()).into();
    (child, Task { requests, replies: BufReader::new(replies) })
}

fn fork(parent: &mut Task) -> Task {
    let (requests_end, requests) = pipe().unwrap();
    let (replies, replies_end) = pipe().unwrap();
    let (owner, ends) = (std::process::id(), (requests_end.as_raw_fd(), replies_end.as_raw_fd()));
    let reply = parent.ask(&format!("fork {owner} {} {}", ends.0, ends.1));
    assert!(reply.strip_prefix("ok ").unwrap().parse::<u32>().is_ok(), "{reply}");
    let mut child = Task {
        requests: OwnedFd::from(requests).into(),
        replies: BufReader::new(OwnedFd::from(replies).into()),
    };
    assert_eq!(child.hear(), "ok ");
    child
}

#[test]
fn huge_pages_stay_disabled_across_fork_and_execution() {
    let (mut process, mut task) = start();
    assert_eq!(task.ask("thp_disabled"), "ok false");
    assert!(task.ask("map 8192").starts_with("ok "));
    let mut earlier = fork(&mut task);
    assert_eq!(task.ask("disable_thp true"), "ok ");
    assert_eq!(task.ask("thp_disabled"), "ok true");
    assert_eq!(earlier.ask("thp_disabled"), "ok false");
    let mut later = fork(&mut task);
    assert_eq!(later.ask("thp_disabled"), "ok true");
    assert_eq!(later.ask("touch 0 8192"), "ok ");

    assert_eq!(task.ask("execute"), "ok ");
    assert_eq!(task.ask("thp_disabled"), "ok true");
    assert_eq!(task.ask("touch 0 8192"), "touch 0 8192: nothing is mapped");
    drop(task);
    assert!(process.wait().unwrap().success());
    assert_eq!(later.ask("unmap"), "ok ");
}
