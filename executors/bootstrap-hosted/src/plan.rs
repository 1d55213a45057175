//! What a session does on its host, in the order in which it does it: files, steps, verifications, program.
//! Rendered to shell functions with every word quoted; the only place where a user's text becomes shell.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// In which the limit of the output is told to the host, in bytes: what `ulimit -f` counts.
const BLOCK: u64 = 512;

/// Everything that a session does. Holds no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Files to put in place; their contents travel apart.
    pub files: Vec<PlannedFile>,
    /// Commands that must succeed, one after the other.
    pub steps: Vec<Vec<String>>,
    /// Commands that must succeed after that.
    pub verify: Vec<Vec<String>>,
    /// The program that is the node, if the session is to run one.
    pub program: Option<Vec<String>>,
    /// How many bytes of output the host keeps.
    pub output_limit: u64,
}

/// One file to put in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFile {
    /// Where: absolute, or below the session's working directory.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
}

impl Plan {
    /// The plan as the host's script reads it.
    pub fn to_shell(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "output_blocks={}\nfiles={}\nsteps={}\nverifications={}\nprograms={}\n",
            self.output_limit.div_ceil(BLOCK).max(1),
            self.files.len(),
            self.steps.len(),
            self.verify.len(),
            usize::from(self.program.is_some()),
        );
        for (n, file) in self.files.iter().enumerate() {
            let path =
                if file.path.starts_with('/') { file.path.clone() } else { format!("./{}", file.path) };
            let dir = path.rsplit_once('/').map_or(".", |(dir, _)| if dir.is_empty() { "/" } else { dir });
            let new = quote(&format!("{path}.reconciler-new"));
            // Renamed into place with its rights set, so that nobody meets half a file.
            let _ = writeln!(
                text,
                "file_{n}() {{ mkdir -p {} && cp ../files/{n} {new} && chmod {:o} {new} && mv -f {new} {}; }}",
                quote(dir),
                file.mode,
                quote(&path),
            );
        }
        let lists = [("step", &self.steps), ("verify", &self.verify)];
        for (name, commands) in lists {
            for (n, command) in commands.iter().enumerate() {
                let _ = writeln!(text, "{name}_{n}() {{ {}; }}", run(command));
            }
        }
        if let Some(program) = &self.program {
            let _ = writeln!(text, "program_0() {{ {}; }}", run(program));
        }
        text
    }
}

/// An environment as the host's script reads it; the last line proves that it is whole.
pub fn environment_to_shell(environment: &[(String, String)]) -> String {
    let mut text = String::new();
    for (name, value) in environment {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "export {name}={}", quote(value));
    }
    text.push_str(": environment complete");
    text
}

/// `exec` makes sure that a program is run, never a function or a builtin of that name.
fn run(command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| quote(word)).collect();
    format!("exec {}", words.join(" "))
}

/// One word for a POSIX shell: nothing within single quotes means anything but a single quote.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn a_plan_is_functions_of_quoted_words() {
        let plan = Plan {
            files: vec![
                PlannedFile { path: "/etc/it's".into(), mode: 0o600 },
                PlannedFile { path: "x".into(), mode: 0o755 },
            ],
            steps: vec![vec!["apt-get".into(), "$(reboot)".into()]],
            verify: vec![],
            program: Some(vec!["node".into(), "; rm -rf /".into()]),
            output_limit: 10,
        };
        expect_test::expect![[r#"
            output_blocks=1
            files=2
            steps=1
            verifications=0
            programs=1
            file_0() { mkdir -p '/etc' && cp ../files/0 '/etc/it'\''s.reconciler-new' && chmod 600 '/etc/it'\''s.reconciler-new' && mv -f '/etc/it'\''s.reconciler-new' '/etc/it'\''s'; }
            file_1() { mkdir -p '.' && cp ../files/1 './x.reconciler-new' && chmod 755 './x.reconciler-new' && mv -f './x.reconciler-new' './x'; }
            step_0() { exec 'apt-get' '$(reboot)'; }
            program_0() { exec 'node' '; rm -rf /'; }
        "#]]
        .assert_eq(&plan.to_shell());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_reads_every_word_back_unchanged(words in prop::collection::vec("[^\0]{0,12}", 1..5)) {
            let script = format!("printf '%s\\0' {}", words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" "));
            let output = Command::new("/bin/sh").arg("-c").arg(script).output().unwrap();
            let mut read: Vec<String> =
                String::from_utf8(output.stdout).unwrap().split('\0').map(str::to_owned).collect();
            read.pop();
            prop_assert_eq!(read, words);
        }
    }
}
