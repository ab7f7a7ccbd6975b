//! Random trees, through each engine.
//!
//! A generator makes nodes as the other tests write them by hand; a failing tree is shrunk to the smallest
//! that still fails, and printed.

use super::compare::{ALL, differences};
use super::engines;
use super::tree::{Abilities, Kind, Node, build, node, noise};
use crate::support::{ringroad, run};
use proptest::prelude::*;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

/// Any name a directory can hold.
fn name() -> impl Strategy<Value = OsString> {
    let byte = any::<u8>().prop_filter("no slash, no end", |byte| !matches!(byte, 0 | b'/'));
    prop_oneof![
        4 => "[a-z]{1,3}".prop_map(OsString::from),
        1 => prop::collection::vec(byte, 1..255).prop_map(OsString::from_vec),
    ]
    .prop_filter("no dots alone", |name| name != "." && name != "..")
}

/// Pieces of data in a file that may have holes between and behind them.
fn contents() -> impl Strategy<Value = Kind> {
    let plain = (0_usize..200_000, any::<u64>()).prop_map(|(size, seed)| {
        let bytes = noise(size, seed);
        Kind::File(if size == 0 { vec![] } else { vec![(0, bytes)] }, size as u64)
    });
    let pieces = prop::collection::vec((0_u64..64, 1_usize..9000, any::<u64>()), 0..5);
    let sparse = (pieces, 0_u64..400_000).prop_map(|(pieces, more)| {
        let pieces: Vec<(u64, Vec<u8>)> =
            pieces.into_iter().map(|(block, size, seed)| (block * 8192, noise(size, seed))).collect();
        let end = pieces.iter().map(|(at, bytes)| at + bytes.len() as u64).max().unwrap_or(0);
        Kind::File(pieces, end + more)
    });
    prop_oneof![3 => plain, 1 => sparse]
}

fn leaf() -> impl Strategy<Value = Kind> {
    prop_oneof![
        6 => contents(),
        2 => prop::collection::vec(1_u8..=255, 1..300).prop_map(|target| Kind::Symlink(OsString::from_vec(target))),
        1 => Just(Kind::Fifo),
        1 => Just(Kind::Socket),
    ]
}

fn carried(kind: Kind) -> impl Strategy<Value = Node> {
    let modes = if rustix::process::geteuid().is_root() { 0_u32..0o10000 } else { 0o600..0o1000 };
    let time = (-1_000_000_000_i64..4_000_000_000, 0_i64..1_000_000_000);
    (name(), modes, time, any::<Option<(u16, u16)>>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(
        move |(name, mode, (seconds, nanoseconds), owner, value)| {
            let file_or_directory = matches!(kind, Kind::File(..) | Kind::Directory(_));
            let mut node = node(name, kind.clone()).time(seconds, nanoseconds);
            if !matches!(node.kind, Kind::Symlink(_)) {
                // The maker of a directory must be able to work in it, root or not.
                let more = if matches!(node.kind, Kind::Directory(_)) { 0o700 } else { 0 };
                node = node.mode(mode | more);
            }
            if let (Some((user, group)), true) = (owner, rustix::process::geteuid().is_root()) {
                node = node.owner(user.into(), group.into());
            }
            if file_or_directory && !value.is_empty() {
                node = node.attribute("user.random", value);
            }
            node
        },
    )
}

fn tree() -> impl Strategy<Value = Vec<Node>> {
    let leaves = leaf().prop_flat_map(carried);
    let nodes = leaves.prop_recursive(4, 48, 8, |inner| {
        prop::collection::vec(inner, 0..8).prop_flat_map(|inside| carried(Kind::Directory(unique(inside))))
    });
    (prop::collection::vec(nodes, 1..8).prop_map(unique), any::<u64>()).prop_map(|(mut nodes, dice)| {
        link_some(&mut nodes, dice);
        nodes
    })
}

/// No directory has a name twice.
fn unique(nodes: Vec<Node>) -> Vec<Node> {
    let mut seen = HashSet::new();
    nodes.into_iter().filter(|node| seen.insert(node.name.clone())).collect()
}

/// Gives the first file a few more names, in its own directory and in others.
fn link_some(nodes: &mut Vec<Node>, dice: u64) {
    let Some(first) = nodes.iter().position(|node| matches!(node.kind, Kind::File(..))) else { return };
    let labelled = nodes[first].clone().label(1);
    nodes[first] = labelled;
    let link = |name: &str| node(name, Kind::HardLink(1));
    for (nth, node) in nodes.iter_mut().enumerate().skip(first + 1) {
        if let Kind::Directory(inside) = &mut node.kind
            && dice >> (nth % 64) & 1 == 1
        {
            inside.push(link("another name"));
        }
    }
    if dice & 1 == 1 {
        nodes.push(link("yet another name"));
    }
}

proptest! {
    // Each case is a tree through three engines; the first failure is kept small, not hunted for hours.
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_copied_as_it_is(nodes in tree()) {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        let abilities = Abilities::of(&source);
        let nodes = if abilities.attributes { nodes } else { without_attributes(nodes) };
        build(&source, &nodes);
        for engine in engines() {
            let target = folder.path().join(engine);
            let mut copy = ringroad(["cp", "-aT", "--engine", engine]);
            let outcome = run(copy.arg(&source).arg(&target));
            prop_assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{}", engine);
            prop_assert_eq!(differences(&source, &target, ALL), [""; 0], "{}", engine);
        }
    }
}

fn without_attributes(nodes: Vec<Node>) -> Vec<Node> {
    let strip = |node: Node| match node.kind {
        Kind::Directory(inside) => {
            Node { kind: Kind::Directory(without_attributes(inside)), attributes: vec![], ..node }
        }
        kind => Node { kind, attributes: vec![], ..node },
    };
    nodes.into_iter().map(strip).collect()
}
