"""API keys and their limits before real processes: who may ask what, how often, for how many tokens, in every dialect's words; and after a restart."""
import http.client
import json
import re
import signal

from cluster import Cluster, Failed, SCALE, ended
from tap import main, test

PROMPT = {"model": "demo", "prompt": "Hello", "max_tokens": 4, "temperature": 0}
TURN = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
DIALECTS = [  # path, body, where the error's text is
    ("/v1/chat/completions", TURN, lambda e: e["error"]["message"]),
    ("/v1/completions", PROMPT, lambda e: e["error"]["message"]),
    ("/v1/responses", {"model": "demo", "input": "Hello", "max_output_tokens": 4}, lambda e: e["error"]["message"]),
    ("/v1/messages", TURN, lambda e: e["error"]["message"]),
    ("/v1/messages/count_tokens", TURN, lambda e: e["error"]["message"]),
    ("/api/chat", dict(TURN, stream=False), lambda e: e["error"]),
    ("/api/generate", {"model": "demo", "prompt": "Hello", "stream": False, "options": {"num_predict": 4}}, lambda e: e["error"]),
    ("/api/show", {"model": "demo"}, lambda e: e["error"]),
    ("/api/embed", {"model": "demo", "input": "Hello"}, lambda e: e["error"]),
    ("/v1/embeddings", {"model": "demo", "input": "Hello"}, lambda e: e["error"]["message"]),
    ("/v1/rerank", {"model": "demo", "query": "Hello", "documents": ["Hello"]}, lambda e: e["error"]["message"]),
    ("/v1/score", {"model": "demo", "text_1": "Hello", "text_2": "Hello"}, lambda e: e["error"]["message"]),
    ("/embedding", {"model": "demo", "content": "Hello"}, lambda e: e["error"]["message"]),
    ("/completion", {"model": "demo", "prompt": "Hello", "n_predict": 4}, lambda e: e["error"]["message"]),
    ("/infill", {"model": "demo", "input_prefix": "Hello", "n_predict": 4}, lambda e: e["error"]["message"]),
    ("/tokenize", {"model": "demo", "prompt": "Hello"}, lambda e: e["error"]["message"]),
]
DURATION = re.compile(r"^(\d+h)?(\d+m)?(\d+(\.\d+)?s|\d+ms)$")


def ask(c, method, path, key=None, body=None):
    """(status, headers, JSON or text)"""
    connection = http.client.HTTPConnection("127.0.0.1", c.port, timeout=60 * SCALE)
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    found = {k.lower(): v for k, v in reply.getheaders()}
    assert re.fullmatch(r"req_[0-9a-f]{16}", found["x-request-id"]), found
    return reply.status, found, json.loads(text) if found["content-type"].startswith("application/json") else text.decode()


def made(c, name, *limits):
    return c.hpctl("key", "create", name, *limits)["key"]


def listed(c, name):
    return next(k for k in c.hpctl("key", "ls") if k["name"] == name)


