//! CPU per request over the baseline's, and whether the A/A noise allows a claim about it.
//!
//! Tools that make or merge records set them here, once the verdicts of the cells are known. Start at
//! [`set`].

use crate::caveat::{Caveat, Level};
use crate::compare::Comparison;
use crate::record::{Cell, Control, Interval, Run};

/// Gives each cell its ratio to the baseline of its load, within blocks. The baseline itself has none, and
/// over one that is INVALID there is none: what it cost is not known.
pub fn set(cells: &mut [Cell], baseline: Option<&str>) {
    let is_baseline = |cell: &Cell| Some(cell.model.as_str()) == baseline;
    let bases: Vec<(String, Vec<Run>)> = cells
        .iter()
        .filter(|cell| is_baseline(cell) && cell.verdict.level != Level::Invalid)
        .map(|cell| (cell.load.clone(), cell.runs.clone()))
        .collect();
    for cell in cells {
        let base = bases.iter().find(|(load, _)| *load == cell.load && !is_baseline(cell));
        cell.ratio = base.and_then(|(_, base)| ratio(base, &cell.runs));
    }
}

/// Marks each cell that claims a difference if the baseline differs from itself by as much. A tie claims
/// nothing.
pub fn judge(cells: &mut [Cell], controls: &[Control]) {
    for cell in cells {
        let control = controls.iter().find(|control| control.load == cell.load);
        let claimed = cell.ratio.filter(|ratio| ratio.low > 1.0 || ratio.high < 1.0);
        if let (Some(control), Some(ratio)) = (control, claimed) {
            let doubt = Caveat::control_too_wide(control.ratio, ratio.mid - 1.0);
            doubt.into_iter().for_each(|doubt| cell.verdict.renew(doubt));
        }
    }
}

fn ratio(base: &[Run], runs: &[Run]) -> Option<Interval> {
    let (base, runs): (Vec<f64>, Vec<f64>) = base
        .iter()
        .filter_map(|base| {
            let pair = runs.iter().find(|run| run.block == base.block)?;
            base.cpu_us_per_request.zip(pair.cpu_us_per_request)
        })
        .unzip();
    Comparison::of_blocks(&base, &runs, None).map(|comparison| comparison.ratio)
}
