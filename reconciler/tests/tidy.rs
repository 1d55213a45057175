//! Rules about the repository itself, each a test that names what breaks it: which crate may know which, that every
//! file says what it is for, that a provider is entered everywhere it must be, and that nothing speaks of one machine.
#![expect(clippy::unwrap_used, reason = "a repository that cannot be read has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files below a directory that are the project's own, by extension.
fn files(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && name != ".git" {
                found.extend(files(&path, extensions));
            }
        } else if extensions.contains(&path.extension().unwrap_or_default().to_string_lossy().as_ref()) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The members of the workspace that are there: name, directory, and their own dependencies.
struct Member {
    name: String,
    dir: PathBuf,
    dependencies: BTreeSet<String>,
}

fn members() -> BTreeMap<String, Member> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let list = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let mut dirs: Vec<PathBuf> = Vec::new();
    for member in list.split(',').map(|part| part.trim().trim_matches('"')).filter(|part| !part.is_empty()) {
        match member.strip_suffix("/*") {
            None => dirs.push(root().join(member)),
            Some(parent) => {
                dirs.extend(fs::read_dir(root().join(parent)).unwrap().flatten().map(|entry| entry.path()));
            }
        }
    }
    let read = |dir: PathBuf| {
        let text = fs::read_to_string(dir.join("Cargo.toml")).ok()?;
        let name = text.lines().find_map(|line| line.strip_prefix("name = "))?.trim_matches('"').to_owned();
        Some((name.clone(), Member { name, dir, dependencies: dependencies(&text) }))
    };
    dirs.into_iter().filter_map(read).collect()
}

/// The names in `[dependencies]`; those of tests and build scripts are another matter.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut within = false;
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            within = line == "[dependencies]"
                || (line.starts_with("[target.") && line.ends_with(".dependencies]"));
        } else if within && !line.starts_with('#') {
            names.extend(
                line.split(['.', ' ', '=']).next().filter(|name| !name.is_empty()).map(str::to_owned),
            );
        }
    }
    names
}

/// Whether a crate under `executors/` leases nodes, rather than helping those that do.
fn leases(member: &Member) -> bool {
    let is_provider = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.contains("impl LeaseProvider for") || text.contains("impl LeaseWorld for")
    };
    member.dir.starts_with(root().join("executors"))
        && files(&member.dir.join("src"), &["rs"]).iter().any(is_provider)
}

#[test]
fn each_crate_knows_only_the_layers_below_it() {
    let members = members();
    let ours: BTreeSet<_> = members.keys().cloned().collect();
    let executors: BTreeSet<_> = members
        .values()
        .filter(|m| m.dir.starts_with(root().join("executors")))
        .map(|m| m.name.clone())
        .collect();
    let helpers: BTreeSet<_> = executors.iter().filter(|name| !leases(&members[*name])).cloned().collect();
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    for member in members.values() {
        let allowed = match member.name.as_str() {
            "executor-api" | "faulty-disk" => set(&[]),
            "reconciler-core" => set(&["executor-api"]),
            "reconciler-driver" => set(&["executor-api", "reconciler-core"]),
            "conformance" => {
                let own = set(&["executor-api", "reconciler-core", "reconciler-driver", "executor-fake"]);
                // The simulated hosts are to maintenance what the fake is to clusters.
                own.into_iter()
                    .chain(executors.iter().filter(|name| name.ends_with("-fake")).cloned())
                    .collect()
            }
            "reconciler" => ours.clone(),
            name if executors.contains(name) => {
                set(&["executor-api", "conformance"]).union(&helpers).cloned().collect()
            }
            other => panic!("{other} has no layer; give it one here"),
        };
        let known: BTreeSet<_> = member.dependencies.intersection(&ours).cloned().collect();
        let beyond: Vec<_> = known.difference(&allowed).collect();
        assert!(beyond.is_empty(), "{} must not know {beyond:?}", member.name);
    }
}

