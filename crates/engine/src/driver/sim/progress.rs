//! Advances operations: attempts, and submitted operations when an event concerns them.

use super::net::{Direction, Fate};
use super::{Faults, Sim, operation};
use crate::address::Address;
use crate::op::{Kind, Op, Outcome};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Maximum number of bytes read from a file at a time.
const FILE_STEP_BYTES: usize = 64 * 1024;

impl Sim {
    /// Runs the operation as far as possible now; returns what a system call would, EAGAIN included.
    pub(super) fn try_now(&mut self, op: &Op<'_>) -> Outcome {
        let number = op.target().number as u32;
        match *op {
            Op::Accept { .. } => Outcome::of(self.accept(number)),
            Op::Connect { address, .. } => match address.as_socket() {
                Some(to) => Outcome::of(self.network.connect(number, to)),
                None => Outcome::of(-libc::EAFNOSUPPORT),
            },
            Op::ReceiveBulk { .. } => {
                let mut large = self.pool.take_large();
                let mut span = large.span();
                span.bytes = self.shortened(span.bytes);
                // SAFETY: the buffer was just taken from the pool.
                let result = self.network.receive(number, unsafe { operation::fill(span) });
                if result <= 0 {
                    self.pool.put_large(large);
                    return Outcome::of(result);
                }
                // SAFETY: written by the simulated receive.
                let lease = unsafe { self.pool.lease_large(large, result as usize) };
                Outcome { result, lease: Some(lease) }
            }
            Op::Receive { .. } => {
                // At most half are leased; the others may hold results that are under way.
                let Some(buffer) = self.pool.take() else { return Outcome::of(-libc::EAGAIN) };
                let result = self.receive_pooled(number, buffer);
                if result <= 0 {
                    self.pool.put(buffer);
                    return Outcome::of(result);
                }
                // SAFETY: taken and written above, and no other code uses it.
                let lease = unsafe { self.pool.lease(buffer, result as usize) };
                Outcome { result, lease: Some(lease) }
            }
            Op::ReceiveInto { memory, .. } => {
                // SAFETY: lent for the call, by the contract of `Driver::attempt`.
                let room = unsafe { operation::fill(memory) };
                let most = self.shortened(room.len());
                Outcome::of(self.network.receive(number, &mut room[..most]))
            }
            Op::Send { bytes, .. } | Op::SendLasting { bytes, .. } => {
                // SAFETY: as above.
                let bytes = unsafe { operation::bytes_of(bytes) };
                let most = self.shortened(bytes.len());
                Outcome::of(self.network.send(number, &bytes[..most]))
            }
            Op::SendVectored { message, .. } => {
                // SAFETY: as above.
                let pieces = unsafe { operation::vectors_of(message) };
                Outcome::of(self.send_pieces(number, &pieces))
            }
            Op::SendFile { file, at, bytes, .. } => Outcome::of(self.send_file(number, file, at, bytes)),
            Op::SendMessage { message, .. } | Op::SendUnixMessage { message, .. } => {
                // SAFETY: as above.
                let (to, bytes) = unsafe {
                    (operation::name_of(message), operation::one_of(operation::vectors_of(message)))
                };
                Outcome::of(self.send_message(number, to.as_ref(), bytes))
            }
            Op::ReceiveMessage { message, .. } => {
                // SAFETY: as above.
                let room = unsafe { operation::fill(operation::room_in(message)) };
                match self.network.receive_message(number, room) {
                    Ok((length, from)) => {
                        // SAFETY: as above.
                        unsafe { operation::write_name(message, from.as_ref()) };
                        Outcome::of(length as i32)
                    }
                    Err(errno) => Outcome::of(-errno),
                }
            }
            Op::File(_) | Op::Readable { .. } | Op::Writable { .. } => unreachable!("files are apart"),
        }
    }

