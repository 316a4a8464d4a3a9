"""The page that the coordinator serves, and what it asks the API for; in Chromium where that is installed: every view, at two widths, in light and
dark, by keyboard, with a chat held and a time line read. Screenshots stay in the build folder's screenshots/."""
import http.client
import http.server
import json
import os
import re
import sys
import threading

from browser import Browser, missing
from cluster import ROOT, SCALE, Cluster, Failed
from encoders import FOLDER
from tap import main, skip, test

WIDE, NARROW = (1280, 860), (390, 780)
PAGE = os.path.join(ROOT, "coordinator", "gateway", "page")
HOSTILE = "<img src=x onerror=\"document.title='owned'\"> <script>document.title='owned'</script> [press](javascript:document.title='owned') **bold <b>b</b>**\n\n" \
          "```html\n<script>1</script>\n```\n\n| a | b |\n|---|---|\n| `<i>` | <https://example.org/> |\n\n1. one\n   - two\n\n> said"
cluster = None


def headers_of(c, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", c.port, timeout=30 * SCALE)
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply.status, dict(reply.getheaders()), body


def live_open(c, **headers):
    """A stream of live figures that is open: (connection, reply)."""
    connection = http.client.HTTPConnection("127.0.0.1", c.port, timeout=30 * SCALE)
    connection.request("GET", "/api/hp/live", headers=headers)
    return connection, connection.getresponse()


def live_next(reply):
    while True:
        line = reply.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            return json.loads(line[6:])


# ---- without a browser ----

@test
def the_page_is_the_programs_own_and_runs_nothing_that_stands_inline():
    status, headers, body = headers_of(cluster, "/", Accept="text/html,application/xhtml+xml")
    assert status == 200 and headers["Content-Type"].startswith("text/html"), (status, headers)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy and "require-trusted-types-for 'script'" in policy, policy
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer", headers
    assert headers_of(cluster, "/")[2].startswith(b"Ollama is running"), "clients of Ollama still find their line"
    page = body.decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page), "something stands inline"
    for path in sorted(set(re.findall(r'(?:src|href)="(/[^"]*)"', page)) | {"/page/" + name for name in os.listdir(PAGE)}):
        status, headers, body = headers_of(cluster, path)
        name = path.rsplit("/", 1)[1]
        assert status == 200, (path, status)
        with open(os.path.join(PAGE, name), "rb") as f:
            assert f.read() == body, f"{path} is not what the folder has"
    for path in ("/page/nothing.js", "/page/../index.html", "/page/%2e%2e/index.html"):
        assert headers_of(cluster, path)[0] == 404, path
    for name in os.listdir(PAGE):
        with open(os.path.join(PAGE, name), encoding="utf-8") as f:
            text = f.read()
        assert not re.search(r"https?://(?!www\.w3\.org|\[|\\|/)[a-z]", re.sub(r"//[^\n]*", "", text) if name.endswith(".js") else text.replace("http://www.w3.org/2000/svg", "")), f"{name} asks somebody else"
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), f"{name} makes markup of a text"


