//! The purity fence: core depends on three crates and names no clock, chance, runtime or I/O.
//! `clippy.toml` says the same to the compiler; this says it to whoever runs the tests.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    clippy::disallowed_methods,
    reason = "a test: a panic is a failed test, and arguments are built where they are used"
)]

use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn core_depends_on_the_vocabulary_serde_and_thiserror_and_on_nothing_else() {
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let section = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names: Vec<_> = section
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| line.split(['.', ' ', '=']).next().unwrap())
        .collect();
    assert_eq!(names, ["executor-api", "serde", "thiserror"]);
}

#[test]
fn core_names_no_clock_chance_runtime_or_io() {
    let forbidden = [
        "SystemTime::now",
        "Instant",
        "std::env",
        "std::fs",
        "std::io",
        "std::net",
        "std::process",
        "std::thread",
        "std::sync::Mutex",
        "OnceLock",
        "LazyLock",
        "thread_local",
        "static mut",
        "sync::atomic",
        "HashMap",
        "HashSet",
        "rand::",
        "tokio",
        "async ",
        "println!",
    ];
    let mut files = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
    assert!(files.len() > 10, "the walk found too little");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            for word in forbidden {
                assert!(!code.contains(word), "{}:{}: {word}", file.display(), number + 1);
            }
        }
    }
}

#[test]
fn the_fence_would_see_a_clock() {
    // The list above is of use only if it matches how a clock is spelled.
    let line = "let now = std::time::SystemTime::now(); // fine?";
    assert!(line.split("//").next().unwrap().contains("SystemTime::now"));
}
