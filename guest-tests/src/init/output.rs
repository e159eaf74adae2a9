// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes on what a program writes, line by line, as records.
//!
//! A program knows nothing of records and may write anything, without end. Its
//! lines are cut and counted. Where results are read from them, losing one could
//! turn a failure into a pass, so that too many end the program; otherwise the
//! rest is dropped, which a record says.

use std::io::Write;

use kvet_records::{
    Format, MAX_OUTPUT_BYTES, MAX_OUTPUT_LINE_BYTES, MAX_OUTPUT_LINES, Outcome, Record,
};

use super::relay::{Ended, Listener, Stream};

/// Takes a program's output and counts the records that it becomes.
#[derive(Debug)]
pub struct Output {
    format: Format,
    out: Line,
    err: Line,
    records: u64,
    lines: u64,
    bytes: usize,
    full: bool,
}

/// A line that is not complete yet, as far as it is kept.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    begun: bool,
}

impl Line {
    /// Adds to the line, whose end this is if it is `complete`. What a progress
    /// display overwrites with a carriage return is dropped before the end is.
    fn add(&mut self, text: &[u8], complete: bool) {
        self.begun = true;
        self.bytes.extend_from_slice(text);
        if self.bytes.len() > MAX_OUTPUT_LINE_BYTES {
            let end = self.bytes.len() - usize::from(complete && self.bytes.ends_with(b"\r"));
            if let Some(at) = self.bytes[..end].iter().rposition(|&byte| byte == b'\r') {
                self.bytes.drain(..=at);
            }
            self.bytes.truncate(MAX_OUTPUT_LINE_BYTES);
        }
    }
}

impl Output {
    /// For a program whose results are read from `format`.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            out: Line::default(),
            err: Line::default(),
            records: 0,
            lines: 0,
            bytes: 0,
            full: false,
        }
    }

    fn pass(&mut self, stream: Stream, line: &[u8], out: &mut impl Write) -> Result<(), String> {
        if self.full {
            return Ok(());
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = String::from_utf8_lossy(line).into_owned();
        let record = match stream {
            Stream::Out => Record::Output { text },
            Stream::Err => Record::Log { text },
        };
        let line = encode(&record)?;
        if self.lines < MAX_OUTPUT_LINES && self.bytes + line.len() <= MAX_OUTPUT_BYTES {
            self.lines += 1;
            self.bytes += line.len();
            return self.send(&line, out);
        }
        self.full = true;
        let limit = format!(
            "the program wrote more than {MAX_OUTPUT_LINES} lines or {MAX_OUTPUT_BYTES} bytes"
        );
        if self.format.is_read() {
            return Err(limit);
        }
        let record = Record::Log { text: format!("{limit}; the rest is not kept") };
        self.send(&encode(&record)?, out)
    }

    fn send(&mut self, line: &[u8], out: &mut impl Write) -> Result<(), String> {
        out.write_all(line).map_err(|error| format!("pass on output: {error}"))?;
        self.records += 1;
        Ok(())
    }
}

impl Listener for Output {
    fn push(&mut self, stream: Stream, bytes: &[u8], out: &mut impl Write) -> Result<(), String> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, complete) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let line = match stream {
                Stream::Out => &mut self.out,
                Stream::Err => &mut self.err,
            };
            line.add(text, complete);
            if complete {
                let line = std::mem::take(line);
                self.pass(stream, &line.bytes, out)?;
            }
        }
        Ok(())
    }

    fn finish(
        mut self,
        ended: Ended,
        violation: Option<String>,
        out: &mut impl Write,
    ) -> (u64, Outcome) {
        let mut violation = violation;
        // A program that ends in mid-line has said the half of it.
        for (stream, line) in [
            (Stream::Out, std::mem::take(&mut self.out)),
            (Stream::Err, std::mem::take(&mut self.err)),
        ] {
            if line.begun && violation.is_none() {
                violation = self.pass(stream, &line.bytes, out).err();
            }
        }
        let outcome = match (violation, ended) {
            (Some(reason), _) => Outcome::Failed { reason },
            (None, Ended::Signal(signal)) => Outcome::Killed { signal },
            (None, Ended::Status(0)) => Outcome::Completed,
            (None, Ended::Status(status)) => Outcome::Exited { status },
        };
        (self.records, outcome)
    }
}

