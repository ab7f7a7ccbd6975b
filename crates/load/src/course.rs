//! The course of a load: collects its seconds into a series, stages and a sum. Start at [`Course::add`].

use crate::plan::Plan;
use crate::run::{Point, Stage};
use crate::tally::Tally;
use std::time::Duration;

/// Maximum number of points of a series; above it, each two are merged.
const SERIES_MAX: usize = 3600;

/// The collected seconds of a load.
pub(crate) struct Course {
    pub(crate) total: Tally,
    pub(crate) stages: Vec<Stage>,
    /// End of each stage, in seconds of the window.
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
        let at = self.stage_of(second);
        if let Some(stage) = self.stages.get_mut(at) {
            stage.tally.add(sum);
        }
        self.point(second, sum)
    }

    /// Returns the stage of a second. Results after the end belong to the last stage.
    fn stage_of(&self, second: u32) -> usize {
        let at = self.stage_ends.partition_point(|end| *end <= f64::from(second));
        at.min(self.stage_ends.len().saturating_sub(1))
    }

    /// Sets the length of the load: each stage gets its seconds, including those without any report.
    pub(crate) fn last(&mut self, window: Duration) {
        let planned = self.stage_ends.last().copied().unwrap_or(0.0);
        let length = window.as_secs_f64().min(planned);
        self.stages.iter_mut().for_each(|stage| stage.seconds = 0.0);
        for second in 0..length.ceil() as u32 {
            let at = self.stage_of(second);
            if let Some(stage) = self.stages.get_mut(at) {
                stage.seconds += (length - f64::from(second)).clamp(0.0, 1.0);
            }
        }
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
        // The last fraction of a run may contain nothing but the end.
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
    use crate::schedule::Profile;

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
        // Points become coarser twice.
        let seconds = 2 * SERIES_MAX as u32 + 100;
        let tally = second(2, 1_000);
        for at in 0..seconds {
            course.add(at, &tally);
            assert!(course.series.len() <= SERIES_MAX);
        }
        assert_eq!(course.step, 4);
        assert_eq!(course.series.iter().map(|point| point.completed).sum::<u64>(), 2 * u64::from(seconds));
        assert_eq!(course.series.iter().map(|point| point.seconds).sum::<u32>(), seconds);
        assert!(course.series.windows(2).all(|pair| pair[0].at_s + pair[0].seconds == pair[1].at_s));
    }

    #[test]
    fn a_stage_is_as_long_as_its_seconds_also_those_in_which_nothing_was_told() {
        let message = Message::echo(b"x".to_vec()).unwrap();
        let mut plan = Plan::new("tcp://localhost:7".parse().unwrap(), vec![message]);
        let mut stages = Profile::default();
        stages.push(Duration::from_secs(3), 2.0, 2.0);
        stages.push(Duration::from_secs(2), 4.0, 4.0);
        plan.stages = Some(stages);
        let mut course = Course::new(&plan);
        course.add(0, &second(2, 1_000));
        course.add(3, &second(5, 1_000));
        let mut lengths = |window: f64| {
            course.last(Duration::from_secs_f64(window));
            course.stages.iter().map(|stage| (stage.seconds, stage.tally.completed)).collect::<Vec<_>>()
        };
        assert_eq!(lengths(5.0), [(3.0, 2), (2.0, 5)]);
        assert_eq!(lengths(3.5), [(3.0, 2), (0.5, 5)]);
        assert_eq!(lengths(9.0), [(3.0, 2), (2.0, 5)]);
    }
}
