//! Writing results: tables, JSON and YAML to standard output, remarks to standard error. Colour only on a
//! terminal and never under `NO_COLOR`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::cli::args::Format;
use crate::cli::failure::Failure;
use crate::cli::view::{Node, Status, remaining};
use reconciler::file::format_duration;

/// Writes text to standard output. A reader that has gone away is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::while_doing("writing to standard output", &error))
        }
        _ => Ok(()),
    }
}

/// Writes one line to standard output.
pub(crate) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    print(&format!("{}\n", text.as_ref()))
}

/// Writes a remark to standard error.
pub(crate) fn remark(text: impl AsRef<str>) {
    // Nobody is left to tell when standard error is gone.
    let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
}

/// Writes a document in the format asked for; `table` makes the one for people.
pub(crate) fn document<T: Serialize>(
    format: Format,
    value: &T,
    table: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match format {
        Format::Table => print(&table()),
        Format::Json => line(to_json(value)?),
        Format::Yaml => print(&to_yaml(value)?),
    }
}

/// Writes one of many values that follow each other: a line of JSON, or a YAML document of its own.
#[cfg(feature = "host-fake")]
pub(crate) fn entry(format: Format, value: &serde_json::Value) -> Result<(), Failure> {
    match format {
        Format::Table | Format::Json => line(value.to_string()),
        Format::Yaml => print(&format!("---\n{}", to_yaml(value)?)),
    }
}

/// Indented JSON.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(|error| Failure::while_doing("writing JSON", &error))
}

fn to_yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_saphyr::to_string(value).map_err(|error| Failure::error(format!("writing YAML: {error}")))
}

/// Whether standard output may be painted and redrawn.
pub(crate) fn is_lively() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A run as a table.
pub(crate) fn status_table(status: &Status) -> String {
    table(status, usize::MAX)
}

/// A run as a table of which each line fits the terminal, to be redrawn in place.
pub(crate) fn live_table(status: &Status) -> String {
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    table(status, if columns < 20 { usize::MAX } else { columns })
}

fn table(status: &Status, width: usize) -> String {
    let fit = |line: &str| line.trim_end().chars().take(width).collect::<String>();
    let mut lines: Vec<String> = heading(status).iter().map(|line| fit(line)).collect();
    if status.nodes.is_empty() {
        return lines.join("\n") + "\n";
    }
    let rows: Vec<[String; 6]> = status.nodes.iter().map(row).collect();
    let head = ["NODE", "ATTEMPT", "STAGE", "READY", "ENDPOINT", "WHY"].map(str::to_owned);
    let widths: [usize; 5] = std::array::from_fn(|column| {
        rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let paint = is_lively();
    for (index, row) in [&head].into_iter().chain(&rows).enumerate() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a String cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        line.push_str(&row[5]);
        let colour = match index.checked_sub(1).map(|node| &status.nodes[node]) {
            None => "1",
            Some(node) if node.ready => "32",
            Some(node) if node.failures > 0 => "31",
            Some(_) => "33",
        };
        let line = fit(&line);
        lines.push(if paint { format!("\x1b[{colour}m{line}\x1b[0m") } else { line });
    }
    lines.join("\n") + "\n"
}

/// What there is to say of the run as a whole.
fn heading(status: &Status) -> Vec<String> {
    let ready = status.nodes.iter().filter(|node| node.ready).count();
    let mut lines = vec![format!(
        "run {} generation {}: {}, {ready} of {} ready, {}",
        status.run,
        status.generation,
        if status.converged { "converged" } else { "not converged" },
        status.nodes.len(),
        status
            .driver_pid
            .map_or_else(|| "nobody drives it".to_owned(), |pid| format!("driven by process {pid}")),
    )];
    for (group, over) in &status.overrides {
        lines.push(format!("group {group} is scaled to {}; its file says {}", over.count, over.file_count));
    }
    for hold in &status.holds {
        let node = hold.node.as_deref().unwrap_or("every node");
        lines.push(format!("{node} is held by {} since {}: {}", hold.by, hold.since, hold.reason));
    }
    lines
}

fn row(node: &Node) -> [String; 6] {
    let dash = || "-".to_owned();
    [
        node.id.clone(),
        node.attempt.map_or_else(dash, |attempt| format!("a{attempt}")),
        if node.intent == "deleting" { format!("{} (deleting)", node.stage) } else { node.stage.clone() },
        if node.ready { "yes" } else { "no" }.to_owned(),
        node.endpoint.clone().unwrap_or_else(dash),
        reason(node),
    ]
}

/// Why a node waits, and for how long.
pub(crate) fn reason(node: &Node) -> String {
    match node.until.as_deref().and_then(remaining) {
        Some(left) => format!("{} (for {} at most)", node.why, format_duration(left)),
        None => node.why.clone(),
    }
}

/// Asks on a terminal before something is ended. Only a plain yes lets it pass: no answer is a no, and so is a question
/// that nobody can read, or answer.
pub(crate) fn confirm(question: &str) -> Result<(), Failure> {
    let readable = io::stdin().is_terminal() && io::stderr().is_terminal();
    ask(question, readable, &mut io::stderr().lock(), &mut io::stdin().lock())
}

fn ask(
    question: &str,
    readable: bool,
    to: &mut dyn Write,
    from: &mut dyn io::BufRead,
) -> Result<(), Failure> {
    if !readable {
        return Err(Failure::refused(format!(
            "{question} Nobody can be asked, so no node was touched; give -y to go on unasked"
        )));
    }
    let mut answer = String::new();
    let asked = write!(to, "{question} [y/N] ").and_then(|()| to.flush());
    match asked.and_then(|()| from.read_line(&mut answer)) {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::refused("not confirmed; no node was touched")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// An end of a terminal that is gone.
    struct Gone;

    impl io::Read for Gone {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::Other.into())
        }
    }

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::Other.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_plain_yes_confirms() {
        let answered = |answer: &[u8]| ask("Go on?", true, &mut Vec::new(), &mut &*answer);
        for yes in ["y\n", "Y\n", "yes\n", " y \n", "y"] {
            assert_eq!(answered(yes.as_bytes()), Ok(()), "{yes:?}");
        }
        for no in [&b"n\n"[..], b"\n", b"", b"yesterday\n", b"y\xff\n"] {
            assert!(answered(no).unwrap_err().message.contains("not confirmed"), "{no:?}");
        }
        let unread = ask("Go on?", true, &mut Vec::new(), &mut BufReader::new(Gone));
        assert!(unread.unwrap_err().message.contains("not confirmed"), "an answer that cannot be read");
        let unasked = ask("Go on?", true, &mut Gone, &mut &b"y\n"[..]);
        assert!(unasked.unwrap_err().message.contains("not confirmed"), "a question that cannot be written");
    }

    #[test]
    fn a_question_that_nobody_can_be_asked_is_refused_and_says_what_to_give() {
        let mut said = Vec::new();
        let refused = ask("Go on?", false, &mut said, &mut &b"y\n"[..]).unwrap_err();
        assert_eq!(refused.code, crate::cli::failure::Code::Refused);
        assert!(refused.message.starts_with("Go on?") && refused.message.contains("-y"), "{refused:?}");
        assert!(said.is_empty());
    }
}
