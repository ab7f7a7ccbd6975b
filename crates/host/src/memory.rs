//! Memory of a process, and memory of the kernel.
//!
//! The kernel's is the whole machine's: sockets of both ends, page tables of all processes. Read it before
//! and while connections are open, and use the difference. Start at [`process`] and [`kernel`].

use crate::cpu::status_number;
use crate::root::Root;
use std::io;

/// Memory of one process, bytes; what the kernel hides is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident: pages mapped and present, shared ones counted whole.
    pub rss_bytes: Option<u64>,
    /// Resident, with each shared page divided among the processes that share it.
    pub pss_bytes: Option<u64>,
    /// The part of the resident set that is anonymous: heap, stacks, buffers.
    pub anon_bytes: Option<u64>,
    /// Swapped out.
    pub swap_bytes: Option<u64>,
    /// Page tables of this process.
    pub page_tables_bytes: Option<u64>,
}

/// Memory the kernel holds, whole machine, bytes; what it hides is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelMemory {
    /// Slab: sockets, files, inodes, epoll items and the rest.
    pub slab_bytes: Option<u64>,
    /// Kernel stacks: 16 KiB for every thread on x86-64.
    pub kernel_stack_bytes: Option<u64>,
    /// Page tables of all processes.
    pub page_tables_bytes: Option<u64>,
    /// Pages charged to TCP and UDP buffers. Some of them are slab too, so do not add the two up.
    pub socket_bytes: Option<u64>,
}

impl KernelMemory {
    /// Returns what was added since `earlier`, field by field; what shrank is 0, what is unknown on a side is
    /// `None`.
    pub fn since(&self, earlier: &KernelMemory) -> KernelMemory {
        let grown = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        KernelMemory {
            slab_bytes: grown(self.slab_bytes, earlier.slab_bytes),
            kernel_stack_bytes: grown(self.kernel_stack_bytes, earlier.kernel_stack_bytes),
            page_tables_bytes: grown(self.page_tables_bytes, earlier.page_tables_bytes),
            socket_bytes: grown(self.socket_bytes, earlier.socket_bytes),
        }
    }
}

/// Returns the resident bytes of process `pid`, shared pages counted whole, from `/proc/PID/statm`: cheap
/// enough to be read often. `None`: there is no such process, or the kernel hides it.
pub fn resident(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

/// Returns the memory of process `pid`: `/proc/PID/status` and `smaps_rollup` (Linux 4.14).
///
/// Reading `smaps_rollup` walks every page of the process under its memory lock: not for the measured window.
///
/// # Errors
/// `NotFound` if there is no such process.
pub fn process(pid: u32) -> io::Result<ProcessMemory> {
    process_under(&Root::system(), pid)
}

/// Does as [`process`] on another machine's files.
///
/// # Errors
/// `NotFound` if there is no such process under `root`.
pub fn process_under(root: &Root, pid: u32) -> io::Result<ProcessMemory> {
    let status = root.read(format!("proc/{pid}/status"))?;
    let rollup = root.text(format!("proc/{pid}/smaps_rollup"));
    Ok(ProcessMemory {
        rss_bytes: kilobytes(&status, "VmRSS"),
        pss_bytes: rollup.as_deref().and_then(|text| kilobytes(text, "Pss")),
        anon_bytes: kilobytes(&status, "RssAnon"),
        swap_bytes: kilobytes(&status, "VmSwap"),
        page_tables_bytes: kilobytes(&status, "VmPTE"),
    })
}

/// Returns the memory that the kernel holds: `/proc/meminfo` and `/proc/net/sockstat`.
pub fn kernel() -> KernelMemory {
    kernel_under(&Root::system())
}

/// Does as [`kernel`] on another machine's files.
pub fn kernel_under(root: &Root) -> KernelMemory {
    let meminfo = root.text("proc/meminfo").unwrap_or_default();
    KernelMemory {
        slab_bytes: kilobytes(&meminfo, "Slab"),
        kernel_stack_bytes: kilobytes(&meminfo, "KernelStack"),
        page_tables_bytes: kilobytes(&meminfo, "PageTables"),
        socket_bytes: root
            .text("proc/net/sockstat")
            .as_deref()
            .and_then(socket_pages)
            .map(|pages| pages.saturating_mul(page_bytes())),
    }
}

/// Returns how many bytes this process's allocator has given out and not taken back, with its own headers;
/// `None` where it does not tell (any but glibc's).
pub fn heap_bytes() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo2(3) takes nothing and gives numbers.
        let told = unsafe { libc::mallinfo2() };
        Some((told.uordblks + told.hblkhd) as u64)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// `Name: 123 kB` as bytes. The kernel's kB are 1024 bytes (proc_meminfo(5)).
pub(crate) fn kilobytes(text: &str, name: &str) -> Option<u64> {
    status_number(text, name)?.checked_mul(1024)
}

/// Pages behind `mem` in the TCP and UDP lines; TCP's must be there.
fn socket_pages(text: &str) -> Option<u64> {
    let pages = |protocol: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'))?;
        let mut words = line.split_ascii_whitespace();
        words.find(|word| *word == "mem")?;
        words.next()?.parse().ok()
    };
    Some(pages("TCP")?.saturating_add(pages("UDP").unwrap_or(0)))
}

