//! Kernel features that a driver may use: a mask that is passed in, so that tests can switch them off.

/// Optional io_uring features.
///
/// A feature is used where the kernel has it. Without it the driver gets the same result another way. All but
/// bundles are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// One accept request returns many connections (Linux 5.19). Off: one request per connection.
    pub multishot_accept: bool,
    /// Waits are not counted as iowait (6.15).
    pub no_iowait: bool,
    /// `io_uring_enter` finds the ring by a registered index instead of the descriptor table (5.18).
    pub registered_ring: bool,
    /// One receive completion may fill several buffers (6.10). CPU of an echo by the driver alone: 25 % less
    /// for 16 KiB, 8 % less for 128 KiB, 1 % more for 64 bytes.
    ///
    /// Off by default: some kernels deliver the bytes of a bundle out of order, and no probe detects it.
    /// Affected are 6.13.11 to 6.14.8 and stable releases of that time (axboe/liburing issues 1409 and 1411).
    pub bundles: bool,
    /// File operations go through the ring where it has them. Off: through the blocking pool, as on every
    /// other driver.
    pub files: bool,
    /// Large sends of immutable bytes (`&'static [u8]`, `Rc<[u8]>`, `Arc<[u8]>`) are zero-copy
    /// (`IORING_OP_SEND_ZC` with `IORING_SEND_ZC_REPORT_USAGE`, 6.2).
    pub zero_copy: ZeroCopy,
}

/// When large sends are zero-copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZeroCopy {
    /// Never: the kernel copies the bytes.
    Off,
    /// On each connection until the kernel reports that it copied the bytes anyway, as it does over loopback
    /// and between network namespaces.
    #[default]
    UntilCopied,
    /// Always, whatever the kernel reports. For measuring.
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
