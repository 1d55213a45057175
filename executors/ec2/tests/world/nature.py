"""What EC2 does and moto does not: client tokens, times of passage, late visibility, protection, smaller pages.

Everything is kept per region, so that tests in one process live in worlds of their own.
"""

import copy
import hashlib
import json
import os
import threading
import time

import boot

os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
os.environ.setdefault("MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION", "true")
os.environ.setdefault("MOTO_ENABLE_KEYPAIR_VALIDATION", "true")

from moto.core.responses import ActionResult
from moto.ec2 import utils
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError, InvalidInstanceTypeError
from moto.ec2.models import ec2_backends
from moto.ec2.models import instances as models
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ec2.responses.instances import InstanceResponse

ACCOUNT = "123456789012"

# The token of the page after a blank one: the first.
FROM_THE_START = "from-the-start"

DEFAULTS = {
    "tokens": True,         # whether client tokens are honoured
    "spent": "error",       # a token whose instance is dead: "error", or "dead": the dead instance is the answer
    "pending_s": 0.0,       # how long a new instance is pending
    "shutting_down_s": 0.0, # how long an ended one is shutting down
    "lag_s": 0.0,           # how long a new instance is missing from listings
    "id_lag_s": 0.0,        # how long it is not found by its id
    "page": 0,              # most reservations per page; 0 is moto's own limit
    "images": None,         # the images that exist; None: all
    "addresses": None,      # "10.9.8.": new instances get the lowest such address that is free; None: moto's choice
    "boot": False,          # whether running instances answer at their address, see `boot`; needs loopback addresses
    "allowed": None,        # the actions that the caller has a right to; None: all
}


class Region:
    """One region's nature, its faults and its history."""

    def __init__(self):
        self.lock = threading.RLock()
        self.reset()

    def reset(self):
        self.config = dict(DEFAULTS)
        self.tokens = {}
        self.rules = []
        self.log = []
        self.protected = set()
        boot.forget(self)


_regions = {}
_regions_lock = threading.Lock()


def region(name):
    with _regions_lock:
        return _regions.setdefault(name, Region())


def exists(name):
    """Whether there is such a region."""
    return name in ec2_backends[ACCOUNT]


def backend(name):
    return ec2_backends[ACCOUNT][name]


def instances(name):
    """The truth: every instance of a region, whatever listings show."""
    found = []
    for reservation in list(backend(name).reservations.values()):
        for one in reservation.instances:
            found.append({
                "id": one.id,
                "state": one.state,
                "type": one.instance_type,
                "zone": one.placement.zone,
                "token": one.client_token,
                "tags": {tag["key"]: tag["value"] for tag in one.get_tags()},
                "born": one._born,
                "user_data": str(one.user_data) if one.user_data else None,
            })
    return found


def find(name, instance_id):
    for reservation in backend(name).reservations.values():
        for one in reservation.instances:
            if one.id == instance_id:
                return one
    raise KeyError(instance_id)


def end(name, instance_id, code, message):
    """Ends an instance behind everybody's back, for a reason."""
    one = find(name, instance_id)
    one.terminate()
    one.state_reason = models.StateReason(message, code)


def forget(name, instance_id):
    """Removes an instance as if it had been terminated long ago."""
    find(name, instance_id).terminate()
    for reservation in backend(name).reservations.values():
        reservation.instances = [one for one in reservation.instances if one.id != instance_id]


def move(name, instance_id):
    """Gives an instance another private address."""
    nic = find(name, instance_id).nics[0]
    last = int(nic.private_ip_address.rsplit(".", 1)[1])
    nic.private_ip_address = "10.99.99.%d" % ((last + 1) % 250 + 1)


def change(name, id, tags=None, token=None):
    """Rewrites what an instance carries: tags are set, or removed where the value is None."""
    one = find(name, id)
    for key, value in (tags or {}).items():
        if value is None:
            backend(name).tags[id].pop(key, None)
        else:
            one.add_tag(key, value)
    if token is not None:
        one.client_token = token


def empty(name):
    """Removes every instance of a region."""
    backend(name).reservations.clear()


# --- client tokens ------------------------------------------------------------------------------------------------

utils.filter_dict_attribute_mapping["client-token"] = "client_token"


def zone_of(response):
    """The zone that a launch names; an idempotent launch is one per zone."""
    subnet = response._get_param("SubnetId")
    for nic in response._get_param("NetworkInterfaces", []):
        subnet = subnet or nic.get("SubnetId")
    if subnet:
        return response.ec2_backend.get_subnet(subnet).availability_zone
    return response._get_param("Placement.AvailabilityZone")


_run = InstanceResponse.run_instances


def run_instances(self):
    here = region(self.region)
    images = here.config["images"]
    if images is not None and self._get_param("ImageId") not in images:
        raise EC2ClientError("InvalidAMIID.NotFound", f"The image id '[{self._get_param('ImageId')}]' does not exist")
    known_type = self._get_param("InstanceType") in INSTANCE_TYPES
    if self._get_param("DryRun") and not known_type:
        # moto looks at the type only when it launches.
        raise InvalidInstanceTypeError(self._get_param("InstanceType"))
    token = self._get_param("ClientToken")
    if not token or self._get_param("DryRun") or not here.config["tokens"]:
        return _run(self)
    parameters = sorted((key, value) for key, value in self.data.items() if key != "ClientToken")
    print_of = hashlib.sha256(json.dumps(parameters, default=str).encode()).hexdigest()
    key = (zone_of(self), token)
    with here.lock:
        known = here.tokens.get(key)
        if known is None:
            before = set(self.ec2_backend.reservations)
            result = _run(self)
            made = [one for name, one in self.ec2_backend.reservations.items() if name not in before]
            here.tokens[key] = (print_of, made[0])
            return result
        if known[0] != print_of:
            raise EC2ClientError(
                "IdempotentParameterMismatch",
                "The client token you have provided is associated with a resource that has different parameters.",
            )
        dead = all(one._state.name == "terminated" for one in known[1].instances)
        if dead and here.config["spent"] == "error":
            raise EC2ClientError(
                "IdempotentInstanceTerminated",
                "The client token you have provided is associated with an instance that has been terminated.",
            )
        return ActionResult(known[1])


