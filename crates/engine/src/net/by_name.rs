//! Connections by name: look the addresses up, and try them side by side (RFC 8305, "happy eyeballs").

use super::{ConnectOptions, TcpStream, literal_with_port};
use crate::blocking::spawn_blocking;
use crate::error::{Error, Result};
use crate::time::sleep;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// How long one address has before the next one is tried beside it (RFC 8305 §8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Returns the addresses of `host:port`, in the system's order (`getaddrinfo(3)`), looked up on a thread of
/// the blocking pool. An address needs no look-up.
///
/// # Errors
/// There is no such name, or no port; the resolver has failed.
///
/// # Panics
/// Outside of a runtime.
pub async fn lookup_host(name: impl Into<String>) -> Result<Vec<SocketAddr>> {
    let name = name.into();
    if let Some(address) = literal_with_port(&name) {
        return Ok(vec![address?]);
    }
    let asked = name.clone();
    let found = spawn_blocking(move || asked.to_socket_addrs().map(Iterator::collect::<Vec<_>>)).await;
    let failed = |why: io::Error| Error::new("getaddrinfo", why).on(&name);
    match found.map_err(|why| failed(io::Error::other(why.to_string())))? {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))),
        Err(why) if why.kind() == io::ErrorKind::InvalidInput => {
            Err(failed(why).hint("expected a name or an address, and a port: `example.com:443`"))
        }
        Err(why) => {
            Err(failed(why).hint("check its spelling, and the system's resolver: `getent ahosts NAME`"))
        }
    }
}

/// Returns the part of `span` that each of so many has.
fn share(span: Duration, count: usize) -> Duration {
    span / u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}

/// Puts addresses of both families in turns, beginning with that of the first.
fn in_turns(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let mut order = VecDeque::with_capacity(first.len() + other.len());
    let (mut first, mut other) = (first.into_iter(), other.into_iter());
    loop {
        let pair = [first.next(), other.next()];
        if pair == [None, None] {
            return order;
        }
        order.extend(pair.into_iter().flatten());
    }
}

impl TcpStream {
    /// Connects to `host:port`, by name or address. With several addresses the next one is tried, beside
    /// those before it, when one has failed or has not answered for 250 ms; IPv6 and IPv4 in turns (RFC
    /// 8305). The first connection counts, and the other attempts end.
    ///
    /// # Errors
    /// As [`lookup_host`]; the error of the first address if none can be connected to.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub async fn connect_to(name: impl Into<String>) -> Result<TcpStream> {
        TcpStream::connect_any(lookup_host(name).await?, ConnectOptions::default()).await
    }

    /// Connects to one of several addresses of the same server, as [`connect_to`](Self::connect_to).
    ///
    /// # Errors
    /// As there; `InvalidInput` without an address.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub async fn connect_any(addresses: Vec<SocketAddr>, options: ConnectOptions) -> Result<TcpStream> {
        TcpStream::connect_first(addresses, Duration::MAX, |_| Some(options)).await
    }

    /// Works as [`connect_any`](Self::connect_any), for a caller that waits for `span` in total. If 250 ms
    /// exceed an address's share of that, the next address is tried after this share. So no address is
    /// omitted because earlier ones do not answer. `options` returns the options of each address, or `None`
    /// to omit it.
    ///
    /// # Errors
    /// Those of `connect_any`. The caller must check whether `span` has passed.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub async fn connect_first(
        addresses: Vec<SocketAddr>,
        span: Duration,
        mut options: impl FnMut(SocketAddr) -> Option<ConnectOptions>,
    ) -> Result<TcpStream> {
        let attempt = share(span, addresses.len()).min(ATTEMPT_DELAY);
        let mut left = in_turns(addresses);
        let mut attempts = Vec::new();
        let mut first_error = None;
        let mut delay = sleep(attempt);
        let mut begin = true;
        poll_fn(move |context| {
            loop {
                while begin && let Some(address) = left.pop_front() {
                    let Some(options) = options(address) else { continue };
                    attempts.push(TcpStream::connect_with(address, options));
                    delay = sleep(attempt);
                    begin = false;
                }
                begin = false;
                let mut nth = 0;
                while let Some(attempt) = attempts.get_mut(nth) {
                    match Pin::new(attempt).poll(context) {
                        Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(stream)),
                        Poll::Ready(Err(why)) => {
                            first_error.get_or_insert(why);
                            drop(attempts.remove(nth));
                            // A failure is an answer: the next address need not wait.
                            begin = true;
                        }
                        Poll::Pending => nth += 1,
                    }
                }
                if left.is_empty() {
                    if !attempts.is_empty() {
                        return Poll::Pending;
                    }
                    let why = first_error.take().unwrap_or_else(|| {
                        Error::new("connect", io::Error::new(io::ErrorKind::InvalidInput, "no address"))
                    });
                    return Poll::Ready(Err(why));
                }
                if !begin && Pin::new(&mut delay).poll(context).is_pending() {
                    return Poll::Pending;
                }
                begin = true;
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_address_has_its_share_of_a_short_time() {
        let ms = Duration::from_millis;
        assert_eq!((share(ms(300), 3), share(ms(300), 0)), (ms(100), ms(300)));
        assert!(share(Duration::MAX, 1000) > ATTEMPT_DELAY);
    }

    #[test]
    fn families_are_tried_in_turns_beginning_with_the_systems_choice() {
        let addresses = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"];
        let order = in_turns(addresses.iter().map(|address| address.parse().unwrap()).collect());
        let order: Vec<_> = order.iter().map(SocketAddr::to_string).collect();
        assert_eq!(order, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]);
        assert!(in_turns(Vec::new()).is_empty());
    }
}
