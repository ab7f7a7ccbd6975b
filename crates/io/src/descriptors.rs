//! Descriptors over Unix sockets (`SCM_RIGHTS`, unix(7)).

use ringroad_engine::{Error, PollFd, Result, sync::budget::counted, time::sleep};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Most descriptors in one message (the kernel's limit is 253).
pub const DESCRIPTORS_MAX: usize = 64;

/// Pause before a message is tried again when the peer has no room.
const PAUSE: Duration = Duration::from_millis(1);

/// A Unix socket for messages with descriptors, to another process or thread.
///
/// It is a type of its own because a stream's receives take bytes without descriptors, which the kernel then
/// closes. Each message has at least one byte. Over a stream, bytes of two messages may arrive together, and
/// descriptors end a receive; a `SOCK_SEQPACKET` or datagram socket keeps messages apart.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime};
/// use ringroad_io::DescriptorSocket;
/// use std::os::{fd::AsFd, unix::net::UnixDatagram};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let (near, far) = UnixDatagram::pair().unwrap();
///     let (near, far) = (DescriptorSocket::new(near.into())?, DescriptorSocket::new(far.into())?);
///     let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
///     near.send(b"a listener", &[listener.as_fd()]).await?;
///     let (bytes, descriptors) = far.recv(64).await?;
///     assert_eq!((&*bytes, descriptors.len()), (&b"a listener"[..], 1));
///     Ok::<(), ringroad_engine::Error>(())
/// })??;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct DescriptorSocket {
    socket: PollFd<OwnedFd>,
}

impl DescriptorSocket {
    /// Takes over a connected Unix socket of any type.
    ///
    /// # Errors
    /// The descriptor is not a socket.
    pub fn new(socket: OwnedFd) -> Result<DescriptorSocket> {
        match rustix::net::sockopt::socket_domain(&socket) {
            Ok(rustix::net::AddressFamily::UNIX) => Ok(DescriptorSocket { socket: PollFd::new(socket) }),
            Ok(_) => Err(failed("sendmsg", io::Error::new(io::ErrorKind::InvalidInput, "no Unix socket"))),
            Err(why) => Err(failed("getsockopt", why.into())),
        }
    }

    /// Sends a message with descriptors. The receiver gets duplicates; the sender keeps its own. While the
    /// peer has no room, the send is retried every millisecond.
    ///
    /// If the future is dropped, nothing or the whole message has been sent. Over a stream, the descriptors
    /// may have been sent with a part of the bytes, if the peer had no room for all.
    ///
    /// # Errors
    /// EPIPE, ECONNREFUSED: the peer has closed. `InvalidInput`: no byte, or more than [`DESCRIPTORS_MAX`]
    /// descriptors. EMSGSIZE: the message is longer than the socket's buffer.
    pub async fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        counted(self.send_uncounted(bytes, descriptors)).await
    }

    async fn send_uncounted(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        if bytes.is_empty() || descriptors.len() > DESCRIPTORS_MAX {
            let why = format!("a message has at least one byte, and at most {DESCRIPTORS_MAX} descriptors");
            return Err(failed("sendmsg", io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let mut rest = bytes;
        let mut unsent = descriptors;
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !unsent.is_empty() && !control.push(SendAncillaryMessage::ScmRights(unsent)) {
                unreachable!("there is room for as many as are allowed");
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.socket, &[IoSlice::new(rest)], &mut control, flags) {
                Ok(sent) => {
                    // The descriptors go with the first bytes.
                    unsent = &[];
                    rest = rest.get(sent..).unwrap_or_default();
                    if rest.is_empty() {
                        return Ok(());
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => sleep(PAUSE).await,
                Err(why) => return Err(failed("sendmsg", why.into())),
            }
        }
    }

    /// Receives at most `most` bytes, and the descriptors that came with them, with close-on-exec set. No
    /// bytes mean that the peer has closed.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// ECONNRESET. `InvalidData`: descriptors were lost, because there were more than [`DESCRIPTORS_MAX`], or
    /// because this process has no free descriptor.
    pub async fn recv(&self, most: usize) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        counted(self.recv_uncounted(most)).await
    }

    async fn recv_uncounted(&self, most: usize) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = vec![0; most];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
                Ok(received) => {
                    let descriptors = control.drain().filter_map(|message| match message {
                        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                        _ => None,
                    });
                    let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
                    if received.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
                        let why = "descriptors were lost: too many, or no number was left for them";
                        return Err(failed("recvmsg", io::Error::new(io::ErrorKind::InvalidData, why)));
                    }
                    bytes.truncate(received.bytes);
                    return Ok((bytes, descriptors));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => self.socket.readable().await?,
                Err(why) => return Err(failed("recvmsg", why.into())),
            }
        }
    }
}

impl AsFd for DescriptorSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cold]
fn failed(call: &'static str, why: io::Error) -> Error {
    Error::layered(call, why)
}
