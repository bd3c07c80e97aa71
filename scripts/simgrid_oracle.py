"""Completion times of a fabric scenario by SimGrid's fluid model (reads JSON on stdin, prints JSON).

It runs under an interpreter that has simgrid, and imports nothing of ours. In: {"capacities_bytes_per_s":
[...], "flows": [{"start_s", "links", "size_bytes", "cap_bytes_per_s" (or null)}, ...]}. Out: the completion
times in the order of the flows. SimGrid has no strict priorities and its Python binding sets no weights: give
flows of weight 1 and one priority. The keys are those of SimGrid 3.32 (Debian 12).

CM02 without its TCP corrections is max-min fairness. A latency is added to the start by whoever writes the
scenario: in SimGrid one that is not 0 weighs a flow by its round-trip time. Each flow has a pair of hosts of
its own, which pins its path. One engine per process.
"""

import json
import sys

import simgrid

SETTINGS = (
    "network/model:CM02",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "surf/precision:1e-12",
    "maxmin/precision:1e-12",
    "contexts/factory:thread",
    "contexts/guard-size:0",
    "contexts/stack-size:128",
)


def completions_s(scenario: dict) -> list[float]:
    """Run one scenario; once per process."""
    words = [word for setting in SETTINGS for word in [f"--cfg={setting}"]]
    engine = simgrid.Engine(["simgrid_oracle", "--log=root.thresh:error", *words])
    zone = simgrid.NetZone.create_full_zone("all")
    links = [
        zone.create_link(f"link{number}", capacity).set_latency(0).seal()
        for number, capacity in enumerate(scenario["capacities_bytes_per_s"])
    ]
    done_s = [0.0] * len(scenario["flows"])

    def move(number: int, flow: dict, source: object, target: object) -> None:
        simgrid.this_actor.sleep_until(flow["start_s"])
        comm = simgrid.Comm.sendto_init(source, target)
        # The binding takes whole bytes only: the scenario's sizes are whole.
        comm.set_payload_size(int(flow["size_bytes"]))
        comm.wait()
        done_s[number] = simgrid.Engine.clock

    pairs = []
    for number, flow in enumerate(scenario["flows"]):
        source = zone.create_host(f"from{number}", 1e9).seal()
        target = zone.create_host(f"to{number}", 1e9).seal()
        route = [links[link] for link in flow["links"]]
        if flow["cap_bytes_per_s"] is not None:
            # A message of sendto takes no rate in 3.32; a link of its own does the same.
            route.append(zone.create_link(f"cap{number}", flow["cap_bytes_per_s"]).set_latency(0).seal())
        hops = [simgrid.LinkInRoute(link) for link in route]
        zone.add_route(source.netpoint, target.netpoint, None, None, hops, False)
        pairs.append((number, flow, source, target))
    zone.seal()
    for number, flow, source, target in pairs:
        simgrid.Actor.create(f"flow{number}", source, move, number, flow, source, target)
    engine.run()
    return done_s


if __name__ == "__main__":
    json.dump(completions_s(json.load(sys.stdin)), sys.stdout)