@test
def documents_say_what_the_verbs_do():
    status, document = cluster.request("GET", "/api/hp/cluster")
    assert status == 200 and [a["name"] for a in document["agents"]] == [a["name"] for a in cluster.hpctl("node", "ls")], document
    assert [d["name"] for d in document["deployments"]] == ["demo"]
    assert cluster.request("GET", "/api/hp/topology")[1]["format"] == "hp-cluster/1"
    assert cluster.request("GET", "/api/hp/agents/a1")[1]["name"] == "a1"
    cluster.answer("demo", "What is the capital of Cuba?")
    record = cluster.wait("its time line", lambda: [r for r in cluster.request("GET", "/api/hp/deployments/demo")[1]["prefill"]["records"] if "decode" in r])[0]
    steps, stages = record["decode"]["steps"], record["decode"]["stages"]
    assert record["decode"]["position"] == record["tokens"] + record["cached"] and [s["on"] for s in stages] == [s["on"] for s in record["stages"]], record
    for side in ("planned", "measured"):
        for here, there in zip(stages, stages[1:]):
            assert all(here[side]["end_s"][k] <= there[side]["arrive_s"][k] + 1e-3 for k in range(len(steps))), (side, record)
        assert all(a <= b for a, b in zip(stages[-1][side]["end_s"], stages[0][side]["start_s"][1:])), "each step waits for the token before it"
    mine, theirs = cluster.request("GET", "/api/hp/deployments/demo")[1], cluster.hpctl("describe", "demo")
    assert set(theirs) <= set(mine) and mine["stages"][1]["agent"] == theirs["stages"][1]["agent"], (mine, theirs)
    for path, code in (("/api/hp/agents/nobody", 404), ("/api/hp/deployments/nothing", 404), ("/api/hp/plans/nothing", 404), ("/api/hp/plans/demo?without=a9", 404),
                       ("/api/hp/nothing", 404), ("/api/hp/agents", 404), ("/api/hp/plans/demo?without=" + "a" * 5000, 400)):
        status, answer = cluster.request("GET", path)
        assert status == code and answer["error"]["message"], (path, status, answer)
    assert cluster.request("POST", "/api/hp/cluster", {})[0] == 405


@test
def plans_over_other_boxes_are_made_and_not_carried_out():
    before = cluster.hpctl("describe", "demo")
    status, plan = cluster.request("GET", "/api/hp/plans/demo?without=a2")
    used = {s["device"].split("/")[0] for s in plan["plan"]["stages"]}
    assert status == 200 and used <= {"a0", "a1"} and plan["before"]["ttft_s"] > 0 and plan["after"]["tokens_per_s"] > 0, plan
    assert len(plan["timeline"]) == len(plan["plan"]["stages"]) and len(plan["timeline"][0]["start_s"]) == len(plan["plan"]["slices"]) and plan["plan"]["why"], plan
    assert "every agent is left out" in cluster.request("GET", "/api/hp/plans/demo?without=a0,a1,a2")[1]["infeasible"]
    after = cluster.hpctl("describe", "demo")
    assert [s["agent"] for s in before["stages"]] == [s["agent"] for s in after["stages"]] and before["generation"] == after["generation"], after


@test
def live_figures_come_to_a_bounded_number_of_readers():
    first, reply = live_open(cluster)
    assert reply.status == 200 and reply.getheader("Content-Type") == "text/event-stream", reply.status
    looks = [live_next(reply) for _ in range(2)]
    assert looks[1]["clock_s"] > looks[0]["clock_s"] and looks[0]["agents"] and looks[0]["deployments"], looks
    others = []
    while len(others) < 100:
        others.append(live_open(cluster))
        if others[-1][1].status != 200:
            break
    assert len(others) == 64 and others[-1][1].status == 503 and others[-1][1].getheader("Retry-After"), len(others)
    for connection, answer in others:
        answer.close()
        connection.close()
    cluster.wait("there is room again", lambda: live_next(live_open(cluster)[1]))
    assert live_next(reply)["boot"] == looks[0]["boot"]
    reply.close()
    first.close()


# ---- in a browser ----

def go(b, view):
    b.run("location.hash = '#/' + arguments[0]", view)