fn encode(record: &Record) -> Result<Vec<u8>, String> {
    let mut line =
        serde_json::to_vec(record).map_err(|error| format!("pass on output: {error}"))?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(bytes: &[u8]) -> Vec<Record> {
        let text = std::str::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn output(text: &str) -> Record {
        Record::Output { text: text.into() }
    }

    #[test]
    fn both_streams_come_as_lines_and_the_last_needs_no_end() {
        let (mut program, mut out) = (Output::new(Format::Tap), Vec::new());
        program.push(Stream::Out, b"1..1\r\nok 1", &mut out).unwrap();
        program.push(Stream::Err, b"hm\n", &mut out).unwrap();
        program.push(Stream::Out, b" a\nhal\xff", &mut out).unwrap();
        let end = program.finish(Ended::Status(4), None, &mut out);
        assert_eq!(end, (4, Outcome::Exited { status: 4 }));
        let hm = Record::Log { text: "hm".into() };
        assert_eq!(records(&out), [output("1..1"), hm, output("ok 1 a"), output("hal\u{fffd}")]);
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_is_whole() {
        let (mut program, mut out) = (Output::new(Format::Tap), Vec::new());
        for _ in 0..3 {
            program.push(Stream::Out, &vec![b'x'; MAX_OUTPUT_LINE_BYTES], &mut out).unwrap();
        }
        program.push(Stream::Out, b"\nok 1 a\n", &mut out).unwrap();
        assert_eq!(records(&out), [output(&"x".repeat(MAX_OUTPUT_LINE_BYTES)), output("ok 1 a")]);
    }

    #[test]
    fn of_a_progress_display_that_is_too_long_the_end_is_kept() {
        let (mut program, mut out) = (Output::new(Format::Words), Vec::new());
        for step in 0..2000 {
            let shown = format!("\rstep {step} of 2000...");
            program.push(Stream::Out, shown.as_bytes(), &mut out).unwrap();
        }
        program.push(Stream::Out, b" OK\r\n", &mut out).unwrap();
        let Some(Record::Output { text }) = records(&out).pop() else { panic!() };
        assert!(text.ends_with("step 1999 of 2000... OK"), "{text}");
    }

    #[test]
    fn too_many_lines_end_a_program_whose_lines_are_read_and_no_other() {
        let lines = b"\n".repeat(usize::try_from(MAX_OUTPUT_LINES).unwrap() + 10);
        let (mut program, mut out) = (Output::new(Format::Ktap), std::io::sink());
        assert!(program.push(Stream::Out, &lines, &mut out).is_err());
        let (mut program, mut out) = (Output::new(Format::Exit), Vec::new());
        program.push(Stream::Out, &lines, &mut out).unwrap();
        let (count, outcome) = program.finish(Ended::Status(0), None, &mut out);
        assert_eq!((count, outcome), (MAX_OUTPUT_LINES + 1, Outcome::Completed));
        assert!(
            matches!(records(&out).pop(), Some(Record::Log { text }) if text.contains("not kept"))
        );
    }

    #[test]
    fn a_signal_is_told_from_a_status_and_a_violation_from_both() {
        let end = |ended, violation: Option<&str>| {
            let violation = violation.map(str::to_owned);
            Output::new(Format::Exit).finish(ended, violation, &mut std::io::sink()).1
        };
        assert_eq!(end(Ended::Status(0), None), Outcome::Completed);
        assert_eq!(end(Ended::Signal(11), None), Outcome::Killed { signal: 11 });
        assert_eq!(end(Ended::Status(0), Some("why")), Outcome::Failed { reason: "why".into() });
    }

    proptest! {
        #[test]
        fn what_comes_is_bounded_and_counted_whatever_is_written(
            chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..200)), 0..20)
        ) {
            let (mut program, mut out) = (Output::new(Format::Exit), Vec::new());
            for (err, bytes) in chunks {
                let stream = if err { Stream::Err } else { Stream::Out };
                program.push(stream, &bytes, &mut out).unwrap();
            }
            let (count, _) = program.finish(Ended::Status(0), None, &mut out);
            let lines = out.iter().filter(|&&byte| byte == b'\n').count();
            prop_assert_eq!(u64::try_from(lines).unwrap(), count);
            prop_assert_eq!(records(&out).len(), lines);
        }
    }
}
