//! The page of a bench: well-formed HTML with inline SVG that loads nothing else.
//!
//! The data of each picture are in data attributes, with the document's values.

use std::fmt::Write as _;

use serde_json::Value;

use super::{BenchReport, Step};
use crate::text::shown::shown;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 240.0;
/// Room for the numbers beside a picture.
const MARGIN: f64 = 56.0;

const STYLE: &str = "body{font:14px sans-serif;max-width:60em;margin:2em auto}\
    table{border-collapse:collapse}td,th{padding:2px 10px;text-align:right;\
    border-bottom:1px solid #ccc}svg{display:block;margin:6px 0}\
    .line{fill:none;stroke:#1f5fa8;stroke-width:2}.point,.bar{fill:#1f5fa8}\
    .pace{fill:none;stroke:#888;stroke-dasharray:4 3}.retry{fill:#b3261e}\
    .axis{stroke:#888}text{font-size:11px}";

/// The whole page.
#[must_use]
pub fn page(report: &BenchReport) -> String {
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <title>inrush bench</title><style>{STYLE}</style></head><body>\
         <h1>inrush bench</h1><p id=\"sentence\">{}</p><p>{}, {} processors, {} steps{}</p>",
        escaped(&report.sentence),
        escaped(&report.source),
        report.processors,
        report.steps.len(),
        if report.complete { "" } else { "; not complete" }
    );
    text += &table(report);
    text += &sweeps(report);
    for step in &report.steps {
        text += &histograms(step);
        text += &timeline(step);
    }
    text + "</body></html>\n"
}

/// Text with markup escaped.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // XML allows no control characters.
    for letter in shown(text).chars() {
        match letter {
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '&' => safe += "&amp;",
            '"' => safe += "&quot;",
            letter => safe.push(letter),
        }
    }
    safe
}

fn table(report: &BenchReport) -> String {
    let mut text = "<table><tr><th>stage</th><th>setting</th><th>MB/s</th><th>least</th>\
        <th>most</th><th>CPU s/TB</th><th>limit</th></tr>"
        .to_owned();
    for step in &report.steps {
        let rates = step.bytes_per_second;
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{:.0}</td>\
             <td>{}</td></tr>",
            escaped(&step.stage),
            escaped(&step.set()),
            rates.median / 1e6,
            rates.least / 1e6,
            rates.most / 1e6,
            step.cpu_seconds_per_terabyte,
            escaped(step.limiting_part())
        );
    }
    text + "</table>"
}

/// A number of a step.
type Number = fn(&Step) -> f64;

/// Two pictures for each swept option: throughput and cost.
fn sweeps(report: &BenchReport) -> String {
    let mut names: Vec<&str> = Vec::new();
    for setting in report.steps.iter().filter_map(|step| step.setting.as_ref()) {
        if !names.contains(&setting.name.as_str()) {
            names.push(&setting.name);
        }
    }
    let mut text = String::new();
    for name in names {
        let steps = report.steps.iter().filter_map(|step| {
            let setting = step.setting.as_ref().filter(|setting| setting.name == name)?;
            Some((setting.value.as_str(), step))
        });
        let steps: Vec<_> = steps.collect();
        let kinds: [(&str, &str, Number); 2] = [
            ("throughput", "bytes/s", |step| step.bytes_per_second.median),
            ("cost", "CPU s/TB", |step| step.cpu_seconds_per_terabyte),
        ];
        for (kind, unit, number) in kinds {
            let points: Vec<_> = steps.iter().map(|(value, step)| (*value, number(step))).collect();
            text += &curve(kind, name, unit, &points);
        }
    }
    text
}

fn begin(kind: &str, name: &str, title: &str, most: f64) -> String {
    format!(
        "<h2>{0}</h2><svg class=\"{kind}\" data-name=\"{1}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\"><line class=\"axis\" x1=\"{MARGIN}\" y1=\"{2}\" \
         x2=\"{WIDTH}\" y2=\"{2}\"/><line class=\"axis\" x1=\"{MARGIN}\" y1=\"0\" x2=\"{MARGIN}\" \
         y2=\"{2}\"/><text x=\"0\" y=\"12\">{most:.3e}</text>",
        escaped(title),
        escaped(name),
        HEIGHT - MARGIN
    )
}

/// The y coordinate of a number.
fn high(number: f64, most: f64) -> f64 {
    (HEIGHT - MARGIN) * (1.0 - number / most.max(1e-12) * 0.95)
}

/// Evenly spaced points, with a line through them.
fn curve(kind: &str, name: &str, unit: &str, points: &[(&str, f64)]) -> String {
    let most = points.iter().map(|(_, number)| *number).fold(0.0, f64::max);
    let mut text = begin(kind, name, &format!("{kind} by {name} ({unit})"), most);
    let step = (WIDTH - MARGIN) / points.len().max(1) as f64;
    let mut line = String::new();
    for (index, (value, number)) in points.iter().enumerate() {
        let (x, y) = (MARGIN + step * (index as f64 + 0.5), high(*number, most));
        let _ = write!(line, "{x:.1},{y:.1} ");
        let _ = write!(
            text,
            "<circle class=\"point\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" data-x=\"{0}\" \
             data-y=\"{number}\"/><text x=\"{x:.1}\" y=\"{1}\">{0}</text>",
            escaped(value),
            HEIGHT - MARGIN + 16.0
        );
    }
    let _ = write!(text, "<polyline class=\"line\" points=\"{}\"/></svg>", line.trim_end());
    text
}

