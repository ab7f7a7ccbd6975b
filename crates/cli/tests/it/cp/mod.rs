//! `ringroad cp`, driven as a user drives it.
//!
//! [`beside_gnu`] runs the same shell lines with the installed `cp` and with ours; [`fidelity`] copies the
//! tree of everything, with `rsync` and an own comparer as judges; [`options`] is what GNU's cp has not,
//! [`going_on`] `--resume` and a dry run; [`running`] looks at a copy that is not over yet. The builder and
//! the comparer are those of the library's tests.

mod beside_gnu;
mod cases;
#[path = "../../../../copy/tests/it/compare.rs"]
mod compare;
mod datasets;
mod fidelity;
#[path = "../../../../copy/tests/it/fuse.rs"]
mod fuse;
mod going_on;
#[allow(dead_code, reason = "the library's tests share it and cut images short")]
#[path = "../../../../copy/tests/it/image.rs"]
mod image;
mod options;
mod parts;
mod preload;
mod random;
mod running;
#[path = "../../../../copy/tests/it/tree.rs"]
mod tree;

use crate::support::{ringroad, run, skip};
use std::sync::OnceLock;

/// The engines that work on this machine. Each must leave the same tree.
fn engines() -> &'static [&'static str] {
    static ENGINES: OnceLock<Vec<&str>> = OnceLock::new();
    ENGINES.get_or_init(|| {
        let mut engines = vec!["threads"];
        for engine in ["ring", "ring-splice"] {
            let folder = tempfile::tempdir().unwrap();
            let (source, target) = (folder.path().join("a"), folder.path().join("b"));
            std::fs::write(&source, "x").unwrap();
            let mut copy = ringroad(["cp", "--json", "--engine", engine]);
            let tried = run(copy.arg(source).arg(target));
            if tried.text().contains(&format!("\"engine\":\"{engine}\"")) {
                engines.push(engine);
            } else {
                skip(&format!("engine {engine}"), tried.stderr.trim());
            }
        }
        engines
    })
}
