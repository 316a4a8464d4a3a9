"""The shape of the tree: which folder may include which, which file which, and what nobody may define twice.

Rooms: common <- model, planners, transport <- agent, coordinator <- hpctl. Floors inside a folder stand in its floors.txt, lowest first,
one line a floor, "NUMBER: name name ...": a file includes files of its own floor and of lower ones. NAME stands for NAME.h, NAME_int.h,
NAME.c and NAME.inc; NAME.h alone for that file, where a face's header lies below its source; NAME/ for a folder. Every file of
the folder stands on a floor."""
import collections
import concurrent.futures
import fnmatch
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tap import main, test

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
BUILD = os.environ.get("HP_BUILD", os.path.join(ROOT, "build"))
MAY = {
    "common": set(),
    "model": {"common"},
    "planners": {"common"},
    "transport": {"common"},
    "agent": {"common", "model", "planners", "transport"},
    "coordinator": {"common", "model", "planners", "transport"},
    "hpctl": {"common", "model", "planners", "transport", "agent", "coordinator"},
}
# hpctl reaches into the daemons' rooms only where it runs their parts in its own process; doctor looks at the box as an agent does, and what drives pools writes tensors as their API reads them.
EMBEDDING = {"hpctl/bench_model_verbs.c", "hpctl/doctor_verbs.c", "hpctl/embed_verbs.c", "hpctl/embedded.c", "hpctl/gpu_look.h", "hpctl/gpu_look.c", "hpctl/own_devices.h", "hpctl/own_devices.c", "hpctl/model_run_verbs.c", "hpctl/infer_target.c", "hpctl/onnx_verbs.c", "hpctl/onnx_jobs.c", "hpctl/onnx_jobs.h", "hpctl/onnx_serve_verbs.c", "hpctl/profile_graph_verbs.c", "hpctl/profile_onnx.c", "hpctl/profile_onnx.h"}
# An interpreter calls itself: macros run statements, tests ask for filters and filters for tests, brackets hold expressions.
RECURSION = [{"model/template/" + name for name in names} for names in (
    {"call.c", "eval.c", "statements.c"}, {"filters.c", "tests.c"}, {"expression.c", "primary.c"})]
# Built where the library that they stand on is installed.
OPTIONAL = ("coordinator/gateway/grpc/",)
LONG_LINES, LONG_SHARE = 400, 0.05
# Called by tests alone, on purpose: a clock of their own, levels of logging, and what a test looks at.
SEAMS = {
    "env_virtual_init", "log_set_level", "coordinator_control_address", "sampler_kernels_use", "slices_ready",
    "discover_nics", "stage_sequence_length", "store_model_id", "weight_store_bytes",
    "accept", "sendmsg",  # stand before the C library's, for UCX
    "dtype_f32_to_bf16",  # the rounding that kernels are held to
    "onnx_parse",  # ONNX without a file, for fuzzing
    "matcher_whole",  # whether a text may end here
    "key_encode",  # the pair of key_decode: who plays a peer (bench, fuzz, attack) makes keys with it
}


def read(path):
    with open(os.path.join(ROOT, path), errors="replace") as f:
        return f.read()


def tracked(*patterns):
    names = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [n for n in names if n and os.path.exists(os.path.join(ROOT, n))]


def sources():
    for room in MAY:
        for path in tracked(room):
            if path.endswith((".c", ".h", ".inc", ".cu", ".cuh")):
                yield room, path


def includes(path):
    return re.findall(r'^\s*#\s*include\s*"([^"]+)"', read(path), re.M)


def circles(graph):
    """Strongly connected parts of more than one node (Tarjan)."""
    index, low, stack, on, out = {}, {}, [], set(), []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in graph.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = set()
            while not part or v not in part:
                part.add(stack.pop())
            on.difference_update(part)
            if len(part) > 1:
                out.append(part)

    sys.setrecursionlimit(10000)
    for v in sorted(graph):
        if v not in index:
            visit(v)
    return out


def none_is(what, found):
    assert not found, f"{what}: {len(found)}\n" + "\n".join(map(str, found))


# ---- what the objects of the last build say ----------------------------------------------------------------------------------------

_symbols = {}


