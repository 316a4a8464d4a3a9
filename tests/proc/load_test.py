"""`hpctl load` against real agents: what arrives is answered, refused or failed by cause, and counted once."""
import json
import os
import signal
import subprocess
import xml.dom.minidom

from cluster import BUILD, SCALE, Cluster, DEMO, Failed
from tap import main, test

OUTCOMES = ("done", "refused", "failed", "open", "unsent")


def whole(report):
    assert sum(report[o] for o in OUTCOMES) == report["requests"], report
    assert sum(c["count"] for c in report["causes"]) == report["refused"] + report["failed"] + report["unsent"], report
    for measure in ("ttft_s", "tpot_s", "end_to_end_s", "queue_s", "prefill_s", "decode_s"):
        m = report[measure]
        assert 0 <= m["p50"] <= m["p90"] <= m["p99"] <= m["max"], (measure, m)
    return report


@test
def what_arrives_is_answered_and_measured():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")
        svg, trace = os.path.join(c.folder, "load.svg"), os.path.join(c.folder, "trace.json")
        args = ("load", "demo", "--arrivals", "uniform", "--rate", "10", "--seconds", "2", "--prompt-tokens", "20..60", "--answer-tokens", "8")
        r = whole(c.hpctl(*args, "--ttft", "60s", "--tpot", "60s", "--svg", svg, "--trace", trace))
        assert r["done"] == r["requests"] == r["good"] == 20 and r["attainment"] == 1 and not r["interrupted"], r
        assert r["answer_tokens"] == 160 and 20 * 20 <= r["prompt_tokens"] <= 20 * 60, r
        assert r["ttft_s"]["p50"] <= r["end_to_end_s"]["p50"] and r["prefill_s"]["p50"] > 0 and r["decode_s"]["p50"] > 0, r
        assert r["planned_s"]["p50"] > 0, r  # what the plan says of the prefill, beside what it took
        assert xml.dom.minidom.parse(svg).getElementsByTagName("rect")
        with open(trace) as f:
            assert sum("prefill of" in e.get("name", "") for e in json.load(f)["traceEvents"]) == 20
        assert whole(c.hpctl(*args, "--ttft", "1e-3ms"))["good"] == 0
        again = c.hpctl("load", "demo", "--rate", "10", "--seconds", "1", "--common", "64", "--prompt-tokens", "80")
        assert again["cached_tokens"] > 0, again
        people = c.run(*args, "--ttft", "60s").stdout
        assert "prefill alone, as planned" in people, people
        assert "20 requests" in people and "first token" in people and "100.0 % of all" in people, people

        # a file has its own times and lengths
        file = os.path.join(c.folder, "arrivals.csv")
        with open(file, "w") as f:
            f.write("seconds,model,prompt,answer\n0,demo,10,3\n0.1,other,10,3\n0.2,demo,30,5\n")
        r = whole(c.hpctl("load", "demo", "--arrivals", file))
        assert (r["done"], r["prompt_tokens"], r["answer_tokens"]) == (2, 40, 8), r

        # more than is let in is refused, by cause, and what is let in is served
        r = whole(c.hpctl("load", "demo", "--rate", "2000", "--seconds", "0.3", "--prompt-tokens", "8", "--answer-tokens", "64"))
        assert r["refused"] > 0 and r["done"] > 64 and r["failed"] == r["open"] == 0, r
        assert [x["cause"] for x in r["causes"]] == ["429 busy"] and "wait" in r["causes"][0]["message"], r
        r = whole(c.hpctl("load", "demo", "--rate", "100", "--seconds", "0.5", "--max-open", "2", "--prompt-tokens", "8", "--answer-tokens", "400"))
        assert r["unsent"] > 0 and r["causes"][-1]["cause"] == "hpctl", r


@test
def what_breaks_and_what_is_interrupted_is_told():
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1")

        def begin(*args):
            load = subprocess.Popen([os.path.join(BUILD, "hpctl"), "load", "demo", "-o", "json", *args], env=c.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

            def running():
                assert load.poll() is None, load.communicate()
                return c.hpctl("describe", "demo")["sequences_active"] > 0

            c.wait("requests run", running)
            return load

        load = begin("--rate", "5", "--seconds", "60", "--prompt-tokens", "64..128", "--answer-tokens", "1900")
        load.send_signal(signal.SIGINT)
        out, said = load.communicate(timeout=20 * SCALE)
        r = whole(json.loads(out))
        assert load.returncode == 0 and r["interrupted"] and 0 < r["requests"] < 200 and r["open"] > 0, (load.returncode, r, said)
        c.wait("what it left is gone", lambda: c.hpctl("describe", "demo")["sequences_active"] == 0)

        load = begin("--arrivals", "uniform", "--rate", "4", "--seconds", "1.5", "--answer-tokens", "1500", "--patience", "20")
        c.kill("coordinator")
        c.hpctl("local", "start", "--coordinator")
        r = whole(json.loads(load.communicate(timeout=60 * SCALE)[0]))
        assert r["failed"] + r["refused"] > 0 and r["open"] == 0 and all(x["message"] for x in r["causes"]), r


@test
def who_would_be_late_is_refused_where_targets_are_set():
    with Cluster(agents=1, cores=1) as c:
        long = ("load", "demo", "--arrivals", "uniform", "--rate", "1", "--seconds", "1", "--prompt-tokens", "900")
        c.deploy()
        ttft_ms = max(300, round(5000 * c.hpctl(*long)["ttft_s"]["max"]))  # what a box as busy as this one can do for one
        c.hpctl("undeploy", "demo")
        c.deploy("demo", DEMO, "--ttft", f"{ttft_ms}ms", "--tpot", "100ms")
        d = c.hpctl("describe", "demo")
        assert d["ttft_ms"] == ttft_ms and d["tpot_ms"] == 100 and d["targets"]["refused"] == 0, d
        alone = whole(c.hpctl(*long))
        assert alone["done"] == alone["requests"], alone
        many = whole(c.hpctl("load", "demo", "--rate", "300", "--seconds", "2", "--prompt-tokens", "200..900", "--answer-tokens", "8", "--patience", "20"))
        late = [x for x in many["causes"] if "--ttft" in x["message"]]
        assert many["done"] > 0 and many["refused"] > 0 and late and all(x["cause"] == "429 busy" for x in late), many  # who waited is told by status, too
        assert c.hpctl("describe", "demo")["targets"]["refused"] >= late[0]["count"] > 0
        for option in ("--ttft", "--tpot"):
            try:
                c.hpctl("deploy", DEMO, "--name", "other", option, "100s")
                raise AssertionError(option)
            except Failed as e:
                assert option in e.message, e


@test
def what_cannot_be_asked_is_refused_before_anything_is_sent():
    with Cluster(agents=1, cores=1) as c:
        c.deploy("demo", DEMO)
        for args, rc, says in ((("nope", "--rate", "1"), 4, "nope"), (("demo",), 2, "--rate"), (("demo", "--rate", "0"), 2, "--rate"), (("demo", "--rate", "1", "--tpot", "20"), 2, "20ms or 20s"),
                               (("demo", "--rate", "1", "--prompt-tokens", "9..3"), 2, "--prompt-tokens"),
                               (("demo", "--rate", "1", "--prompt-tokens", "4000"), 1, "context is"),
                               (("demo", "--arrivals", "/nowhere.csv"), 4, "/nowhere.csv"), (("a/b", "--rate", "1"), 1, "a/b")):
            try:
                c.hpctl("load", *args)
                raise AssertionError(f"{args} was taken")
            except Failed as e:
                assert e.rc == rc and says in e.message, (args, e)


main()
