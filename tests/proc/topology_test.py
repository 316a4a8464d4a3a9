"""What a cluster finds out of itself: links between agents, costs of a model, and that the planners take both."""
import json
import os
import xml.dom.minidom

from cluster import Cluster
from tap import main, test


def path(c, name):
    return os.path.join(c.folder, name)


def read(file):
    with open(file) as f:
        return json.load(f)


@test
def links_between_all_pairs_are_measured_and_drawn():
    with Cluster(agents=3, cores=1) as c:
        names = ["a0", "a1", "a2"]

        def all_measured():
            links = {(l["from"], l["to"]): l for l in c.hpctl("topo")["links"] if "measured_s" in l}
            return links if len(links) == 6 else None
        links = c.wait("all pairs are measured", all_measured, 30)
        assert set(links) == {(f"{a}/cpu", f"{b}/cpu") for a in names for b in names if a != b}
        for l in links.values():
            assert 1e6 < l["bandwidth_bytes_per_s"] < 1e11 and 1e-7 < l["latency_s"] < 0.1, l
        table = c.run("topo").stdout
        assert "MEASURED" in table and "a2/cpu" in table, table
        assert c.run("topo", "--svg", path(c, "topo.svg")).returncode == 0
        svg = xml.dom.minidom.parse(path(c, "topo.svg"))
        text = "".join(t.firstChild.data for t in svg.getElementsByTagName("text"))
        assert all(n in text for n in names) and "B/s" in text, text


main()