#[test]
fn the_core_depends_on_nothing_that_could_make_it_impure() {
    let found: Vec<_> = members()["reconciler-core"].dependencies.iter().cloned().collect();
    assert_eq!(found, ["executor-api", "serde", "thiserror"]);
}

#[test]
fn a_plain_build_pulls_no_cloud_sdk() {
    // As `cargo build` and `cargo test` select packages, and as the suite's tests do.
    for features in [&[][..], &["--features", "executor-process/conformance,reconciler/conformance"]] {
        let tree = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--locked", "--prefix", "none"])
            .args(features)
            .current_dir(root())
            .output()
            .unwrap();
        let text = String::from_utf8(tree.stdout).unwrap();
        assert!(text.contains("tokio v"), "no tree: {}", String::from_utf8_lossy(&tree.stderr));
        let sdk: Vec<_> = text.lines().filter(|line| line.starts_with("aws-")).collect();
        assert!(sdk.is_empty(), "{sdk:#?}");
    }
}

#[test]
fn only_what_runs_names_tokio() {
    for member in members().values() {
        let pure = matches!(member.name.as_str(), "executor-api" | "reconciler-core")
            || member.name.ends_with("-fake");
        let names = member.dependencies.iter().any(|name| name.starts_with("tokio"));
        assert!(!(pure && names), "{} must not name tokio", member.name);
    }
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let silent: Vec<_> = members()
        .values()
        .flat_map(|member| {
            ["src", "tests", "benches", "examples"].map(|dir| files(&member.dir.join(dir), &["rs"]))
        })
        .flatten()
        .filter(|path| !fs::read_to_string(path).unwrap().starts_with("//!"))
        .map(|path| shown(&path))
        .collect();
    assert!(silent.is_empty(), "these do not begin with `//!`: {silent:#?}");
}

#[test]
fn every_provider_has_a_feature_a_row_and_a_line_in_the_readme() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_default();
    let (manifest, table, readme) =
        (read("reconciler/Cargo.toml"), read("reconciler/src/providers.rs"), read("README.md"));
    let mut missing = Vec::new();
    // The template is there to be copied; it is nobody's provider.
    let is_template = |member: &&Member| member.dir.ends_with("executors/template");
    for member in members().values().filter(|member| leases(member) && !is_template(member)) {
        let folder = member.dir.file_name().unwrap().to_string_lossy().into_owned();
        let mut needs = |there: bool, what: &str| {
            if !there {
                missing.push(format!("{}: {what}", shown(&member.dir)));
            }
        };
        needs(
            manifest.lines().any(|line| line.starts_with(&format!("{folder} = ["))),
            "no feature in reconciler/Cargo.toml",
        );
        needs(table.contains(&format!("{folder}::PROVIDER")), "no row in reconciler/src/providers.rs");
        needs(readme.contains(&format!("| `{folder}`")), "no row in README.md's table of providers");
        let suite = files(&member.dir.join("tests"), &["rs"])
            .into_iter()
            .chain(files(&root().join("conformance/tests"), &["rs"]));
        let tested = suite.into_iter().any(|path| {
            let text = fs::read_to_string(&path).unwrap();
            text.contains("suite!")
                && (path.starts_with(&member.dir) || path.ends_with(format!("{folder}.rs")))
        });
        needs(tested, "no test that runs the conformance suite (`suite!`)");
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Code is what is neither blank nor a comment. Neither tests nor the suite's harness count: they are the proof.
#[test]
fn the_template_is_under_150_lines_of_code() {
    let sources = files(&root().join("executors/template/src"), &["rs"]).into_iter();
    let counted = sources.filter(|path| !path.ends_with("conformance.rs"));
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let lines: usize =
        counted.map(|path| fs::read_to_string(path).unwrap().lines().filter(is_code).count()).sum();
    assert!(
        (60..150).contains(&lines),
        "{lines} lines of code; what every author needs belongs in executor-api"
    );
}

/// `docs/scenarios.md` has a row for each scenario, and each name in it is that of a test or of a case.
#[test]
fn every_scenario_is_shown_by_tests_that_exist() {
    let table = fs::read_to_string(root().join("docs/scenarios.md")).unwrap();
    let sources = members().into_values().flat_map(|member| {
        ["src", "tests"].map(|dir| files(&member.dir.join(dir), &["rs"])).into_iter().flatten()
    });
    let texts: BTreeMap<PathBuf, String> =
        sources.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect();
    let cases = |promise: &str| {
        let path = root().join("conformance/src/cases").join(format!("{promise}.rs"));
        texts.get(&path).map_or("", String::as_str)
    };
    let is_there = |name: &str| match name.split_once("::") {
        Some((promise, case)) => cases(promise).contains(&format!("pub(crate) async fn {case}(")),
        None => texts.values().any(|text| text.contains(&format!("fn {name}()"))),
    };
    for number in 1..=27 {
        let start = format!("| H{number:02} |");
        let row = table.lines().find(|line| line.starts_with(&start));
        let shown = row.unwrap_or_else(|| panic!("no row for H{number:02}")).rsplit('|').nth(1).unwrap();
        let names: Vec<_> = shown.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "nothing shows H{number:02}");
        for name in names {
            assert!(is_there(name), "H{number:02} names {name}, which does not exist");
        }
    }
}

