"""KServe v2 over gRPC, beside HTTP (hp-coordinator --grpc): the same models, keys, limits, deadlines and reasons; for any client of gRPC, and for an unmodified tritonclient[grpc]."""
# Waits: for callers who read nothing.
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from cluster import BUILD, ROOT, SCALE, Cluster, ended
from tap import main, skip, test

SERVICE = "/inference.GRPCInferenceService/"
TOY = os.path.join(ROOT, "examples", "pools", "toy.workload.yaml")


def grpc():
    if not os.path.exists(os.environ.get("HP_GRPC_PLUGIN", os.path.join(BUILD, "libhp-grpc.so"))):
        skip("libhp-grpc.so was left out (Debian's libgrpc-dev)")
    try:
        import grpc
    except ImportError:
        skip("no grpc (Debian's python3-grpcio)")
    return grpc


# ---- protobuf, as much as these messages need ----

def varint(v):
    v, out = v % 2**64, b""
    while v >= 0x80:
        out, v = out + bytes([v & 0x7f | 0x80]), v >> 7
    return out + bytes([v])


def put(field, value):
    if isinstance(value, int):
        return varint(field << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def fields(data):
    """[(number, value)]: bytes, or a number."""
    def number(at):
        v = shift = 0
        while True:
            v, shift, at = v | (data[at] & 0x7f) << shift, shift + 7, at + 1
            if data[at - 1] < 0x80:
                return v, at

    out, at = [], 0
    while at < len(data):
        tag, at = number(at)
        value, at = number(at)
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        out.append((tag >> 3, value))
    return out


def of(data, number):
    return [v for n, v in fields(data) if n == number]


def numbers(packed):
    out = []
    while packed:
        n = next(i for i, b in enumerate(packed) if b < 0x80) + 1
        v = sum((b & 0x7f) << (7 * i) for i, b in enumerate(packed[:n]))
        out.append(v - 2**64 if v >= 2**63 else v)
        packed = packed[n:]
    return out


def parameter(name, kind, value):
    return put(1, name) + put(2, put(kind, value))


def tensor(name, shape, kind="FP32", contents=None, more=b""):
    return put(5, put(1, name) + put(2, kind) + put(3, b"".join(map(varint, shape))) + more + (b"" if contents is None else put(5, contents)))


def request(x, model="toy", name="x", more=b"", kind="FP32"):
    return put(1, model) + tensor(name, x.shape, kind) + more + put(7, x.tobytes())


# ---- a coordinator with gRPC ----

class Service:
    """A cluster whose coordinator was started anew, with gRPC."""

    def __init__(self, c, module, *options):
        self.c, self.module = c, module
        c.hpctl("apply", "-f", TOY)
        c.kill("coordinator")
        state = os.path.join(c.folder, "state", "coordinator")
        with open(os.path.join(state, "coordinator.json")) as f:
            before = json.load(f)
        with open(os.path.join(state, "log"), "a") as log:
            self.process = subprocess.Popen([os.path.join(BUILD, "hp-coordinator"), "--dir", state, "--listen", before["control"], "--http", before["http"], *(options or ("--grpc", "0"))],
                                            stdout=log, stderr=log)

        def told():
            with open(os.path.join(state, "coordinator.json")) as f:
                now = json.load(f)
            return now if now["pid"] == self.process.pid and now["grpc"] else None

        try:
            self.address = c.wait("the coordinator listens", told)["grpc"]
        except BaseException:
            self.__exit__()
            raise
        self.channel = module.insecure_channel(self.address, [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()  # where a test did not get so far as to stop it
        self.process.wait()

    def call(self, method, message=b"", key=None, timeout=60):
        return self.channel.unary_unary(method if method[0] == "/" else SERVICE + method)(message, timeout=timeout * SCALE, metadata=[("authorization", "Bearer " + key)] if key else [])

    def refused(self, method, message=b"", **more):
        """(status, text, trailing metadata) of a call that must fail."""
        try:
            self.call(method, message, **more)
        except self.module.RpcError as e:
            return e.code().name, e.details(), dict(e.trailing_metadata() or ())
        raise AssertionError(f"{method} was not refused")

    def http(self, path, body=None, headers=None):
        r = urllib.request.Request(self.c.http + path, body, {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(r, timeout=60 * SCALE) as a:
                return a.status, json.load(a)
        except urllib.error.HTTPError as e:
            return e.code, json.load(e)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self, number):
        self.channel.close()
        self.process.send_signal(number)
        return self.process.wait(30 * SCALE)


def served(s, c, np):
    """The toy of examples/pools serves."""
    c.wait("it serves again", lambda: c.hpctl("pools")["state"] == "serving")
    meta = s.http("/v2/models/toy")[1]
    rng = np.random.default_rng(5)
    s.x = rng.standard_normal([2] + meta["inputs"][0]["shape"][1:]).astype(np.float32)
    s.meta, s.name = meta, meta["inputs"][0]["name"]


def plain_parts(s, np):
    """Live, ready, metadata, config, index and statistics."""
    assert of(s.call("ServerLive"), 1) == [1] and of(s.call("ServerReady"), 1) == [1]
    assert of(s.call("ServerMetadata"), 1) == [b"hodgepodge"]
    assert of(s.call("ModelReady", put(1, "toy") + put(2, "1")), 1) == [1]
    told = s.call("ModelMetadata", put(1, "toy"))
    assert of(told, 1) == [b"toy"] and of(told, 2) == [b"1"] and of(told, 3) == [s.meta["platform"].encode()]
    for field, tensors in ((4, s.meta["inputs"]), (5, s.meta["outputs"])):
        assert [{"name": of(t, 1)[0].decode(), "datatype": of(t, 2)[0].decode(), "shape": numbers(of(t, 3)[0])} for t in of(told, field)] == tensors
    config = of(s.call("ModelConfig", put(1, "toy")), 1)[0]
    assert of(config, 1) == [b"toy"] and [numbers(of(t, 4)[0]) for t in of(config, 5)] == [t["shape"] for t in s.meta["inputs"]], config
    assert [b"".join(of(m, n)) for m in of(s.call("RepositoryIndex"), 1) for n in (1, 2, 3, 4)] == [b"toy", b"1", b"READY", b""]
    success = {"grpc": lambda: of(of(of(s.call("ModelStatistics", put(1, "toy")), 1)[0], 6)[0], 1)[0],
               "http": lambda: s.http("/v2/models/toy/stats")[1]["model_stats"][0]["inference_stats"]["success"]}
    before = of(success["grpc"](), 1)
    s.call("ModelInfer", request(s.x, name=s.name))
    after, http = success["grpc"](), success["http"]()
    assert of(after, 1)[0] == (before or [0])[0] + 1 == http["count"] and of(after, 2) == [http["ns"]]
    assert len(of(s.call("ModelStatistics"), 1)) == 1


def answers_are_those_of_http(s, np):
    status, told = s.http("/v2/models/toy/infer", json.dumps({"inputs": [{"name": s.name, "shape": s.x.shape, "datatype": "FP32", "data": s.x.flatten().tolist()}]}).encode())
    assert status == 200, told
    wanted = {o["name"]: np.array(o["data"], np.float32).reshape(o["shape"]) for o in told["outputs"]}
    unpacked = b"".join(varint(6 << 3 | 5) + struct.pack("<f", v) for v in s.x.flatten())
    numbers_alone = put(1, "toy") + tensor(s.name, s.x.shape, contents=put(6, s.x.tobytes()))
    each_a_field = put(1, "toy") + tensor(s.name, s.x.shape, contents=unpacked)
    sizes_each = put(1, "toy") + put(5, put(1, s.name) + put(2, "FP32") + b"".join(put(3, n) for n in s.x.shape)) + put(7, s.x.tobytes())
    first = next(iter(wanted))
    for message, names in ((request(s.x, name=s.name, more=put(3, "q") + put(4, parameter("timings", 1, 1))), list(wanted)), (numbers_alone, list(wanted)), (each_a_field, list(wanted)),
                           (sizes_each, list(wanted)), (request(s.x, name=s.name, more=put(6, put(1, first))), [first])):
        told = s.call("ModelInfer", message)
        assert of(told, 1) == [b"toy"] and of(told, 2) == [b"1"]
        got = {of(o, 1)[0].decode(): (numbers(of(o, 3)[0]), raw) for o, raw in zip(of(told, 5), of(told, 6), strict=True)}
        assert list(got) == names, got.keys()
        for name, (shape, raw) in got.items():
            a, b = np.frombuffer(raw, np.float32).reshape(shape), wanted[name]
            assert a.shape == b.shape and abs(a - b).max() <= 1e-4 * abs(b).max(), name
        if of(told, 3):
            assert of(told, 3) == [b"q"]
            times = of(of(told, 4)[0], 2)[0]
            assert json.loads(of(times, 3)[0])["timings"]["stages"], times


def reasons_are_those_of_http(s, np):
    """The same request by both, wrong in the same way: one text."""
    x, shape, one = s.x, list(s.x.shape), [1] + list(s.x.shape[1:])
    good = {"name": s.name, "shape": shape, "datatype": "FP32", "data": x.flatten().tolist()}
    raw, contents = put(7, x.tobytes()), put(6, x.tobytes())
    cases = [
        ({**good, "name": "q"}, tensor("q", shape) + raw), ({**good, "datatype": "INT8"}, tensor(s.name, shape, "INT8") + raw),
        ({**good, "shape": shape[:-1]}, tensor(s.name, shape[:-1]) + raw), ({**good, "shape": [0] + shape[1:]}, tensor(s.name, [0] + shape[1:]) + raw),
        ({**good, "shape": [-1] + shape[1:]}, tensor(s.name, [-1] + shape[1:]) + raw), ({**good, "shape": [2**62] + shape[1:]}, tensor(s.name, [2**62] + shape[1:]) + raw),
        ({**good, "shape": [1] * 9}, tensor(s.name, [1] * 9) + raw), ({**good, "shape": one}, tensor(s.name, one, contents=contents)),
        ({**good, "data": [0.0] * (x.size - 1)}, tensor(s.name, shape, contents=put(6, bytes(4 * (x.size - 1))))),
        ({**good, "shape": [200] + shape[1:]}, tensor(s.name, [200] + shape[1:], contents=contents)),
        ({**good, "parameters": {"shared_memory_region": "a"}}, tensor(s.name, shape, more=put(4, parameter("shared_memory_region", 3, "a"))) + raw),
    ]
    cases = [({"inputs": [i]}, m) for i, m in cases] + [
        ({"inputs": []}, b""), ({"inputs": [good, good]}, tensor(s.name, shape) * 2 + raw * 2), ({"inputs": [good], "id": "x" * 300}, put(3, "x" * 300) + tensor(s.name, shape) + raw),
        ({"inputs": [good], "outputs": [{"name": "z"}]}, tensor(s.name, shape) + put(6, put(1, "z")) + raw),
        ({"inputs": [good], "outputs": [{"name": s.meta["outputs"][0]["name"], "parameters": {"classification": 3}}]},
         tensor(s.name, shape) + put(6, put(1, s.meta["outputs"][0]["name"]) + put(2, parameter("classification", 2, 3))) + raw),
        ({"inputs": [good], "parameters": {"timeout": -1}}, put(4, parameter("timeout", 2, -1)) + tensor(s.name, shape) + raw),
        ({"inputs": [good], "parameters": {"sequence_id": 7}}, put(4, parameter("sequence_id", 2, 7)) + tensor(s.name, shape) + raw),
        ({"inputs": [good], "parameters": {"sequence_id": "a"}}, put(4, parameter("sequence_id", 3, "a")) + tensor(s.name, shape) + raw),
    ]
    words = {400: ("INVALID_ARGUMENT", "UNIMPLEMENTED"), 413: ("RESOURCE_EXHAUSTED",)}
    for body, message in cases:
        status, told = s.http("/v2/models/toy/infer", json.dumps(body).encode())
        code, text, _ = s.refused("ModelInfer", put(1, "toy") + message)
        assert code in words[status] and text == told["error"], (status, told["error"], code, text)
    # What is not there is not ready: no error, as Triton has it.
    for path, message in (("/v2/models/nobody/ready", put(1, "nobody")), ("/v2/models/toy/versions/2/ready", put(1, "toy") + put(2, "2"))):
        assert s.http(path)[0] == 404 and of(s.call("ModelReady", message), 1) in ([], [0])
    for path, method, message in (("/v2/models/nobody", "ModelMetadata", put(1, "nobody")), ("/v2/models/toy/versions/2", "ModelMetadata", put(1, "toy") + put(2, "2"))):
        status, told = s.http(path)
        assert status == 404 and s.refused(method, message)[:2] == ("NOT_FOUND", told["error"]), told
    # What JSON cannot say wrongly.
    for message, says in ((put(1, "toy") + tensor(s.name, shape) + put(7, x.tobytes()[:-1]), "its shape and datatype take"), (request(x, name=s.name) + raw, "goes on behind"),
                          (put(1, "toy") + tensor(s.name, shape), "needs either"), (put(1, "toy") + tensor(s.name, shape, contents=put(2, b"\1" * x.size)), "lie in another field"),
                          (put(1, "toy") + tensor(s.name, shape, contents=contents) + raw, "needs either"), (b"\xff" * 40, "no protobuf"), (put(1, b"\xff\xfe"), "must be a text"),
                          (request(x, name=s.name)[:-5], "no protobuf"), (put(1, "toy") + put(5, b"\x0a"), "no protobuf"), (put(1, 7), "no protobuf")):
        code, text, _ = s.refused("ModelInfer", message)
        assert code == "INVALID_ARGUMENT" and says in text, (code, text)
    code, text, _ = s.refused("ModelStreamInfer")
    assert code == "UNIMPLEMENTED" and "ModelInfer" in text, text
    assert s.refused("/grpc.health.v1.Health/Check")[0] == "UNIMPLEMENTED"


@test
def models_are_asked_over_grpc_as_over_http_and_refusals_have_the_same_reasons():
    module = grpc()
    import numpy as np
    with Cluster(agents=1, cores=1) as c, Service(c, module) as s:
        served(s, c, np)
        plain_parts(s, np)
        answers_are_those_of_http(s, np)
        reasons_are_those_of_http(s, np)
        # What cannot be on time is refused at once: by the request's own timeout.
        code, text, more = s.refused("ModelInfer", request(s.x, name=s.name, more=put(4, parameter("timeout", 2, 1))))
        assert code == "RESOURCE_EXHAUSTED" and "late" in text and int(more["retry-after"]) >= 1, (code, text, more)
        # The call's deadline is the request's, where it is sooner than the model's (0.2 s).
        timed, seen = request(s.x, name=s.name, more=put(4, parameter("timings", 1, 1))), []
        for limit in (0.15, 60 * SCALE):
            def deadline():
                try:
                    told = s.channel.unary_unary(SERVICE + "ModelInfer")(timed, timeout=limit)
                except module.RpcError as e:
                    assert e.code().name in ("RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"), e
                    return None
                return json.loads(of(of(of(told, 4)[0], 2)[0], 3)[0])["timings"]["deadline_s"]

            seen.append(c.wait("it is answered in time", deadline))
        assert 0.1 < seen[0] < 0.17 < seen[1] <= 0.2001, seen  # the library rounds what is left up
        # A message that no model takes is refused, and what it held is given back.
        before = s.resident_bytes()
        code, text, _ = s.refused("ModelInfer", put(1, "toy") + tensor(s.name, s.x.shape) + put(7, bytes(300 << 20)))
        assert code == "RESOURCE_EXHAUSTED", (code, text)
        assert s.resident_bytes() < before + (600 << 20)
        code, text, _ = s.refused("ModelReady", put(1, "toy") + put(9, bytes(70000)))
        assert code == "RESOURCE_EXHAUSTED" and "65536" in text, (code, text)
        # Strangers who say nothing, or nonsense, hold nobody up.
        host, port = s.address.rsplit(":", 1)
        idle = [socket.create_connection((host, int(port))) for _ in range(100)]
        for i, one in enumerate(idle):
            one.sendall(os.urandom(64) if i % 2 else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        s.call("ModelInfer", request(s.x, name=s.name))
        for one in idle:
            one.close()
        # Without agents nothing is ready, and the index says why.
        c.kill("a0")
        c.wait("it is not ready", lambda: of(s.call("ModelReady", put(1, "toy")), 1) in ([], [0]))
        told = of(s.call("RepositoryIndex"), 1)[0]
        assert of(s.call("ServerReady"), 1) in ([], [0]) and of(told, 3) == [b"LOADING"] and b"no plan serves" in of(told, 4)[0], told
        assert s.call("RepositoryIndex", put(2, 1)) == b""
        assert s.stop(15) == 0


@test
def keys_hold_over_grpc_as_over_http_and_an_unmodified_tritonclient_gets_the_answers():
    module = grpc()
    import numpy as np
    with Cluster(agents=1, cores=1) as c, tempfile.TemporaryDirectory(prefix="hp-grpc-") as folder, Service(c, module) as s:
        served(s, c, np)
        made = {name: c.hpctl("key", "create", name, *limits)["key"] for name, *limits in (("whole",), ("other", "--models", "other"), ("often", "--rpm", "1"))}
        ask = request(s.x, name=s.name)
        for key, says in ((None, "API key is needed"), ("nothing", "not known")):
            code, text, _ = s.refused("ModelInfer", ask, key=key)
            assert code == "UNAUTHENTICATED" and says in text, (code, text)
        assert of(s.call("ServerReady"), 1) == [1]
        s.call("ModelInfer", ask, key=made["whole"])
        code, text, _ = s.refused("ModelInfer", ask, key=made["other"])
        assert code == "PERMISSION_DENIED" and '"toy"' in text, (code, text)
        assert s.call("RepositoryIndex", key=made["other"]) == b""
        s.call("ModelInfer", ask, key=made["often"])
        code, text, more = s.refused("ModelInfer", ask, key=made["often"])
        assert code == "RESOURCE_EXHAUSTED" and "1 times a minute" in text and 1 <= int(more["retry-after"]) <= 60, (code, text, more)
        s.call("ModelReady", put(1, "toy"), key=made["often"])
        given, out = (os.path.join(folder, n) for n in ("given.npz", "made.npz"))
        np.savez(given, **{"a/" + s.name: s.x})
        run = subprocess.run([os.environ.get("HP_TRITON_PYTHON", sys.executable), os.path.join(ROOT, "tests", "proc", "triton_grpc_check.py"), s.address, "toy", given, out, made["whole"]],
                             capture_output=True, text=True, timeout=120 * SCALE)
        assert run.returncode in (0, 77), run.stderr
        if run.returncode == 77:
            print("# without tritonclient (HP_TRITON_PYTHON names a python with tritonclient[grpc])")
        # It stops while calls are open, and tells them so or answers them.
        futures = [s.channel.unary_unary(SERVICE + "ModelInfer").future(ask, timeout=60 * SCALE, metadata=[("authorization", "Bearer " + made["whole"])]) for _ in range(20)]
        futures[0].result()
        s.process.send_signal(15)
        codes = {f.code().name for f in futures if not f.cancelled()}
        assert codes <= {"OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED"} and "OK" in codes, codes
        assert s.process.wait(30 * SCALE) == 0


class Idler:
    """A connection of HTTP/2 that opens calls, reads no answer (its windows are closed), and need not send messages either."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket, self.calls = socket.create_connection((host, int(port)), timeout=60 * SCALE), 0
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0, struct.pack(">HI", 4, 0)))

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def open(self, method, message=None):
        head = [(":method", "POST"), (":scheme", "http"), (":path", SERVICE + method), (":authority", "a"), ("te", "trailers"), ("content-type", "application/grpc")]
        block = b"".join(b"\0" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode() for k, v in head)
        stream, self.calls = 2 * self.calls + 1, self.calls + 1
        self.socket.sendall(self.frame(1, 4, stream, block) + (b"" if message is None else self.frame(0, 1, stream, b"\0" + struct.pack(">I", len(message)) + message)))

    def resets(self):
        """Calls that were ended by the coordinator so far, waited for until there is one."""
        data, n = b"", 0
        while not n:
            while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
                more = self.socket.recv(65536)
                assert more, "the connection was ended"
                data += more
            n, data = n + (data[3] == 3), data[9 + int.from_bytes(data[:3], "big"):]
        return n


@test
def callers_who_neither_send_nor_read_hold_nobody_up():
    module = grpc()
    with Cluster(agents=1, cores=1) as c:
        s = Service(c, module)
        assert of(s.call("ServerLive"), 1) == [1]
        for message in (b"", None):  # nobody reads; nobody sends
            idle = [Idler(s.address) for _ in range(17)]
            for one in idle:  # more calls than there are at once
                for _ in range(256):
                    one.open("ServerLive", message)
            began = time.monotonic()
            assert of(s.call("ServerLive", timeout=10), 1) == [1]
            assert time.monotonic() - began < 5 * SCALE
            assert sum(one.resets() for one in idle[:1]) > 0, "the one that was waited for longest goes"
            for one in idle:
                one.socket.close()
        # It has some time, but not for ever.
        last, began = Idler(s.address), time.monotonic()
        last.open("ServerLive", b"")
        assert last.resets() == 1 and 20 < time.monotonic() - began < 45 * SCALE
        assert s.stop(15) == 0


@test
def headers_without_end_and_calls_taken_back_take_no_room():
    module = grpc()
    with Cluster(agents=1, cores=1) as c, Service(c, module) as s:
        assert of(s.call("ServerLive"), 1) == [1]
        before, endless = s.resident_bytes(), Idler(s.address)
        endless.socket.settimeout(20 * SCALE)
        endless.socket.sendall(Idler.frame(1, 0, 1, b""))
        more, sent = Idler.frame(9, 0, 1, b"\0\5hello\5world" * 1000), 0
        try:
            while sent < 64 << 20:  # no END_HEADERS
                endless.socket.sendall(more)
                sent += len(more)
        except OSError:
            pass
        assert sent < 64 << 20, "the connection goes on"
        # Calls that are begun and taken back at once, as fast as goes.
        flood, largest, until = [Idler(s.address) for _ in range(4)], 0, time.monotonic() + 3
        for one in flood:
            one.socket.settimeout(0.2)
        while flood and time.monotonic() < until:
            for one in list(flood):
                try:
                    for _ in range(100):
                        one.open("ModelInfer")
                        one.socket.sendall(Idler.frame(3, 0, 2 * one.calls - 1, struct.pack(">I", 8)))
                except OSError:
                    flood.remove(one)  # it has to wait: a frame of it is cut off here
            largest = max(largest, s.resident_bytes())
        assert largest < before + (100 << 20), (before, largest)
        assert of(s.call("ServerLive", timeout=10), 1) == [1]
        # Who speaks HTTP/1 is told what this is.
        host, port = s.address.rsplit(":", 1)
        told = http.client.HTTPConnection(host, int(port), timeout=30 * SCALE)
        told.request("GET", "/v2")
        answer = told.getresponse()
        assert answer.status == 505 and b"gRPC" in answer.read()
        assert s.stop(15) == 0


@test
def a_local_cluster_speaks_grpc_where_it_is_asked_to():
    module = grpc()
    with Cluster(agents=1, cores=1, grpc_port=0) as c:
        address = c.state["grpc"]
        assert module.insecure_channel(address).unary_unary(SERVICE + "ServerLive")(b"", timeout=60 * SCALE) == put(1, 1)
        c.kill("coordinator")
        c.hpctl("local", "start", "--coordinator")
        assert c.hpctl("local", "ls")[0]["grpc"] == address and f'"{address}"' in json.dumps(c.local()), c.local()


@test
def what_cannot_be_is_said_when_it_starts():
    grpc()
    with tempfile.TemporaryDirectory(prefix="hp-grpc-") as folder:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            for options, env, says in ((("--grpc", port), {}, "cannot listen for gRPC"), (("--grpc", "0", "--http", "none"), {}, "--http none"), (("--grpc", "x"), {}, "not an address"),
                                       (("--grpc", "0"), {"HP_GRPC_PLUGIN": os.path.join(folder, "nothing.so")}, "libgrpc-dev"), (("--grpc", "0"), {"HP_GRPC_PLUGIN": "libc.so.6"}, "not of this version")):
                run = subprocess.run([os.path.join(BUILD, "hp-coordinator"), "--dir", os.path.join(folder, "c"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options],
                                     env={**os.environ, **env}, capture_output=True, text=True, timeout=30 * SCALE)
                assert run.returncode != 0 and says in run.stderr, (options, run.stderr)


main()
