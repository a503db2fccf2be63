//! An axis of a plot: values to pixels, and where its ticks are.

/// A range of values on a range of pixels, with round numbers at its ticks; it begins and ends at a tick.
pub struct Axis {
    low: f64,
    high: f64,
    first: i32,
    last: i32,
    /// Round values, ascending.
    pub ticks: Vec<f64>,
    decimals: usize,
}

impl Axis {
    /// For values from `low` to `high` on the pixels from `first` to `last`.
    pub fn new(low: f64, high: f64, first: i32, last: i32) -> Self {
        let span = (high - low).max(1e-6);
        let power = 10f64.powi((span / 8.0).log10().floor() as i32);
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| span / step <= 8.0).unwrap_or(span);
        let (from, to) = ((low / step).floor() as i64, (high / step).ceil() as i64);
        let ticks: Vec<f64> = (from..=to.max(from + 1)).map(|n| n as f64 * step).collect();
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        Self { low: ticks[0], high: ticks[ticks.len() - 1], first, last, ticks, decimals }
    }

    /// The value at its end.
    pub fn high(&self) -> f64 {
        self.high
    }

    /// Where a value is.
    pub fn pixel(&self, value: f64) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        self.first + (share * f64::from(self.last - self.first)).round() as i32
    }

    /// A tick as text.
    pub fn label(&self, value: f64) -> String {
        format!("{value:.*}", self.decimals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_ticks_around_its_values() {
        for (low, high) in [(0.0, 4096.0), (2.4, 4.3), (0.0, 65536.0), (3.0, 3.0), (-0.001, 0.002), (2.9, 3.1)] {
            let axis = Axis::new(low, high, 0, 800);
            assert!(
                axis.low <= low && axis.high >= high && (2..=11).contains(&axis.ticks.len()),
                "{low} {high}: {:?}",
                axis.ticks
            );
            assert_eq!((axis.pixel(axis.low), axis.pixel(axis.high)), (0, 800));
            let labels: std::collections::HashSet<_> = axis.ticks.iter().map(|tick| axis.label(*tick)).collect();
            assert_eq!(labels.len(), axis.ticks.len(), "{labels:?}");
        }
    }
}