def symbols():
    """(functions and tables defined, symbols wanted) by source; all rooms are built."""
    if _symbols:
        return _symbols
    objects = {os.path.join(BUILD, "obj", p[:-2] + ".o"): p for _, p in sources() if p.endswith(".c")}
    for obj, path in list(objects.items()):
        if path.startswith(OPTIONAL) and not os.path.exists(obj):
            del objects[obj]
            continue
        assert os.path.exists(obj), f"{path} is not built: make all"
        _symbols[path] = (set(), set())
    out = subprocess.run(["nm", "-A", "-P", *objects], capture_output=True, text=True, check=True).stdout
    for obj, name, kind in re.findall(r"^(\S+): (\S+) (\w)", out, re.M):
        defined, wanted = _symbols[objects[obj]]
        if kind in "TDBRVW":
            defined.add((name, kind))
        elif kind == "U":
            wanted.add(name)
    return _symbols


# ---- floors ------------------------------------------------------------------------------------------------------------------------

def floors_of(folder):
    floor = {}
    for number, names in re.findall(r"^(\d+):(.*)$", read(folder + "/floors.txt"), re.M):
        for name in names.split():
            assert name not in floor, f"{folder}/floors.txt names {name} twice"
            floor[name] = int(number)
    return floor


def floor_of(floor, folder, path):
    rest = os.path.relpath(path, folder)
    if "/" in rest:
        return floor.get(rest.split("/")[0] + "/")
    stem = os.path.splitext(rest)[0]
    for name in (rest, stem, stem[:-4] if stem.endswith("_int") else stem):
        if name in floor:
            return floor[name]
    return None


@test
def no_room_includes_one_above_or_beside_it():
    wrong = []
    for room, path in sources():
        for inc in includes(path):
            other = inc.split("/")[0]
            if other in MAY and other != room and other not in MAY[room]:
                wrong.append(f"{path} includes {inc}")
            if room == "hpctl" and other in ("agent", "coordinator") and path not in EMBEDDING:
                wrong.append(f"{path} includes {inc}; only {', '.join(sorted(EMBEDDING))} may")
    assert not wrong, "\n".join(wrong)


@test
def no_file_includes_one_on_a_higher_floor():
    wrong, nowhere, folders = [], [], [os.path.dirname(f) for f in tracked("*floors.txt")]
    assert folders
    for folder in folders:
        floor = floors_of(folder)
        known = {p: floor_of(floor, folder, p) for _, p in sources() if p.startswith(folder + "/")}
        stems = {os.path.splitext(os.path.relpath(p, folder))[0] for p in known}
        names = {n.rstrip("/") for n in floor}
        for name in names:
            here = any(s == name or s == name + "_int" or s.startswith(name + "/") for s in stems) or os.path.exists(os.path.join(ROOT, folder, name))
            if not here:
                wrong.append(f"{folder}/floors.txt: there is no {name}")
        for path, at in known.items():
            if at is None and os.path.dirname(path) == folder:
                nowhere.append(f"{path} stands on no floor of {folder}/floors.txt")
            for inc in includes(path):
                if at is not None and known.get(inc) is not None and known[inc] > at:
                    wrong.append(f"{path} (floor {at}) includes {inc} (floor {known[inc]})")
    assert not wrong, "\n".join(wrong)
    none_is("files on no floor", nowhere)


@test
def no_file_calls_one_on_a_higher_floor():
    """As the objects have it: a function or a table that a file on a higher floor defines."""
    wrong = []
    home = {name: p for p, (defined, _) in symbols().items() for name, _ in defined}
    for folder in (os.path.dirname(f) for f in tracked("*floors.txt")):
        floor = floors_of(folder)
        for path, (_, wanted) in symbols().items():
            at = floor_of(floor, folder, path) if path.startswith(folder + "/") else None
            for name in sorted(wanted if at is not None else ()):
                other = home.get(name, "")
                above = floor_of(floor, folder, other) if other.startswith(folder + "/") else None
                if above is not None and above > at:
                    wrong.append(f"{path} (floor {at}) calls {name} of {other} (floor {above})")
    none_is("calls of a higher floor", wrong)


@test
def who_alone_may_include_a_file_is_who_does():
    """ "Only http*.c and text_api.c include this.": of the rooms; the file's own source does in any case, a header as its source would."""
    claims, wrong = 0, []
    graph = {path: includes(path) for _, path in sources()}
    for path in graph:
        text = re.sub(r"\s*\n\s*\*\s*", " ", read(path))
        found = re.search(r"Only ((?:[\w*]+\.(?:c|inc)[, ]*(?:and )?)+)(?:\(and its tests\) )?includes? this", text)
        if not found:
            continue
        claims += 1
        named = re.findall(r"[\w*]+\.(?:c|inc)", found.group(1)) + [os.path.splitext(os.path.basename(path))[0] + ".c"]
        wrong += [f"{path}: {other} does, too" for other, has in graph.items()
                  if path in has and not any(fnmatch.fnmatch(re.sub(r"h$", "c", os.path.basename(other)), n) for n in named)]
    assert claims > 15, claims
    none_is("files that others include, too", wrong)


