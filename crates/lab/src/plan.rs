//! The plan: which cells there are and in which random order each block runs them.
//!
//! Every block runs every cell once, in a new order, so that whatever drifts (heat, neighbours, memory) meets
//! all of them alike and ratios can be taken within a block. The order comes from a seed alone. Two kinds of
//! cells run and are none of the results: the A/A control, and the cross-check of the clients.
//!
//! Start at [`Plan::of`].

use crate::program;
use crate::suite::{ARGUMENTS, Client, Load, Protocol, Server, Suite};
use crate::table;
use ringroad_measure::caveat::REPEATS_MIN;
use std::borrow::Cow;
use std::time::Duration;

/// One program under one load; indexes into the suite's lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCell {
    /// Index into [`Suite::servers`].
    pub server: usize,
    /// Index into [`Suite::loads`].
    pub load: usize,
    /// What it is for.
    pub role: Role,
    /// Known before anything runs: why this cell cannot run.
    pub skipped: Option<String>,
}

/// What a planned cell is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A result.
    Cell,
    /// The baseline's second run, for the A/A control: gives no cell of its own.
    Control,
    /// The baseline once more under its first load, which the small client puts on, to check the load
    /// generator against it: gives no cell of its own either.
    CrossCheck,
}

impl PlannedCell {
    /// Returns its load, by the client that puts it on.
    pub fn load<'a>(&self, suite: &'a Suite) -> Cow<'a, Load> {
        let load = &suite.loads[self.load];
        match self.role {
            Role::CrossCheck => Cow::Owned(Load { client: Client::Small, ..load.clone() }),
            Role::Cell | Role::Control => Cow::Borrowed(load),
        }
    }
}

/// What will run, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// All cells: the suite's servers in order for the first load, then for the next; controls last.
    pub cells: Vec<PlannedCell>,
    /// Per block the cells in the order they run; skipped ones are not in it.
    pub blocks: Vec<Vec<usize>>,
    /// Where the order came from.
    pub seed: u64,
}

impl Plan {
    /// Makes the plan of a suite. The same suite and seed give the same plan on every machine.
    pub fn of(suite: &Suite, seed: u64) -> Plan {
        let mut cells = Vec::new();
        let mut controls = Vec::new();
        let mut check = None;
        for (load_index, load) in suite.loads.iter().enumerate() {
            for (server_index, server) in suite.servers.iter().enumerate() {
                let mute = !server.protocols.contains(&load.protocol);
                // A suite decides which program gets which load; an added program is meant for every load.
                if mute && !server.added {
                    continue;
                }
                let mute = mute.then(|| cannot_speak(server, load.protocol));
                let too_many = server.max_connections.filter(|most| load.connections > *most).map(|most| {
                    let why = server.max_connections_reason.as_deref().unwrap_or("its stated limit");
                    format!("takes at most {most} connections: {why}")
                });
                let deaf = (!load.arguments.is_empty() && !server.takes_arguments()).then(|| {
                    format!("cannot get {}: its command has no {ARGUMENTS}", load.arguments.join(" "))
                });
                let over_tls = server.url.as_ref().is_some_and(|url| url.https);
                let plain = (over_tls && load.client == Client::Small)
                    .then(|| "the small client has no TLS (leave out --client)".to_owned());
                let skipped = mute.or(too_many).or(deaf).or(plain);
                let cell = PlannedCell { server: server_index, load: load_index, role: Role::Cell, skipped };
                if suite.baseline.as_ref() == Some(&server.id) && cell.skipped.is_none() {
                    if suite.control {
                        controls.push(PlannedCell { role: Role::Control, ..cell.clone() });
                    }
                    if check.is_none() && load.client == Client::Load && !over_tls {
                        check = Some(PlannedCell { role: Role::CrossCheck, ..cell.clone() });
                    }
                }
                cells.push(cell);
            }
        }
        cells.append(&mut controls);
        cells.extend(check);
        let mut random = fastrand::Rng::with_seed(seed);
        let blocks = (0..suite.repeats)
            .map(|block| {
                let runs = |cell: &PlannedCell| {
                    // So many that their median has an interval; more would only take time.
                    let is_due = cell.role != Role::CrossCheck || block < REPEATS_MIN;
                    cell.skipped.is_none() && is_due
                };
                let mut order: Vec<usize> = (0..cells.len()).filter(|i| runs(&cells[*i])).collect();
                random.shuffle(&mut order);
                order
            })
            .collect();
        Plan { cells, blocks, seed }
    }

