//! Turns of several clients, each with its server: one works at a time.
//!
//! The harness writes [`YOURS`] to a client's standard input and waits until that client has written [`OVER`]
//! to its standard output, or has ended. Start at [`Turns`].

use std::io::{self, Read, Write};

/// Written to a client: its turn has come.
pub const YOURS: &[u8] = b"turn\n";
/// Written by a client: its turn is over, and it wants another.
pub const OVER: &[u8] = b"over\n";

/// A client's end.
#[derive(Debug)]
pub struct Turns<I = io::Stdin, O = io::Stdout> {
    input: I,
    output: O,
}

impl Turns {
    /// Makes turns on standard input and output.
    pub fn here() -> Turns {
        Turns { input: io::stdin(), output: io::stdout() }
    }
}

impl<I: Read, O: Write> Turns<I, O> {
    /// Sleeps until it is this client's turn; `false` if there will be none, because the harness has ended.
    #[must_use]
    pub fn wait(&mut self) -> bool {
        let mut word = [0; YOURS.len()];
        self.input.read_exact(&mut word).is_ok() && word == YOURS
    }

    /// Reports that this turn is over; `false` if the harness has ended.
    #[must_use]
    pub fn pass(&mut self) -> bool {
        self.output.write_all(OVER).and_then(|()| self.output.flush()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_comes_with_its_whole_word_and_not_at_the_end_of_the_input() {
        let mut turns = Turns { input: &b"turn\ntur"[..], output: Vec::new() };
        assert!(turns.wait() && turns.pass());
        assert!(!turns.wait());
        assert_eq!(turns.output, OVER);
        assert!(!Turns { input: &b"report"[..], output: Vec::new() }.wait());
    }
}
