//! A lab with a region of the test world to itself: files that declare instances there, waits for what is declared, and
//! the world's own word on what exists.

use std::collections::{BTreeMap, BTreeSet};

use executor_ec2::conformance::world::Region;
use serde_json::{Value, json};

use crate::lab::{Lab, wait};

/// How long one call of the driver may take, in seconds.
pub(crate) const CALL: u64 = 5;

/// By how many seconds a late act is held up: until after its call was given up, and within what [`Fleet`] declares.
pub(crate) const LATE: f64 = 5.2;

/// The secret half of the caller's keys.
pub(crate) const SECRET: &str = "hunter2-swordfish";

/// How long a step may take on a busy machine, in seconds.
const PATIENCE: u64 = 150;

pub(crate) struct Fleet {
    // Dropped first: it ends what is left, for which it needs the region.
    pub(crate) lab: Lab,
    pub(crate) region: Region,
}

/// A lab for the provider, whoever calls; nothing of this machine's own AWS configuration is used.
pub(crate) fn nobodys_lab() -> Lab {
    Lab::new()
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("RECONCILER_EC2_LISTING_LAG", "1s")
        .env("RECONCILER_EC2_LATE_LANDING", "3s")
}

impl Fleet {
    /// A region whose instances take a moment to be seen, to run and to end, and then answer. `None` if there is no
    /// world.
    pub(crate) fn new() -> Option<Self> {
        let region = Region::take()?;
        region.boots();
        region.config(&json!({ "lag_s": 0.4, "id_lag_s": 0.3, "pending_s": 0.3, "shutting_down_s": 0.3 }));
        let lab = nobodys_lab().env("AWS_ACCESS_KEY_ID", "AKIATEST").env("AWS_SECRET_ACCESS_KEY", SECRET);
        Some(Self { lab, region })
    }

    /// A file of one group.
    pub(crate) fn file(&self, run: &str, count: usize, types: &str) -> String {
        format!("run: {run}\ngroups:\n{}{}", self.group(count, types), timing())
    }

    /// A group `web` of so many instances of these types.
    pub(crate) fn group(&self, count: usize, types: &str) -> String {
        let ready =
            r#"ready: { http: "http://{host}:{port}/", contains: "{nonce}", every: 300ms, timeout: 5s }"#;
        self.group_that_boots(count, types, ready)
    }

    /// The same with other words for how an instance becomes a node.
    pub(crate) fn group_that_boots(&self, count: usize, types: &str, boot: &str) -> String {
        format!(
            r#"  - name: web
    count: {count}
    role: worker
    provider: ec2
    shape:
      region: {region}
      endpoint_url: {url}
      image: ami-0abcdef1234567890
      instance_types: [{types}]
      tags: {{ team: shop }}
      user_data: "this is the node of {{{{reconciler.nonce}}}}"
      endpoint: {{ port: {port} }}
    boot:
      {boot}
    join: {{ within: 60s }}
"#,
            region = self.region.name,
            url = self.region.url(),
            port = self.region.port(),
        )
    }

    /// Waits until so many nodes are ready and everything is as declared; then the world holds exactly their leases.
    /// Node by lease.
    pub(crate) fn holds_exactly(&self, nodes: usize) -> BTreeMap<String, String> {
        self.holds_exactly_the_ec2_nodes_of(nodes, nodes)
    }

    /// The same, where only some of the nodes are instances.
    pub(crate) fn holds_exactly_the_ec2_nodes_of(
        &self,
        nodes: usize,
        instances: usize,
    ) -> BTreeMap<String, String> {
        let mut last = Value::Null;
        let mut held = BTreeMap::new();
        let mut reached = || {
            last = self.lab.try_status().unwrap_or_default();
            let all = last["nodes"].as_array().cloned().unwrap_or_default();
            held = all
                .iter()
                .filter(|node| node["provider"] == "ec2")
                .filter_map(|node| {
                    Some((node["lease"].as_str()?.to_owned(), node["id"].as_str()?.to_owned()))
                })
                .collect();
            last["converged"] == true && all.len() == nodes && all.iter().all(|node| node["ready"] == true)
        };
        let begun = std::time::Instant::now();
        while !reached() {
            let over = begun.elapsed().as_secs() >= PATIENCE;
            assert!(
                !over,
                "not {nodes} ready nodes within {PATIENCE} s: {:#}",
                self.lab.try_status().unwrap_or_default()
            );
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let living: BTreeSet<_> = self.region.living().into_iter().map(|one| one.id).collect();
        assert_eq!(living, held.keys().cloned().collect(), "the world holds what the driver holds");
        assert_eq!(living.len(), instances);
        held
    }

    /// The leases that the driver holds at present.
    pub(crate) fn leases(&self) -> BTreeSet<String> {
        let status = self.lab.status();
        let nodes = status["nodes"].as_array().unwrap().iter();
        nodes.filter_map(|node| Some(node["lease"].as_str()?.to_owned())).collect()
    }

    /// How many instances there are of each type.
    pub(crate) fn kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for one in self.region.living() {
            *kinds.entry(one.kind).or_default() += 1;
        }
        kinds
    }

    /// Asks for another count, and does not stay for what comes of it.
    pub(crate) fn ask(&self, scale: &str) {
        self.lab.ends(2, &["scale", scale, "-q", "--timeout", "1ms"]);
    }

    /// Waits until some node's last error says this; that node.
    pub(crate) fn complains(&self, of: &str) -> String {
        let mut found = None;
        wait(&format!("somebody to complain of {of}"), PATIENCE, || {
            let status = self.lab.try_status().unwrap_or_default();
            let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
            let node = nodes.iter().find(|n| n["last_error"].as_str().is_some_and(|e| e.contains(of)));
            found = node.and_then(|node| Some(node["id"].as_str()?.to_owned()));
            found.is_some()
        });
        found.unwrap()
    }

    /// Ends an instance behind everybody's back.
    pub(crate) fn kill(&self, instance: &str) {
        let end = json!({ "instance_id": instance, "code": "Server.InternalError", "message": "" });
        self.region.steer(&json!({ "end": end }));
    }

    /// Removes the run; nothing is left of it.
    pub(crate) fn destroy(&self) {
        self.lab.ok(&["destroy", "-y", "-q", "--timeout", "120s"]);
        assert!(self.region.living().is_empty(), "{:?}", self.region.living());
    }
}

/// Timing scaled to a test world.
pub(crate) fn timing() -> String {
    format!(
        "retry: {{ initial: 200ms, cap: 1s, operation_timeout: {CALL}s, probe: 300ms, stable_after: 0s }}\n\
         observe: {{ every: 1s, tick: 2s }}\n\
         limits: {{ creates: 8, cleanups: 8 }}\n"
    )
}

/// A refusal of launches.
pub(crate) fn refusal(code: &str, kind: Option<&str>) -> Value {
    let mut rule = json!({ "action": "RunInstances", "dry": false, "kind": "error", "status": 400, "times": -1,
                           "code": code, "message": format!("{code} in words") });
    if let Some(kind) = kind {
        rule["match"] = json!({ "InstanceType": kind });
    }
    rule
}
