//! A launch, in the SDK's words. Field by field; nothing is looked up and nothing is left to chance.

use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types::{
    BlockDeviceMapping, EbsBlockDevice, HttpTokensState, IamInstanceProfileSpecification,
    InstanceInterruptionBehavior, InstanceMarketOptionsRequest, InstanceMetadataEndpointState,
    InstanceMetadataOptionsRequest, InstanceNetworkInterfaceSpecification, InstanceType, MarketType,
    Placement, ResourceType, ShutdownBehavior, SpotInstanceType, SpotMarketOptions, Tag, TagSpecification,
    VolumeType,
};
use base64::Engine as _;

use crate::api::{Launch, Place};
use crate::settings::{Disk, Market, MetadataTokens};

/// Fills in everything but token and rehearsal.
pub(super) fn run(call: RunInstancesFluentBuilder, launch: &Launch) -> RunInstancesFluentBuilder {
    let call = call
        .min_count(1)
        .max_count(1)
        .image_id(&launch.image)
        .instance_type(InstanceType::from(launch.instance_type.as_str()))
        // An instance that shuts itself down is over, rather than a stopped one that costs its disk.
        .instance_initiated_shutdown_behavior(ShutdownBehavior::Terminate)
        .metadata_options(
            InstanceMetadataOptionsRequest::builder()
                .http_endpoint(InstanceMetadataEndpointState::Enabled)
                .http_tokens(match launch.metadata.tokens {
                    MetadataTokens::Required => HttpTokensState::Required,
                    MetadataTokens::Optional => HttpTokensState::Optional,
                })
                .http_put_response_hop_limit(i32::from(launch.metadata.hop_limit))
                .build(),
        )
        .set_key_name(launch.key_pair.clone())
        .set_user_data(
            launch.user_data.as_ref().map(|text| base64::engine::general_purpose::STANDARD.encode(text)),
        )
        .set_iam_instance_profile(launch.instance_profile.as_deref().map(profile))
        .set_block_device_mappings(launch.disk.as_ref().map(|settings| vec![disk(settings)]))
        .set_instance_market_options(market(launch))
        .tag_specifications(tags(launch, ResourceType::Instance))
        .tag_specifications(tags(launch, ResourceType::Volume));
    place(call, launch)
}

/// Subnet, zone, security groups and public address: on the instance, or on its interface if the address is asked
/// for, since EC2 takes them in one place only.
fn place(call: RunInstancesFluentBuilder, launch: &Launch) -> RunInstancesFluentBuilder {
    let groups = (!launch.security_groups.is_empty()).then(|| launch.security_groups.clone());
    let subnet = match &launch.place {
        Place::Subnet(subnet) => Some(subnet.clone()),
        Place::Zone(_) | Place::Anywhere => None,
    };
    let call = match &launch.place {
        Place::Zone(zone) => call.placement(Placement::builder().availability_zone(zone).build()),
        Place::Subnet(_) | Place::Anywhere => call,
    };
    match launch.public_ip {
        None => call.set_subnet_id(subnet).set_security_group_ids(groups),
        Some(public) => call.network_interfaces(
            InstanceNetworkInterfaceSpecification::builder()
                .device_index(0)
                .associate_public_ip_address(public)
                .delete_on_termination(true)
                .set_subnet_id(subnet)
                .set_groups(groups)
                .build(),
        ),
    }
}

fn profile(name: &str) -> IamInstanceProfileSpecification {
    let profile = IamInstanceProfileSpecification::builder();
    if name.starts_with("arn:") { profile.arn(name).build() } else { profile.name(name).build() }
}

fn disk(disk: &Disk) -> BlockDeviceMapping {
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let volume = EbsBlockDevice::builder()
        .volume_size(i32::from(disk.size_gib))
        .volume_type(VolumeType::from(disk.kind.as_str()))
        .set_iops(disk.iops.map(number))
        .set_throughput(disk.throughput.map(number))
        .set_encrypted(disk.encrypted)
        // A lease leaves nothing behind.
        .delete_on_termination(true)
        .build();
    BlockDeviceMapping::builder().device_name(&disk.device).ebs(volume).build()
}

fn market(launch: &Launch) -> Option<InstanceMarketOptionsRequest> {
    match launch.market {
        Market::OnDemand => None,
        Market::Spot => {
            // One request, one instance: a persistent request would launch again behind our back.
            let spot = SpotMarketOptions::builder()
                .spot_instance_type(SpotInstanceType::OneTime)
                .instance_interruption_behavior(InstanceInterruptionBehavior::Terminate)
                .set_max_price(launch.spot_max_price.clone())
                .build();
            Some(
                InstanceMarketOptionsRequest::builder()
                    .market_type(MarketType::Spot)
                    .spot_options(spot)
                    .build(),
            )
        }
    }
}

fn tags(launch: &Launch, resource: ResourceType) -> TagSpecification {
    let tags = launch.tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build());
    TagSpecification::builder().resource_type(resource).set_tags(Some(tags.collect())).build()
}