fn numbers<'a>(list: &'a Value, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(move |entry| entry[name].as_f64().unwrap_or(0.0))
}

/// Histograms of the request times.
fn histograms(step: &Step) -> String {
    let Some(latencies) = &step.latencies else { return String::new() };
    let mut text = String::new();
    for (kind, what) in [("first_byte", "time to the first byte"), ("range", "time of a range")] {
        let below: Vec<f64> = numbers(&latencies[kind], "below_seconds").collect();
        let counts: Vec<f64> = numbers(&latencies[kind], "count").collect();
        let most = counts.iter().copied().fold(0.0, f64::max);
        let title = format!("{}, {}: {what}", step.stage, step.set());
        let name = format!("{} {} {kind}", step.stage, step.set());
        text += &begin("histogram", &name, &title, most);
        let width = (WIDTH - MARGIN) / below.len().max(1) as f64;
        for (index, (below, count)) in below.iter().zip(&counts).enumerate() {
            let (x, y) = (MARGIN + width * index as f64, high(*count, most));
            let _ = write!(
                text,
                "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                 data-x=\"{below}\" data-y=\"{count}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\">{:.3} ms</text>",
                width * 0.9,
                HEIGHT - MARGIN - y,
                HEIGHT - MARGIN + 16.0,
                below * 1e3
            );
        }
        text += "</svg>";
    }
    text
}

/// Goodput, requests in flight and retries over time.
fn timeline(step: &Step) -> String {
    let Some(course) = &step.course else { return String::new() };
    let times: Vec<f64> = numbers(course, "seconds").collect();
    let bytes: Vec<f64> = numbers(course, "bytes").collect();
    let retries: Vec<f64> = numbers(course, "retries").collect();
    let end = times.last().copied().unwrap_or(0.0).max(1e-9);
    let across = |time: f64| MARGIN + (WIDTH - MARGIN) * (time / end).min(1.0);
    let rates: Vec<(f64, f64)> = (1..times.len())
        .map(|at| (times[at], (bytes[at] - bytes[at - 1]) / (times[at] - times[at - 1]).max(1e-9)))
        .collect();
    let most = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let title = format!("{}, {}: goodput, pace and retries", step.stage, step.set());
    let mut text = begin("timeline", &format!("{} {}", step.stage, step.set()), &title, most);
    let mut line = String::new();
    for (time, rate) in &rates {
        let (x, y) = (across(*time), high(*rate, most));
        let _ = write!(line, "{x:.1},{y:.1} ");
        let _ = write!(
            text,
            "<circle class=\"point\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.5\" data-x=\"{time}\" \
             data-y=\"{rate}\"/>"
        );
    }
    let _ = write!(text, "<polyline class=\"line\" points=\"{}\"/>", line.trim_end());
    let pace = step.pace.as_ref().map_or(&Value::Null, |pace| &pace["timeline"]);
    let flights: Vec<f64> = numbers(pace, "requests_in_flight").collect();
    let highest = flights.iter().copied().fold(1.0, f64::max);
    let mut line = String::new();
    for (time, flight) in numbers(pace, "seconds").zip(&flights) {
        let _ = write!(line, "{:.1},{:.1} ", across(time), high(*flight, highest));
    }
    let _ = write!(text, "<polyline class=\"pace\" points=\"{}\"/>", line.trim_end());
    for at in 1..retries.len() {
        let count = retries[at] - retries[at - 1];
        if count > 0.0 {
            let (x, y) = (across(times[at]), HEIGHT - MARGIN);
            let _ = write!(
                text,
                "<circle class=\"retry\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" data-y=\"{count}\"/>"
            );
        }
    }
    text + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::super::{Measured, Setting};
    use super::*;

    #[test]
    fn what_is_typed_is_no_markup() {
        let setting = Setting { name: "a<b".to_owned(), value: "\"&\u{1}".to_owned() };
        let steps = vec![Step::new("network", Some(setting), vec![Measured::new(5, 1.0, 0.0)])];
        let report = BenchReport { steps, source: "</p>".to_owned(), ..BenchReport::default() };
        let text = page(&report);
        assert!(text.contains("&lt;/p&gt;") && text.contains("data-x=\"&quot;&amp;\\u{1}\""));
        assert!(text.contains("data-y=\"5\""), "{text}");
        assert!(text.contains("1 steps; not complete</p>"), "{text}");
    }

    #[test]
    fn goodput_is_what_came_since_the_point_before() {
        let course = serde_json::json!([
            { "seconds": 0.0, "bytes": 0, "retries": 0 },
            { "seconds": 2.0, "bytes": 600, "retries": 3 },
            { "seconds": 4.0, "bytes": 1000, "retries": 3 },
        ]);
        let step = Step { course: Some(course), ..Step::new("get", None, Vec::new()) };
        let text = timeline(&step);
        assert!(text.contains("data-x=\"2\" data-y=\"300\""), "{text}");
        assert!(text.contains("data-x=\"4\" data-y=\"200\""), "{text}");
        assert_eq!(text.matches("class=\"retry\"").count(), 1, "{text}");
        assert!(text.contains("r=\"3\" data-y=\"3\""), "{text}");
    }
}
