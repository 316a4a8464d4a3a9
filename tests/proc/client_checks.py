"""Client libraries as they are, before the API of a deployment "demo": client_checks.py URL [NAME ..]. Run by a python that has them; those that it has not are left out,
but for those that are named, which must be there. clients_test.py and tests/long/clients.py install them."""
import asyncio
import importlib
import os
import sys
import tempfile
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
    """A person."""
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
    cuba = {**ASKED, "messages": [{"role": "user", "content": "What is the capital of Cuba?"}]}
    whole = client.chat.completions.create(**cuba)
    parts = list(client.chat.completions.create(**cuba, stream=True, stream_options={"include_usage": True}))
    assert "Havana" in whole.choices[0].message.content == "".join(p.choices[0].delta.content or "" for p in parts if p.choices), (whole, parts)
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens > 0, (whole.usage, parts[-1].usage)
    told = client.chat.completions.create(**{**ASKED, "max_tokens": 2}, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(told) == 2 and all(x.logprob <= 0 and len(x.top_logprobs) == 2 for x in told), told
    scored = client.completions.create(model="demo", prompt=["A b", "c"], max_tokens=0, echo=True, logprobs=1).choices
    assert [x.text for x in scored] == ["A b", "c"] and scored[0].logprobs.token_logprobs[0] is None, scored
    create = client.chat.completions.create
    refused(openai.NotFoundError, lambda: create(**{**ASKED, "model": "none"}), code="model_not_found")
    refused(openai.BadRequestError, lambda: create(**{**ASKED, "temperature": "hot"}), param="temperature")
    refused(openai.BadRequestError, lambda: create(**{**ASKED, "messages": [{"role": "user", "content": "word " * 4000}]}), code="context_length_exceeded")
    refused(openai.BadRequestError, lambda: client.embeddings.create(model="demo", input="a text"))
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
    import langchain_core.exceptions
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(model="demo", base_url=BASE + "/v1", api_key="none", max_retries=0, temperature=0, max_tokens=200)
    holds(chat.with_structured_output(Person).invoke("Tell me of a person."))
    holds(chat.with_structured_output(Person, method="json_schema", strict=True).invoke("Tell me of a person."))
    assert len(chat.batch(["Hi", "Ho"])) == 2
    refused(langchain_core.exceptions.ContextOverflowError, lambda: chat.invoke("word " * 4000))


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
    cuba = {"model": "demo", "options": {"temperature": 0, "num_predict": 40}}
    asked = [{"role": "user", "content": "What is the capital of Cuba?"}]
    whole = c.chat(messages=asked, **cuba)
    assert "Havana" in whole.message.content and whole.done_reason == "stop" and whole.eval_count > 0, whole
    assert "".join(p.message.content for p in c.chat(messages=asked, stream=True, **cuba)) == whole.message.content
    assert "".join(p.response for p in c.generate(prompt=asked[0]["content"], stream=True, **cuba)) == whole.message.content
    assert [m.model for m in c.list().models] == ["demo"] == [m.model for m in c.ps().models] and c.show("demo").template, (c.list(), c.ps())
    for m in (*c.list().models, *c.ps().models):  # what `ollama ls` and `ollama ps` show
        assert len(m.digest) > 12 and m.size > 0 and m.details.family == "llama" and m.details.parameter_size and m.details.quantization_level, m
    refused(ollama.ResponseError, lambda: c.embed("demo", "a text"), status_code=400)


def with_anthropic():
    import anthropic
    c = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
    listed = c.models.list()
    assert listed.data[0].display_name == "demo" and listed.data[0].created_at and not listed.has_more, listed
    assert c.messages.count_tokens(model="demo", messages=ASKED["messages"]).input_tokens > 0
    cuba = {"model": "demo", "max_tokens": 40, "extra_body": {"temperature": 0}, "messages": [{"role": "user", "content": "What is the capital of Cuba?"}]}
    whole = c.messages.create(**cuba)
    assert "Havana" in whole.content[0].text and whole.stop_reason == "end_turn" and whole.usage.output_tokens > 0 and whole._request_id, whole
    with c.messages.stream(**cuba) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text == stream.get_final_text()
    assert c.messages.create(**cuba, stop_sequences=["Hav"]).stop_sequence == "Hav"
    refused(anthropic.NotFoundError, lambda: c.messages.create(**{**cuba, "model": "none"}), status_code=404)
    refused(anthropic.BadRequestError, lambda: c.messages.create(**{**cuba, "max_tokens": 0}), status_code=400)


def with_llm():
    import llm
    with open(os.path.join(os.environ["LLM_USER_PATH"], "extra-openai-models.yaml"), "w") as f:
        f.write(f"- model_id: hp\n  model_name: demo\n  api_base: {BASE}/v1\n  supports_schema: true\n- model_id: hp-text\n  model_name: demo\n  api_base: {BASE}/v1\n  completion: true\n")
    model, text = llm.get_model("hp"), llm.get_model("hp-text")
    cuba = {"prompt": "What is the capital of Cuba?", "temperature": 0, "max_tokens": 40, "key": "none"}
    assert "Havana" in model.prompt(**cuba, stream=False).text() and "Havana" in "".join(model.prompt(**cuba))
    talk = model.conversation()
    assert "Havana" in talk.prompt(**cuba).text() and "Lima" in talk.prompt(**{**cuba, "prompt": "What is the capital of Peru?"}).text()
    holds(Person.model_validate_json(model.prompt("Tell me of a person.", schema=Person, temperature=0, max_tokens=200, key="none").text()))
    assert text.prompt("The capital of", temperature=0, max_tokens=5, key="none").text()
    refused(openai.NotFoundError, lambda: llm_of_nobody(llm).prompt("Hi", key="none").text())


def llm_of_nobody(llm):
    from llm.default_plugins.openai_models import Chat
    return Chat("nobody", model_name="none", api_base=BASE + "/v1")


def with_llama_index():
    from llama_index.core.llms import ChatMessage
    from llama_index.core.prompts import PromptTemplate
    from llama_index.llms.openai_like import OpenAILike
    fields = dict(model="demo", api_base=BASE + "/v1", api_key="none", temperature=0, max_tokens=200, context_window=2048, max_retries=0)
    chat, text = OpenAILike(is_chat_model=True, should_use_structured_outputs=True, **fields), OpenAILike(**{**fields, "max_tokens": 8})
    cuba = [ChatMessage(role="user", content="What is the capital of Cuba?")]
    assert "Havana" in str(chat.complete(cuba[0].content)) and "Havana" in str(chat.chat(cuba))
    assert "Havana" in "".join(r.delta for r in chat.stream_chat(cuba)) and "Havana" in str(asyncio.run(chat.achat(cuba)))
    assert str(text.complete("The capital of")) == "".join(r.delta for r in text.stream_complete("The capital of"))
    holds(chat.structured_predict(Person, PromptTemplate("Tell me of a person.")))


def refusals(key):
    """Of a deployment "late" that promises first tokens within a millisecond, on a cluster that needs this key."""
    refused(openai.AuthenticationError, lambda: client.models.list(), status_code=401)
    known = client.with_options(api_key=key)
    assert {m.id for m in known.models.list()} == {"demo", "late"}
    for i in range(20):  # until the second comes while the first runs
        asks = [{"model": "late", "messages": [{"role": "user", "content": f"{i} {j} What is it? " * 100}]} for j in range(2)]
        with known.chat.completions.create(**asks[0], stream=True, max_tokens=600, extra_body={"ignore_eos": True}) as runs:
            next(iter(runs))
            try:
                known.chat.completions.create(**asks[1], max_tokens=1)
            except openai.RateLimitError as e:
                assert e.status_code == 429 and int(e.response.headers["retry-after"]) >= 1, e
                break
    else:
        raise AssertionError("no RateLimitError")
    refused(openai.PermissionDeniedError, lambda: known.with_options(default_headers={"Origin": "http://elsewhere.example"}).models.list(), status_code=403)
    refused(openai.InternalServerError, lambda: known.chat.completions.create(**{**ASKED, "model": "gone"}), status_code=503)


if sys.argv[2:3] == ["refusals"]:
    refusals(sys.argv[3])
    sys.exit()
needed = sys.argv[2:]
for function, check in list(globals().items()):
    if function.startswith("with_"):
        name = function[len("with_"):]
        try:
            importlib.import_module(name)
        except ImportError as e:
            assert name not in needed, (name, e)
            print("#", name, "is not installed")
            continue
        with tempfile.TemporaryDirectory() as os.environ["LLM_USER_PATH"]:
            check()
        print("#", name, "is fine", flush=True)
