"""Client libraries as they are, before the API: structured answers by OpenAI's `parse`, instructor, LangChain and LiteLLM. OpenAI's is installed for the
test where a package index gives it; the others are tried where HP_CLIENTS_PYTHON names a python that has them."""
import os
import subprocess
import sys
import tempfile

from cluster import Cluster, SCALE
from tap import main, skip, test

OPENAI = "openai==3.3.0"
SCRIPT = """
import importlib, os, sys
from typing import List, Literal, Optional
from pydantic import BaseModel, Field
import openai

BASE = sys.argv[1]
ASKED = {"model": "demo", "messages": [{"role": "user", "content": "Tell me of a person."}], "temperature": 0, "max_tokens": 200}
client = openai.OpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0)


class Street(BaseModel):
    name: str = Field(max_length=8)
    number: Optional[int] = Field(ge=1, le=99)


class Person(BaseModel):
    \"\"\"A person.\"\"\"
    name: str = Field(min_length=1, max_length=8)
    kind: Literal["child", "adult"]
    streets: List[Street] = Field(min_length=1, max_length=2)


def holds(p):
    assert isinstance(p, Person) and 1 <= len(p.name) <= 8 and 1 <= len(p.streets) <= 2, p


def refused(kind, call, **fields):
    try:
        call()
    except kind as e:
        assert all(getattr(e, k) == v for k, v in fields.items()), (e, fields)
        return
    raise AssertionError(f"no {kind.__name__}")


def with_openai():
    holds(client.chat.completions.parse(**ASKED, response_format=Person).choices[0].message.parsed)
    with client.chat.completions.stream(**ASKED, response_format=Person) as stream:
        assert "content.delta" in {e.type for e in stream}
        holds(stream.get_final_completion().choices[0].message.parsed)
    told = client.chat.completions.create(**{**ASKED, "max_tokens": 2}, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(told) == 2 and all(x.logprob <= 0 and len(x.top_logprobs) == 2 for x in told), told
    scored = client.completions.create(model="demo", prompt=["A b", "c"], max_tokens=0, echo=True, logprobs=1).choices
    assert [x.text for x in scored] == ["A b", "c"] and scored[0].logprobs.token_logprobs[0] is None, scored
    create = client.chat.completions.create
    refused(openai.NotFoundError, lambda: create(**{**ASKED, "model": "none"}), code="model_not_found")
    refused(openai.BadRequestError, lambda: create(**{**ASKED, "temperature": "hot"}), param="temperature")
    refused(openai.BadRequestError, lambda: create(**{**ASKED, "messages": [{"role": "user", "content": "word " * 4000}]}), code="context_length_exceeded")
    refused(openai.APITimeoutError, lambda: client.with_options(timeout=0.05).chat.completions.create(**{**ASKED, "max_tokens": 1500}, extra_body={"ignore_eos": True}))
    refused(openai.APIConnectionError, lambda: openai.OpenAI(base_url="http://127.0.0.1:1", api_key="x", max_retries=0).models.list())
    assert [m.id for m in client.models.list()] == ["demo"]
    asks = {"model": "demo", "input": "Tell me of a person.", "temperature": 0, "max_output_tokens": 200}
    plain = client.responses.create(**asks)
    assert plain.status in ("completed", "incomplete") and plain.output_text and plain.usage.input_tokens > 0, plain
    with client.responses.stream(**asks) as stream:
        told = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert told == plain.output_text == stream.get_final_response().output_text, told
    holds(client.responses.parse(**asks, text_format=Person).output_parsed)
    refused(openai.BadRequestError, lambda: client.responses.create(**asks, previous_response_id="resp_1"), param="previous_response_id")
    refused(openai.NotFoundError, lambda: client.responses.create(**{**asks, "model": "none"}), code="model_not_found")


def with_instructor():
    import instructor
    asks = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions
    holds(asks.create(**ASKED, response_model=Person, max_retries=0))
    assert list(asks.create_partial(**ASKED, response_model=Person))[-1].name


def with_langchain_openai():
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(model="demo", base_url=BASE + "/v1", api_key="none", max_retries=0, temperature=0, max_tokens=200)
    holds(chat.with_structured_output(Person).invoke("Tell me of a person."))
    holds(chat.with_structured_output(Person, method="json_schema", strict=True).invoke("Tell me of a person."))
    assert len(chat.batch(["Hi", "Ho"])) == 2


def with_litellm():
    import litellm
    fields = {**ASKED, "model": "openai/demo", "api_base": BASE + "/v1", "api_key": "none", "num_retries": 0}
    holds(Person.model_validate_json(litellm.completion(**fields, response_format=Person).choices[0].message.content))
    holds(Person.model_validate_json(litellm.completion(**{**fields, "model": "ollama_chat/demo", "api_base": BASE}, response_format=Person).choices[0].message.content))
    refused(litellm.ContextWindowExceededError, lambda: litellm.completion(**{**fields, "messages": [{"role": "user", "content": "word " * 4000}]}))


def with_ollama():
    import ollama
    c = ollama.Client(host=BASE)
    assert c.generate("demo").done_reason == "load" and c.chat("demo", keep_alive=0).done_reason == "unload" and c.pull("demo").status == "success"
    holds(Person.model_validate_json(c.chat("demo", ASKED["messages"], format=Person.model_json_schema(), options={"temperature": 0, "num_predict": 200}).message.content))
    refused(ollama.ResponseError, lambda: c.pull("none"), status_code=404)


def with_anthropic():
    import anthropic
    c = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
    listed = c.models.list()
    assert listed.data[0].display_name == "demo" and listed.data[0].created_at and not listed.has_more, listed
    assert c.messages.count_tokens(model="demo", messages=ASKED["messages"]).input_tokens > 0


for name, check in list(globals().items()):
    if name.startswith("with_"):
        try:
            importlib.import_module(name[len("with_"):])
        except ImportError:
            print("#", name[len("with_"):], "is not installed")
            continue
        check()
        print("#", name, "is fine")
"""


def python(folder):
    """A python that has OpenAI's client, and where it finds it."""
    named = os.environ.get("HP_CLIENTS_PYTHON")
    for one in [named] if named else [sys.executable]:
        if subprocess.run([one, "-c", "import openai, pydantic; openai.OpenAI.chat"], capture_output=True).returncode == 0:
            return one, {}
    if named:
        raise AssertionError(f"HP_CLIENTS_PYTHON={named} has no openai")
    try:
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:", "--retries", "0", "--timeout", "10",
                               "--disable-pip-version-check", "--no-cache-dir", "--target", folder, OPENAI], capture_output=True, text=True, timeout=60 * SCALE)
    except subprocess.TimeoutExpired:
        skip("the package index did not give the client within a minute")
    if done.returncode:
        skip("no package index gave the client: " + (done.stderr.strip().splitlines() or [""])[-1][:200])
    return sys.executable, {"PYTHONPATH": folder}


@test
def unmodified_clients_get_answers_of_their_schemas():
    with tempfile.TemporaryDirectory() as folder:
        program, more = python(folder)
        with Cluster(agents=2, cores=1) as c:
            c.deploy("demo")
            run = subprocess.run([program, "-c", SCRIPT, c.http], env={**os.environ, **more, "OPENAI_API_KEY": "none"}, capture_output=True, text=True, timeout=120 * SCALE)
            print(run.stdout, end="")
            assert run.returncode == 0, run.stderr[-2000:]


main()
