//! What happened, when: as text, a line each, and as a picture. Both are made from the plan's log and nothing else.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use reconciler::file::format_duration;
use reconciler_driver::maintenance::LogLine;

const LEFT: f64 = 220.0;
const WIDTH: f64 = 1000.0;
const ROW: f64 = 26.0;
const TOP: f64 = 70.0;
/// A pause that is longer is drawn as long as this, with its true length written in: a night's wait for a person must not
/// press the minute of work into a line.
const LONGEST: Duration = Duration::from_secs(15);

/// Everything that happened, a line each, after so long.
pub(super) fn text(log: &[LogLine]) -> String {
    let mut text = String::new();
    let begun = log.first().map(|line| line.at);
    for line in log {
        let since = begun.and_then(|begun| line.at.duration_since(begun).ok()).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "+{:>7.1}s  {:<24} {}", since.as_secs_f64(), line.phase, line.what);
    }
    text
}

/// One stay in a phase.
struct Stay<'a> {
    label: &'a str,
    lines: &'a [LogLine],
    end: SystemTime,
}

/// The run as a picture: a row for every stay in a phase, with what was sent to whom.
pub(super) fn svg(title: &str, log: &[LogLine]) -> String {
    let stays = stays(log);
    let scale = Scale::of(log);
    let height = TOP + ROW * count(stays.len()) + 60.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{height}\" viewBox=\"0 0 {w} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        w = LEFT + WIDTH + 40.0,
    );
    let took = log.first().zip(log.last()).and_then(|(first, last)| last.at.duration_since(first.at).ok());
    let took = took.map(format_duration).unwrap_or_default();
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{}</text>",
        escape(title)
    );
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"46\" fill=\"#555555\">{took} in all; pauses over {} are shortened</text>",
        format_duration(LONGEST)
    );
    scale.axis(&mut svg, height);
    for (index, stay) in stays.iter().enumerate() {
        row(&mut svg, &scale, stay, TOP + ROW * count(index));
    }
    legend(&mut svg, height - 18.0);
    svg.push_str("</svg>\n");
    svg
}

/// The log cut where the phase changes. A line shows the phase that was entered by it.
fn stays(log: &[LogLine]) -> Vec<Stay<'_>> {
    let mut stays: Vec<Stay<'_>> = Vec::new();
    let mut from = 0;
    for chunk in log.chunk_by(|one, two| one.phase == two.phase) {
        let next = log.get(from + chunk.len()).or_else(|| chunk.last());
        from += chunk.len();
        let Some(end) = next.map(|line| line.at) else { continue };
        stays.push(Stay { label: &chunk[0].phase, lines: chunk, end });
    }
    stays
}

fn row(svg: &mut String, scale: &Scale, stay: &Stay<'_>, y: f64) {
    let (from, to) = (scale.x(stay.lines[0].at), scale.x(stay.end));
    let width = (to - from).max(2.0);
    let middle = y + ROW / 2.0 + 4.0;
    let stayed = stay.end.duration_since(stay.lines[0].at).unwrap_or_default();
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
        LEFT - 10.0,
        escape(stay.label)
    );
    let _ = writeln!(
        svg,
        "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\" rx=\"2\" fill=\"{}\"><title>{} for {}</title></rect>",
        y + 3.0,
        ROW - 6.0,
        colour(stay.label),
        escape(stay.label),
        format_duration(stayed)
    );
    // What was sent: from its line to the line that says how it ended.
    for (index, line) in stay.lines.iter().enumerate() {
        let Some(sent) = line.what.strip_prefix("send ") else { continue };
        let ended = stay.lines[index + 1..].iter().find(|line| line.what.starts_with("op-"));
        let (a, b) = (scale.x(line.at), ended.map_or(to, |ended| scale.x(ended.at)));
        let fine = ended.is_some_and(|ended| ended.what.ends_with("reported done"));
        let outcome = ended.map_or("no end is known", |ended| ended.what.as_str());
        let _ = writeln!(
            svg,
            "<rect x=\"{a:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"6\" fill=\"{}\"><title>{}: {}</title></rect>",
            y + ROW / 2.0 - 3.0,
            (b - a).max(2.0),
            if fine { "#1f4e79" } else { "#b00020" },
            escape(sent),
            escape(outcome)
        );
    }
    let words = told(stay);
    if words.is_empty() {
        return;
    }
    // To the right of the bar where there is room, else to its left; the bars of a run go down to the right.
    let room = LEFT + WIDTH - to;
    let (x, anchor) = if room > 330.0 { (to + 8.0, "start") } else { (from - 8.0, "end") };
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{middle}\" text-anchor=\"{anchor}\" fill=\"#444444\" font-size=\"11\">{}</text>",
        escape(&words)
    );
}

/// What matters most of a stay, in a few words.
fn told(stay: &Stay<'_>) -> String {
    let loud = stay.lines.iter().rev().find(|line| {
        ["halt", "escalate", "take reply", "plan filed", "roll"]
            .iter()
            .any(|word| line.what.starts_with(word))
            || line.what.contains(" replied to question")
    });
    let sent = stay.lines.iter().filter(|line| line.what.starts_with("send ")).count();
    let words = match (loud, sent) {
        (Some(line), _) => line.what.clone(),
        (None, 0) => String::new(),
        (None, 1) => "1 operation".to_owned(),
        (None, sent) => format!("{sent} operations"),
    };
    if words.chars().count() <= 60 {
        return words;
    }
    words.chars().take(59).chain(['…']).collect()
}