@test
def keys_hold_their_clients_to_models_rates_and_budgets_over_restarts():
    with Cluster(agents=1) as c:
        c.deploy()
        whole, other = made(c, "whole"), made(c, "other", "--models", "mine,theirs")

        # Who is nobody, and who may not.
        for path, body, text in DIALECTS:
            status, headers, reply = ask(c, "POST", path, None, body)
            assert status == 401 and headers["www-authenticate"] == "Bearer", (path, status, headers)
            status, headers, reply = ask(c, "POST", path, other, body)
            assert status == 403 and '"demo"' in text(reply) and '"other"' in text(reply), (path, status, reply)
        assert ask(c, "POST", "/v1/completions", other, dict(PROMPT, model="org/demo"))[0] == 403
        status, _, reply = ask(c, "GET", "/v1/models/demo", other)
        assert status == 403 and reply["error"]["code"] == "model_not_allowed", reply
        assert ask(c, "GET", "/v1/models", other)[2]["data"] == [] and ask(c, "GET", "/api/tags", other)[2]["models"] == []
        assert ask(c, "GET", "/ready", other)[2]["models"] == []
        assert [m["id"] for m in ask(c, "GET", "/v1/models", whole)[2]["data"]] == ["demo"]
        assert ask(c, "GET", "/metrics", other)[0] == 403
        c.hpctl("key", "edit", "other", "--models", "mine,demo")
        assert ask(c, "POST", "/v1/completions", other, dict(PROMPT, model="org/demo"))[0] == 200
        status, headers, _ = ask(c, "POST", "/v1/completions", other, PROMPT)
        assert status == 200 and "x-ratelimit-limit-requests" not in headers, (status, headers)

        # Rates: each dialect is one request more, and the answer to each says how many are left.
        many = made(c, "many", "--rpm", str(len(DIALECTS)), "--tpm", "100000")
        before = len(DIALECTS)
        for path, body, _ in DIALECTS:
            status, headers, reply = ask(c, "POST", path, many, body)
            assert status == (400 if re.search("embed|rank|score|infill", path) else 200), (path, status, reply)
            left = int(headers["x-ratelimit-remaining-requests"])
            assert headers["x-ratelimit-limit-requests"] == str(len(DIALECTS)) and left <= before, (path, headers)
            assert headers["x-ratelimit-limit-tokens"] == "100000" and int(headers["x-ratelimit-remaining-tokens"]) <= 100000, headers
            assert DURATION.match(headers["x-ratelimit-reset-requests"]) and DURATION.match(headers["x-ratelimit-reset-tokens"]), headers
            before = left
        few = made(c, "few", "--rpm", "1")
        assert ask(c, "POST", "/v1/completions", few, PROMPT)[0] == 200
        for path, body, text in DIALECTS:
            status, headers, reply = ask(c, "POST", path, few, body)
            assert status == 429 and 1 <= int(headers["retry-after"]) <= 60, (path, status, headers)
            assert "1 times a minute" in text(reply) and headers["x-ratelimit-remaining-requests"] == "0", (path, reply, headers)
        assert ask(c, "GET", "/v1/models", few)[0] == 200  # to look costs nothing
        assert listed(c, "few")["used"]["requests"] == 1 and listed(c, "few")["used"]["refused"] == len(DIALECTS)

        # Budgets: answers end where the budget does; then there is nothing more, also after a restart, however it ended.
        spent = made(c, "spent", "--tokens", "20")
        status, headers, reply = ask(c, "POST", "/v1/completions", spent, dict(PROMPT, prompt=[5, 6, 7, 8], max_tokens=500, ignore_eos=True))
        assert status == 200 and reply["usage"]["total_tokens"] == 20 and reply["choices"][0]["finish_reason"] == "length", reply
        status, headers, reply = ask(c, "POST", "/v1/completions", spent, PROMPT)
        assert status == 429 and reply["error"]["code"] == "insufficient_quota" and int(headers["retry-after"]) > 0, (headers, reply)
        assert headers["x-ratelimit-remaining-tokens"] == "0" and "x-ratelimit-reset-tokens" not in headers, headers
        c.hpctl("key", "edit", "spent", "--tokens", "40")
        status, _, reply = ask(c, "POST", "/v1/completions", spent, dict(PROMPT, prompt=[5, 6, 7], max_tokens=2, ignore_eos=True))
        assert status == 200 and reply["usage"]["total_tokens"] == 5, reply
        used = listed(c, "spent")["used"]
        assert used["prompt_tokens"] + used["output_tokens"] == 25 and used["tokens_left"] == 15, used

        metrics = ask(c, "GET", "/metrics", whole)[2]
        for line in ('hp_key_requests_total{key="spent"} 2', 'hp_key_left_tokens{key="spent"} 15', 'hp_key_prompt_tokens_total{key="spent"} 7',
                     'hp_key_output_tokens_total{key="spent"} 18', 'hp_key_refused_total{key="spent"} 1'):
            assert line in metrics.splitlines(), (line, [x for x in metrics.splitlines() if "hp_key" in x])
        assert "hp_key_left_tokens{key=\"whole\"}" not in metrics

        assert "20 tokens" not in c.run("key", "ls").stdout and "40 tokens" in c.run("key", "ls").stdout

        pid = c.kill("coordinator", signal.SIGTERM)
        c.wait("the coordinator has ended", lambda: ended(pid))
        c.hpctl("local", "start", "--coordinator")
        c.wait_serving()
        again = listed(c, "spent")
        assert again["tokens_total"] == 40 and again["used"]["tokens_left"] == 15 and again["used"]["requests"] == 2, again
        status, _, reply = ask(c, "POST", "/v1/completions", spent, dict(PROMPT, prompt=[5] * 15))
        assert status == 429 and reply["error"]["code"] == "insufficient_quota" and "15 are left" in reply["error"]["message"], reply
        c.hpctl("key", "rm", "spent")
        assert ask(c, "POST", "/v1/completions", spent, PROMPT)[0] == 401


@test
def limits_that_make_no_sense_are_named():
    with Cluster(agents=1) as c:
        for options, says in ((("--rpm", "0"), "--rpm"), (("--weight", "1001"), "--weight"), (("--priority", "1.5"), "--priority"), (("--models", "a,,b"), "--models")):
            try:
                made(c, "k", *options)
                raise AssertionError(options)
            except Failed as e:
                assert e.rc == 2 and says in e.message, (options, e)
        made(c, "k", "--rpm", "5", "--priority", "-3")
        for name, options, code in (("k", (), "usage"), ("nobody", ("--rpm", "5"), "not_found")):
            try:
                c.hpctl("key", "edit", name, *options)
                raise AssertionError(name)
            except Failed as e:
                assert e.code == code, e
        c.hpctl("key", "edit", "k", "--rpm", "none", "--models", "a")
        key = listed(c, "k")
        assert key["requests_per_minute"] is None and key["priority"] == -3 and key["models"] == ["a"], key


main()
