"""Headless Chromium through its driver (W3C WebDriver), for tests that look at pages: `with Browser() as b: b.open(url); b.run("return document.title")`.

`missing()` says why there is none; RULES are what every page is held to: what a reader without eyes, mouse or sharp sight needs, and texts that stay where they belong."""
import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

from cluster import BUILD, SCALE

SHOTS = os.path.join(BUILD, "screenshots")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's name of an element's id
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Space": " "}


def missing():
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return f"{program} is not installed (tools/deps ci)"
    return ""


class Browser:
    def __init__(self, width=1280, height=860):
        self.size = (width, height)

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="hp-browser-")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       stdin=subprocess.DEVNULL, env=dict(os.environ, HOME=self.folder, TMPDIR=self.folder))
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        try:
            self._ask("DELETE", "")
        except (OSError, AssertionError, AttributeError, http.client.HTTPException):
            pass
        self.driver.terminate()
        try:
            self.driver.wait(10)
        except subprocess.TimeoutExpired:
            self.driver.kill()
            self.driver.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self):
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
                            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
                            f"--user-data-dir={self.folder}/profile", f"--window-size={self.size[0]},{self.size[1]}"]}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}}
        until = time.monotonic() + 60 * SCALE
        while True:
            try:
                self.session = self._call("POST", "/session", wanted)["sessionId"]
                return
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < until and self.driver.poll() is None, "chromedriver does not answer"
                time.sleep(0.05)

    def _call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120 * SCALE)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())["value"]
        connection.close()
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{answer['error']}: {answer['message'][:600]}")
        return answer

    def _ask(self, method, path, body=None):
        return self._call(method, f"/session/{self.session}{path}", body)

    # ---- what a test does ----

    def open(self, url):
        self._ask("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def command(self, name, **parameters):
        """One of Chromium's own."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def resize(self, width, height):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, dark):
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def find(self, css):
        return self._ask("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self._ask("POST", f"/element/{self.find(css)}/click", {})

    def type(self, text, css=None):
        """Into an element, or to whatever has the focus; {Enter} and its likes are keys."""
        for name, key in KEYS.items():
            text = text.replace("{" + name + "}", key)
        if css:
            self._ask("POST", f"/element/{self.find(css)}/value", {"text": text})
            return
        steps = [step for c in text for step in ({"type": "keyDown", "value": c}, {"type": "keyUp", "value": c})]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def text(self, css):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? null", css)

    def wait(self, what, script, *arguments, seconds=30):
        """Until a script returns something."""
        until = time.monotonic() + seconds * SCALE
        while True:
            got = self.run(script, *arguments)
            if got:
                return got
            assert time.monotonic() < until, f"not within {seconds} s: {what}; the page says: {self.run('return document.body?.innerText')[:800]}; console: {self.console()}"
            time.sleep(0.05)

    def shot(self, name):
        os.makedirs(SHOTS, exist_ok=True)
        path = os.path.join(SHOTS, name + ".png")
        with open(path, "wb") as f:
            f.write(base64.b64decode(self._ask("GET", "/screenshot")))
        return path

    def console(self):
        """What the page complained of since it was last asked."""
        return [f"{row['level']}: {row['message']}" for row in self._ask("POST", "/se/log", {"type": "browser"}) if row["level"] in ("SEVERE", "WARNING")]

    def faults(self):
        return self.run(RULES + "\nreturn faults();")

    def text_faults(self):
        return self.run(RULES + "\nreturn textFaults();")


RULES = r"""
const shown = (e) => { const r = e.getBoundingClientRect(), s = getComputedStyle(e); return r.width > 0 && r.height > 0 && s.visibility !== "hidden" && !e.closest(".unseen, [hidden], .skip"); };
const say = (e) => `<${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}${e.getAttribute("class") ? "." + e.getAttribute("class") : ""}> ${(e.textContent || "").trim().slice(0, 40)}`;
const parse = (c) => { const m = c.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0]; return c.startsWith("color(") ? [m[0] * 255, m[1] * 255, m[2] * 255, m[3] ?? 1] : [m[0], m[1], m[2], m[3] ?? 1]; };
const light = (c) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
function ground(e) { const all = []; for (let at = e; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if (c[3] > 0) all.push(c); if (c[3] === 1) break; } return all.reverse().reduce((below, c) => over(c, below), [255, 255, 255, 1]); }
const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const texts = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
const nameOf = (e) => e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") && document.getElementById(e.getAttribute("aria-labelledby"))?.textContent) || [...(e.labels ?? [])].map((l) => l.textContent).join("") || e.textContent.trim() || e.getAttribute("title") || e.getAttribute("alt") || "";

