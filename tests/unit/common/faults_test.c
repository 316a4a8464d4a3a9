/* The harness of failing allocations itself, and what common/ makes. */
#include <sys/wait.h>

#include "common/cluster.h"
#include "common/fs.h"
#include "common/manifest.h"
#include "common/map.h"
#include "common/opgraph.h"
#include "common/profile.h"
#include "common/vector.h"
#include "common/workload.h"
#include "tests/unit/faults.h"

/* ---- the harness ---- */

static int forgets_the_first_when_the_second_fails(void *ctx)
{
    (void)ctx;
    char *a = malloc(10), *b = a ? malloc(20) : NULL;
    if (!b)
        return HP_ENOMEM; /* a is left behind */
    free(a);
    free(b);
    return 0;
}

static int hides_the_reason(void *ctx)
{
    (void)ctx;
    void *p = calloc(3, 3);
    free(p);
    return p ? 0 : HP_EPARSE;
}

static int asserts(void *ctx)
{
    (void)ctx;
    char *p = strdup("text");
    if (!p)
        abort();
    free(p);
    return 0;
}

static int opens_a_file_and_leaves_it(void *ctx)
{
    (void)ctx;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    void *p = malloc(1);
    if (!p)
        return HP_ENOMEM;
    free(p);
    close(fd);
    return 0;
}

static int holds(void *ctx)
{
    int *runs = ctx;
    ++*runs;
    char *a = malloc(10), *b = strdup("b");
    char *grown = a ? realloc(a, 100) : NULL;
    free(grown ? grown : a);
    free(b);
    return grown && b ? 0 : HP_ENOMEM;
}

