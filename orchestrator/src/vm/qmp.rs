// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMP over a socket: qapi's types on a transport of our own.
//!
//! One task reads. A reply finds its command by id, so that replies may come in
//! any order and a command whose future was dropped is harmless: its reply finds
//! nobody. An event or field that qapi does not know is kept as JSON and ends
//! nothing. Every message is written to the transcript.

use std::collections::HashMap;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use qapi::Command;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use crate::host::lines::LineSplitter;

/// Longest message: `query-qmp-schema`, the largest reply there is, has 0.2 MB.
const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// Why a command had no result.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// The connection ended; QEMU is gone or leaving.
    #[error("QEMU closed the QMP connection")]
    Closed,
    /// QEMU refused the command.
    #[error("QEMU refused {command}: {class}: {description}")]
    Refused {
        /// Name of the command.
        command: &'static str,
        /// Error class.
        class: String,
        /// QEMU's words.
        description: String,
    },
    /// The reply was not what qapi's types say.
    #[error("QEMU's reply to {command} cannot be read: {error}")]
    Reply {
        /// Name of the command.
        command: &'static str,
        /// The decoder's words.
        error: serde_json::Error,
    },
}

/// Something that QEMU tells unasked.
#[derive(Debug, Clone, PartialEq)]
pub struct QmpEvent {
    /// Its name, such as `SHUTDOWN`.
    pub name: String,
    /// Its data; `null` when it has none.
    pub data: Value,
}

impl QmpEvent {
    /// The event in qapi's types; `None` when they do not know it.
    #[must_use]
    pub fn known(&self) -> Option<qapi::qmp::Event> {
        let zero = serde_json::json!({"seconds": 0, "microseconds": 0});
        let mut message = serde_json::json!({"event": self.name, "timestamp": zero});
        if !self.data.is_null() {
            message["data"] = self.data.clone();
        }
        serde_json::from_value(message).ok()
    }
}

type Reply = Result<Value, (String, String)>;
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Reply>>>>>;
type Transcript = Arc<Mutex<dyn Write + Send>>;

/// The commanding side of a QMP connection.
pub struct Qmp {
    socket: Arc<UnixStream>,
    waiting: Waiting,
    transcript: Transcript,
    next_id: u64,
}

impl std::fmt::Debug for Qmp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qmp").field("next_id", &self.next_id).finish_non_exhaustive()
    }
}

impl Qmp {
    /// Waits for QEMU's greeting, negotiates, and gives the commanding side and
    /// the events. Must be called in a runtime; the reader ends with QEMU.
    ///
    /// # Errors
    /// [`QmpError::Closed`] when QEMU ends before its greeting.
    pub async fn connect(
        socket: UnixStream,
        transcript: impl Write + Send + 'static,
    ) -> Result<(Self, mpsc::UnboundedReceiver<QmpEvent>), QmpError> {
        let socket = Arc::new(socket);
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let transcript: Transcript = Arc::new(Mutex::new(transcript));
        let (event_sender, events) = mpsc::unbounded_channel();
        let (greeting_sender, greeting) = oneshot::channel();
        let reading = Reader {
            waiting: waiting.clone(),
            transcript: transcript.clone(),
            events: event_sender,
            greeting: Some(greeting_sender),
        };
        tokio::spawn(reading.run(socket.clone()));
        greeting.await.map_err(|_| QmpError::Closed)?;
        let mut qmp = Self { socket, waiting, transcript, next_id: 1 };
        // Out-of-band commands are answered while the main loop is stuck.
        let enable = Some(vec![qapi::qmp::QMPCapability::oob]);
        let with_oob = qmp.execute(&qapi::qmp::qmp_capabilities { enable }).await;
        if with_oob.is_err() {
            qmp.execute(&qapi::qmp::qmp_capabilities { enable: None }).await?;
        }
        Ok((qmp, events))
    }

    /// Runs a command. Dropping the future, a timeout for one, is harmless.
    ///
    /// # Errors
    /// When QEMU is gone, refuses, or answers what the types do not allow.
    pub async fn execute<C: Command>(&mut self, command: &C) -> Result<C::Ok, QmpError> {
        self.execute_with(command, None).await
    }

