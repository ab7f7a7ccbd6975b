//! The control link of a worker: the socket pair on its descriptor 3.
//!
//! The supervisor greets, asks, and stops the worker over it. It is also the lifeline: a worker that reads
//! its end stops. Descriptors of data links travel over it, sent by the server's threads, so writing is under
//! a lock. What the socket does not take at once waits here, and the supervisor sends it when there is room:
//! tasks and their results may be long. A worker that leaves more than [`PENDING_BYTES_MAX`] unread is
//! broken.

use ringroad_wire::rwp::{self, Kind};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// The variable that names the number of the control link's descriptor.
pub const CONTROL_ENV: &str = "RINGROAD_FD";

/// Bytes that may wait for a worker that does not read.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// Bytes that are received in one turn, so that a worker that sends without end leaves the others theirs.
const TURN_BYTES: usize = 1 << 20;

/// The server's end of a control link.
#[derive(Debug)]
pub(crate) struct Control {
    socket: UnixStream,
    /// Locked while a frame is written.
    pending: Mutex<Pending>,
}

/// Frames that the socket has not taken yet.
#[derive(Debug, Default)]
struct Pending {
    frames: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    /// Of the first frame, bytes that are sent.
    sent: usize,
    bytes: usize,
}

impl Control {
    /// Returns a link, and the worker's end of it.
    pub(crate) fn pair() -> io::Result<(Control, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((Control { socket: ours, pending: Mutex::default() }, theirs))
    }

    /// Sends a frame of stream 0, with up to three descriptors.
    pub(crate) fn send(&self, kind: Kind, payload: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(rwp::HEAD_BYTES + payload.len());
        rwp::put(&mut bytes, kind, 0, 0, 0, payload);
        let owned: io::Result<Vec<OwnedFd>> =
            descriptors.iter().map(|one| one.try_clone_to_owned()).collect();
        self.queue(bytes, owned?)
    }

    /// Sends a frame about a task, or a message.
    pub(crate) fn send_task(&self, kind: Kind, aux: u16, stream: u32, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(rwp::HEAD_BYTES + payload.len());
        rwp::put(&mut bytes, kind, 0, aux, stream, payload);
        self.queue(bytes, Vec::new())
    }

    fn queue(&self, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.bytes + bytes.len() > PENDING_BYTES_MAX {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        pending.bytes += bytes.len();
        pending.frames.push_back((bytes, descriptors));
        self.write(&mut pending)
    }

    /// Sends what waits, as far as there is room.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(&mut pending)
    }

    /// Bytes that wait for room.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    fn write(&self, pending: &mut Pending) -> io::Result<()> {
        while let Some((bytes, descriptors)) = pending.frames.front_mut() {
            let rest = bytes.get(pending.sent..).unwrap_or_default();
            let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !borrowed.is_empty() {
                ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::sendmsg(&self.socket, &[IoSlice::new(rest)], &mut ancillary, flags) {
                Ok(sent) => {
                    // They went with the first byte.
                    descriptors.clear();
                    pending.sent += sent;
                    pending.bytes -= sent;
                    if pending.sent >= bytes.len() {
                        pending.frames.pop_front();
                        pending.sent = 0;
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(why) => {
                    // The worker reads nothing more. Its ends of links must not stay open here, or the links
                    // would never end.
                    *pending = Pending::default();
                    return Err(why.into());
                }
            }
        }
        Ok(())
    }

    /// Appends what has come to `bytes`, at most about 1 MiB. `false`: the worker has closed its end.
    pub(crate) fn receive(&self, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let mut buffer = [0_u8; 64 << 10];
        let most = bytes.len() + TURN_BYTES;
        while bytes.len() < most {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Ok(false),
                Ok((count, _)) => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(rustix::io::Errno::AGAIN) => return Ok(true),
                Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(true)
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_frame_that_the_socket_does_not_take_at_once_waits_and_a_descriptor_goes_with_its_own_frame() {
        let (ours, mut theirs) = Control::pair().unwrap();
        let long: Vec<u8> = (0..3_000_000).map(|at| (at % 251) as u8).collect();
        ours.send_task(Kind::TASK, 1, 2, &long).unwrap();
        let (other, _kept) = UnixStream::pair().unwrap();
        ours.send(Kind::LINK, &[], &[other.as_fd()]).unwrap();
        assert!(ours.pending_bytes() > 0);
        let mut got = vec![0; 2 * rwp::HEAD_BYTES + long.len()];
        let mut at = 0;
        while at < got.len() {
            ours.flush().unwrap();
            at += theirs.read(&mut got[at..]).unwrap();
        }
        assert_eq!(ours.pending_bytes(), 0);
        let mut at = 0;
        let frame = rwp::next(&got, &mut at).unwrap().unwrap();
        assert!((frame.kind, frame.aux, frame.stream) == (Kind::TASK, 1, 2) && frame.payload == long);
        assert_eq!(rwp::next(&got, &mut at).unwrap().unwrap().kind, Kind::LINK);
    }

    #[test]
    fn a_descriptor_that_could_not_be_sent_is_closed_here() {
        let (ours, theirs) = Control::pair().unwrap();
        drop(theirs);
        let (mut kept, other) = UnixStream::pair().unwrap();
        assert!(ours.send(Kind::LINK, &[], &[other.as_fd()]).is_err());
        drop(other);
        assert_eq!(kept.read(&mut [0; 1]).unwrap(), 0, "the end of the link");
        assert_eq!(ours.pending_bytes(), 0);
    }

    #[test]
    fn a_worker_that_does_not_read_is_broken_in_the_end() {
        let (ours, _theirs) = Control::pair().unwrap();
        let long = vec![0; 15 << 20];
        let failed = (0..10).map(|_| ours.send_task(Kind::TASK, 0, 1, &long)).find_map(Result::err);
        assert_eq!(failed.unwrap().kind(), io::ErrorKind::WouldBlock);
    }
}
