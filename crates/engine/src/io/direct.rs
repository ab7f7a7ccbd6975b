//! Direct descriptors: a socket gives its number up for a place in the driver's own table.

use super::Io;
use crate::descriptor::Descriptor;
use crate::error::{Error, Result};

/// Why something cannot be done by place, and what to do.
pub(crate) const DIRECT: &str = "the connection is direct: it has a place in the ring's table and no descriptor; do this before `into_direct`";

impl Io {
    /// How many places the driver's table has.
    pub(crate) fn direct_places(&mut self) -> Result<u32> {
        self.driver.direct_places()
    }

    /// Gives a socket of which nothing is with the driver a place in the driver's table. If that cannot be, nothing has
    /// changed.
    pub(crate) fn make_direct(&mut self, index: u32) -> Result<()> {
        let on = self.table.target(index);
        if on.is_direct() {
            return Ok(());
        }
        if self.table.entry(index).with_driver > 0 {
            // By its number: what is submitted and not seen by the kernel yet would name whatever has that number next.
            return Err(Error::errno("into_direct", libc::EBUSY).by(self.driver.name()).hint(
                "something is received or sent already: do it when the connection is made, or after `detach` and `attach`",
            ));
        }
        if self.may_linger {
            self.see_that_close_waits_for_nobody(on);
        }
        let driver = &mut self.driver;
        let moved = self.table.exchange(index, |descriptor| match descriptor {
            Descriptor::Os(socket) => match driver.make_direct(socket) {
                Ok(place) => (Descriptor::Direct(place), Ok(())),
                Err((why, socket)) => (Descriptor::Os(socket), Err(why)),
            },
            // The simulation has no table, and says so.
            other => (other, driver.direct_places().map(|_| ())),
        });
        if let Some(Ok(())) = moved {
            // A number is free.
            self.unpark();
        }
        moved.unwrap_or_else(|| unreachable!("its owner holds it open"))
    }
}
