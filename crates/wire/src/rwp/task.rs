//! Frames about tasks and messages between workers of one application, as received from a worker.

use super::{Frame, Kind};
use std::fmt;

/// Bit of a slot's number on the wire: the slot belongs to a task worker.
pub const TASK_SLOT: u16 = 0x8000;
/// Flag of TASK_SUBMIT: the submitter wants no result.
pub const FORGET: u8 = 4;
/// Value of aux in TASK_SUBMIT and TASK in place of a slot: any, or none.
pub const ANY_SLOT: u16 = 0xffff;

/// Value of aux in TASK_DONE and TASK_RESULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Outcome {
    /// The payload is the result.
    Done = 0,
    /// The task raised an exception; the payload is the reason, as for all outcomes below.
    Raised = 1,
    /// It has ended without a result.
    Silent = 2,
    /// It was not begun: the queue is full, or there are no task workers.
    Refused = 3,
    /// It took too long; its process was killed.
    TooLate = 4,
    /// Its process has ended.
    Died = 5,
}

impl Outcome {
    /// Returns its name in metrics and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Raised => "raised",
            Outcome::Silent => "silent",
            Outcome::Refused => "refused",
            Outcome::TooLate => "timeout",
            Outcome::Died => "died",
        }
    }
}

/// A frame from a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskFrame<'b> {
    /// TASK_SUBMIT.
    Submit {
        /// The submitter's number, which is returned with the result.
        number: u32,
        /// The task worker that must run it; `None`: any.
        slot: Option<u16>,
        /// Whether no result is wanted.
        forget: bool,
        /// The task.
        payload: &'b [u8],
    },
    /// TASK_DONE.
    Done {
        /// The number of TASK.
        task: u32,
        /// The outcome: [`Outcome::Done`], [`Outcome::Raised`] or [`Outcome::Silent`].
        outcome: Outcome,
        /// The result or the reason.
        payload: &'b [u8],
    },
    /// MESSAGE.
    Message {
        /// The slot of the receiver, with [`TASK_SLOT`] for one of a task worker.
        to: u16,
        /// The message.
        payload: &'b [u8],
    },
}

/// A frame that violates the protocol: the worker is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTaskFrame(&'static str);

impl fmt::Display for BadTaskFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadTaskFrame {}

impl<'b> TaskFrame<'b> {
    /// Parses a frame of the control link; `None` if it is of another kind.
    ///
    /// # Errors
    /// It violates the protocol.
    pub fn read(frame: &Frame<'b>) -> Result<Option<TaskFrame<'b>>, BadTaskFrame> {
        let Frame { kind, flags, aux, stream, payload } = *frame;
        Ok(Some(match kind {
            Kind::TASK_SUBMIT => {
                if stream == 0 {
                    return Err(BadTaskFrame("TASK_SUBMIT without a number"));
                }
                let slot = (aux != ANY_SLOT).then_some(aux & !TASK_SLOT);
                TaskFrame::Submit { number: stream, slot, forget: flags & FORGET != 0, payload }
            }
            Kind::TASK_DONE => {
                let outcome = match aux {
                    0 => Outcome::Done,
                    1 => Outcome::Raised,
                    2 => Outcome::Silent,
                    _ => return Err(BadTaskFrame("TASK_DONE with an unknown outcome")),
                };
                TaskFrame::Done { task: stream, outcome, payload }
            }
            Kind::MESSAGE => TaskFrame::Message { to: aux, payload },
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn frame(kind: Kind, flags: u8, aux: u16, stream: u32) -> Frame<'static> {
        Frame { kind, flags, aux, stream, payload: b"x" }
    }

    #[test]
    fn frames_of_tasks_are_read() {
        let read = |frame| TaskFrame::read(&frame).unwrap();
        assert_eq!(
            read(frame(Kind::TASK_SUBMIT, 0, ANY_SLOT, 7)),
            Some(TaskFrame::Submit { number: 7, slot: None, forget: false, payload: b"x" })
        );
        assert_eq!(
            read(frame(Kind::TASK_SUBMIT, FORGET, 2, 7)),
            Some(TaskFrame::Submit { number: 7, slot: Some(2), forget: true, payload: b"x" })
        );
        assert_eq!(
            read(frame(Kind::TASK_DONE, 0, 1, 9)),
            Some(TaskFrame::Done { task: 9, outcome: Outcome::Raised, payload: b"x" })
        );
        assert_eq!(
            read(frame(Kind::MESSAGE, 0, TASK_SLOT | 1, 0)),
            Some(TaskFrame::Message { to: TASK_SLOT | 1, payload: b"x" })
        );
        assert_eq!(read(frame(Kind::BODY, 0, 0, 1)), None);
    }

    #[test]
    fn frames_that_break_the_rules_are_told() {
        assert!(TaskFrame::read(&frame(Kind::TASK_SUBMIT, 0, 0, 0)).is_err());
        assert!(TaskFrame::read(&frame(Kind::TASK_DONE, 0, 3, 1)).is_err());
    }
}
