"""What a caller may do, where a region's nature says so: the actions of a policy, and the two conditions on tags without
which the policy in the provider's README would let a caller end anybody's instances."""

import nature

RUN = "reconciler/run"


def missing(allowed, action, parameters, region):
    """Why a call is not allowed; `None` if it is."""
    if allowed is None:
        return None
    if action not in allowed:
        return f"ec2:{action}"
    if action == "RunInstances":
        tagged = launch_tags(parameters)
        if tagged and "CreateTags" not in allowed:
            return "ec2:CreateTags"
        for resource in ("instance", "volume"):
            if RUN not in tagged.get(resource, ()):
                return f"ec2:RunInstances on a {resource} without the tag {RUN}"
    if action == "TerminateInstances":
        for key, value in parameters.items():
            if key.startswith("InstanceId.") and not owned(region, value):
                return f"ec2:TerminateInstances on {value}, which does not carry the tag {RUN}"
    return None


def launch_tags(parameters):
    """The keys of the tags that a launch asks for, by kind of resource."""
    found = {}
    for key, resource in parameters.items():
        prefix, _, last = key.rpartition(".")
        if prefix.startswith("TagSpecification.") and last == "ResourceType":
            keys = {v for k, v in parameters.items() if k.startswith(prefix + ".Tag.") and k.endswith(".Key")}
            found.setdefault(resource, set()).update(keys)
    return found


def owned(region, instance):
    try:
        return any(tag["key"] == RUN for tag in nature.find(region, instance).get_tags())
    except KeyError:
        return True  # whatever does not exist is not refused for that