CHAT = "return document.querySelector('.theirs table') && ['#model', '#say', '.talks a'].every((css) => { const r = document.querySelector(css).getBoundingClientRect(); return r.top >= 0 && r.bottom <= innerHeight; })"
VIEWS = {  # and what is there when it is whole
    "live": "return document.querySelectorAll('.tile').length === 5 && document.querySelectorAll('polyline').length > 3 && document.querySelectorAll('tbody tr').length === 4",
    "deployments": "return document.querySelector('.card .strip .part')",
    "deployments/demo": "return document.querySelectorAll('tbody tr').length === 3 && document.querySelectorAll('.columns section').length === 3",
    "cluster": "return document.querySelectorAll('.topology .box').length === 3 && document.querySelectorAll('.topology .wire-label').length === 3 && document.querySelectorAll('.matrix .link-cell').length === 6",
    "timeline/demo": "return document.querySelectorAll('.gantt .span.planned').length > 2 && document.querySelectorAll('.gantt .span.measured').length > 2",
    "docs/api": "return document.querySelectorAll('.prose table').length > 2 && document.querySelector('.doc-list [aria-current]')",
    "plans/demo": "return document.querySelectorAll('.gantt .span').length > 2 && document.querySelectorAll('[aria-label=Alternatives] tbody tr').length > 3",
}


def looked_at(b, name):
    faults = b.faults()
    b.shot(name)
    assert not faults, name + ":\n" + "\n".join(faults)


def chat_is_held(b):
    b.open(cluster.http + "/")
    b.wait("the model is there to talk to", "return document.querySelector('#model')?.value === 'demo'")
    b.type("What is the capital of Cuba?{Enter}")  # the composer has the focus
    b.wait("an answer", "return document.querySelector('.theirs .took')")
    said = b.text(".theirs .body")
    assert "Havana" in said and "tokens" in said and "first token" in said, said
    looked_at(b, "chat")
    for way in ("live", "chat"):
        b.click(f"#nav a[data-view={way}]")
        b.wait(way, "return document.getElementById('main').className === arguments[0]", "view-" + way)
    assert "Havana" in b.wait("who comes back finds it", "return document.querySelector('.theirs')?.innerText")
    b.open(cluster.http + "/#/live")
    b.open(cluster.http + "/")
    b.click(".talks a")
    assert "Havana" in b.wait("the conversation is still there", "return document.querySelector('.theirs')?.innerText")


def answer_is_stopped(b):
    go(b, "chat")
    b.wait("a new conversation", "return document.querySelector('.welcome')")
    # All but its first event is held back here, so that there is time to stop it on any machine.
    b.run("""const real = window.fetch;
             window.fetch = async (...all) => {
               const reply = await real(...all);
               if (!String(all[0]).includes("completions")) return reply;
               const reader = reply.body.getReader();
               const first = await reader.read();
               return new Response(new ReadableStream({ start(c) { c.enqueue(first.value.slice(0, first.value.findIndex((byte, i) => byte === 10 && first.value[i + 1] === 10) + 2)); all[1].signal.addEventListener("abort", () => { reader.cancel(); c.error(new DOMException("", "AbortError")); }); } }));
             };""")
    b.type("What is the capital of Cuba?{Enter}", "#say")
    b.wait("it can be stopped", "return !document.querySelector('.composer button.main:not([type=submit])').hidden")
    b.type("{Escape}", "#say")
    b.wait("it says so", "return document.querySelector('.theirs .note')?.innerText === 'Stopped.'")
    assert b.run("return document.querySelector('.composer [type=submit]').hidden") is False
    b.run("location.reload()")


def markdown_is_shown_and_runs_nothing(b):
    b.run("""localStorage.setItem("hp.conversations", JSON.stringify([{id: "x", title: "hostile", model: "demo", system: "", temperature: "", maxTokens: "",
             messages: [{role: "user", content: arguments[0]}, {role: "assistant", content: arguments[0], reasoning: arguments[0]}]}])); location.hash = "#/chat/x"; location.reload()""", HOSTILE)
    b.wait("it is shown", "return document.querySelector('.theirs table') && document.title.includes('Chat')")
    found = b.run("const m = document.querySelector('.theirs'); return {images: document.querySelectorAll('main img, main script').length, code: m.querySelector('pre').textContent, bold: m.querySelector('strong').textContent,"
                  "links: [...m.querySelectorAll('a')].map((a) => a.href), nested: m.querySelector('ol li ul li').textContent, quote: m.querySelector('blockquote').textContent, title: document.title}")
    assert found["images"] == 0 and found["code"] == "<script>1</script>" and found["bold"] == "bold <b>b</b>" and found["nested"] == "two" and found["quote"] == "said", found
    assert "owned" not in found["title"] and all(not link.startswith("javascript") for link in found["links"]) and "https://example.org/" in found["links"], found
    looked_at(b, "chat-markdown")


