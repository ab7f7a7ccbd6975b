//! A head, as both directions read it: a start line, header lines, an empty line; whole or not yet.

use crate::error::{Error, Problem};
use crate::fields::{Bounds, Lines, Progress, Slots, lines};
use crate::limits::Limits;
use crate::scan::is_word;

/// What the front of a buffer holds.
pub(crate) enum Found<M> {
    /// A head of `count` lines up to `end`, and what it means.
    Whole { meta: M, end: usize, count: u8 },
    /// The beginning of a head. Its lines up to here need no second look before it is whole.
    Partial(Progress),
}

/// Gathers what header lines mean.
pub(crate) trait Note: Default {
    /// Takes one line. An error may depend on this line alone: what depends on several is judged when all are
    /// there.
    fn note(&mut self, number: u8, name: &[u8], value: &[u8]) -> Result<(), Error>;
}

/// What differs by direction.
#[derive(Clone, Copy)]
pub(crate) struct Reach {
    /// Longest head, whatever the limits say.
    pub(crate) end_max: usize,
    /// What [`Limits::tolerant`] names is taken.
    pub(crate) tolerant: bool,
}

/// Reads the head at the front of `bytes`. Lines up to `from` are known to be whole and good:
/// `start_line` gives the first line and its end, or `None` while it is not whole; `meaning` judges all of
/// it.
#[inline(always)]
pub(crate) fn read<L, F: Note, M>(
    bytes: &[u8],
    limits: &Limits,
    slots: &mut Slots,
    from: Progress,
    reach: Reach,
    start_line: impl FnOnce(&[u8]) -> Result<Option<(usize, L)>, Error>,
    meaning: impl FnOnce(&L, F) -> Result<M, Error>,
) -> Result<Found<M>, Error> {
    let bounds = Bounds {
        section_bytes: limits.header_bytes,
        line_bytes: limits.field_line_bytes,
        end_max: reach.end_max,
        tolerant: reach.tolerant,
        fields: limits.fields,
        section_too_long: Problem::HeadersTooLong,
        line_too_long: Problem::FieldLineTooLong,
        too_many: Problem::TooManyFields,
    };
    if (1..=bytes.len()).contains(&from.line()) {
        // What is new decides whether this is worth another pass over all of it.
        if let Lines::Partial(progress) = resume::<F>(bytes, from, &bounds, slots)? {
            return Ok(Found::Partial(progress));
        }
    }
    let Some((line_end, line)) = start_line(bytes)? else { return Ok(Found::Partial(Progress::default())) };
    let mut facts = F::default();
    let begin = Progress::begin(line_end).ok_or_else(|| Error::new(Problem::HeadersTooLong, &[]))?;
    match lines(bytes, begin, &bounds, slots, |number, name, value| {
        facts.note(number, name, value).map(|()| true)
    })? {
        Lines::Partial(progress) => Ok(Found::Partial(progress)),
        Lines::Whole { end, count } => Ok(Found::Whole { meta: meaning(&line, facts)?, end, count }),
    }
}

/// Judges the lines from `from` on, by themselves.
#[cold]
fn resume<F: Note>(bytes: &[u8], from: Progress, bounds: &Bounds, slots: &mut Slots) -> Result<Lines, Error> {
    let mut new = F::default();
    lines(bytes, from, bounds, slots, |number, name, value| new.note(number, name, value).map(|()| true))
}

/// Replaces the line end before each folded line of a head by spaces, as far as the head has come. Lines up
/// to `from` are known. Returns where reading goes on: at the first line that has changed. `None`: nothing is
/// folded, or the line is one that frames the body, about which readers must not differ.
///
/// A line end and the spaces for it are of one length: limits hold as before.
#[cold]
pub(crate) fn unfold(bytes: &mut [u8], from: Progress) -> Option<Progress> {
    // The first line behind the status line continues none.
    let begins = match from.line() {
        0 => bytes.iter().position(|byte| *byte == b'\n')? + 1,
        known => known,
    };
    let (mut line, mut at, mut resumed, mut has_folds) = (begins, begins, from, false);
    if from.count > 0 && matches!(bytes.get(at), Some(b' ' | b'\t')) {
        // It goes on with a line that was taken for whole.
        let before = bytes.get(..at - 1)?;
        line = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        resumed = from.back_to(line);
    }
    loop {
        match bytes.get(at) {
            Some(b' ' | b'\t') if line < at => {
                let name = bytes.get(line..at)?.split(|byte| matches!(byte, b':' | b' ' | b'\t')).next()?;
                if is_word(name, b"content-length") || is_word(name, b"transfer-encoding") {
                    return None;
                }
                let has_cr = bytes.get(..at - 1)?.last() == Some(&b'\r');
                bytes.get_mut(at - 1 - usize::from(has_cr)..at)?.fill(b' ');
                has_folds = true;
            }
            // The end of the head, or of what has come; or no line to go on with.
            None | Some(b'\r' | b'\n' | b' ' | b'\t') => break,
            Some(_) => line = at,
        }
        match bytes.get(at..)?.iter().position(|byte| *byte == b'\n') {
            Some(end) => at += end + 1,
            None => break,
        }
    }
    has_folds.then_some(resumed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::FIELDS_MAX;
    use std::cell::Cell;

    thread_local!(static NOTED: Cell<usize> = const { Cell::new(0) });

    #[derive(Default)]
    struct Counter;

    impl Note for Counter {
        fn note(&mut self, _: u8, _: &[u8], _: &[u8]) -> Result<(), Error> {
            NOTED.set(NOTED.get() + 1);
            Ok(())
        }
    }

    /// However it comes, a head costs work in proportion to its bytes, not to their square.
    #[test]
    fn a_line_that_is_whole_is_read_again_only_once_the_head_is() {
        let lines = 50;
        let bytes = [b"first\r\n", &b"X: y\r\n".repeat(lines)[..], b"\r\n"].concat();
        let mut slots = [Default::default(); FIELDS_MAX];
        let mut from = Progress::default();
        let reach = Reach { end_max: 1000, tolerant: false };
        for end in 0..=bytes.len() {
            let start_line = |bytes: &[u8]| Ok((bytes.len() >= 7).then_some((7, ())));
            let limits = Limits::default();
            let found =
                read(&bytes[..end], &limits, &mut slots, from, reach, start_line, |(), _: Counter| Ok(()));
            match found {
                Ok(Found::Partial(progress)) => from = progress,
                Ok(Found::Whole { end: at, count, .. }) => {
                    assert_eq!((at, end, usize::from(count)), (bytes.len(), bytes.len(), lines));
                }
                Err(error) => panic!("{error}"),
            }
        }
        // Each line as it came, and all of them once more at the end.
        assert_eq!(NOTED.get(), 2 * lines);
    }
}