InstanceResponse.run_instances = run_instances


# --- times of passage ---------------------------------------------------------------------------------------------

def _shown(self):
    state, now, config = self._state, time.time(), region(self.ec2_backend.region_name).config
    if state.name == "running" and now < self._born + config["pending_s"]:
        return models.InstanceState("pending", 0)
    if state.name == "terminated" and now < self._died + config["shutting_down_s"]:
        return models.InstanceState("shutting-down", 32)
    return state


def _answered(state):
    """The state in the answer to a launch: a new instance is pending, one found by its token is what it is."""
    name = state["Name"] if isinstance(state, dict) else state.name
    return state if name in ("terminated", "shutting-down") else {"Code": 0, "Name": "pending"}


EC2BaseResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER["RunInstances.Reservation.Instances.Instance.State"] = _answered
models.Instance._died = 0.0
models.Instance.instance_state = property(_shown)
models.Instance.state = property(lambda self: _shown(self).name)
models.Instance.state_code = property(lambda self: _shown(self).code)

_init = models.Instance.__init__


def init(self, *args, **kwargs):
    self._born = time.time()
    _init(self, *args, **kwargs)
    here = region(self.ec2_backend.region_name)
    with here.lock:
        if here.config["addresses"]:
            self.nics[0].private_ip_address = lowest_free(here.config["addresses"], self.ec2_backend)
        if here.config["boot"]:
            boot.begin(here, self)


models.Instance.__init__ = init

def lowest_free(prefix, behind):
    """As EC2 does: an address is used again as soon as its instance has ended."""
    living = [one for made in list(behind.reservations.values()) for one in made.instances if one._state.name != "terminated"]
    taken = {one.nics[0].private_ip_address for one in living}
    return next(f"{prefix}{last}" for last in range(1, 255) if f"{prefix}{last}" not in taken)


_terminate = models.Instance.terminate


def terminate(self):
    if self._state.name == "terminated":
        return models.InstanceState("terminated", 48)
    self._died = time.time()
    boot.end(self)
    return _terminate(self)


models.Instance.terminate = terminate


# --- late visibility, protection, pages ---------------------------------------------------------------------------

# Only what is asked from outside is hidden: moto itself looks its own instances up all the time.

def _hidden(one, which):
    config = region(one.ec2_backend.region_name).config
    return time.time() < one._born + config[which]


def _deny_hidden(self, instance_ids):
    for reservation in self.all_reservations():
        for one in reservation.instances:
            if one.id in instance_ids and _hidden(one, "id_lag_s"):
                raise InvalidInstanceIdError(one.id)


def listed(self, filters=None):
    # Tags are compared here: moto looks every instance's tags up anew for every filter, which takes seconds once
    # there are some hundred instances.
    wanted = {key[4:]: values for key, values in (filters or {}).items() if key.startswith("tag:")}
    others = {key: values for key, values in (filters or {}).items() if not key.startswith("tag:")}
    shown = []
    for reservation in list(self.reservations.values()):
        seen = copy.copy(reservation)
        seen.instances = [
            one
            for one in reservation.instances
            if not _hidden(one, "lag_s")
            and all(self.tags.get(one.id, {}).get(key) in values for key, values in wanted.items())
        ]
        if seen.instances:
            shown.append(seen)
    return utils.filter_reservations(shown, others) if others else shown


models.InstanceBackend.describe_instances = listed

_by_ids = models.InstanceBackend.get_reservations_by_instance_ids


def by_ids(self, instance_ids, filters=None):
    _deny_hidden(self, instance_ids)
    return _by_ids(self, instance_ids, filters)


models.InstanceBackend.get_reservations_by_instance_ids = by_ids

_status = models.InstanceBackend.describe_instance_status


def status(self, instance_ids, include_all_instances, filters):
    _deny_hidden(self, instance_ids)
    return _status(self, instance_ids, include_all_instances, filters)


models.InstanceBackend.describe_instance_status = status

_end = models.InstanceBackend.terminate_instances


def terminate_instances(self, instance_ids):
    _deny_hidden(self, instance_ids)
    for one in instance_ids:
        if one in region(self.region_name).protected:
            raise EC2ClientError(
                "OperationNotPermitted",
                f"The instance '{one}' may not be terminated. Modify its 'disableApiTermination' instance attribute "
                "and try again.",
            )
    return _end(self, instance_ids)


models.InstanceBackend.terminate_instances = terminate_instances

_describe = InstanceResponse.describe_instances


def describe_instances(self):
    if self._get_param("NextToken") == FROM_THE_START:
        self.params.pop("NextToken")
    page = region(self.region).config["page"]
    if page and not self._get_param("InstanceIds", []):
        wanted = int(self._get_param("MaxResults", page))
        self.params["MaxResults"] = min(wanted, page)
    return _describe(self)


InstanceResponse.describe_instances = describe_instances
