"""Drives the controller with a client that openapi-python-client made of its document: scripts/api-fuzz calls it.

    api-client.py URL CA TOKEN      with the folder of the package `weir_client` in PYTHONPATH

It ends with status 1 at the first answer that is not as the document and docs/controller.md say.
"""

import sys

from weir_client.api.default import (
    apply_all,
    apply_vm,
    confirm_reservation,
    create_reservation,
    create_tenant,
    delete_reservation,
    delete_tenant,
    delete_vm,
    get_tenant,
    get_vm,
    list_v_ms,
    room,
)
from weir_client.client import AuthenticatedClient
from weir_client.models import VM, Batch, Problem, Reservation, Tenant

url, ca, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token, verify_ssl=ca)


def document(kind, name, spec):
    return {"apiVersion": "weir/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def ask(operation, status, **arguments):
    """The answer as the type of the document, which has to know its status."""
    answer = operation.sync_detailed(client=client, **arguments)
    if answer.status_code != status:
        sys.exit(f"{operation.__name__}: {answer.status_code}, not {status}: {answer.content}")
    if answer.parsed is None:
        sys.exit(f"{operation.__name__}: the document does not have {answer.content}")
    return answer.parsed


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found!r}, not {wanted!r}")


hosts = [
    document("Host", f"h{n}", {"switch": f"rack{n // 2}", "rate": "1Gbit", "slots": 8}) for n in range(4)
]
links = [
    document("Link", f"rack{n}-up", {"lower": f"rack{n}", "upper": "core", "rate": "1Gbit"})
    for n in range(2)
]
told = ask(apply_all, 200, body=Batch.from_dict({"items": hosts + links}))
expect("objects that were made", len(told.items), 6)

component = {"name": "web", "vms": 4, "floor": {"out": "200Mbit", "in": "200Mbit"}}
spec = {"survival": {"hostPercent": 50}, "components": [component]}
ask(create_tenant, 201, body=Tenant.from_dict(document("Tenant", "gold", spec)))
expect("VMs", len(ask(list_v_ms, 200, tenant="gold").items), 4)
twice = ask(create_tenant, 409, body=Tenant.from_dict(document("Tenant", "gold", spec)))
expect("a refusal's type", type(twice), Problem)
expect("field and reason", (twice.field, twice.reason), ("metadata.name", "AlreadyExists"))

ask(create_tenant, 201, body=Tenant.from_dict(document("Tenant", "bulk", {})))
vm = document("VM", "a", {"tenant": "bulk", "host": "h0", "floor": {"out": "100Mbit", "in": "100Mbit"}})
made = ask(apply_vm, 201, name="a", body=VM.from_dict(vm))
expect("its host", made.status.host, "h0")
expect("its floor", made.spec.floor.out, "100Mbit")
expect("unchanged", ask(apply_vm, 200, name="a", body=made), made)
more = document("VM", "b", {"tenant": "bulk", "host": "h2", "floor": {"out": "1Gbit", "in": "1Gbit"}})
more["spec"]["external"] = {"out": "1Gbit", "in": "1Gbit"}
full = ask(apply_vm, 409, name="b", body=VM.from_dict(more))
expect("reason", full.reason, "LinkFull")
if not (full.link and full.missing):
    sys.exit(f"a full link has a name and a rate: {full}")

move = {"tenant": "bulk", "vms": [{"name": "a", "host": "h3", "floor": {"out": "100Mbit", "in": "100Mbit"}}]}
held = ask(create_reservation, 201, body=Reservation.from_dict(document("Reservation", "move", move)))
expect("phase", str(held.status.phase), "Held")
expect("phase", str(ask(confirm_reservation, 200, name="move").status.phase), "Confirmed")
expect("phase", str(ask(confirm_reservation, 200, name="move").status.phase), "Confirmed")
expect("the new host", ask(get_vm, 200, name="a").status.host, "h3")
expect("hosts with room", len(ask(room, 200).hosts), 4)

ask(delete_reservation, 200, name="move")
expect("in use", ask(delete_tenant, 409, name="bulk").reason, "InUse")
ask(delete_vm, 200, name="a")
for tenant in ("bulk", "gold"):
    ask(delete_tenant, 200, name=tenant)
    ask(get_tenant, 404, name=tenant)
expect("VMs", len(ask(list_v_ms, 200).items), 0)
print("the generated client: all answers are as the document says")
