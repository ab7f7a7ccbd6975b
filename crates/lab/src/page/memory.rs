//! Memory of one connection: what the process holds for it, and what the kernel.
//!
//! A record tells how much the process grew while the connections were made, or, where it is older, how much
//! larger it is with many connections than with few. Drawing is `charts`' part. Start at [`of`].

use super::shape::{self, Axis};
use ringroad_measure::record::{Cell, Record};

/// Minimum number of connections: with fewer, the figure is mostly about the process.
const CONNECTIONS_MIN: u32 = 200;

/// Bytes per connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PerConnection {
    /// In the process.
    pub(crate) process: f64,
    /// In the kernel: slab, threads' stacks and page tables of the whole machine, so both ends of each
    /// connection. In records that have [the slab alone](slab_alone), that.
    pub(crate) kernel: Option<f64>,
}

/// What a connection of this cell holds, if the record tells.
pub(crate) fn of(record: &Record, cell: &Cell) -> Option<PerConnection> {
    if cell.connections < CONNECTIONS_MIN || cell.skipped.is_some() {
        return None;
    }
    let connections = f64::from(cell.connections);
    let grown = cell.server.rss_growth_bytes.map(|bytes| bytes as f64 / connections);
    let process = grown.or_else(|| slope(record, cell))?;
    Some(PerConnection { process, kernel: cell.server.kernel_bytes.map(|bytes| bytes as f64 / connections) })
}

/// Returns the least and the most that a connection of this cell held in the process, of its runs; `None`
/// where they do not say.
pub(crate) fn range(cell: &Cell) -> Option<(f64, f64)> {
    let held = || cell.runs.iter().filter_map(|run| run.rss_growth_bytes);
    let each = |bytes: u64| bytes as f64 / f64::from(cell.connections);
    Some((each(held().min()?), each(held().max()?)))
}

/// Returns whether of the kernel's memory the slab alone is in this record: it was so until each run said
/// what the kernel's memory grew by.
pub(crate) fn slab_alone(record: &Record) -> bool {
    let mut cells = record.cells.iter().filter(|cell| cell.server.kernel_bytes.is_some()).peekable();
    cells.peek().is_some() && cells.all(|cell| cell.runs.iter().all(|run| run.kernel_bytes.is_none()))
}

/// Returns how much larger the process is than with the fewest connections, per connection more.
fn slope(record: &Record, cell: &Cell) -> Option<f64> {
    let many = cell.server.rss_bytes? as f64;
    let (few, fewest) = shape::families(record, Axis::Connections)
        .iter()
        .filter(|family| family.cells.iter().any(|other| std::ptr::eq(*other, cell)))
        .flat_map(|family| &family.cells)
        .filter(|other| other.model == cell.model && other.connections <= cell.connections / 4)
        .filter_map(|other| Some((other.server.rss_bytes? as f64, other.connections)))
        .min_by_key(|(_, connections)| *connections)?;
    Some(((many - few) / f64::from(cell.connections - fewest)).max(0.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::sample;
    use super::*;

    fn cell(record: &mut Record, connections: u32) -> &mut Cell {
        let mut cells = record.cells.iter_mut();
        cells
            .find(|cell| {
                cell.model == "epoll-et" && cell.protocol == "http" && cell.connections == connections
            })
            .unwrap()
    }

    #[test]
    fn growth_while_connecting_is_divided_among_the_connections() {
        let mut record = sample::floor();
        let cell = cell(&mut record, 10_000);
        cell.server.rss_growth_bytes = Some(5_000_000);
        cell.server.kernel_bytes = Some(80_000_000);
        let cell = cell.clone();
        let memory = of(&record, &cell).unwrap();
        assert_eq!(memory, PerConnection { process: 500.0, kernel: Some(8000.0) });
    }

    #[test]
    fn an_older_record_tells_it_by_the_difference_from_few_connections() {
        let mut record = sample::floor();
        cell(&mut record, 64).server.rss_bytes = Some(4_000_000);
        cell(&mut record, 10_000).server.rss_bytes = Some(4_000_000 + 9_936 * 412);
        let many =
            record.cells.iter().find(|cell| cell.model == "epoll-et" && cell.connections == 10_000).unwrap();
        assert_eq!(of(&record, many).unwrap().process, 412.0);
    }

    #[test]
    fn few_connections_tell_nothing_of_one() {
        let record = sample::quick();
        assert!(record.cells.iter().all(|cell| of(&record, cell).is_none()));
    }

    #[test]
    fn a_record_whose_runs_do_not_say_what_the_kernel_held_has_the_slab_alone() {
        let mut record = sample::floor();
        assert!(slab_alone(&record));
        let page = super::super::html(&record);
        assert!(page.contains("The stacks of threads are not in it.") && !page.contains("a stack for each"));
        cell(&mut record, 1000).runs[0].kernel_bytes = Some(4096);
        assert!(!slab_alone(&record));
        let page = super::super::html(&record);
        assert!(page.contains("and a stack for each thread.") && !page.contains("are not in it"));
        record.cells.iter_mut().for_each(|cell| cell.server.kernel_bytes = None);
        assert!(!slab_alone(&record), "of what is unknown nothing is said");
    }
}