MARKDOWN = (  # text, and what it becomes
    ("a *b* **c** ***d*** ~~e~~ `f`", "<p>a <em>b</em> <strong>c</strong> <strong><em>d</em></strong> <del>e</del> <code>f</code></p>"),
    ("2 * 3 * 4, snake_case_name, a_b", "<p>2 * 3 * 4, snake_case_name, a_b</p>"),
    ("``a ` b`` \\*c\\*", "<p><code>a ` b</code> *c*</p>"),
    ("**open and `open", "<p>**open and `open</p>"),
    ("[a](https://x.y/?q=1&r=2) [b](javascript:1) [c](data:text/html,1) ![d](https://x.y/i.png)",
     '<p><a href="https://x.y/?q=1&amp;r=2" rel="noopener noreferrer" target="_blank">a</a> b c <a href="https://x.y/i.png" rel="noopener noreferrer" target="_blank">d</a></p>'),
    ("see https://x.y/z.", '<p>see <a href="https://x.y/z" rel="noopener noreferrer" target="_blank">https://x.y/z</a>.</p>'),
    ("# a\n## b\ntext\n---", "<h3>a</h3><h4>b</h4><p>text</p><hr>"),
    ("- a\n- b\n  - c\n\n    more of c\n- d", "<ul><li>a</li><li>b<ul><li>c<p>more of c</p></li></ul></li><li>d</li></ul>"),
    ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    ("> a\n> > b\nlazy", "<blockquote><p>a</p><blockquote><p>b\nlazy</p></blockquote></blockquote>"),
    ("| a | b |\n|--|:-:|\n| 1 \\| 2 | 3 |\nend", "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1 | 2</td><td>3</td></tr></tbody></table><p>end</p>"),
    ("a  \nb", "<p>a<br>b</p>"),
    ("<b>x</b> &amp;", "<p>&lt;b&gt;x&lt;/b&gt; &amp;amp;</p>"),
    ("```py\nprint('<x>')", "<pre><code>print('&lt;x&gt;')</code></pre>"),  # as while it streams
    ("a\x00b", "<p>a\ufffdb</p>"),
)


def markdown_is_read(b):
    become = "const { markdown } = await import('/page/markdown.js'); const place = document.createElement('div'); place.append(...markdown(arguments[0])); " \
             "for (const box of place.querySelectorAll('.code-box, .table-box')) box.replaceWith(...[...box.children].filter((e) => e.className !== 'code-head')); for (const e of place.querySelectorAll('pre')) e.removeAttribute('tabindex'); return place.innerHTML"
    wrong = [(text, wanted, got) for text, wanted in MARKDOWN for got in [b.run("return (async (...arguments) => {" + become + "})(...arguments)", text)] if got != wanted]
    assert not wrong, "\n".join(map(str, wrong))
    hostile = "**a `b " * 3000, "*" * 19000, "[" * 19000, "> " * 2000 + "x", "- " * 300 + "x", "| a " * 5000 + "\n" + "|-" * 5000
    took = b.run("return (async (all) => { const { markdown } = await import('/page/markdown.js'); return all.map((text) => { const began = performance.now(); markdown(text); return performance.now() - began; }); })(arguments[0])", hostile)
    assert max(took) < 3000 * SCALE, took


