"""Describes a host with two devices like the one that `hpctl profile graph` has measured, each on a bus of its own, joined by a link as fast as a bus.

    two_devices.py MEASURED.json OUT.json

Every time is the measured one, for both."""
import json
import sys


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as f:
        graph = json.load(f)
    host = graph["host"]
    if len(host["devices"]) != 1:
        sys.exit(f"{sys.argv[1]}: describes {len(host['devices'])} devices, not one")
    device, bus = host["devices"][0], host["buses"][0]
    speed = bus["bandwidth_bytes_per_s"]
    host["buses"] = [bus, bus]
    host["devices"] = [dict(device, name=f"{device['name']}{i}", bus=i) for i in range(2)]
    host["peer_bytes_per_s"] = [[0, speed], [speed, 0]]
    for node in graph["nodes"]:
        for key in ("exec_s", "host_exec_s"):
            if key in node:
                node[key] = node[key] * 2
    nodes = ",\n  ".join(json.dumps(n) for n in graph.pop("nodes"))
    head = json.dumps(graph, indent=1)[:-2]
    with open(sys.argv[2], "w") as f:
        f.write(f"{head},\n \"nodes\": [\n  {nodes}]}}\n")


if __name__ == "__main__":
    main()
