"""Random series-parallel graphs for cold starts: one device, one bus, shared parameters, operators that cost nothing, up to eight
devices on four buses, and what should never make a start slower."""
import copy
import random

HOSTS = {"one device": (1, 1), "one bus": (3, 1), "two by two": (4, 2), "eight on four": (8, 4), "uneven": (5, 3)}


def series_parallel(rng, operators):
    """The number of operators and the edges between them."""
    count, edges = 1, []

    def follow(source, budget):
        nonlocal count
        if budget <= 1:
            count += 1
            edges.append((source, count - 1))
            return count - 1
        if rng.random() < 0.5:
            return follow(follow(source, budget // 2), budget - budget // 2)
        branches = rng.randint(2, 3)
        ends = [follow(source, max(1, (budget - 1) // branches)) for _ in range(branches)]
        count += 1
        edges.extend((end, count - 1) for end in ends)
        return count - 1

    follow(0, operators - 1)
    return count, edges


def host_of(rng, kind, total_bytes):
    devices, buses = HOSTS[kind]
    memory = rng.choice([1e12, 1e12, total_bytes * 0.7 + 1e8])
    peer = [[0 if a == b else rng.choice([11e9, 22e9]) for b in range(devices)] for a in range(devices)]
    for a in range(devices):
        for b in range(a):
            peer[a][b] = peer[b][a]
    return {"buses": [{"bandwidth_bytes_per_s": rng.choice([6e9, 12e9])} for _ in range(buses)],
            "devices": [{"name": f"g{d}", "memory_bytes": memory, "bus": d % buses} for d in range(devices)],
            "peer_bytes_per_s": peer, "load_overhead_s": rng.choice([0, 0, 1e-5])}


def parameters_of(rng, nodes):
    """Indices of what an operator reads, now and then one that another reads too."""
    own = []
    if rng.random() < 0.6 and len(nodes) < 28:
        for _ in range(rng.choice([1, 1, 1, 2])):
            nodes.append({"name": f"w{len(nodes)}", "kind": "param", "bytes": rng.choice([1e6, 4e6, 1e7, 5e7, rng.uniform(1e5, 1e8)])})
            own.append(len(nodes) - 1)
    older = [i for i, n in enumerate(nodes) if n["kind"] == "param" and i not in own]
    if older and rng.random() < 0.15:
        own.append(rng.choice(older))
    return own


def random_graph(seed):
    rng = random.Random(seed)
    count, operator_edges = series_parallel(rng, rng.randint(3, 14))
    kind = rng.choice(sorted(HOSTS))
    speeds = [rng.choice([1, 1, 1.5, 2]) for _ in range(8)] if rng.random() < 0.4 else [1] * 8
    devices = HOSTS[kind][0]
    nodes, edges, index = [], [], {}
    for operator in range(count):
        own = parameters_of(rng, nodes)
        run = 0 if rng.random() < 0.2 else rng.choice([1e-5, 1e-4, 1e-3, 3e-3, rng.uniform(1e-5, 5e-3)])
        read = sum(nodes[w]["bytes"] for w in own) * rng.choice([0.01, 0.5, 1, 1.2])
        in_place = max(run * 1.05, read / 11e9 * rng.uniform(1, 2) + run) if own else run
        nodes.append({"name": f"o{operator}", "kind": "op", "bytes": rng.choice([0, 1e5, 1e6, 1e7]), "host_read_bytes": read,
                      "exec_s": [run * s for s in speeds[:devices]], "host_exec_s": [in_place * s for s in speeds[:devices]]})
        index[operator] = len(nodes) - 1
        edges += [[w, index[operator]] for w in own]
    edges += [[index[a], index[b]] for a, b in operator_edges]
    host = host_of(rng, kind, sum(n["bytes"] for n in nodes if n["kind"] == "param"))
    return {"format": "hp-graph/1", "host": host, "nodes": nodes, "edges": edges}


def improvements(graph):
    """(what, graph): none of them may make the best plan slower."""
    better = copy.deepcopy(graph)
    for bus in better["host"]["buses"]:
        bus["bandwidth_bytes_per_s"] *= 1.5
    yield "faster buses", better
    better = copy.deepcopy(graph)
    better["host"]["peer_bytes_per_s"] = [[1.5 * x for x in row] for row in better["host"]["peer_bytes_per_s"]]
    yield "faster links", better
    better = copy.deepcopy(graph)
    for device in better["host"]["devices"]:
        device["memory_bytes"] *= 2
    yield "larger memory", better
    devices = len(graph["host"]["devices"])
    if devices < 8:
        better = copy.deepcopy(graph)
        better["host"]["devices"].append(dict(better["host"]["devices"][-1], name="new"))
        for row in better["host"]["peer_bytes_per_s"]:
            row.append(11e9)
        better["host"]["peer_bytes_per_s"].append([11e9] * devices + [0])
        for node in better["nodes"]:
            if node["kind"] == "op":
                node["exec_s"].append(node["exec_s"][-1])
                node["host_exec_s"].append(node["host_exec_s"][-1])
        yield "one more device", better


def chain(layers):
    """A chain on one device: (load_s, exec_s, host_s, bytes) per layer; load_s None for a layer without parameters. The graph, and
    the operators' indices."""
    nodes, edges, operators = [], [], []
    for load, run, in_place, size in layers:
        if load is not None:
            nodes.append({"name": "w", "kind": "param", "bytes": size, "load_s": load})
            edges.append([len(nodes) - 1, len(nodes)])
        if operators:
            edges.append([operators[-1], len(nodes)])
        operators.append(len(nodes))
        nodes.append({"name": f"layer{len(operators) - 1}", "kind": "op", "bytes": 0, "exec_s": [run], "host_exec_s": [in_place],
                      "host_read_bytes": size if load is not None else 0})
    host = {"buses": [{"bandwidth_bytes_per_s": 12e9}], "devices": [{"name": "gpu0", "memory_bytes": 1e12, "bus": 0}]}
    return {"format": "hp-graph/1", "host": host, "nodes": nodes, "edges": edges}, operators
