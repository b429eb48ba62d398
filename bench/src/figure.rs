//! One measured figure beside its peer, and the table of all.

use std::fmt;

/// In what a value is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Megabytes,
    Milliseconds,
    PodsPerSecond,
    CpuSeconds,
    Cores,
    Seconds,
    Writes,
    PerPod,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Megabytes => format!("{value:.1} MB"),
            Unit::Milliseconds => format!("{value:.3} ms"),
            Unit::PodsPerSecond => format!("{value:.1} pods/s"),
            Unit::CpuSeconds => format!("{value:.2} s CPU"),
            Unit::Cores => format!("{value:.3} cores"),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Writes => format!("{value:.0}"),
            Unit::PerPod => format!("{value:.3} a pod"),
        }
    }
}

/// What a figure must reach: itself, or its ratio to the peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// Told, not judged.
    None,
    /// Our value must be below this, in the figure's unit.
    Below(f64),
    /// Our value must not be above this.
    AtMost(f64),
    /// Ours divided by the peer's must be below this.
    RatioBelow(f64),
    /// Ours divided by the peer's must not be above this.
    RatioAtMost(f64),
    /// Ours divided by the peer's must be at least this.
    RatioAtLeast(f64),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) ours: f64,
    /// Who the peer is, and its value in the same run.
    pub(crate) peer: (&'static str, f64),
    pub(crate) bar: Bar,
}

impl Figure {
    /// Ours divided by the peer's.
    fn ratio(&self) -> f64 {
        self.ours / self.peer.1
    }

    /// Whether the bar is met; a figure without a bar meets it.
    pub(crate) fn passes(&self) -> bool {
        match self.bar {
            Bar::None => true,
            Bar::Below(limit) => self.ours < limit,
            Bar::AtMost(limit) => self.ours <= limit,
            Bar::RatioBelow(limit) => self.ratio() < limit,
            Bar::RatioAtMost(limit) => self.ratio() <= limit,
            Bar::RatioAtLeast(limit) => self.ratio() >= limit,
        }
    }

    /// How far it is from its bar, as a part of the bar.
    fn off_by(&self) -> f64 {
        let (value, limit) = match self.bar {
            Bar::None => return 0.0,
            Bar::Below(limit) | Bar::AtMost(limit) => (self.ours, limit),
            Bar::RatioBelow(limit) | Bar::RatioAtMost(limit) | Bar::RatioAtLeast(limit) => (self.ratio(), limit),
        };
        (value - limit).abs() / limit
    }

    fn cells(&self) -> [String; 7] {
        let bar = match self.bar {
            Bar::None => String::new(),
            Bar::Below(limit) => format!("< {}", self.unit.text(limit)),
            Bar::AtMost(limit) => format!("≤ {}", self.unit.text(limit)),
            Bar::RatioBelow(limit) => format!("ratio < {limit}"),
            Bar::RatioAtMost(limit) => format!("ratio ≤ {limit}"),
            Bar::RatioAtLeast(limit) => format!("ratio ≥ {limit}"),
        };
        let verdict = match (self.bar, self.passes()) {
            (Bar::None, _) => String::new(),
            (_, true) => "pass".to_owned(),
            (_, false) => format!("MISS by {:.1} %", self.off_by() * 100.0),
        };
        let (name, value) = self.peer;
        [
            self.what.clone(),
            self.unit.text(self.ours),
            name.to_owned(),
            self.unit.text(value),
            if self.ratio().is_finite() {
                format!("{:.3}", self.ratio())
            } else {
                String::new()
            },
            bar,
            verdict,
        ]
    }
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Table(pub(crate) Vec<Figure>);

impl Table {
    /// Whether every bar is met.
    pub(crate) fn passes(&self) -> bool {
        self.0.iter().all(Figure::passes)
    }
}

impl fmt::Display for Table {
    /// As a Markdown table with aligned columns: readable as it stands, and in the README.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["figure", "Flotilla", "peer", "of the peer", "ratio", "bar", ""].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head).chain(self.0.iter().map(Figure::cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 7] = std::array::from_fn(width);
        for (number, row) in rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if number == 0 {
                widths
                    .iter()
                    .try_for_each(|width| write!(f, "|{}", "-".repeat(width + 2)))?;
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// The middle value; of an even number of values, the upper of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(ours: f64, peer: f64, bar: Bar) -> Figure {
        Figure {
            what: "w".into(),
            unit: Unit::Bytes,
            ours,
            peer: ("p", peer),
            bar,
        }
    }

    #[test]
    fn bars_are_met_or_missed() {
        for (ours, peer, bar, passes) in [
            (299.0, 1.0, Bar::Below(300.0), true),
            (300.0, 1.0, Bar::Below(300.0), false),
            (90.0, 100.0, Bar::RatioAtLeast(0.9), true),
            (89.0, 100.0, Bar::RatioAtLeast(0.9), false),
            (4.0, 100.0, Bar::RatioBelow(0.05), true),
            (5.0, 100.0, Bar::RatioBelow(0.05), false),
            (3.0, 1.0, Bar::AtMost(3.0), true),
            (3.01, 1.0, Bar::AtMost(3.0), false),
            (125.0, 100.0, Bar::RatioAtMost(1.25), true),
            (126.0, 100.0, Bar::RatioAtMost(1.25), false),
            (1e9, 1.0, Bar::None, true),
            (f64::NAN, 1.0, Bar::Below(300.0), false),
        ] {
            assert_eq!(figure(ours, peer, bar).passes(), passes, "{ours} {peer} {bar:?}");
        }
    }

    #[test]
    fn one_missed_bar_fails_the_table() {
        let (good, bad) = (figure(1.0, 1.0, Bar::Below(2.0)), figure(3.0, 1.0, Bar::Below(2.0)));
        assert!(Table(vec![good.clone()]).passes());
        let table = Table(vec![good, bad]);
        assert!(!table.passes());
        assert!(table.to_string().contains("MISS by 50.0 %"), "{table}");
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(vec![9.0, 1.0, 5.0]) - 5.0).abs() < f64::EPSILON);
    }
}