    /// Gives QEMU a file descriptor under a name, for commands that take `fd:NAME`.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub async fn send_fd(&mut self, name: &str, fd: BorrowedFd<'_>) -> Result<(), QmpError> {
        let getfd = qapi::qmp::getfd { fdname: name.to_owned() };
        self.execute_with(&getfd, Some(fd)).await.map(drop)
    }

    async fn execute_with<C: Command>(
        &mut self,
        command: &C,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<C::Ok, QmpError> {
        let reply = self.send(command, fd).await?;
        let value = reply.await.map_err(|_| QmpError::Closed)?;
        let value = value.map_err(|(class, description)| QmpError::Refused {
            command: C::NAME,
            class,
            description,
        })?;
        serde_json::from_value(value).map_err(|error| QmpError::Reply { command: C::NAME, error })
    }

    async fn send<C: Command>(
        &mut self,
        command: &C,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<oneshot::Receiver<Reply>, QmpError> {
        let id = self.next_id;
        self.next_id += 1;
        let arguments = serde_json::to_value(command)
            .map_err(|error| QmpError::Reply { command: C::NAME, error })?;
        let mut message = serde_json::json!({"execute": C::NAME, "id": id});
        if arguments.as_object().is_some_and(|fields| !fields.is_empty()) {
            message["arguments"] = arguments;
        }
        let (sender, receiver) = oneshot::channel();
        match lock(&self.waiting).as_mut() {
            Some(waiting) => waiting.insert(id, sender),
            None => return Err(QmpError::Closed),
        };
        record(&self.transcript, ">", message.to_string().as_bytes());
        let line = format!("{message}\n");
        self.write(line.as_bytes(), fd).await.map_err(|_| QmpError::Closed)?;
        Ok(receiver)
    }

    /// Writes all bytes; the descriptor goes with the first of them.
    async fn write(&self, mut bytes: &[u8], mut fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.socket.async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                let fds = fd.as_slice();
                if !fds.is_empty() {
                    control.push(SendAncillaryMessage::ScmRights(fds));
                }
                let pieces = [IoSlice::new(bytes)];
                Ok(sendmsg(&self.socket, &pieces, &mut control, SendFlags::NOSIGNAL)?)
            });
            bytes = &bytes[written.await?..];
            fd = None;
        }
        Ok(())
    }
}

struct Reader {
    waiting: Waiting,
    transcript: Transcript,
    events: mpsc::UnboundedSender<QmpEvent>,
    greeting: Option<oneshot::Sender<()>>,
}

impl Reader {
    async fn run(mut self, socket: Arc<UnixStream>) {
        let mut splitter = LineSplitter::new(MAX_MESSAGE_BYTES);
        let mut buffer = vec![0; 16 * 1024];
        // After `quit` the stream ends with ConnectionReset: that is its end too.
        while let Ok(count @ 1..) =
            socket.async_io(Interest::READABLE, || socket.try_read(&mut buffer)).await
        {
            splitter.push(&buffer[..count], |line| self.message(&line.bytes));
        }
        // Whoever still waits, and whoever asks later, learns that QEMU is gone.
        lock(&self.waiting).take();
    }

    fn message(&mut self, line: &[u8]) {
        record(&self.transcript, "<", line);
        // What cannot be read is in the transcript; it answers nobody.
        let Ok(Value::Object(mut message)) = serde_json::from_slice::<Value>(line) else {
            return;
        };
        if message.contains_key("QMP") {
            if let Some(greeting) = self.greeting.take() {
                let _ = greeting.send(());
            }
            return;
        }
        if let Some(Value::String(name)) = message.remove("event") {
            let data = message.remove("data").unwrap_or(Value::Null);
            let _ = self.events.send(QmpEvent { name, data });
            return;
        }
        let Some(id) = message.get("id").and_then(Value::as_u64) else {
            return;
        };
        let Some(waiter) = lock(&self.waiting).as_mut().and_then(|waiting| waiting.remove(&id))
        else {
            return;
        };
        let reply = match (message.remove("return"), message.remove("error")) {
            (Some(value), _) => Ok(value),
            (None, error) => {
                let word = |name: &str| {
                    let text = error.as_ref().and_then(|error| error.get(name)?.as_str());
                    text.unwrap_or("unknown").to_owned()
                };
                Err((word("class"), word("desc")))
            }
        };
        let _ = waiter.send(reply);
    }
}

/// Reads a recorded stream: the events in it, whatever else it holds. Replies
/// have nobody who waits for them here.
pub fn read_messages<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<QmpEvent> {
    let (events, mut receiver) = mpsc::unbounded_channel();
    let mut reader = Reader {
        waiting: Arc::new(Mutex::new(Some(HashMap::new()))),
        transcript: Arc::new(Mutex::new(io::sink())),
        events,
        greeting: None,
    };
    let mut splitter = LineSplitter::new(MAX_MESSAGE_BYTES);
    for piece in pieces {
        splitter.push(piece, |line| reader.message(&line.bytes));
    }
    std::iter::from_fn(|| receiver.try_recv().ok()).collect()
}