/* A child of its own, silent: how it ends. */
static int in_a_child(int (*run)(void *ctx))
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDERR_FILENO);
        _exit(faults_hold("a child", run, NULL) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* These are about every allocation, whatever time there is. */
TEST(what_does_not_bear_a_failing_allocation_is_found)
{
    unsetenv("HP_FAULTS_STEP");
    assert_int_equal(in_a_child(forgets_the_first_when_the_second_fails), 1);
    assert_int_equal(in_a_child(hides_the_reason), 1);
    assert_int_equal(in_a_child(opens_a_file_and_leaves_it), 1);
    assert_int_equal(in_a_child(asserts), -SIGABRT);
}

TEST(what_holds_is_run_twice_for_each_allocation_and_twice_without_any)
{
    int runs = 0;
    unsetenv("HP_FAULTS_STEP");
    faults_each("holds", holds, &runs);
    assert_int_equal(runs, 2 * 3 + 2);
}

/* ---- common/ ---- */

static int arena_and_buffer(void *ctx)
{
    struct arena arena = {0};
    struct buffer b = {0};
    (void)ctx;
    const char *text = arena_printf(&arena, "%d of %s", 3, "a kind");
    void *large = arena_alloc(&arena, 1000, 100);
    for (int i = 0; i < 200; i++)
        buffer_printf(&b, "%d,", i);
    int rc = !text || !large || b.failed ? HP_ENOMEM
             : strcmp(text, "3 of a kind") == 0 && strncmp(buffer_cstr(&b), "0,1,", 4) == 0
                 ? 0
                 : HP_EBUG;
    buffer_free(&b);
    arena_free(&arena);
    return rc;
}

static int vector_pushed(void *ctx)
{
    uint64_t *items = NULL;
    int count = 0, room = 0, rc = 0;
    (void)ctx;
    for (uint64_t i = 0; rc == 0 && i < 20; i++)
        if (!vector_push(items, count, room, i))
            rc = HP_ENOMEM;
    for (int i = 0; i < count; i++)
        if (items[i] != (uint64_t)i)
            rc = HP_EBUG;
    free(items);
    return rc;
}

struct map_item {
    int id;
    UT_hash_handle hh;
};

static int map_filled(void *ctx)
{
    struct map_item items[100], *map = NULL, *found;
    int rc = 0, n = 0;
    (void)ctx;
    for (; rc == 0 && n < 100; n++) {
        items[n].id = n;
        HASH_ADD_INT(map, id, &items[n]);
        if (!map_has_added(&items[n])) {
            rc = HP_ENOMEM;
            break;
        }
    }
    for (int i = 0; i < n; i++) {
        HASH_FIND_INT(map, &i, found);
        if (found != &items[i])
            rc = HP_EBUG;
    }
    HASH_CLEAR(hh, map);
    return rc;
}

static int file_written_and_read(void *ctx)
{
    const char *path = ctx;
    struct err e = {0};
    struct buffer b = {0}, back = {0};
    json_t *root = json_pack("{s:[i,i,i]}", "list", 1, 2, 3), *again = NULL;
    struct json_at at;
    int rc = root ? json_save(root, path, &e) : HP_ENOMEM;
    rc = rc < 0 ? rc : json_load_at(path, &again, &at, &e);
    if (rc == 0 && json_array_size(json_object_get(again, "list")) != 3)
        rc = HP_EBUG;
    json_decref(root);
    json_decref(again);
    buffer_printf(&b, "%d", 12345);
    rc = rc < 0 ? rc : fs_buffer_save(path, &b, &e);
    buffer_free(&b);
    rc = rc < 0 ? rc : fs_file_read(path, 5, &back, &e);
    buffer_free(&back);
    return rc;
}

static int manifest_there_and_back(void *ctx)
{
    struct arena arena = {0};
    struct buffer bytes = {0};
    struct err e = {0};
    struct manifest back;
    struct digest d = digest_of("chunk", 5);
    struct manifest_file file = {"m.gguf", 205};
    struct manifest_head head = {0, 0, {(const uint8_t *)"head", 4}};
    struct manifest_chunk chunk = {0, 200, 5, {d.bytes, DIGEST_BYTES}};
    (void)ctx;
    manifest_encode(
        &(struct manifest){
            .name = "m", .files = {&file, 1}, .heads = {&head, 1}, .chunks = {&chunk, 1}},
        &bytes);
    int rc = bytes.failed ? HP_ENOMEM : manifest_decode(bytes.data, bytes.size, &arena, &back, &e);
    buffer_free(&bytes);
    arena_free(&arena);
    return rc;
}

static const char cluster_text[] =
    "{\"format\": \"hp-cluster/1\", \"nodes\": [{\"name\": \"a\", \"devices\": [{\"name\": "
    "\"cpu\", \"kind\": \"k\", \"memory_bytes\": 1000}],"
    " \"nics\": [{\"name\": \"lo\", \"bandwidth_bytes_per_s\": 1e9, \"latency_s\": 1e-4}]},"
    " {\"name\": \"b\", \"devices\": [{\"name\": \"cpu\", \"kind\": \"k\", \"memory_bytes\": "
    "1000}],"
    " \"nics\": [{\"name\": \"lo\", \"bandwidth_bytes_per_s\": 1e9, \"latency_s\": 1e-4}]}]}";

static int cluster_parsed(void *ctx)
{
    json_t *root = NULL;
    struct json_at at;
    struct cluster c = {0};
    struct err e = {0};
    (void)ctx;
    int rc = json_parse_at("cluster", cluster_text, sizeof cluster_text - 1, &root, &at, &e);
    rc = rc < 0 ? rc : cluster_from_json(&at, &c, &e);
    if (rc == 0)
        cluster_free(&c);
    json_decref(root);
    return rc;
}

static const char profile_text[] =
    "{\"format\": \"hp-profile/1\", \"model\": \"m\", \"batch\": 1, \"layers\": [{\"name\": "
    "\"embed\", \"class\": \"embed\", \"param_bytes\": 10,"
    " \"state_bytes_per_token\": 0, \"output_bytes_per_token\": 4}, {\"name\": \"head\", "
    "\"class\": \"head\", \"param_bytes\": 10,"
    " \"state_bytes_per_token\": 0, \"output_bytes_per_token\": 4}], \"latency\": {\"k\": {"
    "\"embed\": {\"slice\": [1, 2], \"prefix\": [0, 8], \"seconds\": [[1, 2], [3, 4]]}, \"head\": "
    "{\"slice\": [1], \"prefix\": [0], \"seconds\": [[1]]}}}}";

static int profile_parsed(void *ctx)
{
    json_t *root = NULL;
    struct json_at at;
    struct profile p = {0};
    struct err e = {0};
    (void)ctx;
    int rc = json_parse_at("profile", profile_text, sizeof profile_text - 1, &root, &at, &e);
    rc = rc < 0 ? rc : profile_from_json(&at, &p, &e);
    if (rc == 0)
        profile_free(&p);
    json_decref(root);
    return rc;
}

static const char graph_text[] =
    "{\"format\": \"hp-graph/1\", \"host\": {\"buses\": [{\"bandwidth_bytes_per_s\": 10}], "
    "\"devices\": [{\"name\": \"g\", \"memory_bytes\": 9,"
    " \"bus\": 0}]}, \"nodes\": [{\"name\": \"o\", \"kind\": \"op\", \"bytes\": 2, \"exec_s\": "
    "[1], \"host_exec_s\": [2], \"host_read_bytes\": 4},"
    " {\"name\": \"w\", \"kind\": \"param\", \"bytes\": 4}], \"edges\": [[1, 0]]}";

static int graph_parsed(void *ctx)
{
    json_t *root = NULL;
    struct json_at at;
    struct opgraph g = {0};
    struct err e = {0};
    (void)ctx;
    int rc = json_parse_at("graph", graph_text, sizeof graph_text - 1, &root, &at, &e);
    rc = rc < 0 ? rc : opgraph_from_json(&at, &g, &e);
    if (rc == 0)
        opgraph_free(&g);
    json_decref(root);
    return rc;
}

static const char workload_text[] =
    "{\"format\":\"hp-workload/1\",\"models\":[{\"name\":\"a\",\"profile\":\"p/"
    "a.json\",\"weight\":0.5,\"slo_s\":0.1}],\"shares\":{\"L4\":[1,2,4]}}";

static int workload_parsed(void *ctx)
{
    json_t *root = NULL;
    struct json_at at;
    struct workload w = {0};
    struct err e = {0};
    (void)ctx;
    int rc = json_parse_at("workload", workload_text, sizeof workload_text - 1, &root, &at, &e);
    rc = rc < 0 ? rc : workload_from_json(&at, "data", &w, &e);
    if (rc == 0)
        workload_free(&w);
    json_decref(root);
    return rc;
}

TEST(common_bears_failing_allocations)
{
    faults_each("arena and buffer", arena_and_buffer, NULL);
    faults_each("vector", vector_pushed, NULL);
    faults_each("map", map_filled, NULL);
    char path[] = "/tmp/hp-faults-XXXXXX";
    close(mkstemp(path));
    faults_each("file", file_written_and_read, path);
    unlink(path);
    faults_each("manifest", manifest_there_and_back, NULL);
    faults_each("cluster", cluster_parsed, NULL);
    faults_each("profile", profile_parsed, NULL);
    faults_each("graph", graph_parsed, NULL);
    faults_each("workload", workload_parsed, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_bear_a_failing_allocation_is_found),
        cmocka_unit_test(what_holds_is_run_twice_for_each_allocation_and_twice_without_any),
        cmocka_unit_test(common_bears_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