fn colour(label: &str) -> &'static str {
    match label.split(' ').next().unwrap_or_default() {
        "Escalated" => "#e57373",
        "Halted" | "Dwell" => "#ffb74d",
        "Retry" | "Rollback" => "#ffd54f",
        "RevertedSafe" | "Complete" => "#81c784",
        _ => "#9ec5e8",
    }
}

fn legend(svg: &mut String, y: f64) {
    let entries = [
        ("#9ec5e8", "on the way"),
        ("#1f4e79", "operation"),
        ("#b00020", "operation without a success"),
        ("#ffb74d", "stopped"),
        ("#ffd54f", "recovering"),
        ("#e57373", "frozen: a person is asked"),
        ("#81c784", "ended well"),
    ];
    let mut x = LEFT;
    for (colour, words) in entries {
        let _ =
            writeln!(svg, "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>", y - 9.0);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{y}\" font-size=\"11\">{words}</text>", x + 14.0);
        x += 30.0 + 6.4 * count(words.len());
    }
}

/// Time to place, long pauses shortened.
struct Scale {
    /// When, and how far along by then, in seconds as they are drawn.
    marks: Vec<(SystemTime, f64)>,
    breaks: Vec<(SystemTime, SystemTime)>,
}

impl Scale {
    fn of(log: &[LogLine]) -> Self {
        let (mut marks, mut breaks, mut along) = (Vec::new(), Vec::new(), 0.0);
        for (index, line) in log.iter().enumerate() {
            if let Some(before) = index.checked_sub(1).and_then(|before| log.get(before)) {
                let pause = line.at.duration_since(before.at).unwrap_or_default();
                if pause > LONGEST {
                    breaks.push((before.at, line.at));
                }
                along += pause.min(LONGEST).as_secs_f64();
            }
            marks.push((line.at, along));
        }
        Self { marks, breaks }
    }

    fn whole(&self) -> f64 {
        self.marks.last().map_or(1.0, |(_, along)| along.max(1.0))
    }

    fn x(&self, at: SystemTime) -> f64 {
        let after = self.marks.iter().rev().find(|(mark, _)| *mark <= at);
        LEFT + WIDTH * after.map_or(0.0, |(_, along)| *along) / self.whole()
    }

    /// Lines at round times, and marks where a pause was shortened.
    fn axis(&self, svg: &mut String, height: f64) {
        let Some((start, _)) = self.marks.first() else { return };
        let bottom = height - 40.0;
        let step =
            [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0].into_iter().find(|step| self.whole() / step <= 15.0);
        let step = step.unwrap_or(1800.0);
        let mut shown = f64::NEG_INFINITY;
        for (at, along) in &self.marks {
            if along - shown < step {
                continue;
            }
            shown = *along;
            let since = at.duration_since(*start).unwrap_or_default();
            let x = self.x(*at);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#e5e5e5\"/><text x=\"{x:.1}\" \
                 y=\"{:.1}\" text-anchor=\"middle\" fill=\"#777777\" font-size=\"10\">+{:.1}s</text>",
                TOP - 6.0,
                since.as_secs_f64()
            );
        }
        for (from, to) in &self.breaks {
            let (a, b) = (self.x(*from), self.x(*to));
            let pause = format_duration(to.duration_since(*from).unwrap_or_default());
            let _ = writeln!(
                svg,
                "<rect x=\"{a:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f3f3f3\"/><text x=\"{:.1}\" \
                 y=\"{:.1}\" text-anchor=\"middle\" fill=\"#777777\" font-size=\"10\">{pause}</text>",
                b - a,
                bottom - TOP,
                f64::midpoint(a, b),
                bottom + 12.0
            );
        }
    }
}

/// A count as a measure. No picture has so many of anything that it matters.
fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u64, phase: &str, what: &str) -> LogLine {
        LogLine {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
            phase: phase.to_owned(),
            what: what.to_owned(),
        }
    }

    #[test]
    fn a_picture_has_a_row_for_each_stay_and_a_night_takes_no_more_room_than_a_pause() {
        let log = [
            line(0, "Idle", "plan filed"),
            line(1, "FlipNode1", "enter FlipNode1 (drained gate passed)"),
            line(2, "FlipNode1", "send w1: set bond0 to balance-rr (<why>)"),
            line(6, "FlipNode1", "op-1: failed: it stopped"),
            line(7, "Escalated in FlipNode1", "escalate #1 (the flip failed)"),
            line(30_000, "Retry in FlipNode1", "ann replied to question 1"),
        ];
        let scale = Scale::of(&log);
        assert!((scale.whole() - 22.0).abs() < 0.01, "{}", scale.whole());
        let svg = svg("flip & back", &log);
        for part in ["flip &amp; back", "Escalated in FlipNode1", "&lt;why&gt;", "8h19m", "#b00020"] {
            assert!(svg.contains(part), "{part} is missing:\n{svg}");
        }
        assert_eq!(stays(&log).len(), 4);
        assert_eq!(text(&log).lines().count(), 6);
    }

    #[test]
    fn an_empty_log_is_an_empty_picture() {
        assert!(svg("nothing", &[]).ends_with("</svg>\n"));
    }
}