    /// Leaves out, as skipped cells, what needs more CPUs than a server has here.
    pub fn fit(&mut self, suite: &Suite, server_cpus: usize) {
        for cell in &mut self.cells {
            let wanted = suite.loads[cell.load].cores;
            if wanted as usize > server_cpus && cell.skipped.is_none() {
                cell.skipped = Some(format!(
                    "needs {wanted} CPUs for itself, and here a server has {server_cpus} beside the client's"
                ));
            }
        }
        let Plan { cells, blocks, .. } = self;
        blocks.iter_mut().for_each(|order| order.retain(|cell| cells[*cell].skipped.is_none()));
    }

    /// Leaves out, as skipped cells, programs that are not installed.
    pub fn look_for_programs(&mut self, suite: &Suite) {
        let missing: Vec<Option<String>> =
            suite.servers.iter().map(|server| program::missing(server, suite.folder.as_deref())).collect();
        for cell in self.cells.iter_mut().filter(|cell| cell.skipped.is_none()) {
            cell.skipped.clone_from(&missing[cell.server]);
        }
        let Plan { cells, blocks, .. } = self;
        blocks.iter_mut().for_each(|order| order.retain(|cell| cells[*cell].skipped.is_none()));
    }

    /// Returns the runs of a block by those that run together, each with its place in the block: one alone,
    /// or, where programs take turns, all under one load.
    pub fn groups(&self, order: &[usize], suite: &Suite) -> Vec<Vec<(u32, usize)>> {
        let load = |cell: usize| self.cells[cell].load;
        let mut groups: Vec<Vec<(u32, usize)>> = Vec::new();
        for (place, &cell) in (0..).zip(order) {
            let mine =
                |group: &&mut Vec<(u32, usize)>| group.iter().all(|(_, other)| load(*other) == load(cell));
            match groups.iter_mut().find(|group| suite.turn_s.is_some() && mine(group)) {
                Some(group) => group.push((place, cell)),
                None => groups.push(vec![(place, cell)]),
            }
        }
        groups
    }

    /// Runs in all blocks together.
    pub fn runs(&self) -> u32 {
        u32::try_from(self.blocks.iter().map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// Returns how long all of it should take.
    pub fn estimate(&self, suite: &Suite) -> Duration {
        /// What a program of any kind takes to start and to be asked for its page once, beyond a small
        /// server's.
        const ADDED_S: f64 = 0.4;
        let added = |cell: &usize| suite.servers[self.cells[*cell].server].is_unknown();
        let added = self.blocks.iter().flatten().filter(|cell| added(cell)).count();
        Duration::from_secs_f64(f64::from(self.runs()) * suite.run_estimate_s() + added as f64 * ADDED_S)
    }

    /// Returns whether a program takes part that may take any time to start and answer.
    fn is_open_ended(&self, suite: &Suite) -> bool {
        self.cells.iter().any(|cell| cell.skipped.is_none() && suite.servers[cell.server].is_unknown())
    }

    /// Returns what would run and for how long, load by load, and what is left out and why; for a terminal of
    /// `width` columns.
    pub fn text(&self, suite: &Suite, width: usize) -> String {
        const INDENT: &str = "    ";
        let line = |text: &str| {
            format!("{INDENT}{}", table::wrapped(text, width.saturating_sub(INDENT.len()), INDENT))
        };
        let (runs, blocks) = (self.runs(), self.blocks.len());
        let seconds = self.estimate(suite).as_secs_f64();
        let long =
            if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) };
        let each = suite.run_estimate_s();
        let turns = suite.turn_s.map_or_else(String::new, |turn_s| {
            format!("; side by side in turns of {} ms", (turn_s * 1e3).round())
        });
        let more = if self.is_open_ended(suite) {
            ", more if an added program is slow to start or to answer"
        } else {
            ""
        };
        let mut text = table::wrapped(&format!("{}: {}", suite.name, suite.title), width, "  ");
        text.push_str(&table::wrapped(
            &format!(
                "{runs} run{} of {each:.2} s in {blocks} block{}, about {long}{more}{turns}",
                if runs == 1 { "" } else { "s" },
                if blocks == 1 { "" } else { "s" },
            ),
            width,
            "  ",
        ));
        for (nth, load) in suite.loads.iter().enumerate() {
            let of_load = || self.cells.iter().filter(move |cell| cell.load == nth);
            let name = |cell: &PlannedCell| suite.servers[cell.server].id.clone();
            let run: Vec<String> = of_load()
                .filter(|cell| cell.skipped.is_none())
                .map(|cell| match cell.role {
                    Role::Cell => name(cell),
                    Role::Control => format!("{} again", name(cell)),
                    Role::CrossCheck => format!("{} by the small client", name(cell)),
                })
                .collect();
            let programs = if run.is_empty() { "no program".to_owned() } else { run.join(", ") };
            text.push_str(&format!("  {}\n{}", load.id, line(&programs)));
            for cell in of_load() {
                if let Some(why) = &cell.skipped {
                    text.push_str(&line(&format!("not {}: {why}", name(cell))));
                }
            }
        }
        text
    }
}

