//! Charts of lines, both axes by powers.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 620);
const FONT: &str = "sans-serif";

/// A name, and points from left to right.
pub type Line = (String, Vec<(f64, f64)>);

/// What is drawn.
pub struct Chart<'a> {
    /// Above it.
    pub title: &'a str,
    /// What the horizontal axis is, by powers of two.
    pub x: &'a str,
    /// What the vertical axis is, by powers of ten.
    pub y: &'a str,
    /// From where to where the horizontal axis goes.
    pub across: Range<f64>,
    /// Lines.
    pub lines: Vec<Line>,
    /// Single points, with their name.
    pub circles: Option<(&'a str, Vec<(f64, f64)>)>,
}

/// Charts, one below the other.
pub fn svg(charts: &[Chart<'_>]) -> Result<String> {
    let mut text = String::new();
    {
        let count = charts.len().max(1);
        let all = SVGBackend::with_string(&mut text, (SIZE.0, SIZE.1 * count as u32)).into_drawing_area();
        all.fill(&WHITE).map_err(failed)?;
        for (chart, area) in charts.iter().zip(all.split_evenly((count, 1))) {
            draw(&area, chart).map_err(failed)?;
        }
        all.present().map_err(failed)?;
    }
    Ok(text)
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot: {error}")
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(area: &Area<'_>, it: &Chart<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let circles = it.circles.as_ref().map_or(&[][..], |(_, points)| points);
    let heights = it.lines.iter().flat_map(|(_, points)| points).chain(circles).map(|(_, height)| *height);
    let (low, high) = heights.fold((f64::MAX, 0f64), |(low, high), height| (low.min(height), high.max(height)));
    let mut chart = ChartBuilder::on(area)
        .caption(it.title, (FONT, 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(86)
        .build_cartesian_2d(it.across.clone().log_scale().base(2.0), (low / 2.0..high * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(it.x)
        .y_desc(it.y)
        .x_labels(10)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (i, (name, points)) in it.lines.iter().enumerate() {
        let color = Palette99::pick(i).mix(1.0);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    if let Some((name, points)) = &it.circles {
        let circle = |at: &(f64, f64)| Circle::new(*at, 3, BLACK.stroke_width(1));
        chart
            .draw_series(points.iter().map(circle))?
            .label(*name)
            .legend(|(x, y)| Circle::new((x + 9, y), 3, BLACK.stroke_width(1)));
    }
    let legend = SeriesLabelPosition::UpperLeft;
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_its_axes_and_lines() {
        let line = |name: &str, height: f64| (name.to_owned(), vec![(64.0, height), (4096.0, height * 60.0)]);
        let chart = Chart {
            title: "above",
            x: "to the right",
            y: "upwards",
            across: 64.0..4096.0,
            lines: vec![line("first", 3.0), line("second", 1e6)],
            circles: Some(("single ones", vec![(100.0, 50.0)])),
        };
        let text = svg(&[chart]).unwrap();
        for word in ["above", "to the right", "upwards", "first", "second", "single ones"] {
            assert!(text.contains(word), "{word}");
        }
    }
}
