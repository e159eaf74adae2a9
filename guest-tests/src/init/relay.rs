// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes on what a test reports, whole lines only.
//!
//! A test may die in the middle of a line, or be wrong in any way. What it
//! writes is cut into lines, each is checked, and only records that a test may
//! send are passed on; the first other one ends the test.

use std::io::Write;

use kvet_records::{MAX_LINE_BYTES, MAX_RECORDS, Outcome, Record, valid_name};

/// How a test's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

/// Which of its streams a process writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Takes what a job's process writes.
pub trait Listener {
    /// Takes `bytes` and writes the records that are complete by now to `out`.
    /// An error is the reason why the process must be ended.
    fn push(&mut self, stream: Stream, bytes: &[u8], out: &mut impl Write) -> Result<(), String>;

    /// Says how many records there were and how the job ended. `violation` is the
    /// reason for which init ended the process, if it did.
    fn finish(
        self,
        ended: Ended,
        violation: Option<String>,
        out: &mut impl Write,
    ) -> (u64, Outcome);
}

/// Takes a test's records and counts them.
#[derive(Debug, Default)]
pub struct Relay {
    line: Vec<u8>,
    records: u64,
    claim: Option<(u64, Outcome)>,
}

impl Listener for Relay {
    fn push(&mut self, _: Stream, bytes: &[u8], out: &mut impl Write) -> Result<(), String> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            let complete = self.line.pop_if(|&mut byte| byte == b'\n').is_some();
            if self.line.len() > MAX_LINE_BYTES {
                return Err(format!("the test sent a line of more than {MAX_LINE_BYTES} bytes"));
            }
            if complete {
                let line = std::mem::take(&mut self.line);
                self.pass(line, out)?;
            }
        }
        Ok(())
    }

    fn finish(self, ended: Ended, violation: Option<String>, _: &mut impl Write) -> (u64, Outcome) {
        let outcome = match (violation, ended, self.claim) {
            (Some(reason), _, _) => Outcome::Failed { reason },
            (None, Ended::Signal(signal), _) => Outcome::Killed { signal },
            (None, Ended::Status(0), Some((claimed, outcome))) if claimed == self.records => {
                outcome
            }
            (None, Ended::Status(0), Some((claimed, _))) => Outcome::Failed {
                reason: format!("the test sent {claimed} records, of which {} came", self.records),
            },
            (None, Ended::Status(0), None) => Outcome::Failed {
                reason: "the test's process exited with status 0 in mid-test".to_owned(),
            },
            (None, Ended::Status(status), _) => Outcome::Exited { status },
        };
        (self.records, outcome)
    }
}

