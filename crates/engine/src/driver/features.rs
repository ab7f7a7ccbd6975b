//! What of the kernel's abilities a driver may use: a mask passed in, so that tests switch them off anywhere.

/// Abilities of io_uring beyond those it cannot do without.
///
/// Used where the kernel has them; switched off, the driver does the same another way. All but bundles are on by
/// default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// One accept request brings many connections (5.19). Off: a request each.
    pub multishot_accept: bool,
    /// Waits are not counted as iowait (6.15).
    pub no_iowait: bool,
    /// `io_uring_enter` finds the ring by a registered index instead of the descriptor table (5.18).
    pub registered_ring: bool,
    /// One receive completion may fill several buffers (6.10). Large messages gain, small ones lose a little
    /// (echo by the driver alone: 16 KiB 25 % less CPU, 128 KiB 8 % less, 64 bytes 1 % more).
    ///
    /// Off by default, because some kernels put the bytes of a bundle out of order, and no probe tells which: 6.13.11
    /// to 6.14.8, and others of that time (axboe/liburing issues 1409 and 1411).
    pub bundles: bool,
    /// Operations on files go through the ring, those that it has. Off: through the blocking pool, as on every other
    /// driver.
    pub files: bool,
    /// Large sends of bytes that never change (`&'static [u8]`, `Rc<[u8]>`) are made from where the bytes lie
    /// (`IORING_OP_SEND_ZC` with `IORING_SEND_ZC_REPORT_USAGE`, 6.2).
    pub zero_copy: ZeroCopy,
}

/// Where sends are made from where their bytes lie, if they are large enough for it to be worth while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZeroCopy {
    /// Nowhere: the kernel copies what it is to send.
    Off,
    /// On each connection until the kernel reports that it copied all the same, as it does over loopback and between
    /// network namespaces.
    #[default]
    UntilCopied,
    /// Everywhere, whatever the kernel reports: to measure what that costs.
    Always,
}

impl Default for Features {
    fn default() -> Features {
        Features {
            multishot_accept: true,
            no_iowait: true,
            registered_ring: true,
            bundles: false,
            files: true,
            zero_copy: ZeroCopy::default(),
        }
    }
}
