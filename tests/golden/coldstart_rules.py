"""The timing rules of cold-start plans (hp-plan/1) once more, written from their text alone and as plainly as possible:
one list of events, every rule a few lines. Slow, and a judge of the fast one."""
import heapq


class Invalid(Exception):
    pass


COPY, ARRIVAL, END = 0, 1, 2  # at one time, parameters and arrivals come before outputs


class Run:
    def __init__(self, graph, plan, contention):
        self.graph, self.nodes, self.contention = graph, graph["nodes"], contention
        host = graph["host"]
        self.buses, self.devices = host["buses"], host["devices"]
        self.peer = host.get("peer_bytes_per_s") or [[0] * len(self.devices) for _ in self.devices]
        self.overhead = host.get("load_overhead_s", 0)
        self.inputs = {v: [] for v in range(len(self.nodes))}
        for a, b in graph["edges"]:
            if a not in self.inputs[b]:
                self.inputs[b].append(a)
        self.place, self.mode, self.sequence = {}, {}, [[] for _ in self.devices]
        for sub in plan["subgraphs"]:
            for v in sub["nodes"]:
                if v in self.place or self.nodes[v]["kind"] != "op":
                    raise Invalid(f"node {v} runs twice or is no operator")
                self.place[v], self.mode[v] = sub["device"], sub["mode"]
                self.sequence[sub["device"]].append(v)
        if len(self.place) != sum(n["kind"] == "op" for n in self.nodes):
            raise Invalid("an operator runs nowhere")
        self.copies = plan["copies"]
        self.events, self.count = [], 0
        self.there = {}       # (node, device): when it is there
        self.needed = {}      # node: devices where an operator needs it
        self.read_end = {}
        self.end = {}
        self.link_queue, self.link_busy = {}, set()

    def post(self, time, kind, *what):
        self.count += 1
        heapq.heappush(self.events, (time, kind, self.count, what))

    def parameters_needed(self, v):
        return [w for w in self.inputs[v] if self.nodes[w]["kind"] == "param"] if self.mode[v] == "resident" else []

    def run_buses(self):
        free = [0.0] * len(self.buses)
        self.by_bus, self.first = {}, {}
        for index, c in enumerate(self.copies):
            node, bus = c["node"], c["bus"]
            speed = self.buses[bus]["bandwidth_bytes_per_s"]
            if c.get("read"):
                device = self.place[node]
                if self.mode[node] != "host" or node in self.read_end:
                    raise Invalid(f"a read of {node} that is not to be")
                free[bus] += self.nodes[node]["host_read_bytes"] / speed if self.contention else 0
                self.read_end[node] = free[bus]
            else:
                device = c["device"]
                load = self.nodes[node].get("load_s")
                free[bus] += (self.nodes[node]["bytes"] / speed if load is None else load) + self.overhead
                if (node, device) in self.by_bus:
                    raise Invalid(f"{node} is copied twice to {device}")
                self.by_bus[node, device] = free[bus]
                if node not in self.first or free[bus] < self.first[node][0]:
                    self.first[node] = (free[bus], device)
            if self.devices[device].get("bus") != bus:
                raise Invalid(f"device {device} is not on bus {bus}")
        for v in self.place:
            if self.contention and self.mode[v] == "host" and self.nodes[v].get("host_read_bytes", 0) > 0 and v not in self.read_end:
                raise Invalid(f"operator {v} has no read")

    def who_needs_what(self):
        for v, device in self.place.items():
            for u in self.inputs[v]:
                if self.nodes[u]["kind"] == "op" or u in self.parameters_needed(v):
                    self.needed.setdefault(u, set()).add(device)
        for c in self.copies:
            if not c.get("read") and c.get("to") is not None:
                self.needed.setdefault(c["node"], set()).add(c["to"])
        used = [0.0] * len(self.devices)
        for (node, device), time in self.by_bus.items():
            used[device] += self.nodes[node]["bytes"]
            self.post(time, COPY, node, device)
        for w in (w for w in self.needed if self.nodes[w]["kind"] == "param"):
            if w not in self.first:
                raise Invalid(f"parameter {w} is copied nowhere")
            for device in self.needed[w]:
                if (w, device) not in self.by_bus:
                    used[device] += self.nodes[w]["bytes"]
        for device, total in enumerate(used):
            if total > self.devices[device]["memory_bytes"]:
                raise Invalid(f"device {device} is too small")

    def send(self, node, source, now, first_in_queue):
        for device in self.needed.get(node, ()):
            if device == source or (node, device) in self.by_bus:
                continue
            if self.peer[source][device] <= 0:
                raise Invalid(f"no path from {source} to {device}")
            self.link_queue.setdefault((source, device), []).append(node)
            self.next_on_link(source, device, now)

    def next_on_link(self, source, device, now):
        queue = self.link_queue.get((source, device))
        if queue and (source, device) not in self.link_busy:
            node = queue.pop(0)
            self.link_busy.add((source, device))
            self.post(now + self.nodes[node]["bytes"] / self.peer[source][device], ARRIVAL, node, source, device)

    def start_what_can(self, now):
        for device, sequence in enumerate(self.sequence):
            if not sequence or self.running[device]:
                continue
            v = sequence[0]
            needs = [u for u in self.inputs[v] if self.nodes[u]["kind"] == "op"] + self.parameters_needed(v)
            if all((u, device) in self.there for u in needs):
                times = self.nodes[v].get("host_exec_s", self.nodes[v]["exec_s"]) if self.mode[v] == "host" else self.nodes[v]["exec_s"]
                self.running[device] = True
                self.post(max(now + times[device], self.read_end.get(v, 0)), END, v, device)

    def run(self):
        self.run_buses()
        self.who_needs_what()
        self.running = [False] * len(self.devices)
        self.start_what_can(0.0)
        while self.events:
            now, kind, _, what = heapq.heappop(self.events)
            node = what[0]
            if kind == COPY:
                self.there[node, what[1]] = now
                if self.first[node] == (now, what[1]):
                    self.send(node, what[1], now, True)
            elif kind == ARRIVAL:
                _, source, device = what
                self.there[node, device] = now
                self.link_busy.discard((source, device))
                self.next_on_link(source, device, now)
            else:
                device = what[1]
                self.there[node, device] = self.end[node] = now
                self.sequence[device].pop(0)
                self.running[device] = False
                self.send(node, device, now, False)
            self.start_what_can(now)
        if len(self.end) != len(self.place):
            raise Invalid("the plan deadlocks")
        return max(self.end.values())


def time_plan(graph, plan, contention=True):
    """The latency of a plan in seconds; Invalid where it cannot be carried out."""
    return Run(graph, plan, contention).run()
