//! Direct connections: a socket exchanges its descriptor for a place in the ring's table.

use super::Io;
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};

/// Hint for operations that a direct connection does not support.
pub(crate) const DIRECT: &str = "the connection is direct: it has a place in the ring's table and no descriptor; do this before `into_direct`";

impl Io {
    /// Returns the number of places in the driver's table.
    pub(crate) fn direct_places(&mut self) -> Result<u32> {
        self.driver.direct_places()
    }

    /// Makes a socket direct; the driver must have none of its operations. On an error nothing has changed.
    pub(crate) fn make_direct(&mut self, index: u32) -> Result<()> {
        let on = self.table.target(index);
        if on.is_direct() {
            return Ok(());
        }
        if self.table.entry(index).with_driver > 0 {
            // Entries that are queued but not submitted yet name the socket by its number, which would belong
            // to another file by then.
            return Err(Error::errno("into_direct", libc::EBUSY).by(self.driver.name()).hint(
                "something is received or sent already: do it when the connection is made, or after `detach` and `attach`",
            ));
        }
        if self.may_linger {
            self.clear_linger_before_close(on);
        }
        let driver = &mut self.driver;
        let moved = self.table.exchange(index, |descriptor| match descriptor {
            Descriptor::Os(socket) => match driver.make_direct(socket) {
                Ok(place) => (Descriptor::Direct(place), Ok(())),
                Err((why, socket)) => (Descriptor::Os(socket), Err(why)),
            },
            // The simulation has no table; its `direct_places` returns the error.
            other => (other, driver.direct_places().map(|_| ())),
        });
        if let Some(Ok(())) = moved {
            // A descriptor number is free now.
            self.unpark();
        }
        moved.unwrap_or_else(|| unreachable!("its owner holds it open"))
    }
}