    /// Sends the pieces like one `sendmsg(2)`; returns the total.
    fn send_pieces(&mut self, number: u32, pieces: &[&[u8]]) -> i32 {
        let mut most = self.shortened(pieces.iter().map(|piece| piece.len()).sum());
        let mut sent = 0;
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let part = &piece[..piece.len().min(most)];
            match self.network.send(number, part) {
                errno if errno < 0 => return if sent > 0 { sent } else { errno },
                count => {
                    sent += count;
                    most -= count as usize;
                    if (count as usize) < part.len() || most == 0 {
                        return sent;
                    }
                }
            }
        }
        // An empty send still reports the state of the socket.
        if sent == 0 { self.network.send(number, &[]) } else { sent }
    }

    fn accept(&mut self, number: u32) -> i32 {
        if self.network.is_ready(number, Direction::In) {
            if self.chance.hits(self.faults.aborted) {
                return -libc::ECONNABORTED;
            }
            if self.chance.hits(self.faults.no_descriptor) {
                return -libc::EMFILE;
            }
        }
        match self.network.accept(number) {
            Ok(accepted) => {
                self.opened(accepted, "accept");
                accepted as i32
            }
            Err(errno) => -errno,
        }
    }

    /// Receives into a buffer taken from the pool.
    fn receive_pooled(&mut self, number: u32, buffer: u16) -> i32 {
        let most = self.shortened(self.pool.buffer_bytes());
        // SAFETY: the buffer was taken, so no other code uses it; it has that length, and pools are
        // initialised.
        let room = unsafe { std::slice::from_raw_parts_mut(self.pool.buffer(buffer).as_ptr(), most) };
        self.network.receive(number, room)
    }

    /// Advances an operation of the completion style.
    pub(super) fn advance(&mut self, id: u64) {
        let Some(operation) = self.operations.get(&id) else { return };
        let (kind, number, done) = (operation.kind, operation.number(), operation.done);
        if kind != Kind::Connect && done == 0 && self.chance.hits(self.faults.again) {
            let errno = if self.chance.below(2) == 0 { libc::EINTR } else { libc::EAGAIN };
            return self.send_result(id, -errno, true, None);
        }
        match kind {
            Kind::Accept => self.advance_accept(id, number),
            Kind::Connect => self.advance_connect(id, number),
            Kind::Receive => self.advance_receive(id, number),
            Kind::ReceiveInto => self.advance_receive_into(id, number),
            Kind::Send | Kind::SendVectored => self.advance_send(id, number),
            Kind::SendFile => self.advance_send_file(id, number),
            Kind::ReceiveMessage => self.advance_receive_message(id, number),
            Kind::SendMessage | Kind::SendUnixMessage => self.advance_send_message(id, number),
            Kind::Open | Kind::File | Kind::Readable | Kind::Writable => unreachable!("files are apart"),
        }
    }

    fn advance_accept(&mut self, id: u64, number: u32) {
        loop {
            let result = self.accept(number);
            if result == -libc::EAGAIN {
                return;
            }
            let last = result < 0 || self.chance.hits(self.faults.series_end);
            self.send_result(id, result, last, None);
            if last {
                return;
            }
        }
    }

    fn advance_connect(&mut self, id: u64, number: u32) {
        let Some(operation) = self.operations.get(&id) else { return };
        let to = operation.address().and_then(|address| address.as_socket());
        let result = to.map_or(-libc::EAFNOSUPPORT, |to| self.network.connect(number, to));
        if !matches!(-result, libc::EINPROGRESS | libc::EALREADY) {
            self.send_result(id, result, true, None);
        }
    }

    fn advance_receive(&mut self, id: u64, number: u32) {
        while self.network.is_ready(number, Direction::In) {
            let lacking = self.chance.hits(self.faults.ring_empty);
            let Some(buffer) = (if lacking { None } else { self.pool.take() }) else {
                self.counters.ring_empty += 1;
                let fresh = self.operations.get(&id).is_some_and(|operation| operation.arrives == 0);
                if fresh && !lacking {
                    // All buffers hold results that are under way: wait for one.
                    self.starved.push_back(id);
                } else {
                    self.send_result(id, -libc::ENOBUFS, true, None);
                }
                return;
            };
            let result = self.receive_pooled(number, buffer);
            if result <= 0 {
                self.pool.put(buffer);
                if result != -libc::EAGAIN {
                    self.send_result(id, result, true, None);
                }
                return;
            }
            let last = self.chance.hits(self.faults.series_end);
            self.send_result(id, result, last, Some(buffer));
            if last {
                return;
            }
        }
    }

    fn advance_receive_into(&mut self, id: u64, number: u32) {
        let Some(mut operation) = self.operations.remove(&id) else { return };
        let room = operation.room().len();
        let most = self.shortened(room);
        let result = self.network.receive(number, &mut operation.room()[..most]);
        operation.seal();
        self.operations.insert(id, operation);
        if result != -libc::EAGAIN {
            self.send_result(id, result, true, None);
        }
    }

    fn advance_send_file(&mut self, id: u64, number: u32) {
        let Some(operation) = self.operations.remove(&id) else { return };
        let result = operation.file().map(|(file, at, bytes)| self.send_file(number, file, at, bytes));
        self.operations.insert(id, operation);
        match result {
            Some(result) if result != -libc::EAGAIN => self.send_result(id, result, true, None),
            _ => {}
        }
    }

    /// Sends from a real file, like `sendfile(2)`.
    fn send_file(&mut self, number: u32, file: &File, at: u64, bytes: usize) -> i32 {
        let most = self.shortened(bytes.min(FILE_STEP_BYTES));
        let mut piece = vec![0; most];
        match file.read_at(&mut piece, at) {
            Ok(0) if bytes > 0 => -libc::ENODATA,
            Ok(read) => self.network.send(number, &piece[..read]),
            Err(why) => -why.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    fn advance_receive_message(&mut self, id: u64, number: u32) {
        let Some(mut operation) = self.operations.remove(&id) else { return };
        let received = self.network.receive_message(number, operation.room());
        if let Ok((_, from)) = &received {
            operation.sent_by(from.as_ref());
        }
        operation.seal();
        self.operations.insert(id, operation);
        match received {
            Ok((length, _)) => self.send_result(id, length as i32, true, None),
            Err(libc::EAGAIN) => {}
            Err(errno) => self.send_result(id, -errno, true, None),
        }
    }

    /// Sends a datagram, and decides its fate if it is UDP.
    pub(super) fn send_message(&mut self, number: u32, to: Option<&Address>, bytes: &[u8]) -> i32 {
        let Faults { lost, doubled, late, .. } = self.faults;
        let (fate, what) = if self.chance.hits(lost) {
            (Fate::Lost, "lost")
        } else if self.chance.hits(doubled) {
            (Fate::Doubled, "doubled")
        } else if self.chance.hits(late) {
            (Fate::Late, "late")
        } else {
            (Fate::Arrives, "sent")
        };
        let result = self.network.send_message(number, to, bytes, fate);
        self.note(what, u64::from(number), i64::from(result));
        result
    }

    fn advance_send_message(&mut self, id: u64, number: u32) {
        let Some(operation) = self.operations.remove(&id) else { return };
        let (to, bytes) = operation.letter();
        let result = self.send_message(number, to.as_ref(), bytes);
        self.operations.insert(id, operation);
        // Without room it waits.
        if result != -libc::EAGAIN {
            self.send_result(id, result, true, None);
        }
    }

    fn advance_send(&mut self, id: u64, number: u32) {
        let Some(mut operation) = self.operations.remove(&id) else { return };
        let left: usize = operation.rest().iter().map(|piece| piece.len()).sum();
        let result = self.send_pieces(number, &operation.rest());
        operation.done += usize::try_from(result).unwrap_or(0);
        let (done, whole) = (operation.done, operation.whole);
        self.operations.insert(id, operation);
        if result == -libc::EAGAIN {
            // It continues when there is room.
        } else if result < 0 {
            // The bytes already sent are the result. The error is lost; the next send fails.
            self.send_result(id, if done > 0 { done as i32 } else { result }, true, None);
        } else if !whole || result as usize == left || self.chance.hits(self.faults.short) {
            self.send_result(id, done as i32, true, None);
        } else {
            self.look_soon(id, true);
        }
    }
}