def time_line_is_read(b):
    go(b, "timeline/demo")
    b.wait("a prompt with both halves", VIEWS["timeline/demo"])
    record = cluster.request("GET", "/api/hp/deployments/demo")[1]["prefill"]["records"][0]
    b.wait("the latest prompt is listed", "return document.querySelector('button[aria-pressed]')?.textContent === arguments[0]", f"{record['tokens']} tokens")
    b.run("document.querySelector('button[aria-pressed]').click(); for (const one of document.querySelectorAll('details')) one.open = true")
    gantts = b.run("return [...document.querySelectorAll('.gantt')].map((one) => ['.planned:not(.hop)', '.measured:not(.hop)', '.hop.planned', '.hop.measured'].map((kind) => one.querySelectorAll('.span' + kind).length))")
    for drawn, pieces in zip(gantts, (record["slices"], record["decode"]["steps"]), strict=True):  # the prompt, and the first steps of its answer
        cells = len(pieces) * len(record["stages"])
        assert drawn == [cells, cells] + [cells - len(pieces)] * 2, (drawn, pieces)
    order = b.run("const y = (kind) => Number(document.querySelector(`.span.${kind}:not(.hop)`).getAttribute('y')); return [y('planned'), y('measured')]")
    assert order[0] < order[1], "planned stands above measured"
    rows = b.run("return [...document.querySelector('details').querySelectorAll('tbody tr')].map((r) => r.innerText)")
    assert len(rows) == len(record["slices"]) * len(record["stages"]) and all(stage["on"] in row for stage, row in zip(record["stages"], rows[::len(record["slices"])])), rows
    assert re.match(r"Planned [\d.]+ .?s a step, measured [\d.]+ .?s a step \([+-]?[\d.]+ %\)", b.text("#answer-summary")), b.text("#answer-summary")
    assert re.match(r"Planned [\d.]+ .?s, measured [\d.]+ .?s \([+-]?[\d.]+ %\)", b.text("#summary")), b.text("#summary")
    looked_at(b, "timeline-figures")


def box_is_left_out(b):
    go(b, "plans/demo")
    b.wait("the plan over all", VIEWS["plans/demo"])
    b.run("document.querySelector('input[value=a2]').click()")
    b.click(".boxes button")
    b.wait("a plan without it", "return [...document.querySelectorAll('[aria-label=Plans] tbody tr')].some((r) => r.innerText.startsWith('without a2'))")
    rows = b.run("return [...document.querySelectorAll('[aria-label=Plans] tbody tr')].map((r) => r.innerText)")
    assert [r.split("\t")[0] for r in rows] == ["as it runs", "all boxes", "without a2"] and "a2" not in rows[2].split("\t")[-1], rows
    looked_at(b, "plans-without")


def keyboard_is_enough(b):
    b.open("about:blank")
    b.open(cluster.http + "/#/live")
    b.wait("live figures", VIEWS["live"])
    seen = []
    for _ in range(12):
        b.type("{Tab}")
        seen.append(b.run("const e = document.activeElement, s = getComputedStyle(e); return [e.getAttribute('href') ?? e.id, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2]"))
        if seen[-1][0] == "#/cluster":
            break
    assert seen[0][0] == "#main" and seen[-1][0] == "#/cluster" and all(outlined for _, outlined in seen), f"focus that cannot be seen, or an order that makes no sense: {seen}"
    b.type("{Enter}")
    b.wait("Enter follows it", "return document.querySelector('h1')?.textContent === 'Cluster'")


def documents_are_read(b):
    b.open(cluster.http + "/docs")
    b.wait("the first document", "return document.querySelector('.prose h1')?.textContent === 'Hodgepodge' && document.querySelectorAll('.doc-list a').length > 8")
    b.run("[...document.querySelectorAll('.prose a')].find((a) => a.getAttribute('href') === '#/docs/api/the-page').click()")
    b.wait("a link into another one", "return document.querySelector('.doc-list [aria-current]')?.getAttribute('href') === '#/docs/api' && document.getElementById('doc-the-page')")
    assert b.run("const top = document.getElementById('doc-the-page').getBoundingClientRect().top; return top >= 0 && top < innerHeight"), "its heading is in sight"
    for name in b.run("return [...document.querySelectorAll('.doc-list a')].map((a) => a.getAttribute('href').split('/').pop())"):
        go(b, "docs/" + name)
        b.wait(f"{name} is read", "return document.querySelector('.doc-list [aria-current]')?.getAttribute('href') === '#/docs/' + arguments[0] && document.querySelectorAll('.prose > *').length > 3", name)
        wrong = b.faults()
        assert not wrong, name + ":\n" + "\n".join(wrong)
        broken = b.run("return [...document.querySelectorAll('.prose a')].map((a) => a.getAttribute('href')).filter((to) => !/^(https?:|mailto:|#\\/docs\\/)/.test(to))")
        assert not broken, (name, broken)


