//! A process that is measured: it says on its standard output what it is at, and ends when its standard input does.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use super::Failure;

/// A process that runs. Dropping it ends it.
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Running {
    /// Starts it.
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let (told, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, lines })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it says a word; what follows the word in its line.
    pub fn says(&self, word: &str, within: Duration) -> Result<String, Failure> {
        loop {
            match self.lines.recv_timeout(within) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Err(format!("{word:?} was not said in {within:?}").into()),
                Err(RecvTimeoutError::Disconnected) => return Err(format!("it ended before it said {word:?}").into()),
            }
        }
    }

    /// Has it end, and gives what it says at its end.
    pub fn end_saying(mut self, word: &str) -> Result<String, Failure> {
        drop(self.input.take());
        let said = self.says(word, Duration::from_secs(60))?;
        self.end()?;
        Ok(said)
    }

    /// Has it end in good order.
    pub fn end(mut self) -> Result<(), Failure> {
        drop(self.input.take());
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a measured process ended with {status}").into()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