// What hinders somebody who does not see, or does not see well, or has no mouse.
function faults() {
  const out = [];
  for (const e of document.querySelectorAll("a[href], button, select, input, textarea, [tabindex], [role=img], nav, img"))
    if (shown(e) && e.id !== "main" && !(e.tagName === "IMG" && e.alt === "") && !nameOf(e)) out.push("has no name: " + say(e));
  const levels = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((e) => e.closest("main") && !e.closest(".message")).map((e) => Number(e.tagName[1]));
  if (levels.filter((n) => n === 1).length !== 1) out.push("a page has one h1, this one " + levels.filter((n) => n === 1).length);
  levels.forEach((n, i) => { if (i && n > levels[i - 1] + 1) out.push(`a heading h${n} follows an h${levels[i - 1]}`); });
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id), twice = ids.filter((id, i) => ids.indexOf(id) !== i);
  if (twice.length) out.push("ids that stand twice: " + twice);
  for (const e of document.querySelectorAll("body *")) {
    if (!shown(e) || !texts(e) || e.closest("svg") || e.tagName === "OPTION") continue;
    const style = getComputedStyle(e), back = ground(e), ratio = contrast(over(parse(style.color), back), back), big = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (big ? 3 : 4.5) && Number(style.opacity) > 0 && !e.closest(".tools")) out.push(`contrast ${ratio.toFixed(2)}: ` + say(e));
  }
  for (const e of document.querySelectorAll("svg text")) {
    const fill = parse(getComputedStyle(e).fill), box = e.getBBox(), at = [box.x + box.width / 2, box.y + box.height / 2];
    const under = [...e.ownerSVGElement.querySelectorAll("rect")].filter((r) => { const b = r.getBBox(); return shown(r) && r.compareDocumentPosition(e) & 4 && at[0] >= b.x && at[0] <= b.x + b.width && at[1] >= b.y && at[1] <= b.y + b.height; }).pop();
    const back = under ? parse(getComputedStyle(under).fill) : ground(e.ownerSVGElement.parentElement ?? e.ownerSVGElement);
    if (contrast(fill, back) < 4.5) out.push(`contrast ${contrast(fill, back).toFixed(2)}: ` + say(e));
  }
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth + 1) out.push(`the page is ${root.scrollWidth} wide in a window of ${root.clientWidth}: ` + [...document.querySelectorAll("body *")].filter((e) => shown(e) && e.getBoundingClientRect().right > root.clientWidth + 1 && !e.closest(".table-box, .gantt-box, #nav, .talks-box, pre")).slice(0, 3).map(say));
  return [...out, ...textFaults()];
}

// Texts of pictures that lie upon each other, leave the picture, or leave the box that they stand in.
function textFaults() {
  const out = [];
  for (const svg of document.querySelectorAll("svg")) {
    const view = svg.getBoundingClientRect(), all = [...svg.querySelectorAll("text")].filter((e) => e.textContent.trim()).map((e) => ({ e, r: e.getBoundingClientRect(), said: e.textContent.trim().slice(0, 40) }));
    const rects = [...svg.querySelectorAll("rect")].map((e) => e.getBoundingClientRect());
    for (const { r, said } of all) {
      if (r.left < view.left - 1 || r.right > view.right + 1 || r.top < view.top - 1 || r.bottom > view.bottom + 1) out.push(`leaves the picture: "${said}"`);
      const x = (r.left + r.right) / 2, y = (r.top + r.bottom) / 2;
      const box = rects.filter((b) => x > b.left && x < b.right && y > b.top && y < b.bottom).sort((a, b) => a.width * a.height - b.width * b.height)[0];
      if (box && (r.left < box.left - 1 || r.right > box.right + 1)) out.push(`leaves its box: "${said}"`);
    }
    for (let i = 0; i < all.length; i++) for (let k = i + 1; k < all.length; k++) {
      const a = all[i].r, b = all[k].r, wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 0.25 * Math.min(a.height, b.height)) out.push(`lie upon each other: "${all[i].said}" and "${all[k].said}"`);
    }
  }
  return out;
}
"""