@test
def every_view_is_whole_at_two_widths_and_a_chat_is_held():
    if missing():
        skip(missing())
    for words in (2, 60):
        cluster.answer("demo", "Tell me about " + "the river and " * words, max_tokens=8)
    with Browser(*WIDE) as b:
        b.scheme(dark=False)
        b.resize(*WIDE)
        chat_is_held(b)
        time_line_is_read(b)
        box_is_left_out(b)
        keyboard_is_enough(b)
        documents_are_read(b)
        answer_is_stopped(b)
        markdown_is_read(b)
        markdown_is_shown_and_runs_nothing(b)
        for size, width in ((WIDE, "wide"), (NARROW, "narrow")):
            b.resize(*size)
            for view, whole in {"chat/x": CHAT, **VIEWS}.items():
                go(b, view)
                b.wait(f"{view} is whole", whole)
                for dark in (False, True):
                    b.scheme(dark)
                    looked_at(b, f"{view.replace('/', '-')}-{width}-{'dark' if dark else 'light'}")
        assert b.console() == [], "the page complains"


@test
def boxes_of_several_deployments_hold_their_texts_and_the_view_that_is_open_is_in_sight():
    if missing():
        skip(missing())
    cluster.deploy("WWW-another-one")
    with Browser(*WIDE) as b:
        for size, width in ((WIDE, "wide"), (NARROW, "narrow")):
            b.resize(*size)
            b.open("about:blank")
            b.open(cluster.http + "/#/cluster")
            b.wait("both are shown", VIEWS["cluster"] + " && [...document.querySelectorAll('.topology .box title')].some((t) => t.textContent.includes('WWW-another-one') && t.textContent.includes('demo'))")
            looked_at(b, f"cluster-two-{width}")
            assert b.run("return [...document.querySelectorAll('.topology .box')].some((box) => box.textContent.includes('…'))"), "what was cut says so"
            for view in ("plans", "docs", "chat"):
                go(b, view)
                b.wait(f"{view} is marked, and in sight", "const e = document.querySelector('#nav [aria-current]'), r = e?.getBoundingClientRect(); return e?.getAttribute('href') === '#/' + arguments[0] && r.left >= 0 && r.right <= document.querySelector('#nav').getBoundingClientRect().right + 1", view)
        if os.path.isdir(FOLDER):
            cluster.deploy("aa-rows", os.path.join(FOLDER, "hf"))
            b.open("about:blank")
            b.open(cluster.http + "/#/chat")
            b.wait("who writes no text is not talked to", "const all = [...document.querySelectorAll('#model option')].map((one) => one.value); return all.length === 2 && !all.includes('aa-rows')")
            cluster.hpctl("undeploy", "aa-rows")
    cluster.hpctl("undeploy", "WWW-another-one")