/// Returns why an added program is not put under a load of this protocol, and what would change it.
fn cannot_speak(server: &Server, protocol: Protocol) -> String {
    let copies = server.protocols.contains(&Protocol::Files);
    match protocol {
        Protocol::Files => "copies no files: a copier has {source} and {target} in its command".to_owned(),
        Protocol::Echo | Protocol::Http if copies => "copies files and serves none".to_owned(),
        Protocol::Echo | Protocol::Http => {
            format!("HTTP only (add {{protocol}} to the command if it also speaks {protocol})")
        }
    }
}

/// Returns `model/load` of a cell, with a mark for what is no result.
pub fn cell_name(suite: &Suite, cell: &PlannedCell) -> String {
    let mark = match cell.role {
        Role::Cell => "",
        Role::Control => " (again, A/A control)",
        Role::CrossCheck => " (by the small client, cross-check)",
    };
    format!("{}/{}{mark}", suite.servers[cell.server].id, suite.loads[cell.load].id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn every_block_is_a_permutation_of_all_cells_that_can_run() {
        let suite = Suite::quick().unwrap();
        let plan = Plan::of(&suite, 7);
        let all: Vec<usize> = (0..plan.cells.len()).collect();
        assert_eq!(
            plan.cells.len(),
            19,
            "twelve models, four of them twice, two controls, and the cross-check"
        );
        assert_eq!(plan.blocks.len(), suite.repeats as usize);
        for block in &plan.blocks {
            let mut sorted = block.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, all);
        }
    }

    #[test]
    fn a_run_is_alone_unless_programs_take_turns_and_then_all_under_its_load_are_with_it() {
        let suite = Suite { turn_s: None, ..Suite::quick().unwrap() };
        let plan = Plan::of(&suite, 7);
        let order = &plan.blocks[0];
        let alone: Vec<Vec<(u32, usize)>> =
            (0..).zip(order).map(|(place, cell)| vec![(place, *cell)]).collect();
        assert_eq!(plan.groups(order, &suite), alone);
        let groups = plan.groups(order, &Suite { turn_s: Some(0.02), ..suite.clone() });
        assert_eq!(groups.len(), suite.loads.len());
        for group in &groups {
            assert!(group.iter().all(|(_, cell)| plan.cells[*cell].load == plan.cells[group[0].1].load));
            assert!(group.is_sorted(), "in the block's order: {group:?}");
        }
        let mut together: Vec<(u32, usize)> = groups.concat();
        together.sort_unstable();
        assert_eq!(together, alone.concat());
    }

    /// A check that its client cannot make ended the whole run.
    #[test]
    fn over_tls_the_small_client_puts_no_load_on() {
        let urls = ["a=https://localhost/", "b=http://localhost/"].map(str::to_owned);
        let mut suite = Suite::of_urls(&urls).unwrap();
        let plan = Plan::of(&suite, 7);
        assert!(plan.cells.iter().all(|cell| cell.role != Role::CrossCheck && cell.skipped.is_none()));
        assert!(plan.cells.iter().any(|cell| cell.role == Role::Control));
        suite.loads.iter_mut().for_each(|load| load.client = Client::Small);
        let plan = Plan::of(&suite, 7);
        for cell in &plan.cells {
            let why = cell.skipped.as_deref().unwrap_or_default();
            assert_eq!(why.contains("has no TLS"), cell.server == 0, "{why}");
        }
        suite = Suite::of_urls(&urls[1..]).unwrap();
        assert!(Plan::of(&suite, 7).cells.iter().any(|cell| cell.role == Role::CrossCheck));
    }

    #[test]
    fn the_baseline_is_put_under_its_first_load_by_the_small_client_too_in_so_many_blocks() {
        let mut suite = Suite { repeats: 8, ..Suite::quick().unwrap() };
        let plan = Plan::of(&suite, 7);
        let check = plan.cells.last().unwrap();
        assert_eq!((check.role, check.load), (Role::CrossCheck, 0));
        assert_eq!(Some(&suite.servers[check.server].id), suite.baseline.as_ref());
        assert_eq!(check.load(&suite).client, Client::Small);
        assert_eq!(plan.cells[0].load(&suite).client, Client::Load);
        let last = plan.cells.len() - 1;
        let checked: Vec<bool> = plan.blocks.iter().map(|block| block.contains(&last)).collect();
        assert_eq!(checked, [true, true, true, true, true, true, false, false]);
        // Nothing to check where it is not the load generator's, or where there is no baseline.
        suite.loads.iter_mut().for_each(|load| load.client = Client::Small);
        let is_check = |cell: &PlannedCell| cell.role == Role::CrossCheck;
        assert!(!Plan::of(&suite, 7).cells.iter().any(is_check));
        suite = Suite { baseline: None, ..Suite::quick().unwrap() };
        assert!(!Plan::of(&suite, 7).cells.iter().any(is_check));
    }

    #[test]
    fn blocks_differ_and_the_seed_decides() {
        let suite = Suite::quick().unwrap();
        let plan = Plan::of(&suite, 7);
        assert_ne!(plan.blocks[0], plan.blocks[1]);
        assert_eq!(plan, Plan::of(&suite, 7));
        assert_ne!(plan.blocks, Plan::of(&suite, 8).blocks);
    }

    #[test]
    fn a_load_over_the_servers_limit_is_a_skipped_cell_with_the_reason() {
        let text = r#"
title = "t"
duration_s = 1
repeats = 2
[[server]]
id = "small"
command = ["s", "{addr}"]
ready = "connect"
protocols = ["echo"]
max_connections = 100
max_connections_reason = "its table ends there"
[[load]]
id = "echo"
protocol = "echo"
connections = [100, 101]
"#;
        let suite = Suite::parse(text, "t.toml", "t", None).unwrap();
        let plan = Plan::of(&suite, 1);
        assert_eq!(plan.cells.len(), 2);
        assert_eq!(plan.cells[0].skipped, None);
        let reason = plan.cells[1].skipped.clone().unwrap();
        assert!(reason.contains("100") && reason.contains("its table ends there"), "{reason}");
        let told = plan.text(&suite, 80);
        assert!(told.contains("2 runs of 1.90 s in 2 blocks, about 4 s\n"), "{told}");
        assert!(
            told.contains("  echo-100\n    small\n  echo-101\n    no program\n    not small: takes"),
            "{told}"
        );
        assert_eq!(plan.blocks, vec![vec![0], vec![0]]);
    }

    #[test]
    fn an_added_program_is_under_every_load_or_says_why_not() {
        let why = |suite: &str, program: &str| -> Vec<Option<String>> {
            let mut suite = Suite::load(suite).unwrap();
            suite.add(program).unwrap();
            let mine = suite.servers.len() - 1;
            let plan = Plan::of(&suite, 7);
            assert!(plan.text(&suite, 400).contains("mine"));
            let loads = plan.cells.into_iter().filter(|cell| cell.server == mine);
            loads.map(|cell| cell.skipped).collect()
        };
        let quick = why("quick", "mine=./server {port}");
        assert_eq!(quick.len(), Suite::quick().unwrap().loads.len());
        assert!(quick.contains(&None), "it speaks HTTP: {quick:?}");
        let echo = why("active-share", "mine=./server {port}");
        assert!(!echo.is_empty(), "every load has its cell");
        assert!(
            echo.iter()
                .all(|why| why.as_ref().is_some_and(|why| why.contains("add {protocol} to the command"))),
            "{echo:?}"
        );
        assert!(why("active-share", "mine=./server {port} {protocol}").iter().all(Option::is_none));
        let copies = why("files", "mine=./server {port}");
        assert!(!copies.is_empty() && copies[0].as_ref().unwrap().contains("{source}"), "{copies:?}");
        let serves = why("quick", "mine=mycp {source} {target}");
        assert!(serves.iter().all(|why| why.as_ref().unwrap().contains("serves none")), "{serves:?}");
    }

    #[test]
    fn the_quick_suite_fits_its_budget() {
        let suite = Suite::quick().unwrap();
        let estimate = Plan::of(&suite, 1).estimate(&suite);
        assert!(estimate <= Duration::from_secs(150), "{estimate:?}");
    }
}
