//! One event as one line of a story.

use std::time::SystemTime;

use crate::event::Event;

/// `+2s  web-1 a2  destroy-lease     lease l-2 held`
pub(super) fn line(event: &Event, start: SystemTime) -> String {
    let at = event.at.duration_since(start).unwrap_or_default();
    let (seconds, millis) = (at.as_secs(), at.subsec_millis());
    let fraction = if millis == 0 { String::new() } else { format!(".{millis:03}") };
    let fraction = fraction.trim_end_matches('0');
    let who = match (&event.node, event.attempt) {
        (Some(node), Some(attempt)) => format!("{node} {attempt}"),
        (Some(node), None) => node.to_string(),
        (None, _) => "-".to_owned(),
    };
    let text = event.what.to_string();
    let name = event.what.name();
    format!("+{seconds}{fraction}s  {who}  {name:<18}  {text}").trim_end().to_owned()
}
