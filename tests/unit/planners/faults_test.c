/* Plans, with every allocation failing once. The coordinator makes pipeline plans while it serves.
 */
#include "planners/pipeline/pipeline.h"
#include "tests/unit/faults.h"

static struct cluster cluster;
static struct profile profile;

static void read_text(const char *text, struct cluster *c, struct profile *p)
{
    json_t *root;
    struct json_at at;
    struct err e = {0};
    if (json_parse_at("text", text, strlen(text), &root, &at, &e) < 0 ||
        (c ? cluster_from_json(&at, c, &e) : profile_from_json(&at, p, &e)) < 0)
        fail_msg("%s", e.text);
    json_decref(root);
}

static int open_bed(void **state)
{
    (void)state;
    read_text("{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"a\", \"devices\": "
              "[{\"name\": \"g0\", \"kind\": \"fast\", \"memory_bytes\": 1000},"
              "{\"name\": \"g1\", \"kind\": \"slow\", \"memory_bytes\": 1000}], \"device_link\": "
              "{\"bandwidth_bytes_per_s\": 1000},"
              "\"nics\": [{\"bandwidth_bytes_per_s\": 100}]}, {\"name\": \"b\", \"devices\": "
              "[{\"name\": \"g0\", \"kind\": \"fast\","
              "\"memory_bytes\": 1000}], \"nics\": [{\"bandwidth_bytes_per_s\": 100}]}]}",
              &cluster, NULL);
    read_text(
        "{\"format\": \"hp-profile/1\", \"batch\": 1, \"layers\": ["
        "{\"class\": \"c\", \"param_bytes\": 100, \"state_bytes_per_token\": 1, "
        "\"output_bytes_per_token\": 1},"
        "{\"class\": \"c\", \"param_bytes\": 100, \"state_bytes_per_token\": 1, "
        "\"output_bytes_per_token\": 1},"
        "{\"class\": \"c\", \"param_bytes\": 100, \"state_bytes_per_token\": 1, "
        "\"output_bytes_per_token\": 1}],"
        "\"latency\": {\"fast\": {\"c\": {\"slice\": [1, 100], \"prefix\": [0], \"seconds\": "
        "[[0.1], [10]]}},"
        "\"slow\": {\"c\": {\"slice\": [1, 100], \"prefix\": [0], \"seconds\": [[0.2], [20]]}}}}",
        NULL, &profile);
    return 0;
}

static int close_bed(void **state)
{
    (void)state;
    cluster_free(&cluster);
    profile_free(&profile);
    return 0;
}

static int pipeline_made(void *ctx)
{
    struct pipeline_request rq = {.cluster = &cluster,
                                  .profile = &profile,
                                  .tokens = 8,
                                  .unit = 4,
                                  .method = *(const enum pipeline_method *)ctx};
    struct pipeline_answer answer = {0};
    struct arena arena = {0};
    struct err e = {0};
    int rc = pipeline_plan_make(&rq, &arena, &answer, &e);
    if (rc == 0 && (!json_object_get(answer.document, "stages") ||
                    !json_object_get(answer.document, "slices")))
        rc = HP_EBUG; /* half a plan */
    json_decref(answer.document);
    arena_free(&arena);
    return rc;
}

static void pipelines_bear_failing_allocations(void **state)
{
    static const enum pipeline_method methods[] = {PIPELINE_EXACT, PIPELINE_HPIPE, PIPELINE_EVEN};
    (void)state;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        faults_each(pipeline_method_names[methods[i]], pipeline_made,
                    (void *)(uintptr_t)&methods[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pipelines_bear_failing_allocations)};
    return cmocka_run_group_tests(tests, open_bed, close_bed);
}
