"""What the documents say of the code is there: files, functions, verbs with their options, tables of messages."""
import glob
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tap import main, skip, test

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BUILD = os.environ.get("HP_BUILD", os.path.join(ROOT, "build"))


def read(path):
    with open(os.path.join(ROOT, path), errors="replace") as f:
        return f.read()


def tracked(*patterns):
    return [n for n in subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n") if n]


def documents():
    return [d for d in tracked("*.md") if not d.startswith("tests/")]


ROOMS = ("common", "model", "planners", "transport", "agent", "coordinator", "hpctl", "tests", "bench", "tools", "docs", "examples")


@test
def every_file_that_a_document_names_exists():
    wrong = []
    for document in documents():
        for name in re.findall(r"`([\w./-]+/[\w./*-]*)`", read(document)):
            if name.split("/")[0] in ROOMS and not glob.glob(os.path.join(ROOT, name)):
                wrong.append(f"{document}: {name}")
    assert not wrong, "\n".join(wrong)


FILES_OF_OTHERS = {"common.h", "quants.c", "ggml.h", "tekken.py", "tcp_ep.c"}  # llama.cpp's, mistral-common's, UCX's


@test
def every_file_that_a_comment_names_exists():
    paths = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    names, wrong = {os.path.basename(p) for p in paths}, []
    for path in tracked("*.c", "*.h", "*.inc", "*.cu", "*.cuh"):
        for comment in re.findall(r"/\*.*?\*/|//[^\n]*", read(path), re.S):
            for named in re.findall(r"(?<![\w*])[a-z][\w/]*\.(?:c|h|inc|cuh?|py|md)\b", comment):
                name = os.path.basename(named)
                if name not in names | FILES_OF_OTHERS or ("/" in named and named.split("/")[0] in ROOMS and named not in paths):
                    wrong.append(f"{path}: {named}")
    assert not wrong, "\n".join(wrong)


@test
def every_benchmark_and_target_that_a_document_names_exists():
    wrong = []
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
    for document in documents():
        if document == "docs/commands.md":  # verbs in their own words: "make the keys of a cluster"
            continue
        for target, bench in re.findall(r"(?:^    |`|^)make ([a-z-]+)(?: BENCH=\"?(\w+))?", read(document), re.M):
            if target not in targets:
                wrong.append(f"{document}: make {target}")
            if bench and not glob.glob(os.path.join(ROOT, "bench", bench + ".*")):
                wrong.append(f"{document}: BENCH={bench}")
    assert not wrong, "\n".join(wrong)


@test
def every_function_that_the_map_names_exists_and_where_it_says():
    sources = {p: read(p) for p in tracked("*.c", "*.h", "*.inc") if not p.startswith("tests/")}
    wrong = []
    for document in ["docs/architecture.md", *tracked("docs/decisions/*.md")]:
        for name in set(re.findall(r"`(\w+)\(\)`", read(document))):
            if not any(re.search(rf"^[a-z].*\b{name}\(", text, re.M) for text in sources.values()):
                wrong.append(f"{document}: {name}()")
    for path, name in re.findall(r"^\|[^|]*\| `([\w./]+)`[^|]*\| `(\w+)\(\)` \|$", read("docs/architecture.md"), re.M):
        beside = re.search(rf"^\|[^|]*\| (`{re.escape(path)}`[^|]*)\| `{name}\(\)`", read("docs/architecture.md"), re.M).group(1)
        if not any(re.search(rf"\b{name}\(", sources.get(p, "")) for p in re.findall(r"`([\w./]+)`", beside)):
            wrong.append(f"{path} does not have {name}()")
    assert not wrong, "\n".join(wrong)


@test
def a_function_is_in_the_file_that_a_document_says_beside_it():
    """`function()` (`folder/file.c`), and the same with "in" or a comma between them."""
    sources = {p: read(p) for p in tracked("*.c", "*.h", "*.inc", "*.cu")}
    pairs = [(d, *pair) for d in documents() for pair in re.findall(r"`(\w+)\(\)`(?: in | \(|, )`([\w/]+/\w+\.(?:c|h|inc|cu))`", read(d))]
    assert len(pairs) > 100, len(pairs)
    wrong = [f"{d}: {name}() is not in {path}" for d, name, path in pairs if not re.search(rf"^[a-z][^\n;#]*\b{name}\(", sources.get(path, ""), re.M)]
    assert not wrong, "\n".join(wrong)


def headings(document):
    """Of a document: the anchors that its headings have in a browser."""
    return {re.sub(r"[^\w -]", "", line.lstrip("#").strip().lower()).replace(" ", "-") for line in read(document).splitlines() if line.startswith("#")}


@test
def links_between_documents_lead_somewhere():
    wrong = []
    for document in documents():
        for target, heading in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", read(document)):
            path = os.path.normpath(os.path.join(os.path.dirname(document), target)) if target else document
            if "://" in target:
                continue
            if not os.path.exists(os.path.join(ROOT, path)) or (heading and heading not in headings(path)):
                wrong.append(f"{document}: {target}#{heading}")
    assert not wrong, "\n".join(wrong)


@test
def the_store_s_header_lists_every_kind_of_record():
    listed = re.findall(r"^ \*   (\w+)  +\S", read("coordinator/store/store.h"), re.M)
    kinds = re.findall(r'"(\w+)"', re.search(r"coord_kinds\[\] = \{(.*?)\}", read("coordinator/core.c"), re.S).group(1))
    assert len(kinds) > 10, kinds
    assert sorted(listed) == sorted(kinds + ["bad"]), set(listed) ^ set(kinds)


@test
def the_tables_of_the_protocol_are_those_of_the_sources():
    run = subprocess.run([sys.executable, "tools/protocol_tables", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@test
def the_reference_of_commands_and_metrics_is_what_the_programs_say():
    if not os.path.exists(os.path.join(BUILD, "hpctl")):
        skip("not built")
    run = subprocess.run([sys.executable, "tools/reference", "--check"], cwd=ROOT, capture_output=True, text=True, env=dict(os.environ, HP_BUILD=BUILD))
    assert run.returncode == 0, run.stdout + run.stderr


@test
def the_description_of_the_api_has_every_route_and_no_other():
    routes = re.findall(r'^    \{"([A-Z]+)", "([^"]+)",', read("coordinator/gateway/gateway_routes.c"), re.M)
    assert len(routes) > 20, routes
    document = json.loads(read("coordinator/gateway/openapi.json"))
    served = {(method, path if path == "/" or not path.endswith("/") else path + "{name}") for method, path in routes}
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert served == described, (served - described, described - served)
    assert document["info"]["version"] == read("VERSION").strip(), document["info"]
    open_routes = {path for path in re.findall(r'^    \{"GET", "([^"]+)", [^}]*\.open = true\}', read("coordinator/gateway/gateway_routes.c"), re.M)}
    keyless = {path.replace("{name}", "") for path, item in document["paths"].items() for o in item.values() if o.get("security") == []}
    assert open_routes == keyless, open_routes ^ keyless
    told = read("docs/api.md")
    missing = [path for _, path in routes if path.rstrip("/") not in told and not path.startswith("/page/")]
    assert not missing, f"docs/api.md says nothing of {missing}"


@test
def every_field_that_a_body_is_read_for_is_described():
    """In /openapi.json, or among those that are refused by name."""
    files = tracked("coordinator/gateway/*body*.c", "coordinator/gateway/openai_*.c", "coordinator/gateway/dialect_*.c", "coordinator/gateway/text_*.c")
    text = "".join(read(f) for f in files if "infer" not in f)
    names = set(re.findall(r'(?:json_object_get|field_asks|body_field_\w+)\(\s*(?:(?:b|f|c->body|m)->)?\*?(?:root|from|options), "(\w+)"', text))
    for table, rows in re.findall(r"struct field_name (\w+)\[\] = \{(.*?)\{0\}\}", text, re.S):
        names |= set(re.findall(r'\{"(\w+)", "\w+"\}', rows)) if table != "refused_names" else set()
    assert len(names) > 80, sorted(names)
    described = set()

    def walk(value):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
            described.update(member if key == "properties" and isinstance(member, dict) else ())
            walk(member)
    walk(json.loads(read("coordinator/gateway/openapi.json")))
    refused = set(re.findall(r'\.name = "(\w+)"', read("coordinator/gateway/body_unbuilt.c")))
    own = {"asked", "tool_name"}  # what a translation leaves for itself; of Ollama's messages
    assert names <= described | refused | own, names - described - refused - own


@test
def every_variable_of_the_environment_that_programs_read_is_told():
    """But for those of terminals and homes, which everybody knows, and those of tests alone."""
    sources = "".join(read(p) for p in tracked("*.c", "*.h") if not p.startswith(("tests/", "bench/")))
    found = set(re.findall(r'getenv\("([A-Z_]+)"\)|"(HP_[A-Z]+_PLUGIN)"', sources))
    names = {a or b for a, b in found if not (a or b).startswith("HP_TEST_")} - {"HOME", "TERM", "COLUMNS", "XDG_CONFIG_HOME"}
    told = re.findall(r"^\| (`[^|]*) \|", read("docs/cluster.md").split("## Variables of the environment")[1], re.M)
    told = set(re.findall(r"`([A-Z_*]+)`", " ".join(told))) - {"UCX_*"}
    assert len(names) > 8 and told == names, told ^ names


def options_of(program, verb=""):
    said = subprocess.run([os.path.join(BUILD, program), *verb.split(), "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"--([a-z][a-z0-9-]*)", said))


@test
def every_command_that_a_document_shows_has_its_verb_and_options():
    """Lines of code blocks and spans that begin with one of our programs: the verb exists and every option is in its help."""
    hpctl = os.path.join(BUILD, "hpctl")
    if not os.path.exists(hpctl):
        skip("not built")
    listed = subprocess.run([hpctl, "--help"], capture_output=True, text=True).stdout
    verbs = sorted((m.strip() for m in re.findall(r"^  ([a-z][a-z ]*?)  +\S", listed, re.M)), key=len, reverse=True)
    known, wrong = {}, []
    for document in documents():
        text = read(document)
        shown = re.findall(r"^\s*(?:\$ )?(?:build/|sudo )?((?:hpctl|hp-agent|hp-coordinator) (?! )[^\n`]*)", "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.S) + re.findall(r"^    (\S.*)$", text, re.M)), re.M)
        shown += re.findall(r"`((?:hpctl|hp-agent|hp-coordinator) [^`\n]*)`", text)
        for line in shown:
            line = line.split("#")[0].split("|")[0].split("…")[0]
            program, _, rest = line.partition(" ")
            verb = ""
            if program == "hpctl":
                verb = next((v for v in verbs if re.match(rf"{v}\b", rest)), "")
                group = any(v.startswith(rest.split(" ")[0] + " ") for v in verbs)
                if not verb:
                    if not group and not re.match(r"[A-Z-]|help", rest):
                        wrong.append(f"{document}: there is no verb in: {line}")
                    continue
            known.setdefault((program, verb), options_of(program, verb))
            for option in re.findall(r"(?<!\S)--([a-z][a-z0-9-]*)", rest):
                if option not in known[program, verb]:
                    wrong.append(f"{document}: --{option} is no option in: {line}")
    assert not wrong, "\n".join(wrong)


main()