impl Relay {
    fn pass(&mut self, mut line: Vec<u8>, out: &mut impl Write) -> Result<(), String> {
        if self.claim.is_some() {
            return Err("the test sent more after its end".to_owned());
        }
        let record: Record = serde_json::from_slice(&line)
            .map_err(|error| format!("the test sent what is no record: {error}"))?;
        match &record {
            Record::Observation { name, .. } => check_name(name)?,
            Record::Sample { metric, parameters, beside, .. } => {
                check_name(metric)?;
                parameters.keys().chain(beside.keys()).try_for_each(|name| check_name(name))?;
            }
            Record::Log { .. } | Record::Skip { .. } => {}
            Record::End {
                records,
                outcome: outcome @ (Outcome::Completed | Outcome::Skipped | Outcome::Failed { .. }),
                ..
            } => {
                self.claim = Some((*records, outcome.clone()));
                return Ok(());
            }
            Record::End { .. }
            | Record::Hello { .. }
            | Record::Start { .. }
            | Record::Output { .. }
            | Record::Heartbeat { .. } => {
                return Err("the test sent a record that is not a test's to send".to_owned());
            }
        }
        if self.records >= MAX_RECORDS {
            return Err(format!("the test sent more than {MAX_RECORDS} records"));
        }
        line.push(b'\n');
        out.write_all(&line).map_err(|error| format!("pass on a record: {error}"))?;
        self.records += 1;
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if valid_name(name) { Ok(()) } else { Err(format!("the test sent the name {name:?}")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: &[u8] = br#"{"record":"log","text":"a"}
"#;
    const PASSED: &[u8] = br#"{"record":"observation","name":"passed","value":true}
"#;

    fn end(records: u64) -> Vec<u8> {
        format!(r#"{{"record":"end","job":"j","records":{records},"outcome":"completed"}}"#)
            .into_bytes()
            .into_iter()
            .chain([b'\n'])
            .collect()
    }

    fn relay(bytes: &[u8]) -> (Relay, Vec<u8>, Result<(), String>) {
        let (mut relay, mut out) = (Relay::default(), Vec::new());
        let result = relay.push(Stream::Out, bytes, &mut out);
        (relay, out, result)
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_bytes_arrive(cuts in proptest::collection::vec(1usize..80, 0..20)) {
            let sent = [LOG, PASSED, LOG, &end(3)].concat();
            let (mut relay, mut out, mut rest) = (Relay::default(), Vec::new(), &sent[..]);
            for cut in cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                relay.push(Stream::Out, now, &mut out).unwrap();
                rest = later;
            }
            relay.push(Stream::Out, rest, &mut out).unwrap();
            prop_assert_eq!(out, [LOG, PASSED, LOG].concat());
            prop_assert_eq!(relay.finish(Ended::Status(0), None, &mut std::io::sink()), (3, Outcome::Completed));
        }

        #[test]
        fn no_bytes_make_it_panic_or_pass_on_half_a_line(bytes in any::<Vec<u8>>()) {
            let (_, out, _) = relay(&bytes);
            prop_assert!(out.is_empty() || out.ends_with(b"\n"));
        }
    }

    #[test]
    fn a_torn_line_is_not_passed_on() {
        let (relay, out, result) = relay(&[LOG, &PASSED[..20]].concat());
        assert_eq!(result, Ok(()));
        assert_eq!(out, LOG);
        assert_eq!(
            relay.finish(Ended::Signal(11), None, &mut std::io::sink()),
            (1, Outcome::Killed { signal: 11 })
        );
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let (mut relay, mut out) = (Relay::default(), Vec::new());
        assert_eq!(relay.push(Stream::Out, &vec![b'x'; MAX_LINE_BYTES], &mut out), Ok(()));
        assert!(relay.push(Stream::Out, b"x", &mut out).is_err());
    }

    #[test]
    fn what_a_test_may_not_send_is_refused() {
        for line in [
            "\n",
            "not json\n",
            "{\"record\":\"heartbeat\",\"uptime_ms\":1}\n",
            "{\"record\":\"start\",\"job\":\"j\",\"test\":\"t\"}\n",
            "{\"record\":\"observation\",\"name\":\"../x\",\"value\":1}\n",
            "{\"record\":\"end\",\"job\":\"j\",\"records\":0,\"outcome\":{\"exited\":{\"status\":1}}}\n",
        ] {
            let (_, out, result) = relay(line.as_bytes());
            assert!(result.is_err() && out.is_empty(), "{line}");
        }
        let (_, out, result) = relay(&[&end(0), LOG].concat());
        assert!(result.is_err() && out.is_empty());
    }

    #[test]
    fn only_a_claimed_end_is_an_end() {
        let outcome =
            |sent: &[u8], ended| relay(sent).0.finish(ended, None, &mut std::io::sink()).1;
        assert_eq!(outcome(&end(0), Ended::Status(0)), Outcome::Completed);
        assert!(matches!(outcome(LOG, Ended::Status(0)), Outcome::Failed { .. }));
        assert!(matches!(outcome(&end(1), Ended::Status(0)), Outcome::Failed { .. }));
        assert_eq!(outcome(&end(0), Ended::Status(3)), Outcome::Exited { status: 3 });
        assert_eq!(outcome(&end(0), Ended::Signal(9)), Outcome::Killed { signal: 9 });
        let violation =
            relay(b"").0.finish(Ended::Signal(9), Some("why".into()), &mut std::io::sink()).1;
        assert_eq!(violation, Outcome::Failed { reason: "why".into() });
    }

    #[test]
    fn records_are_limited() {
        let (mut relay, mut out) = (Relay::default(), std::io::sink());
        for _ in 0..MAX_RECORDS {
            relay.push(Stream::Out, LOG, &mut out).unwrap();
        }
        assert!(relay.push(Stream::Out, LOG, &mut out).is_err());
    }
}