#[test]
fn every_bootstrapper_that_stands_alone_has_a_row_a_suite_and_a_line_in_the_readme() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_default();
    let (table, readme) = (read("reconciler/src/providers.rs"), read("README.md"));
    let mut missing = Vec::new();
    // `bootstrap-hosted` is what two of them share, and is tried through both.
    let alone = |member: &&Member| member.name.starts_with("bootstrap-") && member.name != "bootstrap-hosted";
    for member in members().values().filter(alone) {
        let row = files(&root().join("reconciler/src/providers"), &["rs"]).into_iter().find(|path| {
            let text = fs::read_to_string(path).unwrap();
            text.contains(&format!("use {}::", member.name.replace('-', "_")))
                && text.contains("BOOTSTRAPPER")
        });
        let Some(row) = row else {
            missing.push(format!("{}: no row in reconciler/src/providers/", member.name));
            continue;
        };
        let name = row.file_stem().unwrap().to_string_lossy().into_owned();
        let mut needs = |there: bool, what: &str| {
            if !there {
                missing.push(format!("{}: {what}", member.name));
            }
        };
        needs(
            table.contains(&format!("{name}::BOOTSTRAPPER")),
            "its row is not in reconciler/src/providers.rs",
        );
        needs(readme.contains(&format!("| `via: {name}`")), "no row in README.md's table of bootstrappers");
        let tested = files(&member.dir.join("tests"), &["rs"]).into_iter().any(|path| {
            let text = fs::read_to_string(path).unwrap();
            text.contains("suite!") || text.contains("suite::run")
        });
        // A probe starts nothing that a suite could count.
        needs(tested || name == "probe", "no test that runs the conformance suite");
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn nothing_speaks_of_one_machine() {
    // In pieces, so that this file is not the one that does.
    let marks = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/tmp/", "t/")];
    let mut found = Vec::new();
    for path in files(&root(), &["rs", "toml", "md", "yaml", "yml", "sh", "trace", "py"]) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines = text.lines().enumerate().filter(|(_, line)| marks.iter().any(|mark| line.contains(mark)));
        found.extend(lines.map(|(index, line)| format!("{}:{}: {}", shown(&path), index + 1, line.trim())));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_unfinished_work_is_left_in_the_sources() {
    let marks =
        [concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("FIX", "ME"), concat!("XX", "X:")];
    let mut found = Vec::new();
    for member in members().values() {
        for path in files(&member.dir, &["rs"]) {
            let text = fs::read_to_string(&path).unwrap();
            let lines =
                text.lines().enumerate().filter(|(_, line)| marks.iter().any(|mark| line.contains(mark)));
            found.extend(
                lines.map(|(index, line)| format!("{}:{}: {}", shown(&path), index + 1, line.trim())),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
