"""A Hugging Face folder as transformers writes it (model_max_length 10^30) is deployed and answers like the GGUF file of the same model."""
import json
import os

from cluster import Cluster, ROOT
from tap import main, skip, test

SHARED = os.environ.get("HP_SHARED", os.path.join(ROOT, "..", "shared"))


@test
def a_folder_with_the_default_limit_is_deployed_and_answers():
    folder = os.path.join(SHARED, "demo", "hf")
    if not os.path.exists(folder):
        skip("the demo model's folder is not there (HP_SHARED)")
    with open(os.path.join(folder, "tokenizer_config.json")) as f:
        assert json.load(f)["model_max_length"] > 2 ** 64
    with open(os.path.join(SHARED, "demo", "answers.json")) as f:
        answers = json.load(f)
    with Cluster(agents=2, cores=1) as c:
        c.deploy("demo", folder, "--agents", "a0,a1", "--compute", "f32")
        for question, answer in answers[:3]:
            got = c.answer("demo", question, max_tokens=60)
            assert got == answer, (question, got, answer)


main()
