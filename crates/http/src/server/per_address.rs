//! A limit for the connections of one client address, over all workers and listeners that share it.
//!
//! A count exists only while its address has a connection, so the table is bounded by the connections. A /64
//! network counts as one IPv6 address, since one client has all of it.

use super::proxy::Network;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Locks of the counts.
const SHARDS: usize = 16;

/// The limit, shared by servers ([`Server::per_address`](crate::Server::per_address)). It can be changed
/// while they run; present connections above a smaller limit stay until they end.
#[derive(Debug)]
pub struct PerAddress {
    /// 0 means no limit.
    most: AtomicUsize,
    /// Networks that are not counted: proxies with the connections of many clients.
    except: RwLock<Vec<Network>>,
    counts: [Mutex<HashMap<IpAddr, usize>>; SHARDS],
    refused: AtomicU64,
}

impl Default for PerAddress {
    /// Makes a value without a limit.
    fn default() -> PerAddress {
        PerAddress {
            most: AtomicUsize::new(0),
            except: RwLock::default(),
            counts: std::array::from_fn(|_| Mutex::default()),
            refused: AtomicU64::new(0),
        }
    }
}

/// A connection that is counted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    of: Arc<PerAddress>,
    address: IpAddr,
}

/// The address has as many connections as the limit allows.
#[derive(Debug)]
pub(crate) struct TooMany;

impl PerAddress {
    /// Sets the limit, and the networks that are not counted. `None` means no limit.
    pub fn set(&self, most: Option<usize>, except: Vec<Network>) {
        *self.except.write().unwrap_or_else(PoisonError::into_inner) = except;
        self.most.store(most.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the number of refused connections.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns whether there is a limit. The address of a connection is determined only then.
    pub(crate) fn is_set(&self) -> bool {
        self.most.load(Ordering::Relaxed) > 0
    }

    fn with<R>(&self, address: IpAddr, act: impl FnOnce(&mut HashMap<IpAddr, usize>) -> R) -> R {
        let sum =
            |bytes: &[u8]| bytes.iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(*byte));
        let at = match address {
            IpAddr::V4(address) => sum(&address.octets()),
            IpAddr::V6(address) => sum(&address.octets()),
        };
        #[allow(clippy::indexing_slicing, reason = "the remainder is below the length, which is SHARDS")]
        let shard = &self.counts[at % SHARDS];
        act(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a connection. `None` means that this address is not counted.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Option<Counted>, TooMany> {
        let most = self.most.load(Ordering::Relaxed);
        let excepted = || {
            let except = self.except.read().unwrap_or_else(PoisonError::into_inner);
            except.iter().any(|network| network.contains(address))
        };
        if most == 0 || excepted() {
            return Ok(None);
        }
        let address = client(address);
        let entered = self.with(address, |counts| {
            let count = counts.entry(address).or_insert(0);
            // A new count is below any bound, so no count of 0 stays.
            let free = *count < most;
            *count += usize::from(free);
            free
        });
        if !entered {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(TooMany);
        }
        Ok(Some(Counted { of: Arc::clone(self), address }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.of.with(self.address, |counts| {
            if let Some(count) = counts.get_mut(&self.address) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&self.address);
                }
            }
        });
    }
}

/// Returns the address that is counted: for IPv6 its /64 network.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (!0 << 64))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_has_as_many_as_it_may_and_its_count_goes_with_the_last() {
        let bound = Arc::new(PerAddress::default());
        let enter = |address: &str| bound.enter(address.parse().unwrap());
        assert!(enter("192.0.2.1").unwrap().is_none(), "without a bound nothing is counted");
        bound.set(Some(2), vec!["10.0.0.0/8".parse().unwrap()]);
        let (one, two) = (enter("192.0.2.1").unwrap(), enter("::ffff:192.0.2.1").unwrap());
        assert!(one.is_some() && two.is_some() && enter("192.0.2.1").is_err());
        assert!(enter("192.0.2.2").unwrap().is_some());
        assert!(enter("10.1.2.3").unwrap().is_none());
        let six = (enter("2001:db8::1").unwrap(), enter("2001:db8::2").unwrap());
        assert!(enter("2001:db8::3").is_err() && enter("2001:db8:0:1::3").is_ok());
        assert_eq!(bound.refused(), 2);
        drop(one);
        assert!(enter("192.0.2.1").unwrap().is_some());
        drop((two, six));
        assert!(bound.counts.iter().all(|counts| counts.lock().unwrap().is_empty()));
    }
}