class Strange(http.server.BaseHTTPRequestHandler):
    """A page that is not ours, at another port of this box."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>strange</title>")

    def log_message(self, *_):
        pass


@test
def what_strange_pages_send_without_asking_starts_nothing():
    """Forms, beacons and requests whose answer they may not read: a browser sends these anywhere. What curl -d sends looks alike but for the browser's headers, and is taken."""
    body = json.dumps({"model": "demo", "prompt": "x", "stream": False, "options": {"num_predict": 2}})
    before = cluster.sequences_opened()
    assert cluster.request("POST", "/api/generate", body, headers={"Content-Type": "application/x-www-form-urlencoded"})[0] == 200
    assert cluster.sequences_opened() == before + 1
    if missing():
        skip(missing())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Strange)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = """const [url, body] = arguments; const form = 'application/x-www-form-urlencoded';
        window.sent = 0;
        for (const type of [form, 'text/plain', '', form + ';charset=utf-8'])
            fetch(url, {method: 'POST', mode: 'no-cors', referrerPolicy: 'no-referrer', body: new Blob([body], {type})}).then(() => window.sent++);
        navigator.sendBeacon(url, new Blob([body], {type: form}));"""
    form = """const [url, body] = arguments, f = document.createElement('form'), i = document.createElement('input');
        f.action = url; f.method = 'post'; f.enctype = 'text/plain'; i.name = body.slice(0, -1) + ', "y": "'; i.value = '"}'; f.append(i); document.body.append(f); f.submit();"""
    try:
        with Browser() as b:
            for page in (f"http://127.0.0.1:{server.server_port}/", f"http://evil.localhost:{server.server_port}/"):
                b.open(page)
                b.run(script, cluster.http + "/api/generate", body)
                b.wait("all are answered", "return window.sent === 4")
                b.run(form, cluster.http + "/api/generate", body)
                said = b.wait("the form is answered", "return location.pathname === '/api/generate' && document.body?.innerText")
                assert "may not use this API" in said or "Content-Type: application/json" in said, said
            sent = cluster.sequences_opened() - before - 1
            # A page of this box is trusted as ever: where it names no type, as it may, it is answered.
            assert sent == 1, sent
    finally:
        server.shutdown()
        server.server_close()


@test
def where_a_key_is_needed_the_page_asks_for_it():
    """The last: from here on this cluster needs one."""
    key = cluster.hpctl("key", "create", "page")["key"]
    for path in ("/api/hp/cluster", "/api/hp/topology", "/api/hp/agents/a0", "/api/hp/deployments/demo", "/api/hp/plans/demo", "/api/hp/live"):
        assert headers_of(cluster, path)[0] == 401, path
        if path != "/api/hp/live":
            assert headers_of(cluster, path, Authorization="Bearer " + key)[0] == 200, path
    assert headers_of(cluster, "/", Accept="text/html")[0] == 200 and headers_of(cluster, "/page/app.js")[0] == 200
    if missing():
        skip(missing())
    with Browser(*NARROW) as b:
        b.open(cluster.http + "/#/cluster")
        b.wait("it asks", "return document.querySelector('dialog[open] #key-text')")
        b.type("wrong{Enter}", "#key-text")
        b.wait("it asks again, and says why", "return document.querySelector('dialog[open] p')?.textContent.includes('not known')")
        looked_at(b, "key")
        b.run("document.querySelector('#key-text').value = ''")
        b.type(key + "{Enter}", "#key-text")
        b.wait("the cluster is shown", VIEWS["cluster"])
        assert b.run("return [localStorage.getItem('hp.key'), sessionStorage.getItem('hp.key')]") == [None, key]
        some = cluster.hpctl("key", "create", "some", "--models", "demo")["key"]
        assert headers_of(cluster, "/api/hp/live", Authorization="Bearer " + some)[0] == 403
        b.run("sessionStorage.setItem('hp.key', arguments[0]); location.hash = '#/chat'; location.reload()", some)
        b.wait("who may use one model may talk to it", "return document.querySelector('#model')?.value === 'demo'")
        b.type("What is the capital of Cuba?{Enter}", "#say")
        b.wait("an answer", "return document.querySelector('.theirs .took')")


def run():
    global cluster
    with Cluster(agents=3, cores=1) as c:
        cluster = c
        c.deploy("demo")
        try:
            main()
        except SystemExit as end:
            return end.code


sys.exit(run())
