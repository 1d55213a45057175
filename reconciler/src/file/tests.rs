//! Bad files: one test per kind of mistake, each with the exact words that its user sees.

use std::path::Path;

use expect_test::{Expect, expect};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "written at the call, where it is rewritten in place")]
fn check(text: &str, expected: Expect) {
    let error = parse(Path::new("cluster.yaml"), text).expect_err("the file was taken");
    expected.assert_eq(&error.to_string());
}

const WEB: &str = "run: demo\ngroups:\n  - name: web\n    count: 3\n    provider: fake\n";

fn web(more: &str) -> String {
    format!("{WEB}{more}")
}

#[test]
fn an_empty_file_is_refused_and_destroys_nothing() {
    for text in ["", "\n\n", "# only a remark\n", "---\n# later\n"] {
        check(
            text,
            expect![
                "cluster.yaml: the file declares nothing, and nothing is changed; use `reconciler destroy` to remove a run"
            ],
        );
    }
}

#[test]
fn no_groups_are_refused_too() {
    check(
        "run: demo\ngroups: []\n",
        expect![[r#"
        cluster.yaml:2:1: groups: no group is declared, which would remove every node; use `reconciler destroy` for that
          2 | groups: []
            | ^"#]],
    );
}

#[test]
fn an_unknown_key_is_named_with_those_that_are_known() {
    check(
        &web("    shap: {}\n"),
        expect![[r#"
            cluster.yaml:6:5: unknown field `shap`; do you mean `shape`? Known here: name, count, role, provider, shape, boot, join, retry, update
              6 |     shap: {}
                |     ^"#]],
    );
    check(
        "run: demo\ngroup: []\n",
        expect![[r#"
            cluster.yaml:2:1: unknown field `group`; do you mean `groups`? Known here: run, groups, retry, observe, limits, orphans
              2 | group: []
                | ^"#]],
    );
}

#[test]
fn a_duplicate_key_is_refused_where_it_is_repeated() {
    check(
        "run: demo\nrun: other\ngroups: []\n",
        expect![[r#"
        cluster.yaml:2:1: duplicate mapping key: run
          2 | run: other
            | ^"#]],
    );
    check(
        &web("    shape: { a: 1, a: 2 }\n"),
        expect![[r#"
        cluster.yaml:6:20: duplicate mapping key: a
          6 |     shape: { a: 1, a: 2 }
            |                    ^"#]],
    );
}

#[test]
fn wrong_types_say_what_was_expected() {
    check(
        "run: demo\ngroups: web\n",
        expect![[r#"
        cluster.yaml:2:9: expected a list
          2 | groups: web
            |         ^"#]],
    );
    check(
        "run: demo\ngroups:\n  - { name: web, count: three, provider: fake }\n",
        expect![[r#"
        cluster.yaml:3:25: expected a whole number from 0 to 4294967295
          3 |   - { name: web, count: three, provider: fake }
            |                         ^"#]],
    );
    check(
        &web("    boot: [a]\n"),
        expect![[r#"
        cluster.yaml:6:11: expected named settings (`key: value`)
          6 |     boot: [a]
            |           ^"#]],
    );
    check(
        &web("retry: { cap: 60 }\n"),
        expect![[r#"
        cluster.yaml:6:15: "60" is no duration; write a number with its unit, such as "200ms", "20s" or "1m30s"
          6 | retry: { cap: 60 }
            |               ^"#]],
    );
}

#[test]
fn a_missing_key_is_named() {
    check(
        "run: demo\ngroups:\n  - name: web\n    count: 1\n",
        expect![[r#"
        cluster.yaml:4:5: missing field `provider`
          4 |     count: 1
            |     ^"#]],
    );
}

#[test]
fn more_nodes_than_allowed_are_refused_at_the_count_that_goes_over() {
    check(
        "run: demo\ngroups:\n  - { name: a, count: 900000, provider: fake }\n  - { name: b, count: 200000, provider: fake }\n",
        expect![[r#"
        cluster.yaml:4:16: groups[1].count: 1100000 nodes are declared up to here; at most 1000000 are allowed
          4 |   - { name: b, count: 200000, provider: fake }
            |                ^"#]],
    );
    check(
        "run: demo\ngroups:\n  - { name: a, count: 99999999999, provider: fake }\n",
        expect![[r#"
        cluster.yaml:3:23: expected a whole number from 0 to 4294967295
          3 |   - { name: a, count: 99999999999, provider: fake }
            |                       ^"#]],
    );
}

#[test]
fn all_problems_are_reported_at_once_and_in_order() {
    check(
        "run: Demo\ngroups:\n  - { name: web_1, count: 1, provider: fake }\n  - { name: ok, count: 1, provider: '' }\n  - name: ok\n    count: 1\n    provider: fake\n    boot: { via: 3 }\n    join: { within: 20 }\n    update: { max_unavailable: 0 }\n    retry: { cap: 0s }\nretry: { jitter: 2 }\nlimits: { creates: 0 }\nobserve: { every: 0s }\n",
        expect![[r#"
            cluster.yaml:1:1: run: run name "Demo" may hold only lowercase letters, digits and '-', starting and ending with a letter or digit
              1 | run: Demo
                | ^
            cluster.yaml:3:7: groups[0].name: group name "web_1" may hold only lowercase letters, digits and '-', starting and ending with a letter or digit
              3 |   - { name: web_1, count: 1, provider: fake }
                |       ^
            cluster.yaml:4:27: groups[1].provider: provider name is empty
              4 |   - { name: ok, count: 1, provider: '' }
                |                           ^
            cluster.yaml:5:5: groups[2].name: group "ok" is declared twice; rename one
              5 |   - name: ok
                |     ^
            cluster.yaml:8:13: groups[2].boot.via: write the bootstrapper's name as text
              8 |     boot: { via: 3 }
                |             ^
            cluster.yaml:9:13: groups[2].join.within: write a duration with its unit, such as "20s"
              9 |     join: { within: 20 }
                |             ^
            cluster.yaml:10:15: groups[2].update.max_unavailable: with 0 nothing could ever be replaced; write 1 or more, or leave it out for no limit
              10 |     update: { max_unavailable: 0 }
                 |               ^
            cluster.yaml:11:14: groups[2].retry.cap: must be longer than zero
              11 |     retry: { cap: 0s }
                 |              ^
            cluster.yaml:12:10: retry.jitter: write a number from 0 to 1
              12 | retry: { jitter: 2 }
                 |          ^
            cluster.yaml:13:11: limits.creates: with 0 nothing would ever be done; write 1 or more
              13 | limits: { creates: 0 }
                 |           ^
            cluster.yaml:14:12: observe.every: must be longer than zero
              14 | observe: { every: 0s }
                 |            ^"#]],
    );
}

#[test]
fn ids_that_would_break_a_label_are_refused() {
    let long = "x".repeat(41);
    check(
        &format!("run: {long}\ngroups:\n  - {{ name: web, count: 1, provider: fake }}\n"),
        expect![[r#"
        cluster.yaml:1:1: run: run name "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" has 41 characters; at most 40 are allowed
          1 | run: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
            | ^"#]],
    );
}

#[test]
fn broken_yaml_names_its_place() {
    check(
        "run: demo\ngroups:\n\t- x\n",
        expect![[r#"
        cluster.yaml:3:2: tabs disallowed within this context (block indentation)
          3 | 	- x
            | 	^"#]],
    );
    check(
        "run: demo\ngroups: [*nobody]\n",
        expect![[r#"
        cluster.yaml:2:10: alias references unknown anchor
          2 | groups: [*nobody]
            |          ^"#]],
    );
}

#[test]
fn an_unreadable_file_says_which_and_why() {
    let error = load(Path::new("/nonexistent/cluster.yaml")).expect_err("read");
    expect!["cannot read the cluster file /nonexistent/cluster.yaml: No such file or directory (os error 2); name another with -f FILE"].assert_eq(&error.to_string());
}

#[test]
fn a_mistake_elsewhere_does_not_hide_the_run_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.yaml");
    std::fs::write(&path, "run: demo\ngroups: nonsense\n").unwrap();
    assert_eq!(run_name(&path).unwrap(), "demo");
}

#[test]
fn settings_become_a_shape_and_a_policy() {
    let text = web(
        "    role: worker\n    shape: { ports: [http] }\n    boot: { via: ssh, x: 1 }\n    join: { within: 20s, tell: y }\n    retry: { cap: 5s }\n    update: { max_unavailable: 1 }\nretry: { initial: 2s, jitter: 0.5 }\n",
    );
    let declared = parse(Path::new("cluster.yaml"), text).unwrap().declared;
    let run = executor_api::RunId::new("demo", "u1").unwrap();
    let shape = declared.shape(&run, 4, &std::collections::BTreeMap::new());
    assert_eq!((shape.generation, shape.groups.len()), (4, 1));
    let group = &shape.groups[0];
    assert_eq!(group.policy.join_within, Some(std::time::Duration::from_secs(20)));
    assert_eq!(group.policy.cap, Some(std::time::Duration::from_secs(5)));
    assert_eq!(group.update.max_unavailable, Some(1));
    assert_eq!(group.template.boot.via.as_ref().unwrap().as_str(), "ssh");
    assert_eq!(group.template.boot.settings, serde_json::json!({ "x": 1 }));
    assert_eq!(group.template.join.0, serde_json::json!({ "tell": "y" }));
    assert_eq!(declared.policy.jitter_per_mille, 500);
    assert_eq!(declared.policy.initial_delay, std::time::Duration::from_secs(2));
}

#[test]
fn no_boot_and_an_empty_boot_are_the_same_spec() {
    let read = |text: String| parse(Path::new("c"), text).unwrap().declared;
    assert_eq!(read(web("")), read(web("    boot: {}\n    join: {}\n")));
    assert_eq!(read(web("    join: { within: 300s }\n")).policy, read(web("")).policy);
}
