//! One resource as both hosts report it, lined up volume by volume. What does not line up is a finding.

use executor_api::host::{
    ConnectionReading, HostName, PeerVolumeReading, ResourceName, ResourceReading, VolumeReading,
};

use crate::maintenance::gate::Place;
use crate::maintenance::verdict::{Finding, FindingKind, Subject};

/// One resource, as both hosts see it.
pub(crate) struct Pair<'a> {
    pub(crate) resource: &'a ResourceName,
    pub(crate) nodes: [&'a HostName; 2],
    pub(crate) sides: [&'a ResourceReading; 2],
}

/// One volume, as one host sees it.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) node: &'a HostName,
    pub(crate) number: u16,
    pub(crate) resource: &'a ResourceReading,
    pub(crate) volume: &'a VolumeReading,
    pub(crate) connection: &'a ConnectionReading,
    pub(crate) peer: &'a PeerVolumeReading,
}

impl<'a> Pair<'a> {
    /// All volumes from both sides. Volumes that only one side knows are findings.
    pub(crate) fn volumes(&self, findings: &mut Vec<Finding>) -> Vec<(Side<'a>, Side<'a>)> {
        let (Some(one), Some(two)) = (self.side_volumes(0, findings), self.side_volumes(1, findings)) else {
            return Vec::new();
        };
        let numbers = |sides: &[Side<'_>]| sides.iter().map(|side| side.number).collect::<Vec<_>>();
        if one.is_empty() || numbers(&one) != numbers(&two) {
            unknown(findings, format!("{}: the hosts report different volumes, or none", self.resource));
            return Vec::new();
        }
        one.into_iter().zip(two).collect()
    }

    fn side_volumes(&self, which: usize, findings: &mut Vec<Finding>) -> Option<Vec<Side<'a>>> {
        let (node, peer_node, resource) = (self.nodes[which], self.nodes[1 - which], self.sides[which]);
        let Some(connection) = resource.connections.get(peer_node) else {
            unknown(findings, format!("{node}: {} reports nothing about {peer_node}", self.resource));
            return None;
        };
        if resource.connections.len() > 1 {
            // More peers than the plan knows: their copies are not proved by anything here.
            unknown(findings, format!("{node}: {} has a peer besides {peer_node}", self.resource));
            return None;
        }
        let same = resource.volumes.keys().eq(connection.volumes.keys());
        if !same {
            unknown(findings, format!("{node}: {} does not report every volume's peer", self.resource));
            return None;
        }
        let sides = resource.volumes.iter().zip(&connection.volumes).map(|((number, volume), (_, peer))| {
            Side { node, number: *number, resource, volume, connection, peer }
        });
        Some(sides.collect())
    }
}

/// Where a finding about this side is.
pub(crate) fn place_of<'f>(pair: &Pair<'_>, side: Side<'_>, findings: &'f mut Vec<Finding>) -> Place<'f> {
    let at = format!("{}: {} volume {}", side.node, pair.resource, side.number);
    Place { at, subject: Subject::Storage, findings }
}

/// Something that was not reported.
pub(crate) fn unknown(findings: &mut Vec<Finding>, what: String) {
    findings.push(Finding::new(FindingKind::Unknown, Subject::Storage, what));
}
