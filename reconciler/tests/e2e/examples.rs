//! The examples are what newcomers copy: each is valid as it stands, and the one of the agent does what it says.
#![expect(clippy::unwrap_used, reason = "an example that cannot be read has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::doors::{Door, TOKEN, account, left_of, run_of};
use crate::lab::Lab;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples")
}

#[test]
fn every_example_of_a_cluster_is_valid_or_says_what_is_missing() {
    let lab = Lab::new().env("AGENT_TOKEN", TOKEN);
    let mut seen = Vec::new();
    for entry in fs::read_dir(examples()).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if !fs::read_to_string(&path).unwrap().contains("\ngroups:\n") {
            continue;
        }
        let output = lab.output(&["validate", "-f", &path.display().to_string()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // What a build or a machine lacks is no flaw of the example; anything else would be one more problem.
        let excused = match name.as_str() {
            "ec2.yaml" => {
                said.contains("provider \"ec2\" is unknown or not built in") || cfg!(feature = "ec2")
            }
            "etcd.yaml" => said.contains("no program named \"etcd\""),
            _ => false,
        };
        let problems = said.lines().filter(|line| line.contains("groups[")).count();
        assert!(output.status.success() || (excused && problems == 1), "{name}: {said}");
        seen.push(name);
    }
    seen.sort();
    assert_eq!(seen, ["agent.yaml", "ec2.yaml", "etcd.yaml", "local.yaml", "ssh.yaml"]);
}

#[test]
fn the_examples_beyond_a_door_converge() {
    for door in Door::all() {
        let text = fs::read_to_string(examples().join(format!("{}.yaml", door.name()))).unwrap();
        let key = format!("key: {{ from_file: {} }}", door.path("user_key").display());
        // Another port, and for SSH the account and the key of the test's own server.
        let text = text
            .replace("7272", &door.port().to_string())
            .replace("port: 22 ", &format!("port: {} ", door.port()))
            .replace("user: admin", &format!("user: {}", account()))
            .replace("agent: true", &key);
        let run = run_of("example", &door);
        let text = text.replace("\nrun: far-ssh\n", &format!("\nrun: {run}\n"));
        let lab =
            Lab::with(&text.replace("\nrun: far\n", &format!("\nrun: {run}\n"))).env("AGENT_TOKEN", TOKEN);
        lab.ok(&["up", "-y", "-q", "--timeout", "60s"]);
        assert!(lab.ok(&["logs", "web-0"]).contains("Python 3"));
        lab.destroy();
        assert_eq!(left_of(&run), [""; 0]);
    }
}