@test
def no_headers_include_each_other_in_a_circle():
    graph = {path: includes(path) for _, path in sources()}
    found = circles(graph)
    assert not found, "\n".join(map(str, found))


@test
def files_of_a_room_call_one_way():
    """Calls as the objects have them: a function that another file defines, or a table of functions."""
    for room in MAY:
        mine = {p: s for p, s in symbols().items() if p.startswith(room + "/")}
        home = {name: p for p, (defined, _) in mine.items() for name, _ in defined}
        graph = {p: sorted({home[w] for w in wanted if w in home and home[w] != p}) for p, (_, wanted) in mine.items()}
        none_is("files in circles of calls", sorted(p for c in circles(graph) if c not in RECURSION for p in c))


# ---- sizes and names ---------------------------------------------------------------------------------------------------------------

@test
def few_files_are_long():
    every = tracked("*.c", "*.h", "*.inc", "*.cu")
    found = sorted(f"{read(p).count(chr(10))} {p}" for p in every if read(p).count("\n") > LONG_LINES)
    assert len(found) <= LONG_SHARE * len(every), f"{len(found)} of {len(every)} files are above {LONG_LINES} lines\n" + "\n".join(found)


@test
def no_tag_is_defined_twice():
    where = collections.defaultdict(set)
    for path in tracked("*.c", "*.h", "*.inc", "*.cu"):
        for kind, tag in re.findall(r"\b(struct|enum|union)\s+(\w+)\s*\{", re.sub(r"/\*.*?\*/", "", read(path), flags=re.S)):
            where[tag].add(f"{kind} of {path}")
    none_is("tags defined twice", sorted(f"{tag}: {', '.join(sorted(places))}" for tag, places in where.items() if len(places) > 1))


def enumerators(path):
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", "", read(path), flags=re.S)
    for body in re.findall(r"\benum(?:\s+\w+)?\s*\{([^{}]*)\}", bare):
        yield from re.findall(r"(?:^|,)\s*([A-Za-z_]\w*)\s*(?=[=,]|$)", body)


@test
def a_constant_of_a_header_means_one_thing():
    """What a source names for itself may be named so by others; what a header does is that everywhere."""
    where = collections.defaultdict(set)
    for _, path in sources():
        if not path.startswith("agent/backend/cuda/"):  # a plugin, with names of its own
            for name in enumerators(path):
                where[name].add(path)
    assert len(where) > 1000, len(where)
    none_is("constants of headers that others define, too", sorted(
        f"{name}: {' '.join(sorted(paths))}" for name, paths in where.items() if len(paths) > 1 and any(p.endswith(".h") for p in paths)))


@test
def static_functions_have_an_object_in_their_name():
    for room in MAY:
        found = []
        for other, path in sources():
            if other == room:
                found += [f"{path}: {name}" for name in re.findall(r"^static (?:inline )?[\w *]*?\b([a-z0-9]+)\(", read(path), re.M)]
        none_is(f"{room}: static functions of one word", found)


@test
def every_function_has_a_caller_in_another_file():
    """What its own file alone calls is static, unless a test looks at it; what no program calls is deleted, with its tests and its paragraph."""
    wanted = set().union(*(w for _, w in symbols().values()))
    tested = set(re.findall(r"\w+", "".join(read(p) for p in tracked("tests/*.c", "tests/*.h", "bench/*.c"))))

    def stays(path, name):
        inside = len(re.findall(rf"\b{name}\b", read(path))) > 1
        return name == "main" or name in wanted or name in SEAMS or (inside and name in tested)

    for room in MAY:
        found = sorted(f"{path}: {name}" for path, (defined, _) in symbols().items() if path.startswith(room + "/")
                       for name, kind in defined if kind == "T" and not stays(path, name))
        none_is(f"{room}: functions that no other file calls", found)


@test
def every_fault_that_mutations_put_in_has_its_place():
    """tests/long/mutations.py and its like run for minutes, far from the change that moved a line."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "long"))
    import cuda_mutations
    import faults
    import mutations
    none_is("faults without their place in the sources", faults.misplaced(mutations.FAULTS + cuda_mutations.FAULTS))


@test
def every_header_compiles_alone():
    def problem(path):
        run = subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-I.", "-fsyntax-only", "-x", "c", path], cwd=ROOT, capture_output=True, text=True)
        return run.stderr[:300] if run.returncode else ""

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [text for text in pool.map(problem, (p for _, p in sources() if p.endswith(".h"))) if text]
    assert not wrong, "\n".join(wrong)


main()
