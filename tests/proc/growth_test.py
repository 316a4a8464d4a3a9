"""Room that answers take as they grow, on real agents: more run than have room for their longest answer, the youngest gives way, and no token is another."""
import threading

from cluster import Cluster, DEMO
from tap import main, test

STORY = "Once upon a time there was a little cluster that learned to answer. "


def ask(c, i, **fields):
    status, body = c.request("POST", "/v1/completions", {"model": "demo", "prompt": STORY + "Answer %d:" % i, "max_tokens": 150, "ignore_eos": True, "seed": i, **fields})
    assert status == 200, (status, body)
    assert body["usage"]["completion_tokens"] == 150, body["usage"]
    return body["choices"][0]["text"]


@test
def whoever_gives_way_says_what_it_would_have_said():
    with Cluster(agents=2, cores=1, memory="24MB") as c:
        c.deploy("demo", DEMO, "--agents", "a0,a1", "--compute", "f32", "--max-sequences", "8", "--max-context", "512")
        texts = [None] * 8
        c.request("POST", "/v1/completions", {"model": "demo", "prompt": "x", "max_tokens": 1})  # answers are short, it seems
        heats = [0 if i % 2 else 1.1 for i in range(8)]

        def one(i):
            texts[i] = ask(c, i, temperature=heats[i])

        threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        growth = c.hpctl("describe", "demo")["growth"]
        assert growth["preempted"] > 0 and growth["starved"] == 0, growth
        alone = [ask(c, i, temperature=heats[i]) for i in range(8)]
        assert texts == alone, (texts, alone)


main()
