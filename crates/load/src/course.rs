//! The course of a load: collects its seconds into a series, stages and a sum. Start at [`Course::add`].

use crate::plan::Plan;
use crate::run::{Point, Stage};
use crate::tally::Tally;

/// Most points in a series; when there are more, every two become one.
const SERIES_MAX: usize = 3600;

/// The collected seconds of a load.
pub(crate) struct Course {
    pub(crate) total: Tally,
    pub(crate) stages: Vec<Stage>,
    /// When each of them ends, seconds of the window.
    stage_ends: Vec<f64>,
    pub(crate) series: Vec<Point>,
    /// Seconds in a point of the series.
    step: u32,
}

impl Course {
    pub(crate) fn new(plan: &Plan) -> Course {
        let timed = plan.pace.is_timed();
        let stages: Vec<_> = plan.stages.as_ref().map(|stages| stages.pieces().collect()).unwrap_or_default();
        Course {
            total: Tally::new(timed),
            stages: stages
                .iter()
                .map(|(_, from, to)| Stage { from: *from, to: *to, seconds: 0.0, tally: Tally::new(timed) })
                .collect(),
            stage_ends: stages.iter().map(|(end, ..)| *end).collect(),
            series: Vec::new(),
            step: 1,
        }
    }

    /// Adds a second of all workers.
    pub(crate) fn add(&mut self, second: u32, sum: &Tally) -> Point {
        self.total.add(sum);
        // Figures after the end belong to the last stage.
        let at = self.stage_ends.partition_point(|end| *end <= f64::from(second));
        let end = self.stage_ends.last().copied().unwrap_or(0.0);
        if let Some(stage) = self.stages.get_mut(at.min(self.stage_ends.len().saturating_sub(1))) {
            stage.tally.add(sum);
            stage.seconds += (end - f64::from(second)).clamp(0.0, 1.0);
        }
        self.point(second, sum)
    }

    /// Adds a point to the series.
    fn point(&mut self, second: u32, tally: &Tally) -> Point {
        let response = &tally.latencies.response;
        let point = Point {
            at_s: second,
            seconds: 1,
            completed: tally.completed,
            failed: tally.failed,
            p50_ns: response.quantile_ns(0.5),
            p99_ns: response.quantile_ns(0.99),
            max_ns: tally.longest_ns(),
        };
        // The tail end of a run may bring nothing but the knowledge that it is over.
        if point.completed == 0 && point.failed == 0 && point.max_ns.is_none() {
            return point;
        }
        match self.series.last_mut().filter(|last| last.at_s / self.step == second / self.step) {
            Some(last) => last.join(&point),
            None => self.series.push(point),
        }
        if self.series.len() > SERIES_MAX {
            self.step *= 2;
            let mut coarse: Vec<Point> = Vec::with_capacity(SERIES_MAX);
            for point in self.series.drain(..) {
                match coarse.last_mut().filter(|last| last.at_s / self.step == point.at_s / self.step) {
                    Some(last) => last.join(&point),
                    None => coarse.push(point),
                }
            }
            self.series = coarse;
        }
        point
    }
}

impl Point {
    fn join(&mut self, other: &Point) {
        self.seconds += other.seconds;
        self.completed += other.completed;
        self.failed += other.failed;
        self.p50_ns = self.p50_ns.max(other.p50_ns);
        self.p99_ns = self.p99_ns.max(other.p99_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::Message;

    fn course() -> Course {
        let message = Message::echo(b"x".to_vec()).unwrap();
        Course::new(&Plan::new("tcp://localhost:7".parse().unwrap(), vec![message]))
    }

    fn second(completed: u64, ns: u64) -> Tally {
        let mut tally = Tally::new(false);
        tally.completed = completed;
        tally.latencies.response.record_n(ns, completed);
        tally
    }

    #[test]
    fn a_second_in_which_a_request_goes_on_waiting_has_its_wait_as_maximum() {
        let mut course = course();
        let waiting = Tally { waiting_ns: 3_000_000_000, ..second(2, 1_000) };
        assert_eq!(course.add(0, &waiting).max_ns, Some(3_000_000_000));
        let silent = Tally { waiting_ns: 4_000_000_000, ..Tally::new(false) };
        assert_eq!((course.add(1, &silent).max_ns, course.series.len()), (Some(4_000_000_000), 2));
        assert!(course.add(2, &second(2, 1_000)).max_ns < Some(2_000));
        assert_eq!(course.total.longest_ns(), Some(4_000_000_000));
    }

    #[test]
    fn however_long_it_runs_the_series_stays_bounded_and_loses_no_count() {
        let mut course = course();
        for at in 0..20_000 {
            course.add(at, &second(2, 1_000 + u64::from(at)));
            assert!(course.series.len() <= SERIES_MAX);
        }
        assert_eq!(course.series.iter().map(|point| point.completed).sum::<u64>(), 40_000);
        assert_eq!(course.series.iter().map(|point| point.seconds).sum::<u32>(), 20_000);
        assert!(course.series.windows(2).all(|pair| pair[0].at_s + pair[0].seconds == pair[1].at_s));
    }
}