fn record(transcript: &Transcript, direction: &str, line: &[u8]) {
    // A transcript that cannot be written, on a full disk for one, is no reason
    // to lose the boot.
    let mut file = lock(transcript);
    let _ = writeln!(file, "{direction} {}", String::from_utf8_lossy(line).trim_end());
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    const GREETING: &str = r#"{"QMP":{"version":{"qemu":{"micro":0,"minor":0,"major":99},"package":""},"capabilities":["oob"],"new":1}}"#;

    /// A fake QEMU: `answer` gets each command and writes what it likes.
    async fn connect(
        answer: impl Fn(&Value) -> Vec<String> + Send + 'static,
    ) -> (Qmp, mpsc::UnboundedReceiver<QmpEvent>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let (reader, mut writer) = theirs.into_split();
            writer.write_all(format!("{GREETING}\r\n").as_bytes()).await.unwrap();
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let command: Value = serde_json::from_str(&line).unwrap();
                let mut replies = answer(&command);
                if command["execute"] == "qmp_capabilities" {
                    replies = vec![format!(r#"{{"return":{{}},"id":{}}}"#, command["id"])];
                }
                for reply in replies {
                    let line = format!("{reply}\r\n");
                    let _ = writer.write_all(line.as_bytes()).await;
                }
            }
        });
        Qmp::connect(ours, Vec::new()).await.unwrap()
    }

    fn status(id: &Value) -> String {
        format!(
            r#"{{"id":{id},"return":{{"running":true,"status":"running","singlestep":false,"later-field":[1]}}}}"#
        )
    }

    #[tokio::test]
    async fn unknown_events_and_fields_end_nothing() {
        let (mut qmp, mut events) = connect(|command| {
            vec![r#"{"event":"FROM_THE_FUTURE","data":{"x":1},"timestamp":{"seconds":1,"microseconds":2}}"#.into(), "not json".into(), status(&command["id"])]
        })
        .await;
        let answer = qmp.execute(&qapi::qmp::query_status {}).await.unwrap();
        assert!(answer.running);
        let event = events.recv().await.unwrap();
        assert_eq!((event.name.as_str(), event.known().is_none()), ("FROM_THE_FUTURE", true));
    }

    #[tokio::test]
    async fn a_dropped_command_does_not_disturb_the_next() {
        // The first reply comes only after the second command, and after its reply.
        let late = std::sync::Mutex::new(None);
        let (mut qmp, _events) = connect(move |command| {
            let id = command["id"].clone();
            if command["execute"] == "query-name" {
                *late.lock().unwrap() = Some(format!(r#"{{"return":{{}},"id":{id}}}"#));
                return Vec::new();
            }
            let mut replies = vec![status(&id)];
            replies.extend(late.lock().unwrap().take());
            replies
        })
        .await;
        let name = qapi::qmp::query_name {};
        let first = tokio::time::timeout(Duration::from_millis(50), qmp.execute(&name)).await;
        assert!(first.is_err());
        assert!(qmp.execute(&qapi::qmp::query_status {}).await.unwrap().running);
        assert!(qmp.execute(&qapi::qmp::query_status {}).await.unwrap().running);
    }

    #[tokio::test]
    async fn refusals_and_the_end_are_told_apart() {
        let (mut qmp, _events) = connect(|command| {
            vec![format!(
                r#"{{"error":{{"class":"GenericError","desc":"no"}},"id":{}}}"#,
                command["id"]
            )]
        })
        .await;
        let refused = qmp.execute(&qapi::qmp::stop {}).await.unwrap_err();
        assert!(matches!(refused, QmpError::Refused { command: "stop", .. }), "{refused}");
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(Qmp::connect(ours, Vec::new()).await, Err(QmpError::Closed)));
    }

    #[tokio::test]
    async fn a_descriptor_travels_with_its_command() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let received = tokio::spawn(async move {
            theirs.writable().await.unwrap();
            theirs.try_write(format!("{GREETING}\r\n").as_bytes()).unwrap();
            let (mut bytes, mut fds) = (Vec::new(), Vec::new());
            loop {
                let mut buffer = [0; 4096];
                let count = theirs.async_io(Interest::READABLE, || {
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                    let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
                    let mut pieces = [std::io::IoSliceMut::new(&mut buffer)];
                    let flags = rustix::net::RecvFlags::empty();
                    let message = rustix::net::recvmsg(&theirs, &mut pieces, &mut control, flags)?;
                    for ancillary in control.drain() {
                        if let rustix::net::RecvAncillaryMessage::ScmRights(rights) = ancillary {
                            fds.extend(rights);
                        }
                    }
                    Ok(message.bytes)
                });
                let count = count.await.unwrap();
                bytes.extend_from_slice(&buffer[..count]);
                for id in [1, 2] {
                    if bytes.ends_with(format!("\"id\":{id}}}\n").as_bytes()) {
                        let reply = format!("{{\"return\":{{}},\"id\":{id}}}\r\n");
                        theirs.try_write(reply.as_bytes()).unwrap();
                        if id == 2 {
                            return fds;
                        }
                    }
                }
            }
        });
        let (mut qmp, _events) = Qmp::connect(ours, Vec::new()).await.unwrap();
        qmp.send_fd("state", std::os::fd::AsFd::as_fd(&file)).await.unwrap();
        let fds = received.await.unwrap();
        assert_eq!(fds.len(), 1);
    }

    proptest! {
        #[test]
        fn no_message_makes_the_reader_panic(line in prop::collection::vec(any::<u8>(), 0..200), json in "\\{\"(event|return|error|id|QMP)\":(1|null|\"x\"|\\{\\})(,\"(id|data|error)\":(1|\\{\\}|\"\"))?\\}") {
            read_messages([line.as_slice(), b"\n", json.as_bytes(), b"\n"]);
        }
    }
}
