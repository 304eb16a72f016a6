//! Prints results on stdout and everything else on stderr.
//!
//! Problem   `weir … | head` closes the pipe while there is more to say. `println!` panics then,
//!           which in the middle of a play would leave namespaces behind.
//! Approach  A reader that closes the pipe has read enough: what follows is dropped, the play goes
//!           on, and the exit status is the verdict's. A disk that is full is an error like any
//!           other.

use anyhow::{Context as _, Result};
use serde::Serialize;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};

/// Prints to stdout, as `print!` does, and gives back what went wrong.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}
/// Prints a line to stdout, as `println!` does, and gives back what went wrong.
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}
/// Prints a line to stderr, as `eprintln!` does; if nothing reads it, it is lost.
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::complain(format_args!($($text)*)) };
}
pub(crate) use {errln, out, outln};

/// Prints to stdout.
///
/// # Errors
/// It cannot be written, for another reason than that its reader is gone.
pub(crate) fn print(text: Arguments<'_>) -> Result<()> {
    write(&mut stdout().lock(), text)
}

/// One JSON value and the end of its line.
///
/// # Errors
/// As [`print`].
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(value)?;
    outln!("{text}")
}

/// Prints a line to stderr.
pub(crate) fn complain(text: Arguments<'_>) {
    // No reader is left.
    drop(writeln!(stderr(), "{text}"));
}

fn write(to: &mut dyn Write, text: Arguments<'_>) -> Result<()> {
    match to.write_fmt(text).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout: is the disk full?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is_one() {
        assert!(write(&mut Broken(ErrorKind::BrokenPipe), format_args!("x")).is_ok());
        let full = write(&mut Broken(ErrorKind::StorageFull), format_args!("x"));
        let text = full.expect_err("it was not written").to_string();
        assert!(text.contains("cannot write to stdout"), "{text}");
    }
}