/// Size of a page, bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf takes a number and returns one; no memory is involved.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // It cannot fail for this name (sysconf(3)); 4096 is the size on the machines where one would notice.
    u64::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{
        KernelMemory, ProcessMemory, heap_bytes, kernel, kernel_under, page_bytes, process, process_under,
    };
    use crate::root::Fixture;
    use std::io::ErrorKind;

    #[test]
    fn the_heap_holds_what_was_asked_for() {
        let block: Vec<u8> = Vec::with_capacity(64 << 20);
        let held = heap_bytes();
        if cfg!(target_env = "gnu") {
            assert!(held.unwrap() >= 64 << 20, "{held:?} with {}", std::hint::black_box(&block).capacity());
        } else {
            assert_eq!(held, None);
        }
    }

    #[test]
    fn this_process_holds_what_it_has_touched() {
        let pid = std::process::id();
        let before = process(pid).unwrap();
        let mut block = vec![0_u8; 64 << 20];
        block.iter_mut().step_by(4096).for_each(|byte| *byte = std::hint::black_box(1));
        let after = process(pid).unwrap();
        assert!(super::resident(pid).unwrap() > 64 << 20);
        let grown = after.anon_bytes.unwrap() - before.anon_bytes.unwrap();
        // Other tests run beside this one and may give some back.
        assert!(grown > 32 << 20, "{grown} bytes, with {} touched", std::hint::black_box(&block).len());
        assert!(after.rss_bytes >= after.anon_bytes);
    }

    #[test]
    fn this_kernel_holds_stacks_and_slab() {
        let memory = kernel();
        assert!(memory.slab_bytes > Some(0) && memory.kernel_stack_bytes > Some(0), "{memory:?}");
    }

    #[test]
    fn kilobytes_and_pages_become_bytes() {
        let fixture = Fixture::of(&[
            ("proc/meminfo", "MemTotal: 100 kB\nSlab:  86100 kB\nKernelStack: 1380 kB\nPageTables: 16 kB\n"),
            (
                "proc/net/sockstat",
                "sockets: used 13\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 345\nUDP: inuse 0 mem 2\n",
            ),
            ("proc/7/status", "VmRSS:\t 1680 kB\nRssAnon:\t 112 kB\nVmPTE: 40 kB\n"),
            (
                "proc/7/smaps_rollup",
                "00-ff ---p 0 00:00 0 [rollup]\nRss: 1680 kB\nPss: 700 kB\nPss_Dirty: 1 kB\n",
            ),
        ]);
        assert_eq!(
            kernel_under(&fixture.root),
            KernelMemory {
                slab_bytes: Some(86_100 << 10),
                kernel_stack_bytes: Some(1_380 << 10),
                page_tables_bytes: Some(16 << 10),
                socket_bytes: Some(347 * page_bytes()),
            }
        );
        assert_eq!(
            process_under(&fixture.root, 7).unwrap(),
            ProcessMemory {
                rss_bytes: Some(1_680 << 10),
                pss_bytes: Some(700 << 10),
                anon_bytes: Some(112 << 10),
                swap_bytes: None,
                page_tables_bytes: Some(40 << 10),
            }
        );
    }

    #[test]
    fn a_machine_that_hides_its_memory_says_unknown() {
        let fixture = Fixture::of(&[("proc/meminfo", "Slab: kB\n"), ("proc/net/sockstat", "TCP: inuse 1\n")]);
        assert_eq!(kernel_under(&fixture.root), KernelMemory::default());
        assert_eq!(process_under(&fixture.root, 7).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn growth_is_never_negative_and_never_invented() {
        let then = KernelMemory { slab_bytes: Some(10), socket_bytes: Some(8), ..KernelMemory::default() };
        let now =
            KernelMemory { slab_bytes: Some(7), socket_bytes: Some(9), page_tables_bytes: Some(1), ..then };
        let grown = now.since(&then);
        assert_eq!((grown.slab_bytes, grown.socket_bytes, grown.page_tables_bytes), (Some(0), Some(1), None));
    }
}
