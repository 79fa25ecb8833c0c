//! The plot: pages touched in a second over processors, both by powers of two.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::simulated::{Many, Results};

const SIZE: (u32, u32) = (900, 620);
const FONT: &str = "sans-serif";

/// One chart for each machine, one below the other; circles are the rows of 2004 that are of one address space.
pub fn svg(results: &Results) -> Result<String> {
    let mut text = String::new();
    let mut machines: Vec<&str> = results.many.iter().map(|many| many.machine).collect();
    machines.dedup();
    {
        let all = SVGBackend::with_string(&mut text, (SIZE.0, SIZE.1 * machines.len().max(1) as u32))
            .into_drawing_area();
        all.fill(&WHITE).map_err(failed)?;
        for (i, (machine, area)) in machines.iter().zip(all.split_evenly((machines.len().max(1), 1))).enumerate() {
            let many: Vec<&Many> = results.many.iter().filter(|many| many.machine == *machine).collect();
            let then = if i == 0 { points(results) } else { Vec::new() };
            chart(&area, machine, &many, &then).map_err(failed)?;
        }
        all.present().map_err(failed)?;
    }
    Ok(text)
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the plot: {error}")
}

/// Threads and rates of 2004, of the tables with little memory.
fn points(results: &Results) -> Vec<(f64, f64)> {
    let rows = results.tables.iter().filter(|row| row.threads <= 128);
    rows.map(|row| (row.threads as f64, row.then)).collect()
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn chart(
    area: &Area<'_>,
    title: &str,
    many: &[&Many],
    then: &[(f64, f64)],
) -> Result<(), Box<dyn std::error::Error>> {
    let rates = many.iter().map(|many| many.rate).chain(then.iter().map(|(_, rate)| *rate));
    let (low, high) = rates.fold((f64::MAX, 0f64), |(low, high), rate| (low.min(rate), high.max(rate)));
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(86)
        .build_cartesian_2d((1f64..512f64).log_scale().base(2.0), (low / 2.0..high * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("processors")
        .y_desc("pages touched in a second")
        .x_labels(10)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    let mut names: Vec<&str> = many.iter().map(|many| many.name).collect();
    names.dedup();
    for (i, name) in names.into_iter().enumerate() {
        let color = Palette99::pick(i).mix(1.0);
        let line = many.iter().filter(|many| many.name == name).map(|many| (many.threads as f64, many.rate));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    if !then.is_empty() {
        let circle = |at: &(f64, f64)| Circle::new(*at, 3, BLACK.stroke_width(1));
        chart
            .draw_series(then.iter().map(circle))?
            .label("rows of 2004")
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
