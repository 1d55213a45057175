//! `reconciler schema`: the JSON Schema of the cluster file, the settings of the built-in providers included.

use reconciler::schema::schema;

use super::failure::{Code, Failure};
use super::output::{line, to_json};

pub(super) fn run() -> Result<Code, Failure> {
    line(to_json(&schema())?)?;
    Ok(Code::Done)
}
